"""Measure two commits of this repository in turns.

`bisect` uses it, and `history check` confirms a change with it. The later commit is checked out
separately, in a store that borrows the repository's objects, and the usual pair is made from there.
So the user's checkout is never touched, and a killed run leaves nothing in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench.checkouts.checkout import borrow, open_checkout
from ci_bench.checkouts.git import Git
from ci_bench.checkouts.paired import Place, paired_sides
from ci_bench.checkouts.sides import Side
from ci_bench.command_line.settings import Measuring, Settings
from ci_bench.commands.inputs import command_again, noise_folder
from ci_bench.commands.judging import Baseline, judge
from ci_bench.commands.measuring import Measurement
from ci_bench.commands.output import tell
from ci_bench.commands.own_suites import load_with_suites
from ci_bench.errors import CiBenchError, NoBase
from ci_bench.history.alarms import Alarm
from ci_bench.judge.times.sequential import rule_of
from ci_bench.processes.launch import make_folder
from ci_bench.records.comparison import BaselineMode, Comparison, Pair, Verdict
from ci_bench.records.config import Config, Severity
from ci_bench.records.results import SideName, Status
from ci_bench.runner import planning
from ci_bench.runner.noise_floor import NoiseFolder
from ci_bench.suites.contract import Suite

_SHORT = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Unbuilt:
    """A commit that could not be measured, and why."""

    commit: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Laboratory:
    """Common setup for comparing pairs of commits."""

    config: Config
    """Configuration of all comparisons, after flags."""
    find: Callable[[str], Suite]
    """Finds a suite by its name."""
    noise: NoiseFolder
    """Folder of learned noise."""
    output: Path
    """Folder in which each comparison has a folder for its documents."""
    reproduce: tuple[str, ...]
    """Words of the command that compares two commits; they follow it."""
    environ: Mapping[str, str]
    """Variables of the caller."""
    here: Path
    """Folder of the command, in the repository of the commits."""

    def compare(self, base: str, head: str, filters: Sequence[str]) -> Comparison | Unbuilt:
        """Measure `head` against `base` in turns, until the verdict is settled.

        Raises `CiBenchError`.
        """
        output = self.output / f"{base[:_SHORT]}-{head[:_SHORT]}"
        plan = planning.plan(self.config, filters, self.find)
        again = (*self.reproduce, base, head)
        bench = Measurement(
            config=self.config, plan=plan, output=output, reproduce=again, environ=self.environ
        )
        with self._sides(base, head, output) as sides:
            broken = next((side for side in sides if side.failure is not None), None)
            if broken is not None:
                return Unbuilt(commit=str(broken.source.commit), reason=str(broken.failure))
            results = bench.measure(sides, noise=self.noise)
        for name, commit in ((SideName.HEAD, head), (SideName.BASE, base)):
            failed = next(
                (row for row in results[name].cases if row.status is not Status.OK and row.failure),
                None,
            )
            if failed is not None and failed.failure is not None:
                return Unbuilt(commit=commit, reason=f"{failed.case.id}: {failed.failure.reason}")
        measured = results[SideName.HEAD]
        return judge(
            measured,
            Baseline(mode=BaselineMode.PAIRED, results=results[SideName.BASE]),
            policy=self.config.policy,
            folder=output,
            calibration=self.noise.find(measured.environment.identity),
            rule=rule_of(self.config.run),
        )

    @contextmanager
    def _sides(self, base: str, head: str, output: Path) -> Iterator[Sequence[Side]]:
        checkout = open_checkout(self.here, self.environ)
        setup = self.config.setup
        if setup.cache is not None:
            setup = replace(setup, cache=str((self.here / setup.cache).resolve()))
        with make_folder() as temporary:
            scratch = Path(temporary).resolve()
            folder = scratch / "head" / (checkout.top.name or "tree")
            folder.mkdir(parents=True)
            borrow(checkout, scratch / "store").add_worktree(head, folder)
            repository = folder / checkout.prefix
            if not repository.is_dir():
                raise NoBase(
                    f"{head[:_SHORT]} has no folder {checkout.prefix}; run this command at the top"
                    " of the repository"
                )
            place = Place(
                repository=repository,
                environ=self.environ,
                scratch=scratch / "sides",
                logs=output / "setup",
                observe=lambda now: tell(
                    f"{now.side}: set-up {now.done + 1} of {now.total}: {now.command}"
                ),
            )
            place.scratch.mkdir()
            with paired_sides(place, base=base, setup=setup) as pair:
                yield pair.sides


def laboratory(settings: Measuring) -> Laboratory:
    """Convert flags to the setup of a comparison. Raises `BadConfig`."""
    config, find = load_with_suites(settings)
    return Laboratory(
        config=config,
        find=find,
        noise=noise_folder(settings),
        output=settings.output,
        reproduce=command_again("history bisect", settings),
        environ=settings.environ,
        here=settings.here,
    )


def git_here(settings: Settings) -> Git:
    """Return git for the repository of the command's folder. Raises `BadCheckout`."""
    return open_checkout(settings.here, settings.environ).git


