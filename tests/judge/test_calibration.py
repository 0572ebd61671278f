"""What runs of unchanged code teach: collected, kept, forgotten, handed to the rule, told."""

import math
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import launches, metric, peak, result, results
from paired_builders import NOW, calibrated, simulate

from ci_bench.errors import BadInput
from ci_bench.judge.times import calibration as calibrating
from ci_bench.judge.times.calibration import (
    MOST_LAUNCHES,
    collect,
    describe,
    fingerprint,
    instant,
    learned,
    merge,
    noise_floors,
)
from ci_bench.judge.times.noise import with_runs
from ci_bench.judge.times.sequential import SequentialRule, resolvable
from ci_bench.records.calibration import Calibration, PastRun, PastSeries, calibration_faults
from ci_bench.records.documents import Kind, to_json, validate
from ci_bench.records.results import Launch, Source

NAME = ("s/c0", "step_time", "eager")


def document(*series, runs=(), identity=None):
    identity = {"gpu": "H200"} if identity is None else identity
    return Calibration(
        tool_version="1",
        fingerprint=fingerprint(identity),
        identity=identity,
        runs=tuple(runs),
        series=series,
    )


def past(ratios, runs=None, within=None, name=NAME):
    ratios = tuple(map(float, ratios))
    return PastSeries(
        case=name[0],
        metric=name[1],
        arm=name[2],
        ratios=ratios,
        within=tuple(within) if within else (0.01,) * len(ratios),
        runs=tuple(runs) if runs else (0,) * len(ratios),
    )


def day(number, name=None):
    return PastRun(id=name or f"r{number}", at=f"2026-01-{number:02}T00:00:00Z")


class TestFingerprint:
    @given(st.permutations([("gpu", "H200"), ("torch", "2.13"), ("threads", 4), ("triton", None)]))
    def test_does_not_depend_on_the_order_of_fields(self, items):
        assert fingerprint(dict(items)) == fingerprint(
            {"gpu": "H200", "torch": "2.13", "threads": 4, "triton": None}
        )

    def test_is_that_of_documents_already_written(self):
        digest = "d2a94832bfae81700d6dab0caca414aa70ca00a2c058fe37825b8ea6125d5e69"
        assert fingerprint({"host": "é", "gpu": "H200"}) == f"sha256:{digest}"

    @pytest.mark.parametrize("other", [{"gpu": "H100"}, {"gpu": None}, {"gpu": "H200", "x": 1}, {}])
    def test_tells_machines_apart(self, other):
        assert fingerprint(other) != fingerprint({"gpu": "H200"})


class TestCollecting:
    def test_takes_every_time_of_both_sides_launch_by_launch(self):
        base, head = simulate(1, cases=2, launches=3)
        got = collect(base, head, tool_version="9")

        assert {(one.case, one.metric, one.arm) for one in got.series} == {
            (f"s/c{i}", name, arm)
            for i in range(2)
            for name, arm in (
                ("step_time", "eager"),
                ("step_time", "inductor"),
                ("compile_warm", "inductor"),
            )
        }
        assert {len(one.ratios) for one in got.series} == {3}
        assert {one.within[0] is None for one in got.series if one.metric == "compile_warm"} == {
            True
        }
        assert (got.runs, got.tool_version) == ((PastRun(id="r", at="2026-01-01T00:00:00Z"),), "9")
        assert got.fingerprint == fingerprint(head.environment.identity)

    def test_is_a_sound_document(self):
        got = collect(*simulate(2), tool_version="1")

        assert validate(to_json(got), Kind.CALIBRATION) == ()

    def test_memory_and_counts_teach_nothing(self):
        both = results(result(peak(1, 1), metric(launches([1, 2, 3]))))

        assert [one.metric for one in collect(both, both, tool_version="1").series] == ["step_time"]

    def test_what_cannot_be_used_is_left_out(self):
        base = results(
            result(metric(launches([1.0], [0.0])), metric(launches([1.0], [1.0]), arm="jit"))
        )
        head = results(result(metric(launches([1.0], [2.0])), metric(launches([1.0]), arm="jit")))

        (series,) = collect(base, head, tool_version="1").series
        assert (series.arm, series.ratios) == ("jit", (0.0,))

    def test_a_factor_that_nobody_measures_is_left_out(self):
        base, head = (results(result(metric(launches([1.0], [x])))) for x in (1.0, 1e12))

        assert collect(base, head, tool_version="1").series[0].ratios == (0.0,)

    def test_a_spread_inside_a_launch_that_nobody_measures_is_not_known(self):
        blocks = (0, 0, 1, 1, 2, 2)
        sides = [(1.0,) * 6, (1e-10, 1e-10, 1.0, 1.0, 1e10, 1e10)]
        got = collect(
            *(
                results(result(metric((Launch(launch=0, values=of, blocks=blocks),))))
                for of in sides
            ),
            tool_version="1",
        )

        assert [(one.ratios, one.within) for one in got.series] == [((0.0,), (None,))]
        assert not [*calibration_faults(got)]

    def test_another_machine_is_refused(self):
        base, head = simulate(3)
        other = replace(base, environment=replace(base.environment, identity={"gpu": "A100"}))

        with pytest.raises(BadInput, match="different machines"):
            collect(other, head, tool_version="1")

    def test_another_commit_is_refused(self):
        base, head = simulate(4)
        sides = (
            replace(base, source=Source(commit="aaaaaaa")),
            replace(head, source=Source(commit="bbbbbbb")),
        )

        with pytest.raises(
            BadInput, match="aaaaaaa and bbbbbbb; a calibration measures one commit against itself"
        ):
            collect(*sides, tool_version="1")
        assert collect(
            sides[0], replace(head, source=Source(commit="aaaaaaa")), tool_version="1"
        ).series


