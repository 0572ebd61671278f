"""Noise of a machine, as learned from runs of unchanged code.

Owns how it is collected, and how past launches become a history for the rule. The document is in
`records.calibration`, the estimators are in `noise`, the audit of the rule on past runs is in
`audit`.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from ci_bench.errors import BadInput
from ci_bench.judge.times import noise
from ci_bench.judge.times.metrics import in_turns
from ci_bench.judge.times.noise import Floats, Learned
from ci_bench.judge.times.paired import figures
from ci_bench.judge.times.pairing import Line, times_of_both
from ci_bench.judge.times.sequential import SequentialRule, resolvable
from ci_bench.judge.wording import count_of, percent
from ci_bench.records.calibration import LARGEST_RATIO, Calibration, PastRun, PastSeries
from ci_bench.records.comparison import Comparison, Verdict
from ci_bench.records.forms import Fact
from ci_bench.records.results import Metric, Results, RunState, Status

MOST_LAUNCHES = 200
"""Launches kept of each metric: enough for any estimate, and a bound for the document."""
MOST_RUNS = 1000
"""Runs kept in all; metrics that came and went would let them grow without bound."""
MOST_DAYS = 183.0
"""Launches older than half a year are forgotten: after six half-lives they count for one and a half
per cent.
"""

MOST_PLAUSIBLE = math.log(1.5)
"""Noise beyond this is not used: a rule that knows it would let any change pass
(docs/internals/adr/0028).
"""

_DAY_S = 86_400.0

Name = tuple[str, str, str]
"""Case, metric and arm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFloor:
    """Noise of one metric on a machine."""

    case: str
    """Id of the case."""
    metric: str
    """Name of the metric in documents."""
    arm: str
    """Arm that was measured."""
    past: int
    """Past launches in the calibration."""
    spread: float
    """Relative standard deviation of one launch."""
    launches: int
    """Launches of the run that `resolvable` is for."""
    resolvable: float
    """Relative change that this many launches detect with 90 % power."""

    @property
    def text(self) -> str:
        """Return ``launch-to-launch sd 0.4 %; resolvable 1.3 % at 3 launches``."""
        detectable = f"resolvable {percent(self.resolvable)} at {count_of(self.launches, 'launch')}"
        return f"launch-to-launch sd {percent(self.spread)}; {detectable}"


def fingerprint(identity: Mapping[str, Fact]) -> str:
    """Return the digest of a machine's identity, independent of the order of its fields."""
    canonical = json.dumps(dict(identity), sort_keys=True, ensure_ascii=True)
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def collect(base: Results, head: Results, *, tool_version: str) -> Calibration:
    """Collect the log-ratio and inner spread of every launch of every time from an A/A run.

    Raises:
        BadInput: the sides differ in machine or commit, so a difference may not be noise.
    """
    if dict(base.environment.identity) != dict(head.environment.identity):
        message = (
            "the two sides ran on different machines or software; a calibration measures one"
            " machine against itself"
        )
        raise BadInput(message)
    commits = base.source.commit, head.source.commit
    if None not in commits and commits[0] != commits[1]:
        message = (
            f"the two sides are commits {commits[0]} and {commits[1]}; a calibration measures one"
            " commit against itself"
        )
        raise BadInput(message)
    lines = times_of_both(*in_turns(base, head))
    numbers = {launch.launch for line in lines for launch in line.head[0].launches}
    measured = figures([(line.base[0], line.head[0]) for line in lines], most=len(numbers))
    series = tuple(
        filter(
            None,
            (
                _series(line, measured.d[row], measured.within[row])
                for row, line in enumerate(lines)
            ),
        )
    )
    return Calibration(
        tool_version=tool_version,
        fingerprint=fingerprint(head.environment.identity),
        identity=dict(head.environment.identity),
        runs=(PastRun(id=head.run.id, at=head.run.started_at),),
        series=series,
    )


def collect_gate(base: Results, head: Results, comparison: Comparison) -> Calibration | None:
    """Collect calibration data from a paired gate of trusted code, or return `None` if it has none.

    It uses the first launch of each time that is not certainly changed.

    The first launch is taken whatever it shows; how many follow depends on that, and around their
    own mean those of a case that ended early scatter too little. True changes that stay in make the
    noise look larger, once a gate and not with each launch.
    """
    if head.run.state is not RunState.COMPLETE or dict(base.environment.identity) != dict(
        head.environment.identity
    ):
        return None
    changed = {
        (case.id, pair.metric, pair.arm)
        for case in comparison.cases
        for pair in case.pairs
        if pair.verdict in {Verdict.REGRESSED, Verdict.IMPROVED}
        or case.head_status is not Status.OK
    }
    lines = [line for line in times_of_both(*in_turns(base, head)) if line.key not in changed]
    pairs = [(_first_launch(line.base[0]), _first_launch(line.head[0])) for line in lines]
    measured = figures(pairs, most=1)
    series = tuple(
        filter(
            None,
            (
                _series(line, measured.d[row], measured.within[row])
                for row, line in enumerate(lines)
            ),
        )
    )
    if not series:
        return None
    return Calibration(
        tool_version=head.tool_version,
        fingerprint=fingerprint(head.environment.identity),
        identity=dict(head.environment.identity),
        runs=(PastRun(id=head.run.id, at=head.run.started_at, gate=True),),
        series=series,
    )


