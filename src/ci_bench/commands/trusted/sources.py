"""Sources of the trusted half: machines' documents, the base branch's configuration, the baseline.

All of it comes through the API, and none of it from the pull request's statements about itself.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from ci_bench.command_line.settings import Publishing
from ci_bench.commands.baseline_files import read_baseline
from ci_bench.commands.judging import Baseline
from ci_bench.commands.trusted.machine_results import (
    DOCUMENTS,
    RESULTS,
    MeasuredMachine,
    complaint_about,
    unpack,
    write_bytes,
)
from ci_bench.configuration.config import load_config, parse
from ci_bench.errors import (
    BadConfig,
    BadDocument,
    BadInput,
    GitHubFailed,
    GitHubMissing,
    MeasuringFailed,
)
from ci_bench.github.archive import Contents, UnsafeArchive
from ci_bench.github.artifacts import Artifact, download, of_run
from ci_bench.github.baseline import (
    FARTHEST,
    Absence,
    FoundBaseline,
    NoBaseline,
    WantedBaseline,
    find_baseline,
)
from ci_bench.github.client import Client
from ci_bench.github.commits import branch_point
from ci_bench.github.context import EventContext
from ci_bench.github.pulls import NoPullRequest, PullRequest
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Config
from ci_bench.report.text import code
from ci_bench.suites.registry import BUILT_IN

_LIKELY = (
    "ci-bench.yml",
    "ci-bench.yaml",
    ".ci-bench.yml",
    ".ci-bench.yaml",
    "cibench.yml",
    ".github/ci-bench.yml",
)
_MOST_OF_ONE_NAME = 5
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishContext:
    """Context of every step."""

    client: Client
    """GitHub's API for the repository."""
    context: EventContext
    """Event of the workflow: its commit, branches and run."""
    pull: PullRequest | NoPullRequest | None
    """Pull request, or why it is missing; `None` if it is not looked up."""
    settings: Publishing
    """Flags of the command."""
    folder: str | None = None
    """Folder in the output for a further pull request; `None` for the first or only one."""

    @property
    def output(self) -> Path:
        """The folder for all written files."""
        return Path(self.settings.output, self.folder or "")

    @property
    def base_branch(self) -> str | None:
        """The branch with the rules; `None` for the repository's default branch."""
        return (
            self.pull.base_branch
            if isinstance(self.pull, PullRequest)
            else self.context.base_branch
        )

    @property
    def base_sha(self) -> str | None:
        """The commit of that branch that head was made for."""
        return self.pull.base_sha if isinstance(self.pull, PullRequest) else self.context.base_sha


def find_machines(publishing: PublishContext, config: Config) -> list[MeasuredMachine]:
    """Return the machines' documents from the named folders, or else from artifacts of the run.

    That is the run that measured.

    Raises `GitHubFailed`, and `BadInput` if there are several machines and none was selected.
    """
    settings, run = publishing.settings, publishing.context.run.id
    if settings.folders:
        return _folders(publishing, config)
    pattern, names = settings.artifact, _machines(publishing, config)
    artifacts: dict[str, list[Artifact]] = {}
    for artifact in of_run(publishing.client, run, pattern):
        artifacts.setdefault(artifact.name, []).append(artifact)
    expected = {pattern.replace("*", name): name or None for name in names or ("",)}
    strange = sorted({*artifacts} - {*expected})
    if strange:
        raise BadInput(
            f"run {run} has left artifacts of undeclared machines: {', '.join(strange[:5])};"
            " declare them (`machines:`), or exclude them from the pattern"
        )
    machines = [
        replace(machine, declared=declared)
        for name, declared in expected.items()
        if name in artifacts
        for machine in _of_one_name(publishing, artifacts[name])
    ]
    for name in [name for name in expected if name not in artifacts]:
        reason = (
            f"run {run} has left no artifact {name}, which is expected; look at the log of the job"
            " that measures"
        )
        machines.append(
            MeasuredMachine(name=name, folder=publishing.output, fault=MeasuringFailed(reason))
        )
    return machines


def _machines(publishing: PublishContext, config: Config) -> tuple[str, ...]:
    """Return the names of the machines; none means a single machine.

    The base branch's configuration declares them, or else the workflow that reports.
    """
    declared, selected, pattern = (
        tuple(config.machines),
        tuple(publishing.settings.machines or ()),
        publishing.settings.artifact,
    )
    if declared and selected and {*declared} != {*selected}:
        raise BadInput(
            f"--machines names {', '.join(selected)}, and the base branch's configuration declares"
            f" {', '.join(declared)}"
        )
    names = declared or selected
    if names and "*" not in pattern:
        raise BadInput(
            f"{len(names)} machines are declared ({', '.join(names)}), and --artifact {pattern} has"
            " no * for their names"
        )
    if "*" in pattern and not names:
        raise BadInput(
            f"--artifact {pattern} matches several machines, but none are declared: name them under"
            " `machines:` in the base branch's configuration, or with --machines"
        )
    return names