def commit_of(git: Git, name: str) -> str:
    """Return the commit of a name. Raises `NoBase`."""
    commit = git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if commit is None:
        raise NoBase(f"{name!r} is not a commit, branch or tag of this clone")
    return commit


def confirm(
    settings: Measuring, commits: tuple[str | None, str | None], alarms: Sequence[Alarm]
) -> Mapping[str, Alarm]:
    """Return the alarms of one pair of commits, by name, with the result of a paired run.

    A change that the run does not find becomes a note: it came from the machine or its software, or
    was chance. A change that could not be measured stays as it was.
    """
    before, after = commits
    if before is None or after is None or before == after:
        why = (
            "not confirmed: the runs before and after are of one commit, so the environment or the"
            " machine caused the change"
        )
        why = (
            why
            if before is not None and before == after
            else "not confirmed: the measured commits are unknown"
        )
        return {
            alarm.line.name: _with(alarm, why, stays=before is None or after is None)
            for alarm in alarms
        }
    tell(f"measuring {after[:_SHORT]} against {before[:_SHORT]}")
    try:
        git = git_here(settings)
        bench = laboratory(settings)
        cases = tuple(dict.fromkeys(alarm.line.points.case for alarm in alarms))
        compared = bench.compare(commit_of(git, before), commit_of(git, after), cases)
    except CiBenchError as error:
        return {
            alarm.line.name: _with(alarm, f"could not be confirmed: {error}", stays=True)
            for alarm in alarms
        }
    if isinstance(compared, Unbuilt):
        why = (
            f"could not be confirmed: {compared.commit[:_SHORT]} cannot be measured:"
            f" {compared.reason}"
        )
        return {alarm.line.name: _with(alarm, why, stays=True) for alarm in alarms}
    return {alarm.line.name: _judged(alarm, compared) for alarm in alarms}


def _judged(alarm: Alarm, compared: Comparison) -> Alarm:
    pair = _pair(alarm, compared)
    if pair is None:
        return _with(
            alarm, "could not be confirmed: the paired run did not measure this metric", stays=True
        )
    verdict = f"{pair.verdict} when the two commits were measured in turns ({pair.reason})"
    if pair.verdict is Verdict.REGRESSED:
        return _with(alarm, f"confirmed: {verdict}", stays=True)
    refuted = pair.verdict in {Verdict.UNCHANGED, Verdict.IMPROVED}
    return _with(
        alarm, f"{'not confirmed' if refuted else 'not settled'}: {verdict}", stays=not refuted
    )


def _pair(alarm: Alarm, compared: Comparison) -> Pair | None:
    points = alarm.line.points
    pairs = (pair for case in compared.cases if case.id == points.case for pair in case.pairs)
    return next(
        (pair for pair in pairs if (pair.metric, pair.arm) == (points.metric, points.arm)), None
    )


def _with(alarm: Alarm, why: str, *, stays: bool) -> Alarm:
    return replace(alarm, confirmed=why, severity=alarm.severity if stays else Severity.NOTE)
