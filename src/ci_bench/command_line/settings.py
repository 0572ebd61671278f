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
    """Settings of every command: environment variables, and the folder that it was started in."""

    environ: Mapping[str, str]
    here: Path

    @classmethod
    def of(cls, flags: argparse.Namespace, environ: Mapping[str, str], here: Path) -> Self:
        """Set this kind's fields from flags.

        A field without a flag in this command keeps its default. Raises `BadInput` if a flag was
        given that this form of the command ignores, as ``doctor --selftest --only clocks``.
        """
        known = {field.name for field in fields(cls)} | OF_PARSING
        for name, value in vars(flags).items():
            if name not in known and value not in (None, False, []):
                command = f"ci-bench {flags.command}"
                raise BadInput(
                    f"`{command}` takes no --{name.replace('_', '-')}; see `{command} --help`"
                )
        given = {
            field.name: _frozen(vars(flags)[field.name])
            for field in fields(cls)
            if field.name in vars(flags)
        }
        return cls(environ=environ, here=here, **given)


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
        """Return the flags that override the file's `run`."""
        from ci_bench.configuration.config import Overrides

        return Overrides()


@dataclass(frozen=True, kw_only=True, slots=True)
class Starting(Settings):
    """Settings of `init`: whether to write files, or to check those that are there."""

    check: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetching(Configured):
    """Settings of `setup --models`.

    No benchmarks can replace the suites: reading them would run their code.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Measuring(Configured):
    """Settings of commands that measure or prepare: `run`, `gate`, `setup`, `calibrate`, `history bisect`.

    `filter` holds parts of case ids. `output` takes the documents. If two commits are compared,
    `base` and `baseline` name the other one, `prepared` and `fetched` the folders that earlier
    steps left, and `noise` that of calibrations, which a gate extends if `learn` is set. `fleet`
    names the fleet, `needs` applies to its leases, which run in containers of `image` if one is
    named, and `gpu_seconds` to all leases together.
    """

    filter: tuple[str, ...] = ()
    output: Path = Path("ci-bench-results")
    device: str | None = None
    launches: int | None = None
    budget_s: float | None = None
    resume: bool = False
    save_outputs: bool = False
    fleet: str | None = None
    needs: tuple[str, ...] = ()
    image: str | None = None
    gpu_seconds: float | None = None
    baseline: str | None = None
    base: str | None = None
    prepared: Path | None = None
    fetched: Path | None = None
    noise: Path | None = None
    learn: bool = False
    save_baseline: bool = False
    format: str = "terminal"

    @property
    def overrides(self) -> "Overrides":
        """Return the flags that override the file's `run`."""
        from ci_bench.configuration.config import Overrides

        return Overrides(**{field.name: getattr(self, field.name) for field in fields(Overrides)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Leasing(Measuring):
    """Settings of `fleet lease`, which a fleet starts.

    They name the run, the lease's number in it, and the attempt, as ``RUN/0/1``.

    Without prepared sides it has the git bundle of their `sources`, its SHA-256 and the commit of
    its manifest.
    """

    lease: str
    sources: Path | None = None
    sha256: str = ""
    commit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Looking(Measuring):
    """Settings of `fleet` and its actions.

    `status` and `test` list slots, `drain` has a gate leave some (`slot`) or all.
    """

    action: str
    slot: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing(Measuring):
    """Settings of `list`; `declare` requests the declarations of cases for a configuration."""

    declare: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Bisecting(Measuring):
    """Settings of `history bisect`: two commits, the metric, and whether to try each merged commit."""

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
        """Raise `BadInput` if a flag's value is out of its range, or names nothing that is known."""
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

    They are two results documents, runs' folders or files of another tool, or the files of each
    side.

    `source` is the format that other tools' files are in. `across` are fields of the machine that
    differ on purpose.
    """

    sides: tuple[Path, ...] = ()
    base: tuple[Path, ...] = ()
    head: tuple[Path, ...] = ()
    source: str = "auto"
    across: tuple[str, ...] = ()
    noise: Path | None = None
    output: Path | None = None
    format: str = "terminal"


@dataclass(frozen=True, kw_only=True, slots=True)
class Merging(Configured):
    """Settings of `fleet merge`: folders of runs, and the one for merged documents and the verdict."""

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
    """Settings of `history` and its actions.

    They name the store, its input or output, and the issue that reports changes.
    """

    action: str
    store: Path = Path("ci-bench-history")
    branch: str | None = None
    remote: str | None = None
    runs: tuple[Path, ...] = ()
    url: str | None = None
    run_report: str | None = None
    least: float = 0.01
    confirm: bool = False
    issue: bool = False
    comment_author: str = "github-actions[bot]"
    page_url: str | None = None
    export: Path | None = None
    file: Path | None = None
    artifact: str = "ci-bench-history"
    from_branch: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Publishing(Settings):
    """Settings of `github` and its actions.

    For a run that a comment requested, `head` is the granted commit, and `filter` chose its cases.
    """

    action: str = "publish"
    head: str | None = None
    filter: tuple[str, ...] = ()
    output: Path = Path("ci-bench-results")
    folders: tuple[Path, ...] = ()
    artifact: str = "ci-bench"
    machines: tuple[str, ...] | None = None
    config: Path | None = None
    config_path: str = "ci-bench.yml"
    baseline: str = "paired"
    fetched: Path | None = None
    baseline_artifact: str = "ci-bench-baseline"
    baseline_workflow: str | None = None
    base: str | None = None
    key: str = "default"
    comment: str = "always"
    comment_author: str = "github-actions[bot]"

    @property
    def measures_only(self) -> bool:
        """Return whether this job measured, and another one reports."""
        return bool(self.folders) and self.comment == "never"
