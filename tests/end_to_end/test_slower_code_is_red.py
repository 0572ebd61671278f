"""Whatever measures, slower code fails and the same code passes: every suite, every format that is read, a plugin of either kind.

The table makes itself: from the registry of suites and the catalogue of formats, so that a new one
is in it or fails here. Only the clock is simulated. Stages are the suites' own, texts are those
that the tools wrote, launches are taken as the judge asks.
"""

import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from fake_suite import SUITE as FAKE
from judge_builders import results

from ci_bench.errors import ExitCode
from ci_bench.formats import catalogue
from ci_bench.formats.series import Reading
from ci_bench.formats.units import interpret
from ci_bench.judge.compare import compare
from ci_bench.judge.times import calibration as calibrating
from ci_bench.judge.times.sequential import adaptive, fixed
from ci_bench.judge.times.stopping import still_open
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Policy, Rule
from ci_bench.records.results import Better, CaseResult, Due, Lane, Launch, Metric, Status, Unit
from ci_bench.records.units import TIMES
from ci_bench.suites.command.selecting import select
from ci_bench.suites.contract import Cache, StageKind
from ci_bench.suites.registry import BUILT_IN, find_suite

DATA = Path(__file__).parents[1] / "formats" / "data"
NOW = "2026-01-31T00:00:00Z"
SLOWER = [5.0, 2.0, 1.3]
BETWEEN, INSIDE, MOMENT = 0.01, 0.03, 0.005
"""Standard deviations of the noise between launches, inside them, and between the moments of two
runs.
"""

ENTRIES = {
    "command": {"name": "it", "command": "true"},
    "fastrnns": {"variants": ["jit"]},
    "torchbench": {"model": "mlp"},
    "functions": {"path": "examples/kernels/benchmarks/activations.py"},
    "training_loss": {"name": "it"},
    "transformers": {
        "model": "bert",
        "batch_size": 2,
        "sequence_length": 8,
        "candidate": "aot_eager",
    },
}
WRITTEN = {
    "pytest-benchmark": "pytest_benchmark-5.3.1.json",
    "google-benchmark": "google_benchmark-1.9.5.json",
    "pytest-codspeed": "pytest_codspeed-4.5.0.json",
    "pyperf": "pyperf-2.10.0.json",
    "hyperfine": "hyperfine-1.15.0.json",
    "asv": "asv-0.6.6.json",
    "nvbench": "nvbench-form-1.0.0.json",
    "optimum-benchmark": "optimum_benchmark-form.json",
    "oss-benchmark": "oss_benchmark-form.json",
    "github-action-benchmark": "github_action_benchmark-form-data.js",
    "customSmallerIsBetter": "github_action_benchmark-form-custom.json",
    "customBiggerIsBetter": "github_action_benchmark-form-custom.json",
    "dynamo-csv": "dynamo-form-performance.csv",
    "jmh": "jmh-form.json",
    "criterion": "criterion-form.json",
    "vitest": "vitest-form.json",
    "userbenchmark": "userbenchmark-form.json",
    "go-bench": "go_bench-form.txt",
}
TEXTS = {
    "measurements": '{"kind": "measurements", "schema_version": 1, "series": [{"name": "parse", "unit": "ms", "better": "lower", '
    '"values": [2.1, 2.2, 2.1, 2.2, 2.1, 2.3, 2.2, 2.1]}]}',
    "bmf": '{"parse": {"latency": {"value": 2100000.0}}}',
}


def reading_of(form: str) -> Reading:
    return catalogue.read(
        TEXTS.get(form) or catalogue.decode((DATA / WRITTEN[form]).read_bytes()), form
    )