class TestMerging:
    def test_appends(self):
        old, new = document(past([0.1, 0.2]), runs=[day(1)]), document(past([0.3]), runs=[day(2)])

        merged = merge(old, new)
        assert merged.series == (past([0.1, 0.2, 0.3], [0, 0, 1]),)
        assert merged.runs == (day(1), day(2))
        assert merge(None, new) is new

    def test_a_run_counts_once(self):
        one = document(past([0.1, 0.2]), runs=[day(1)])

        assert merge(merge(one, one), one) == one

    def test_runs_are_in_order_whichever_comes_first(self):
        late, early = document(past([0.2]), runs=[day(9)]), document(past([0.1]), runs=[day(2)])

        assert merge(late, early).series == merge(early, late).series == (past([0.1, 0.2], [0, 1]),)

    def test_keeps_the_last_launches_of_each_metric(self):
        merged = None
        for number in range(1, 28):
            merged = merge(merged, document(past([number / 2] * 10), runs=[day(number)]))

        (series,) = merged.series
        assert len(series.ratios) == MOST_LAUNCHES
        assert (series.ratios[0], series.ratios[-1]) == (4.0, 13.5)
        assert merged.runs[0] == day(8), "runs that nothing needs go"
        assert not [*calibration_faults(merged)]

    def test_what_is_older_than_half_a_year_goes(self):
        old = document(
            past([0.1]), past([0.5], name=("s/gone", "step_time", "eager")), runs=[day(1)]
        )
        new = document(past([0.2]), runs=[PastRun(id="late", at="2026-07-20T00:00:00Z")])

        merged = merge(old, new)
        assert [run.id for run in merged.runs] == ["late"]
        assert merged.series == (past([0.2]),)

    @pytest.mark.parametrize(
        ("at", "kept"), [("2026-07-03T00:00:00Z", 2), ("2026-07-03T00:00:01Z", 1)]
    )
    def test_half_a_year_is_183_days(self, at, kept):
        merged = merge(
            document(past([0.1]), runs=[day(1)]),
            document(past([0.2]), runs=[PastRun(id="late", at=at)]),
        )

        assert len(merged.runs) == kept

    def test_the_number_of_runs_is_bounded(self):
        runs = [PastRun(id=f"r{number}", at="2026-01-01T00:00:00Z") for number in range(1002)]
        many = document(
            *(past([0.1], [number], name=("s/a", "t", f"a{number}")) for number in range(1002)),
            runs=runs,
        )

        merged = merge(document(), many)
        assert (len(merged.runs), len(merged.series)) == (1000, 1000)
        assert merged.runs[0].id == "r2"

    def test_metrics_come_and_go(self):
        other = past([0.7], name=("s/new", "step_time", "jit"))
        merged = merge(document(past([0.1]), runs=[day(1)]), document(other, runs=[day(2)]))

        assert [one.runs for one in merged.series] == [(0,), (1,)]

    def test_of_another_machine_is_refused(self):
        with pytest.raises(
            BadInput, match="different machines: they differ in gpu; keep one for each"
        ):
            merge(document(identity={"gpu": "A"}), document(identity={"gpu": "B"}))

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(st.integers(1, 28), st.integers(1, 3)), min_size=1, max_size=8))
    def test_is_always_a_sound_document(self, runs):
        merged = None
        for number, count in runs:
            names = [NAME, ("s/c1", "step_time", "eager")][: count % 2 + 1]
            new = document(*(past([0.01] * count, name=name) for name in names), runs=[day(number)])
            merged = merge(merged, new)

        assert validate(to_json(merged), Kind.CALIBRATION) == ()
        assert {run.id for run in merged.runs} == {f"r{number}" for number, _ in runs}