def is_part(publishing: PublishContext, config: Config) -> bool:
    """Return whether this job measured one of several machines, and another job sets the check."""
    settings = publishing.settings
    return settings.measures_only and len(settings.machines or config.machines) > len(
        settings.folders
    )


def _folders(publishing: PublishContext, config: Config) -> list[MeasuredMachine]:
    """Read folders of this very job.

    It measures on one machine; another job sets the check of several.
    """
    folders = publishing.settings.folders
    names = [folder.resolve().name for folder in folders]
    unique = (
        names
        if len({*names}) == len(names)
        else [f"{index + 1}-{name}" for index, name in enumerate(names)]
    )
    machines = [
        MeasuredMachine(name=name, folder=folder)
        for name, folder in zip(unique, folders, strict=True)
    ]
    declared = tuple(publishing.settings.machines or config.machines)
    if len(declared) > len(machines) and not publishing.settings.measures_only:
        missing = (
            f"{len(declared)} machines are declared ({', '.join(declared)}), and these are the"
            f" results of {len(machines)}"
        )
        machines.append(
            MeasuredMachine(
                name="missing",
                folder=publishing.output,
                fault=MeasuringFailed(f"{missing}; let one job publish for all"),
            )
        )
    return machines


def _of_one_name(publishing: PublishContext, artifacts: list[Artifact]) -> list[MeasuredMachine]:
    """Read the artifacts of one name.

    Those of earlier attempts are left out; of two jobs of this attempt both are judged.
    """
    machines = [
        replace(
            _download(publishing, artifact, number),
            name=f"{artifact.name} ({number})" if number > 1 else artifact.name,
        )
        for number, artifact in enumerate(artifacts[:_MOST_OF_ONE_NAME], start=1)
    ]
    left_out = len(artifacts) - len(machines)
    if left_out:
        reason = (
            f"the run has left {len(artifacts)} artifacts of one name ({artifacts[0].name}): give"
            " each job a separate name"
        )
        machines.append(
            MeasuredMachine(name="too many", folder=publishing.output, fault=BadDocument(reason))
        )
    newest = [
        machine
        for machine in machines
        if not _is_of_earlier_attempt(machine, publishing.context.run.attempt)
    ]
    return newest or machines[:1]


def _is_of_earlier_attempt(machine: MeasuredMachine, attempt: int) -> bool:
    recorded = machine.attempt()
    return recorded is not None and recorded < attempt


