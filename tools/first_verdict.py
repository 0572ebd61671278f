"""Runs the steps of docs/getting-started.md as a new user would, and times each.

It works in an empty folder, with the page as it is.

python3 tools/first_verdict.py PACKAGES    with the packages of `release_packages.py build`,
installed from an index of their own
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import release_packages

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "getting-started.md"
SECTION = re.compile(r"^## A first verdict\n(.*?)^## ", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(
    r"(?:`(\S+\.py)`:\n\n)?^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
IN_FIVE_MINUTES_S = 300.0
LINES = 10
"""The most lines of a user's own that a benchmark may take."""
FROM_GITHUB = " @ git+https://github.com/ci-bench/ci-bench"
"""Left out of the page's line for pip: the package comes from the index that pip is set to."""
NO_IDENTITY = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "user.useConfigOnly",
    "GIT_CONFIG_VALUE_0": "true",
}
"""Git as on a new machine: it knows no name and no address, and guesses none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A command of the page, and its outcome."""

    command: str
    seconds: float
    code: int
    output: str


def blocks(page: str) -> Iterator[tuple[str | None, str]]:
    """Yield the page's files (name and text) and commands (`None` and text), in its order."""
    for name, language, body in BLOCK.findall(SECTION.findall(page)[0]):
        if language == "python":
            yield name, body
        else:
            yield from (
                (None, line.removeprefix("$ "))
                for line in body.splitlines()
                if line.startswith("$ ")
            )


def follow(
    page: str,
    folder: Path,
    environ: Mapping[str, str],
    installed: Callable[[Path], None] | None = None,
) -> list[Step]:
    """Write the files and run the commands; return each command with its time and output.

    Commands share one shell's state: after the environment is made, it is on the path.

    The home folder is new, and git has no identity.

    `installed` is called with the new environment when pip is done with it.
    """
    steps: list[Step] = []
    (home := folder.with_name(f"{folder.name}-home")).mkdir()
    inherited = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("GIT_AUTHOR_", "GIT_COMMITTER_"))
    }
    variables = {
        **inherited,
        **NO_IDENTITY,
        "HOME": str(home),
        "PATH": f"{folder / '.venv' / 'bin'}:{environ['PATH']}",
    }
    for name, text in blocks(page):
        if name is not None:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
            continue
        start = time.monotonic()
        command = ["bash", "-c", text.replace(FROM_GITHUB, "")]
        done = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, text=True, check=False
        )
        steps.append(
            Step(
                command=text,
                seconds=time.monotonic() - start,
                code=done.returncode,
                output=done.stdout + done.stderr,
            )
        )
        if installed is not None and text.startswith("pip install"):
            installed(folder / ".venv")
    return steps


def lines(page: str) -> int:
    """Count the lines of the page's benchmark that a user writes."""
    return sum(
        bool(line.strip())
        for name, text in blocks(page)
        if name and "benchmarks" in name
        for line in text.splitlines()
    )


def complaint(steps: list[Step]) -> str | None:
    """Return the first deviation from the page, or `None`.

    Every command succeeds except the first gate, which fails for the injected slowdown.
    """
    first = next((step for step in steps if step.command.startswith("ci-bench gate")), None)
    for step in steps:
        if step is first:
            if step.code != 1 or not re.search(r"step time [\d.]+ % slower", step.output):
                return f"{step.command}: exit code {step.code}, {step.output[-1500:]}"
        elif step.code:
            return f"{step.command}: exit code {step.code}, {step.output[-1500:]}"
    return "the page asks for no verdict" if first is None else None


def main(packages: Path) -> None:
    """Do it with pip as it is set here, and print what each step took."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        release_packages.index(packages, release_packages.behind()) as (address, served),
    ):
        environ = {
            **release_packages.plain_environment(),
            "PIP_INDEX_URL": address,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        (folder := Path(scratch, "new")).mkdir()
        steps = follow(PAGE.read_text(encoding="utf-8"), folder, environ)
    release_packages.check_served(served)
    for step in steps:
        sys.stdout.write(f"{step.seconds:6.1f} s  {step.command}\n")
    total = sum(step.seconds for step in steps)
    sys.stdout.write(f"{total:6.1f} s in all\n")
    wrong = complaint(steps) or (
        None if total < IN_FIVE_MINUTES_S else f"it took {total:.0f} s, longer than five minutes"
    )
    if wrong:
        raise release_packages.Wrong(wrong)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]).resolve())
    except release_packages.Wrong as wrong:
        sys.exit(f"first verdict: {wrong}")