@dataclass(frozen=True)
class Source:
    """What measures: a case with its stages, and what a run of itself writes."""

    name: str
    case: object
    stages: tuple
    times: tuple[str, ...] = ("step_time",)
    reading: Reading | None = None

    def row(self, rng, head, launch, *, ratio, moment, wanted=None, brought=None):
        """What one launch brings of one side."""
        noise = moment + BETWEEN * rng.standard_normal()
        for stage in self.stages:
            known = (brought or {}).get(stage)
            skipped = wanted is not None and known and known.isdisjoint(wanted)
            if (
                stage.kind in {StageKind.PREPARE, StageKind.VERIFY}
                or not stage.takes_place_in(launch)
                or skipped
            ):
                continue
            found = self._of_stage(rng, stage, launch, np.exp(noise) * (ratio if head else 1.0))
            if brought is not None:
                brought[stage] = frozenset((one.name, one.arm) for one in found)
            yield from found

    def _of_stage(self, rng, stage, launch, factor):
        match stage.kind:
            case StageKind.RUN if self.reading is not None:
                return self._read(rng, stage, launch, factor)
            case StageKind.TIME:
                return [
                    _turns(rng, name, arm, launch, factor)
                    for name in self.times
                    for arm in stage.arms
                ]
            case _:
                name = "compile_cold" if stage.cache is Cache.COLD else "peak_anonymous"
                return [_one(name, arm, launch) for arm in stage.arms]

    def _read(self, rng, stage, launch, factor):
        def scaled(series):
            if interpret(series.unit).unit not in TIMES:
                return series
            by = factor if series.better is not Better.HIGHER else 1 / factor
            inside = (
                INSIDE if len(series.values) > 1 else INSIDE / 4
            )  # who prints one figure prints a mean
            spread = np.exp(inside * rng.standard_normal(len(series.values)))
            values = iter((np.array(series.values) * by * spread).tolist())
            return replace(
                series, runs=tuple(tuple(next(values) for _ in run) for run in series.runs)
            )

        shown = replace(
            self.reading, series=tuple(map(scaled, self.reading.series)), failed=(), skipped=()
        )
        return [
            metric
            for arm in stage.arms
            for metric in select(shown, (), arm=arm, launch=launch).metrics
        ]


def _turns(rng, name, arm, launch, factor):
    values = 0.02 * factor * np.exp(INSIDE * rng.standard_normal(20))
    taken = Launch(
        launch=launch,
        values=tuple(values.tolist()),
        blocks=tuple(np.repeat(np.arange(10), 2).tolist()),
        steady=True,
    )
    return Metric(
        name=name, arm=arm, unit=Unit.SECONDS, better=Better.LOWER, lane=Lane.WALL, launches=(taken,)
    )  # fmt: skip


def _one(name, arm, launch):
    unit, lane, value = (
        (Unit.SECONDS, Lane.WALL, 12.0)
        if name == "compile_cold"
        else (Unit.BYTES, Lane.COUNTERS, 3e8)
    )
    taken = (Launch(launch=launch, values=(value,)),)
    return Metric(name=name, arm=arm, unit=unit, better=Better.LOWER, lane=lane, launches=taken)


def sources():
    """Every suite by its own plan, every format as a command that is read, and plugins that take turns or measure themselves."""
    for name in BUILT_IN:
        yield _of_plan(name, find_suite(name), ENTRIES[name])
    yield _of_plan(
        "training_loss in layouts",
        find_suite("training_loss"),
        {"name": "it", "layouts": ["ddp", "fsdp"]},
    )
    for form in catalogue.READABLE:
        command = _of_plan(
            f"format {form}", find_suite("command"), {**ENTRIES["command"], "format": form}
        )
        yield replace(command, reading=reading_of(form))
    yield _of_plan("plugin in turns", FAKE, {"name": "it", "stages": ["memory", "time"]})
    yield replace(
        _of_plan(
            "plugin that measures itself",
            find_suite("command"),
            {**ENTRIES["command"], "format": "measurements"},
        ),
        reading=reading_of("measurements"),
    )


def _of_plan(name, suite, options):
    case = suite.plan(options)[0]
    times = tuple(dict.fromkeys(("step_time", *case.due.times)))
    return Source(name=name, case=replace(case, due=Due()), stages=suite.stages(case), times=times)


def side(source, metrics, *, run, device):
    merged: dict[tuple[str, str], Metric] = {}
    for one in metrics:
        key = one.name, one.arm
        merged[key] = (
            replace(merged[key], launches=(*merged[key].launches, *one.launches))
            if key in merged
            else one
        )
    row = CaseResult(
        case=source.case, status=Status.OK, reproduce="again", metrics=tuple(merged.values())
    )
    document = results(row, identity={"device": device})
    return replace(document, run=replace(document.run, id=run, started_at=NOW))


