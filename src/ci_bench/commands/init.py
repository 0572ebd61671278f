"""`init`: write a repository's configuration, workflow and example, or report stale entries.

Nothing of the repository is imported or run, and no file is overwritten.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from ci_bench.checkouts.git import top_of
from ci_bench.command_line.settings import Starting
from ci_bench.commands.config_files import nearly
from ci_bench.commands.output import say, tell
from ci_bench.configuration.config import load_config, parse
from ci_bench.errors import BadConfig, CannotWrite, ExitCode
from ci_bench.starting.proposal import CONFIG, MINUTES_A_CASE, WORKFLOW, Proposal, propose
from ci_bench.starting.proposal import EXAMPLES as EXAMPLE_WORKFLOWS
from ci_bench.starting.stale import stale_entries, stale_workflows, uses_ci_bench
from ci_bench.starting.survey import read_text, survey
from ci_bench.suites.registry import plugin_forms

WORKFLOWS = ".github/workflows"
OTHER_WORKFLOW = f"{WORKFLOWS}/ci-bench-gate.yml"
"""The workflow's name if another one has the usual name."""
EXAMPLES = ("benchmarks/example.py", "benchmarks/ci_bench_example.py")
MOST_SHOWN = 20


def init(settings: Starting) -> int:
    """Write the missing files, and print what a gate would measure.

    With `check`, report what has gone stale.
    """
    root = top_of(settings.here)
    repository = survey(root)
    if settings.check:
        findings = list(_stale(root, repository))
        say("".join(f"stale: {finding}\n" for finding in findings) or "nothing has gone stale\n")
        return int(ExitCode.POLICY_NOT_MET if findings else ExitCode.OK)

    example = next((name for name in EXAMPLES if not (root / name).exists()), EXAMPLES[-1])
    proposal = propose(repository, _example_workflow(), example)
    written = _write(root, proposal)
    if written:
        _describe(proposal)
    return int(ExitCode.OK)


def _example_workflow() -> str:
    return files("ci_bench").joinpath("workflows", "pull-request.yml").read_text(encoding="utf-8")


def _write(root: Path, proposal: Proposal) -> list[str]:
    """Write the missing files; return the paths of those that were written."""
    reasons = _in_the_way(root)
    written = []
    for usual, text in proposal.files.items():
        name = usual
        if (
            usual == WORKFLOW
            and CONFIG in written
            and WORKFLOW not in reasons
            and _is_there(root / WORKFLOW)
        ):
            tell(f"{WORKFLOW} does not use ci-bench and is not changed")
            name = OTHER_WORKFLOW
        there = reasons.get(name, reasons.get(CONFIG) if name in EXAMPLES else None) or (
            "exists" if _is_there(root / name) else None
        )
        if there:
            tell(
                f"{name} is not written: {there}"
                if there != "exists"
                else f"{name} exists and is not changed"
            )
            continue
        _create(root, name, text)
        written.append(name)
        tell(f"wrote {name}")
    if not written:
        tell("nothing to write; `ci-bench init --check` reports what has gone stale")
    return written


def _in_the_way(root: Path) -> dict[str, str]:
    """Return reasons not to write a file, by its path.

    Another file has its name, or serves its purpose.
    """
    reasons = {}
    with suppress(OSError):
        if near := nearly([path.name for path in root.iterdir() if path.is_file()]):
            reasons[CONFIG] = f"{near} is there; rename it to {CONFIG}"
    if _is_there(root / CONFIG):
        reasons[CONFIG] = "exists"
    if user := next(
        (file for file, workflow in _workflows(root).items() if uses_ci_bench(workflow)), None
    ):
        reasons[WORKFLOW] = "exists" if user == WORKFLOW else f"{user} uses ci-bench"
    return reasons


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _create(root: Path, name: str, text: str) -> None:
    """Write a new file below the root.

    Raises `CannotWrite`, also if a folder on the way is a symbolic link.
    """
    path = root / name
    linked = [
        folder
        for folder in path.parents
        if folder.is_relative_to(root) and folder != root and folder.is_symlink()
    ]
    try:
        if linked:
            raise CannotWrite(
                f"{name} is not written: {linked[0].relative_to(root)} is a symbolic link"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise CannotWrite(
            f"{path}: cannot be written: {error.strerror}; check the folder's permissions"
        ) from error


def _describe(proposal: Proposal) -> None:
    """Print what a gate measures, about how long it takes, and the next step."""
    say("\nEach pull request measures, on base and head in turns:\n")
    words = [f"  {entry.suite:9} {line}\n" for entry in proposal.entries for line in entry.words]
    say(
        "".join(words[:MOST_SHOWN])
        + (f"  … and {len(words) - MOST_SHOWN} more\n" if len(words) > MOST_SHOWN else "")
    )
    minutes, least = proposal.cases * MINUTES_A_CASE, "case" if proposal.cases == 1 else "cases"
    more = ", plus ten runs of each training script" if proposal.trains else ""
    say(f"At least {proposal.cases} {least}: allow about {minutes} min on two CPU cores{more}.\n")
    for remark in proposal.remarks[:MOST_SHOWN]:
        tell(f"note: {remark}")
    say(
        "\nNext: `ci-bench list` imports the benchmarks and prints each case, `ci-bench gate`"
        " measures them here.\nThen commit the files. The workflow skips pull requests from forks;"
        f" fork-bench.yml and fork-report.yml in\n{EXAMPLE_WORKFLOWS} measure those, too.\n"
    )


def _stale(root: Path, repository: Any) -> Iterator[str]:
    """Yield the stale entries. Raises `BadConfig` if the configuration cannot be read."""
    text = read_text(root / CONFIG)
    if text is None:
        raise BadConfig(f"no {CONFIG} in {root}; `ci-bench init` writes one")
    load_config(root / CONFIG, more_suites=plugin_forms(), tree=(root, root / "src"))
    raw: Mapping[str, Any] = parse(text).value
    exists: Callable[[str], bool] = partial(_is_below, root)
    yield from stale_entries(raw, repository, exists)
    yield from stale_workflows(_workflows(root), raw, exists)


def _is_below(root: Path, path: str) -> bool:
    with suppress(OSError, ValueError):
        return (root / path).exists()
    return False


def _workflows(root: Path) -> dict[str, Any]:
    """Return the repository's parsed workflows by path, without unreadable ones."""
    folder = root / WORKFLOWS
    with suppress(OSError):
        names = sorted(path.name for path in folder.iterdir() if path.suffix in {".yml", ".yaml"})
        texts = {f"{WORKFLOWS}/{name}": read_text(folder / name) for name in names}
        return {file: parse(text).value for file, text in texts.items() if text is not None}
    return {}