def _download(publishing: PublishContext, artifact: Artifact, number: int) -> MeasuredMachine:
    """Download the documents of one artifact into a folder.

    `number` counts the artifacts of its name.
    """
    name = (
        artifact.name
        if number == 1 and _FOLDER.fullmatch(artifact.name)
        else f"artifact-{artifact.id}"
    )
    folder = publishing.output / "machines" / name
    try:
        unpack(download(publishing.client, artifact, Contents(members=DOCUMENTS)), folder)
    except UnsafeArchive as error:
        return MeasuredMachine(
            name=name,
            folder=folder,
            fault=BadDocument(f"the artifact {name} cannot be read: {error}"),
        )
    except GitHubMissing:
        return MeasuredMachine(
            name=name,
            folder=folder,
            fault=MeasuringFailed(f"the artifact {name} has expired or was deleted"),
        )
    return MeasuredMachine(name=name, folder=folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgingConfig:
    """The configuration to judge by, and notes on it for a reader, in Markdown.

    `waits` is a sentence if the base branch has none: the configuration is head's own then, which
    may fail head and never pass it.
    """

    config: Config
    notes: tuple[str, ...] = ()
    waits: str = ""


def base_config(publishing: PublishContext) -> JudgingConfig:
    """Read the configuration to judge by.

    A named file counts as the base branch's. Otherwise it is fetched from there, and a pull request
    that changes it gets a note that its own is not used. Raises `GitHubFailed` and `BadConfig`.
    """
    settings, branch = publishing.settings, publishing.base_branch
    if settings.config is not None:
        return JudgingConfig(config=_read_config(settings.config))
    shown, where = (
        code(settings.config_path),
        ("the default branch" if branch is None else code(branch)),
    )
    ours, waits = _of_base(publishing)
    theirs = None if waits else fetch_file(publishing, publishing.context.head.sha)
    differs = f"_Judged by {shown} of {where}: this branch's own is different, and not used._"
    notes = (differs,) if theirs not in {None, ours} else ()
    path = publishing.output / "base-branch" / "ci-bench.yml"
    write_bytes(path, ours)
    return JudgingConfig(config=_read_config(path), notes=notes, waits=waits)


def keep_config(publishing: PublishContext, path: Path) -> tuple[str, str]:
    """Write the configuration to measure by to `path`; return its origin, and why it is not base's.

    The second text is empty if it is the base branch's. Raises `GitHubFailed`, and `BadConfig` if
    it is invalid: rather before measuring than after.
    """
    path.unlink(missing_ok=True)
    content, waits = _of_base(publishing)
    write_bytes(path, content)
    _read_config(path)
    whose = "this commit" if waits else publishing.base_branch or "the default branch"
    return f"{publishing.settings.config_path} of {whose}", waits


def _of_base(publishing: PublishContext) -> tuple[bytes, str]:
    """Return the base branch's configuration, or else head's own with a sentence about that.

    Raises:
        BadConfig: head lacks it, too; the path is wrong.
    """
    branch, path = publishing.base_branch, publishing.settings.config_path
    if (ours := fetch_file(publishing, branch)) is not None:
        return ours, ""
    where = "the default branch" if branch is None else branch
    if (theirs := fetch_file(publishing, publishing.context.head.sha)) is not None:
        return theirs, f"{where} has no {path}"
    others = [
        name
        for name in _LIKELY
        if name != path and fetch_file(publishing, branch, name) is not None
    ]
    meant = (
        f"; did you mean {others[0]!r}?"
        if others
        else "; correct config_path, or add the file: `ci-bench init` writes one"
    )
    raise BadConfig(f"{path}: neither {where} nor this commit has such a file{meant}")


def fetch_file(
    publishing: PublishContext, ref: str | None, path: str | None = None
) -> bytes | None:
    """Return the configuration, or the file at `path`, at a branch or commit, or `None`."""
    try:
        return publishing.client.raw(
            f"contents/{quote(path or publishing.settings.config_path)}",
            {"ref": ref} if ref else None,
        )
    except GitHubMissing:
        return None


def _read_config(path: Path | None) -> Config:
    """Read a configuration; its suites may be plugins, which only measuring needs installed."""
    if path is None or not path.exists():
        return load_config(path)
    value = parse(path.read_text(encoding="utf-8-sig", errors="replace")).value
    suites = value.get("suites") if isinstance(value, dict) else None
    foreign = {str(name) for name in suites} - {*BUILT_IN} if isinstance(suites, dict) else set()
    return load_config(path, more_suites={name: {"type": "object"} for name in foreign})


def baseline_finder(publishing: PublishContext) -> Callable[[MeasuredMachine], Baseline] | None:
    """Return a search for a machine's baseline; `None` if it is the machine's own base side."""
    settings = publishing.settings
    if settings.baseline == "paired":
        return None
    if settings.baseline == "none":
        return lambda _: Baseline(mode=BaselineMode.NONE, absence="none was requested")
    if settings.fetched is not None:
        return lambda _: read_baseline(settings.fetched, is_artifact=True)

    def look(machine: MeasuredMachine) -> Baseline:
        folder = publishing.output / "baselines" / machine.name
        baseline = search(
            publishing,
            _baseline_name(machine.name, settings.artifact, settings.baseline_artifact),
            folder,
        )
        if isinstance(baseline, NoBaseline):
            return Baseline(mode=BaselineMode.ARTIFACT, absence=baseline.message)
        return Baseline(
            mode=BaselineMode.ARTIFACT, results=documents.read_results(folder / RESULTS)
        )

    return look


def _baseline_name(machine: str, pattern: str, name: str) -> str:
    """Return the baseline's artifact of a machine: the part for ``*`` in both patterns is the same.

    The machine ``ci-bench-h200`` of ``ci-bench-*`` has ``ci-bench-baseline-h200`` of
    ``ci-bench-baseline-*``.
    """
    before, star, after = pattern.partition("*")
    return name.replace("*", machine.removeprefix(before).removesuffix(after) if star else machine)


def search(publishing: PublishContext, name: str, folder: Path) -> FoundBaseline | NoBaseline:
    """Look for the baseline artifact `name`, and leave its results in `folder` if it is found."""
    (folder / RESULTS).unlink(missing_ok=True)
    try:
        target = _choose_target(publishing, name)
    except GitHubFailed as error:
        return NoBaseline(
            reason=Absence.UNREACHABLE, message=f"where this branch began is unknown: {error}"
        )
    if isinstance(target, NoBaseline):
        return target
    baseline = find_baseline(
        publishing.client,
        target,
        Contents(members=(RESULTS,)),
        lambda members, artifact: complaint_about(members, folder, artifact.head_sha),
    )
    if isinstance(baseline, FoundBaseline):
        unpack(baseline.members, folder)
    return baseline


def _choose_target(publishing: PublishContext, name: str) -> WantedBaseline | NoBaseline:
    """Return the baseline to look for, as far as this event determines it."""
    settings, context = publishing.settings, publishing.context
    branch, workflow = publishing.base_branch, settings.baseline_workflow or context.workflow
    if branch is None or workflow is None or context.repository_id is None:
        what = "branch" if branch is None else "workflow (--baseline-workflow)"
        return NoBaseline(
            reason=Absence.NO_ANCESTOR, message=f"this event does not name the base {what}"
        )
    base, head = publishing.base_sha, context.head.sha
    return WantedBaseline(
        name=name,
        branch=branch,
        commit=settings.base or (branch_point(publishing.client, base, head) if base else head),
        workflow=workflow,
        repository=context.repository,
        repository_id=context.repository_id,
        farthest=FARTHEST,
    )
