"""Flags and environment as one frozen value per kind of command.

Made in `cli`; no other module reads either.

A field has its flag's name, or the one that the flag gives (`dest`); `flags` has their words.
Values only, nothing is looked up.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ci_bench.errors import BadInput

if TYPE_CHECKING:
    from ci_bench.command_line.fastrnns_flags import FastrnnsRequest
    from ci_bench.configuration.config import Overrides

OF_PARSING = {"command", "action", "verbose", "completion"}
"""Names that are of no command."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Settings of every command: environment variables, and the folder of the command."""

    environ: Mapping[str, str]
    here: Path

    @classmethod
    def of(cls, flags: argparse.Namespace, environ: Mapping[str, str], here: Path) -> Self:
        """Set this kind's fields from flags.

        A field without a flag in this command keeps its default. Raises `BadInput` for a flag that
        this form of the command ignores, as ``doctor --selftest --only clocks``.
        """
        names = {field.name for field in fields(cls)} | OF_PARSING
        for name, value in vars(flags).items():
            if name not in names and value not in (None, False, []):
                command = f"ci-bench {flags.command}"
                raise BadInput(
                    f"`{command}` takes no --{name.replace('_', '-')}; see `{command} --help`"
                )
        values = {
            field.name: _frozen(vars(flags)[field.name])
            for field in fields(cls)
            if field.name in vars(flags)
        }
        return cls(environ=environ, here=here, **values)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True, slots=True)
class Configured(Settings):
    """Settings of commands that read a configuration.

    They have the named file, if any, and paths of benchmarks that replace its suites.
    """

    config: Path | None = None
    paths: tuple[Path, ...] = ()

    @property
    def overrides(self) -> "Overrides":
        """The flags that override the file's `run`."""
        from ci_bench.configuration.config import Overrides

        return Overrides()


