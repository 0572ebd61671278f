"""Find packages that a side installed but could not import: the engine's environment hides them.

An editable install by setuptools may be a hook behind the ordinary search. An installed copy in the
engine's environment then wins; both sides would run that copy, and be found equal. Run as
``python -m ci_bench.checkouts.overlap ENV SITE…`` by the side's interpreter, so the answer is
what its workers would find.
"""

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path

from ci_bench.processes.users import started_as

TIMEOUT_S = 120.0
ANSWER = "ci-bench-overlap: "
"""The prefix of the line that counts, among the output of a side's start-up hooks."""


def find_shadowed(
    venv: Path,
    sites: Sequence[Path],
    environ: Mapping[str, str],
    folder: Path,
    user: int | None = None,
) -> str | None:
    """Ask the side's interpreter, which runs as `user`; return the fault, or `None`."""
    command = [
        str(venv / "bin" / "python"),
        "-P",
        "-m",
        "ci_bench.checkouts.overlap",
        str(venv),
        *map(str, sites),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env=environ,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            **started_as(user),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"this side's interpreter no longer starts after set-up: {error}"
    answer = next((line for line in done.stdout.splitlines() if line.startswith(ANSWER)), None)
    if done.returncode or answer is None:
        return (
            f"this side's interpreter no longer works after set-up: {done.stderr.strip()[-1000:]}"
        )
    shadowed = json.loads(answer.removeprefix(ANSWER))
    if not shadowed:
        return None
    names = ", ".join(f"{name} ({place})" for name, place in list(shadowed.items())[:5])
    return (
        f"set-up installed packages, but importing them finds the engine's copies: {names};"
        " uninstall those from the engine's environment, or install without `-e`"
    )


def shadowed(packages: str, sites: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Yield each name that a distribution in `packages` provides but a site hides.

    With the place in `sites` that hides it.
    """
    for distribution in distributions(path=[packages]):
        for name in _top_level(distribution):
            spec = None
            with suppress(ImportError, ValueError, AttributeError):
                spec = find_spec(name)
            place = Path((spec.origin if spec else None) or "/")
            if any(place.is_relative_to(site) for site in sites):
                yield name, str(place)


def _top_level(distribution: Distribution) -> list[str]:
    return (distribution.read_text("top_level.txt") or "").split()


if __name__ == "__main__":
    base, *others = sys.argv[1:]
    purelib = sysconfig.get_path("purelib", "venv", vars={"base": base, "platbase": base})
    sys.stdout.write(f"\n{ANSWER}{json.dumps(dict(shadowed(purelib, [*map(Path, others)])))}\n")