def measured(source, ratio, *, rule, seed, calibration=None, device="cpu", run="r"):
    """Base and head after as many launches as the judge asks for."""
    rng = np.random.default_rng([seed, zlib.crc32(source.name.encode())])
    taken, brought, wanted = ([], []), ({}, {}), None
    for launch in range(rule.looks[-1]):
        for head in (False, True):
            taken[head].extend(
                source.row(rng, head, launch, ratio=ratio, moment=0.0, wanted=wanted, brought=brought[head])
            )  # fmt: skip
        base, head_side = (side(source, metrics, run=run, device=device) for metrics in taken)
        asked = still_open(
            base, head_side, policy=Policy(), calibration=calibration, launches_done=launch + 1, rule=rule, now=NOW
        )  # fmt: skip
        if len(rule.looks) > 1 and source.case.id not in asked:
            break
        wanted = asked[source.case.id].metrics if source.case.id in asked else None
    return base, head_side, launch + 1


def paired(source, ratio, *, calibrated, rule=None, seed=7):
    calibration = None
    for run in range(4 if calibrated else 0):
        base, head, _ = measured(source, 1.0, rule=fixed(5), seed=100 + run, run=f"aa-{run}")
        calibration = calibrating.merge(
            calibration, calibrating.collect(base, head, tool_version="1")
        )
    rule = rule or adaptive(16)
    base, head, launches = measured(source, ratio, rule=rule, seed=seed, calibration=calibration)
    comparison = compare(
        base=base, head=head, policy=Policy(), mode=BaselineMode.PAIRED, absence=None, tool_version="1",
        calibration=calibration, now=NOW, rule=rule,
    )  # fmt: skip
    return comparison, launches


def against_saved(source, ratio, *, device, launches=3):
    rng = np.random.default_rng(zlib.crc32(source.name.encode()))
    sides = []
    for head in (False, True):
        moment = MOMENT * rng.standard_normal()
        rows = [
            one
            for at in range(launches)
            for one in source.row(rng, head, at, ratio=ratio, moment=moment)
        ]
        sides.append(side(source, rows, run=f"run {head}", device=device))
    return compare(
        base=sides[0], head=sides[1], policy=Policy(), mode=BaselineMode.FILE, absence=None, tool_version="1", now=NOW
    )  # fmt: skip


SOURCES = {source.name: source for source in sources()}
EVERY = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


def test_every_suite_and_every_format_is_in_the_table() -> None:
    assert ENTRIES.keys() == BUILT_IN.keys()
    assert {*WRITTEN, *TEXTS} == {*catalogue.READABLE}


@EVERY
@pytest.mark.parametrize("calibrated", [False, True], ids=["uncalibrated", "calibrated"])
def test_measured_in_turns(source, calibrated) -> None:
    for ratio in SLOWER:
        comparison, _ = paired(source, ratio, calibrated=calibrated)
        assert comparison.judgement.exit_code == ExitCode.POLICY_NOT_MET, (
            ratio,
            comparison.judgement.headline,
        )
    comparison, launches = paired(source, 1.0, calibrated=calibrated)
    assert comparison.judgement.exit_code == ExitCode.OK, comparison.judgement.headline
    assert launches <= 16


@EVERY
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_against_a_saved_run(source, device) -> None:
    for ratio in SLOWER:
        comparison = against_saved(source, ratio, device=device)
        assert comparison.judgement.exit_code == ExitCode.POLICY_NOT_MET, (
            ratio,
            comparison.judgement.headline,
        )
    comparison = against_saved(source, 1.0, device=device)
    assert comparison.judgement.exit_code == ExitCode.OK, comparison.judgement.headline


@EVERY
def test_where_only_one_launch_was_taken_a_doubling_is_suspected(source) -> None:
    """No budget for a second launch, no calibration: the prior of how far launches of unchanged code differ has to do."""
    for comparison in (
        paired(source, 5.0, calibrated=False, rule=fixed(1))[0],
        against_saved(source, 5.0, device="cuda", launches=1),
    ):
        assert comparison.judgement.exit_code == ExitCode.POLICY_NOT_MET, (
            comparison.judgement.headline
        )
        assert Rule.SUSPECTED in {finding.rule for finding in comparison.judgement.findings}
        assert "suspected" in comparison.judgement.headline
        assert "nothing regressed" not in comparison.judgement.headline
    same, _ = paired(source, 1.0, calibrated=False, rule=fixed(1))
    assert same.judgement.exit_code == ExitCode.OK, same.judgement.headline