def _first_launch(metric: Metric) -> Metric:
    return replace(
        metric, launches=tuple(launch for launch in metric.launches if launch.launch == 0)
    )


def _series(line: Line, d: Floats, within: Floats) -> PastSeries | None:
    there = np.flatnonzero(np.abs(d) < LARGEST_RATIO)[-MOST_LAUNCHES:]
    if not there.size:
        return None
    case, metric, arm = line.key
    spreads = within[there].tolist()
    return PastSeries(
        case=case,
        metric=metric,
        arm=arm,
        ratios=tuple(d[there].tolist()),
        within=tuple(spread if spread < LARGEST_RATIO else None for spread in spreads),
        runs=(0,) * there.size,
    )


def merge(old: Calibration | None, new: Calibration) -> Calibration:
    """Add the runs of `new` to `old`: up to `MOST_LAUNCHES` of each metric in `MOST_DAYS`.

    Raises:
        BadInput: they are of different machines.
    """
    if old is None:
        return new
    if old.fingerprint != new.fingerprint:
        message = (
            "the calibrations are of different machines:"
            f" {differences(old.identity, new.identity)}; keep one for each"
        )
        raise BadInput(message)
    old_ids = {run.id for run in old.runs}
    runs = sorted(
        {**{run.id: run for run in new.runs}, **{run.id: run for run in old.runs}}.values(),
        key=_when,
    )
    recent = [run for run in runs if _when(runs[-1]) - _when(run) <= MOST_DAYS * _DAY_S][
        -MOST_RUNS:
    ]
    place = {run.id: index for index, run in enumerate(recent)}
    both: dict[Name, list[tuple[int, float, float | None]]] = {}
    for document in (old, new):
        for series in document.series:
            launches = both.setdefault((series.case, series.metric, series.arm), [])
            for run, ratio, within in zip(series.runs, series.ratios, series.within, strict=True):
                name = document.runs[run].id
                if name in place and not (document is new and name in old_ids):
                    launches.append((place[name], ratio, within))
    return _compact(
        replace(
            new,
            runs=tuple(recent),
            series=tuple(_past(name, both[name]) for name in both if both[name]),
        )
    )


def _past(name: Name, launches: list[tuple[int, float, float | None]]) -> PastSeries:
    runs, ratios, within = zip(
        *sorted(launches, key=lambda launch: launch[0])[-MOST_LAUNCHES:], strict=True
    )
    return PastSeries(
        case=name[0], metric=name[1], arm=name[2], ratios=ratios, within=within, runs=runs
    )


def _compact(calibration: Calibration) -> Calibration:
    """Remove the runs that no series needs."""
    used = sorted({run for series in calibration.series for run in series.runs})
    place = {run: index for index, run in enumerate(used)}
    return replace(
        calibration,
        runs=tuple(calibration.runs[run] for run in used),
        series=tuple(
            replace(series, runs=tuple(place[run] for run in series.runs))
            for series in calibration.series
        ),
    )


def _when(run: PastRun) -> float:
    return instant(run.at)


def instant(moment: datetime | str) -> float:
    """Convert a moment to seconds; text is ISO 8601, UTC if it names no zone.

    Raises `BadInput` if the text is not ISO 8601.
    """
    try:
        at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError as error:
        message = f"{moment!r} is not a moment of time; write it as 2030-01-31T12:00:00Z"
        raise BadInput(message) from error
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def learned(
    calibration: Calibration | None, names: Sequence[Name], *, now: datetime | str
) -> Learned:
    """Return a calibration's knowledge of each name.

    Older launches count less, missing ones are NaN.

    Gates count less with each later one, too (`noise.fading`), and where unchanged code was run
    against itself they can only make a machine noisier than that showed.
    """
    if calibration is None:
        return noise.nothing_learned(len(names))
    by_name = {(series.case, series.metric, series.arm): series for series in calibration.series}
    rows = [by_name.get(name) for name in names]
    widest = max((len(row.ratios) for row in rows if row), default=0)
    past, within = (np.full((len(rows), widest), np.nan) for _ in range(2))
    runs = np.zeros((len(rows), widest), dtype=np.intp)
    for index, row in enumerate(rows):
        if row is not None:
            past[index, : len(row.ratios)] = row.ratios
            within[index, : len(row.within)] = np.array(row.within, dtype=np.float64)
            runs[index, : len(row.runs)] = row.runs
    ages = np.array([max(0.0, (instant(now) - _when(run)) / _DAY_S) for run in calibration.runs])
    gates = np.array([run.gate for run in calibration.runs], dtype=np.bool_)
    later: Floats = np.cumsum(gates[::-1])[::-1] - gates.astype(np.float64)
    faded = np.where(gates, noise.fading(later), 1.0)
    weights = np.where(ages <= MOST_DAYS, noise.forgetting(ages) * faded, 0.0)[runs]
    past, within = (np.where(weights > 0, table, np.nan) for table in (past, within))
    answer = noise.learn(past, within, weights)
    if gates.any():
        itself = noise.learn(np.where(gates[runs], np.nan, past), within, weights)
        least = np.where(itself.freedom >= noise.LEAST_HISTORY, itself.spread, 0.0)
        answer = replace(answer, spread=np.maximum(answer.spread, least))
    return noise.with_runs(answer, past, _ranks(runs))