class TestLearning:
    def test_by_hand(self):
        known = document(past([0.01, -0.02, 0.02], [0, 0, 1]), runs=[day(1), day(31)])
        got = learned(known, [NAME], now="2026-01-31T00:00:00Z")
        weights = np.array([0.5, 0.5, 1.0])

        assert got.spread == pytest.approx(
            [math.sqrt(np.sum(weights * np.array([0.01, 0.02, 0.02]) ** 2) / 2)]
        )
        assert got.freedom == pytest.approx([4 / 1.5])
        assert got.within == pytest.approx([0.01])

    def test_is_in_the_order_asked_for_and_unknown_stays_unknown(self):
        other = ("s/c1", "step_time", "eager")
        known = document(past([0.02] * 4), past([0.04] * 5, name=other), runs=[day(1)])
        got = learned(known, [other, ("s/nobody", "x", "y"), NAME], now=NOW)

        assert got.spread == pytest.approx([0.04, math.nan, 0.02], nan_ok=True)
        assert got.freedom == pytest.approx([5.0, 0.0, 4.0])

    def test_nothing_is_known_without_a_calibration(self):
        got = learned(None, [NAME, NAME], now=NOW)

        assert np.isnan(got.spread).all()
        assert (got.freedom == 0).all()

    def test_an_empty_one_knows_nothing(self):
        assert np.isnan(learned(document(), [NAME], now=NOW).spread).all()
        assert learned(calibrated(), [], now=NOW).spread.shape == (0,)

    def test_half_a_year_is_forgotten_and_the_future_is_now(self):
        known = document(past([0.01] * 4, [0, 0, 1, 1]), runs=[day(1), day(2)])

        assert np.isnan(learned(known, [NAME], now="2026-12-31T00:00:00Z").spread).all()
        assert learned(known, [NAME], now="2020-01-01T00:00:00Z").freedom == pytest.approx([4.0])

    def test_what_is_forgotten_says_nothing_of_the_spread_inside_launches_either(self):
        known = document(
            past([0.01] * 5, [0, 0, 0, 1, 1], within=[0.9, 0.9, 0.9, 0.01, 0.02]),
            runs=[day(1), day(2)],
        )

        last, next_day = (
            learned(known, [NAME], now=f"2026-07-0{number}T00:00:00Z") for number in (3, 4)
        )
        assert (last.within.tolist(), next_day.within.tolist()) == ([0.9], [pytest.approx(0.015)])
        assert last.freedom > 4.9
        assert next_day.freedom == pytest.approx([2.0])

    def test_what_launches_of_a_run_share_is_learned_too(self):
        rng = np.random.default_rng(2)
        common = 0.01 * rng.standard_normal(25)
        names = [(f"s/c{i}", "step_time", "eager") for i in range(8)]
        runs = np.repeat(np.arange(25), 2)
        rows = [common.repeat(2) + 0.003 * rng.standard_normal(50) for _ in names]
        known = document(
            *(past(row, runs.tolist(), name=name) for row, name in zip(rows, names, strict=True)),
            runs=[day(1, f"r{i}") for i in range(25)],
        )
        got = learned(known, names, now=day(1).at)

        assert got.bound == pytest.approx(with_runs(got, np.array(rows), runs).bound)
        assert (got.bound > 0.005).all()

    def test_runs_are_told_apart_by_small_numbers(self):
        """However many runs a document names, what is computed of them stays small."""
        assert calibrating._ranks(np.array([[5, 5, 900], [0, 7, 8]])).tolist() == [
            [0, 0, 1],
            [0, 1, 2],
        ]
        assert calibrating._ranks(np.empty((2, 0), dtype=np.intp)).shape == (2, 0)

    def test_what_was_planted_is_learned(self):
        """Launch offsets of 0.3 % a side and 0.8 % of white noise in 20 samples."""
        known = calibrated(runs=25, cases=1, launches=4)
        got = learned(
            known, [NAME, ("s/c0", "compile_warm", "inductor")], now="2026-01-25T00:00:00Z"
        )

        assert got.spread[0] == pytest.approx(math.hypot(0.003 * math.sqrt(2), 0.0035), rel=0.25)
        assert got.spread[1] == pytest.approx(0.05 * math.sqrt(2), rel=0.25)