@dataclass(frozen=True, kw_only=True, slots=True)
class Starting(Settings):
    """Settings of `init`.

    With `check`, it examines the present files instead of writing new ones.
    """

    check: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetching(Configured):
    """Settings of `setup --models`.

    No benchmarks can replace the suites: reading them would run their code.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Measuring(Configured):
    """Settings of `run`, `gate`, `setup`, `calibrate` and `history bisect`."""

    filter: tuple[str, ...] = ()
    """Ids of cases or parts of them; empty for all cases."""
    output: Path = Path("ci-bench-results")
    """Folder for the documents."""
    device: str | None = None
    """Device; `None` for the configuration's."""
    launches: int | None = None
    """Number of launches; `None` for the configuration's."""
    budget_s: float | None = None
    """Time limit for measuring (s); `None` for the configuration's."""
    resume: bool = False
    """Continues the interrupted run in `output`."""
    save_outputs: bool = False
    """Keeps the output tensors of reference arms next to the results."""
    fleet: str | None = None
    """Fleet that measures, as ``local:cuda:0``; `None` measures in this process."""
    needs: tuple[str, ...] = ()
    """Labels that a fleet's slot must have, as ``NAME=VALUE``."""
    image: str | None = None
    """Image of the containers that leases run in; `None` without containers."""
    gpu_seconds: float | None = None
    """Limit of all leases' slot time together (s); `None` for no limit."""
    baseline: str | None = None
    """``paired``, ``artifact``, ``none``, or an earlier run's path; `None` if not named."""
    base: str | None = None
    """Base commit of a paired run; `None` for the configuration's, or the branch's start."""
    prepared: Path | None = None
    """Folder of the sides that `setup` prepared; `None` prepares them now."""
    fetched: Path | None = None
    """Folder that `github fetch-baseline` wrote; `None` if it did not run."""
    noise: Path | None = None
    """Folder of calibrations; `None` for the user's."""
    learn: bool = False
    """Adds this gate's first launches to the calibrations."""
    save_baseline: bool = False
    """Keeps this run at `baseline` if the policy is met."""
    format: str = "terminal"
    """Form of the printed verdict."""

    @property
    def overrides(self) -> "Overrides":
        """The flags that override the file's `run`."""
        from ci_bench.configuration.config import Overrides

        return Overrides(**{field.name: getattr(self, field.name) for field in fields(Overrides)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Leasing(Measuring):
    """Settings of `fleet lease`, which a fleet starts.

    `lease` is the run, the lease's number in it, and the attempt, as ``RUN/0/1``. Without prepared
    sides it has the git bundle of their `sources`, its SHA-256 and the commit of its manifest.
    """

    lease: str
    sources: Path | None = None
    sha256: str = ""
    commit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Looking(Measuring):
    """Settings of `fleet` and its actions.

    `status` and `test` list slots; `drain` stops a gate from using some (`slot`) or all.
    """

    action: str
    slot: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing(Measuring):
    """Settings of `list`; `declare` requests the declarations of cases for a configuration."""

    declare: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Bisecting(Measuring):
    """Settings of `history bisect`: two commits and the metric.

    With `first_parent` it tries only merges, not each merged commit.
    """

    good: str
    bad: str
    metric: str | None = None
    first_parent: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Fastrnns(Settings):
    """Settings of `fastrnns`, whose flags describe a configuration (`fastrnns_flags`)."""

    request: "FastrnnsRequest"
    filter: tuple[str, ...] = ()
    output: Path = Path("ci-bench-results")

    @classmethod
    def of(cls, flags: argparse.Namespace, environ: Mapping[str, str], here: Path) -> Self:
        """Read the flags; raise `BadInput` if a value is out of its range, or a name is unknown."""
        from ci_bench.command_line.fastrnns_flags import read_flags

        return cls(
            environ=environ,
            here=here,
            request=read_flags(flags),
            filter=tuple(flags.filter),
            output=flags.output,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Examining(Settings):
    """Settings of `doctor`: `quick` omits measuring the machine's noise."""

    quick: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckingGpu(Settings):
    """Settings of `doctor --gpu`: the selected sections, or all if none is named."""

    output: Path = Path("ci-bench-results")
    device: str = "cuda"
    only: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfTesting(Settings):
    """Settings of `doctor --selftest`."""

    output: Path = Path("ci-bench-results/selftest")
    device: str = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparing(Configured):
    """Settings of `compare`.

    A path is a results document, a run's folder, another tool's file, or a folder of such files.
    """

    sides: tuple[Path, ...] = ()
    """Paths of base and head; empty if `base` and `head` name files."""
    base: tuple[Path, ...] = ()
    """Files of base, each a launch."""
    head: tuple[Path, ...] = ()
    """Files of head, each a launch."""
    source: str = "auto"
    """Format of other tools' files; ``auto`` detects it."""
    across: tuple[str, ...] = ()
    """Fields of the machine that differ on purpose."""
    noise: Path | None = None
    """Folder of calibrations; `None` for the user's."""
    output: Path | None = None
    """Folder for the documents; `None` writes none."""
    format: str = "terminal"
    """Form of the printed verdict."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Merging(Configured):
    """Settings of `fleet merge`: folders of runs, and one for merged documents and the verdict."""

    runs: tuple[Path, ...]
    output: Path
    noise: Path | None = None
    format: str = "terminal"


@dataclass(frozen=True, kw_only=True, slots=True)
class Showing(Settings):
    """Settings of `show`: a document or a run's folder, or training logs, and the form to print."""

    document: Path
    logs: tuple[Path, ...] = ()
    format: str = "terminal"
    output: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Validating(Settings):
    """Settings of `validate`."""

    files: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepting(Configured):
    """Settings of `accept`: the entry for an intended change."""

    case: str
    """Id of a case, or a pattern of ids."""
    bound: str
    """The largest accepted change, in the words of the file."""
    reason: str
    """Why the change is intended."""
    pull_request: int
    """Number of the pull request."""
    metric: str | None = None
    """Name of the metric, if one is accepted."""
    direction: str = "higher"
    """Direction of the metric's value."""
    outputs: bool = False
    """Accept other outputs."""
    learning: bool = False
    """Accept another training."""
    expires: str | None = None
    """The last day that the entry counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Converting(Settings):
    """Settings of `convert`: the input and its format, and the output format.

    The input is a results.json, a run's folder or another tool's file.
    """

    document: Path
    source: str = "auto"
    to: str
    output: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrendSettings(Measuring):
    """Settings of `history` and its actions."""

    action: str
    """Action of `history`."""
    store: Path = Path("ci-bench-history")
    """Folder of the history, unless it is on a `branch`."""
    branch: str | None = None
    """Branch that holds the history; `None` for a folder."""
    remote: str | None = None
    """Remote of the branch; `None` for this clone's."""
    runs: tuple[Path, ...] = ()
    """Documents or folders of the runs to add."""
    url: str | None = None
    """URL of the added run; `None` for this workflow's run."""
    run_report: str | None = None
    """URL of its report; `None` if it has none."""
    least: float = 0.01
    """Smallest relative change of a time that matters."""
    confirm: bool = False
    """Measures the commits on both sides of each change, in turns."""
    issue: bool = False
    """Opens, updates or closes an issue on GitHub."""
    comment_author: str = "github-actions[bot]"
    """Login that posts the issue."""
    page_url: str | None = None
    """URL of the trend page, for the issue; `None` without one."""
    export: Path | None = None
    """File for the whole history after compaction; `None` writes none."""
    file: Path | None = None
    """File to import; set for that action only."""
    artifact: str = "ci-bench-history"
    """Name of the artifacts to fetch."""
    from_branch: str | None = None
    """Branch whose artifacts are accepted; `None` for this run's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Publishing(Settings):
    """Settings of `github` and its actions."""

    action: str = "publish"
    """Action of `github`."""
    head: str | None = None
    """Commit that a request was granted for; `None` for other runs."""
    filter: tuple[str, ...] = ()
    """Filters of a granted request; empty for other runs."""
    output: Path = Path("ci-bench-results")
    """Folder for the documents."""
    folders: tuple[Path, ...] = ()
    """Folders with results; empty for the artifacts of the run that measured."""
    artifact: str = "ci-bench"
    """Name of those artifacts, which may hold one ``*`` for the machine."""
    machines: tuple[str, ...] | None = None
    """Names of the machines; `None` for the configuration's."""
    config: Path | None = None
    """File of the base branch's configuration; `None` fetches it."""
    config_path: str = "ci-bench.yml"
    """Path of the configuration in the repository."""
    baseline: str = "paired"
    """Baseline of head: ``paired``, ``artifact`` or ``none``."""
    fetched: Path | None = None
    """Folder that `fetch-baseline` wrote; `None` fetches the baseline again."""
    baseline_artifact: str = "ci-bench-baseline"
    """Name of the baseline's artifact, which may hold one ``*``."""
    baseline_workflow: str | None = None
    """Path of the workflow that made the baseline; `None` for this one."""
    base: str | None = None
    """Base commit; `None` for the pull request's."""
    key: str = "default"
    """Name of this gate if a pull request has several."""
    comment: str = "always"
    """When to comment: ``always``, ``on-change`` or ``never``."""
    comment_author: str = "github-actions[bot]"
    """Login that posts comments."""

    @property
    def measures_only(self) -> bool:
        """Return whether this job measured, and another one reports."""
        return bool(self.folders) and self.comment == "never"