def _ranks(runs: NDArray[np.intp]) -> NDArray[np.intp]:
    """Replace the runs of each row by numbers from 0; launches are in the order of their runs."""
    steps = np.diff(runs, axis=1, prepend=runs[:, :1]) != 0
    return np.cumsum(steps, axis=1)


def noise_floors(
    calibration: Calibration,
    *,
    now: datetime | str,
    launches: int = 3,
    rule: SequentialRule | None = None,
) -> tuple[NoiseFloor, ...]:
    """List the noise of each metric, the noisiest first.

    `resolvable` is the change that `launches` launches detect with 90 % power.
    """
    names = [(series.case, series.metric, series.arm) for series in calibration.series]
    history = learned(calibration, names, now=now)
    used_rule = rule or SequentialRule()
    detectable = resolvable(
        history,
        launches,
        used_rule if used_rule.gating else replace(used_rule, gating=max(1, len(names))),
    )
    floors = [
        NoiseFloor(
            case=series.case,
            metric=series.metric,
            arm=series.arm,
            past=len(series.ratios),
            spread=math.expm1(min(float(spread), LARGEST_RATIO)),
            launches=launches,
            resolvable=math.expm1(min(float(least), LARGEST_RATIO)),
        )
        for series, spread, least in zip(
            calibration.series, history.spread, detectable, strict=True
        )
        if math.isfinite(spread) and math.isfinite(least)
    ]
    return tuple(sorted(floors, key=lambda floor: -floor.spread))


def differences(first: Mapping[str, Fact], second: Mapping[str, Fact]) -> str:
    """Describe the fields in which two identities differ."""
    fields = sorted(
        field
        for field in {*first, *second}
        if field not in first or field not in second or first[field] != second[field]
    )
    return f"they differ in {', '.join(fields)}" if fields else "their digests differ"


def describe(
    calibration: Calibration | None, identity: Mapping[str, Fact]
) -> tuple[Calibration | None, str]:
    """Return the calibration if it is of this machine, and describe its sources or the refusal."""
    if calibration is None:
        return (
            None,
            "none; run ci-bench calibrate on this machine, and verdicts take fewer launches",
        )
    if calibration.fingerprint != fingerprint(identity):
        return (
            None,
            f"not used, it is of another machine: {differences(calibration.identity, identity)}",
        )
    if not calibration.runs:
        return None, "not used, it holds no run"
    gates, latest = sum(run.gate for run in calibration.runs), calibration.runs[-1].at[:10]
    runs = count_of(len(calibration.runs) - gates, "run")
    sources = [f"{runs} of unchanged code against itself"] if gates < len(calibration.runs) else []
    sources += [f"the first launches of {count_of(gates, 'gate')}"] if gates else []
    words = f"{' and '.join(sources)}, the last of {latest}"
    wild = [series for series in calibration.series if scatter(series) > MOST_PLAUSIBLE]
    if not wild:
        return calibration, words
    usable = replace(
        calibration, series=tuple(series for series in calibration.series if series not in wild)
    )
    return usable, f"{words}; {refused(wild)}"


def scatter(series: PastSeries) -> float:
    """Return the root mean square of the log-ratios of unchanged code, whose true mean is zero."""
    return (
        math.sqrt(sum(ratio * ratio for ratio in series.ratios) / len(series.ratios))
        if series.ratios
        else 0.0
    )


def refused(wild: Sequence[PastSeries]) -> str:
    """Name the parts of a calibration that are not used, and the next step."""
    worst = max(wild, key=scatter)
    more = f" and {count_of(len(wild) - 1, 'more metric')}" if len(wild) > 1 else ""
    differ = f"launches of unchanged code differ by {percent(math.expm1(scatter(worst)))}"
    most = percent(math.expm1(MOST_PLAUSIBLE))
    return (
        f"not used for {worst.metric} of {worst.case} ({worst.arm}){more}: {differ}, and more than"
        f" {most} is beyond any machine's noise; run ci-bench calibrate again on a quiet machine"
    )