class TestMoments:
    def test_text_and_datetimes_are_the_same(self):
        assert (
            instant("2026-01-31T00:00:00Z")
            == instant(datetime(2026, 1, 31, tzinfo=UTC))
            == instant("2026-01-31T00:00:00")
        )

    @pytest.mark.parametrize("wrong", ["", "soon", "2026-13-45T00:00:00Z"])
    def test_anything_else_is_refused(self, wrong):
        with pytest.raises(BadInput, match="is not a moment of time"):
            instant(wrong)


class TestTelling:
    def test_the_noise_floor_by_metric_the_noisiest_first(self):
        floors = noise_floors(calibrated(), now=NOW)

        assert [floor.spread for floor in floors] == sorted(
            (floor.spread for floor in floors), reverse=True
        )
        assert floors[0].metric == "compile_warm"
        assert all(floor.resolvable > floor.spread for floor in floors)

    def test_in_words(self):
        (floor,) = noise_floors(document(past([0.004, -0.004] * 10), runs=[day(1)]), now=NOW)

        assert floor.text == "launch-to-launch sd 0.4 %; resolvable 2 % at 3 launches"
        assert floor.past == 20

    def test_more_launches_tell_more(self):
        known = calibrated()
        few, many = (
            {
                (f.case, f.metric, f.arm): f.resolvable
                for f in noise_floors(known, now=NOW, launches=n)
            }
            for n in (2, 12)
        )

        assert all(many[name] < few[name] for name in few)

    @pytest.mark.parametrize("metrics", [1, 2])
    def test_all_metrics_share_the_chance_of_a_false_alarm(self, metrics):
        names = [(f"s/c{number}", "step_time", "eager") for number in range(metrics)]
        known = document(*(past([0.01] * 8, name=name) for name in names), runs=[day(1)])
        history = learned(known, names, now=day(1).at)

        (floor, *_) = noise_floors(known, now=day(1).at)
        assert floor.resolvable == pytest.approx(
            math.expm1(resolvable(history, 3, SequentialRule(gating=metrics))[0])
        )

    def test_too_short_a_history_tells_nothing(self):
        assert noise_floors(document(past([0.01] * 3), runs=[day(1)]), now=NOW) == ()

    @pytest.mark.parametrize(
        ("identity", "words"),
        [
            ({"gpu": "H200"}, "2 runs of unchanged code against itself, the last of 2026-01-02"),
            ({"gpu": "A100"}, "not used, it is of another machine: they differ in gpu"),
            (
                {"gpu": "H200", "torch": None},
                "not used, it is of another machine: they differ in torch",
            ),
        ],
    )
    def test_where_the_noise_is_known_from(self, identity, words):
        known = document(past([0.1, 0.2], [0, 1]), runs=[day(1), day(2)])
        used, said = describe(known, identity)

        assert said == words
        assert (used is known) is said.startswith("2 runs")

    def test_why_it_is_not_known(self):
        assert describe(None, {})[1].startswith("none; run ci-bench calibrate")
        assert describe(document(identity={}), {}) == (None, "not used, it holds no run")

    def test_a_forged_fingerprint_says_so(self):
        forged = replace(document(identity={"gpu": "A"}), fingerprint="sha256:0")

        assert (
            describe(forged, {"gpu": "A"})[1]
            == "not used, it is of another machine: their digests differ"
        )


def test_hostile_sizes_stay_quick_and_small():
    """As large as the schema allows for one metric, many times."""
    names = [(f"s/c{i}", "step_time", "eager") for i in range(2000)]
    runs = [day(1, f"r{i}") for i in range(200)]
    known = document(*(past([20.0] * 200, range(200), name=name) for name in names), runs=runs)

    assert learned(known, names, now=NOW).spread == pytest.approx(np.full(2000, 20.0))
    assert calibrating.MOST_RUNS == 1000


class TestImplausibleNoise:
    """A rule that knows of noise which no machine has would let any change pass."""

    def test_it_is_refused_by_name(self):
        wild, calm = past([1.6, -1.6] * 4), past([0.01] * 8, name=("s/c1", "step_time", "eager"))
        usable, words = describe(document(wild, calm, runs=[day(1)]), {"gpu": "H200"})
        assert usable.series == (calm,)
        assert (
            "not used for step_time of s/c0 (eager): launches of unchanged code differ by 395.3 %"
            in words
        )
        assert "calibrate again" in words

    def test_a_noisy_machine_is_believed(self):
        noisy = past([0.3, -0.3, 0.5, -0.1])
        usable, words = describe(document(noisy, runs=[day(1)]), {"gpu": "H200"})
        assert usable.series == (noisy,)
        assert "not used" not in words
