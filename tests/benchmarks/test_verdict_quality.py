"""The benchmarks run, plant what they say, and count right.

Their figures are published elsewhere, from many more runs.
"""

import json

import numpy as np
import pytest
from benchmarks.contenders import OURS, Outcome

from benchmarks import anchors, judge_scale, noise_models, verdict_quality


def generator(seed=1):
    return np.random.Generator(np.random.PCG64(seed))


@pytest.fixture(scope="module")
def scored():
    pairs = [(OURS.name, "mix"), ("dynamo median of 30, 5 %", "mix")]
    return verdict_quality.score(pairs, runs=30, seed=1)


class TestVerdictQuality:
    def test_planted_slowdowns_are_found_and_none_is_not(self, scored):
        ours, _ = scored
        assert ours.false_alarms <= 1
        assert ours.found["0.5"] < 0.05
        assert ours.found["5"] > 0.9
        assert ours.found["10"] > 0.95

    def test_a_fixed_threshold_is_caught_out(self, scored):
        _, dynamo = scored
        assert dynamo.false_alarms >= 3
        assert dynamo.found["5"] < 0.7

    def test_a_rule_without_intervals_has_no_coverage(self, scored):
        ours, dynamo = scored
        assert 0.9 < ours.coverage < 1.0
        assert dynamo.coverage is None

    def test_costs_follow_the_model(self, scored):
        ours, dynamo = scored
        assert dynamo.gpu_seconds == pytest.approx(2 * (8 / 50 + 1 + 30 * 0.05))
        assert ours.gpu_seconds == pytest.approx(ours.launches * 4.32)
        assert ours.gpu_seconds_strict > ours.gpu_seconds

    def test_the_number_of_processes_changes_nothing(self, scored):
        pair = [("dynamo median of 30, 5 %", "mix")]
        assert verdict_quality.score(pair, runs=30, seed=1, jobs=2) == [scored[1]]

    def test_prints_a_table_and_writes_json(self, tmp_path, capsys):
        path = tmp_path / "quality.json"
        verdict_quality.main(
            ["--runs", "2", "--model", "clock steps", "--rule", OURS.name, "--json", str(path)]
        )
        assert f"| {OURS.name} | clock steps |" in " ".join(capsys.readouterr().out.split())
        assert json.loads(path.read_text())["results"][0]["runs"] == 2

    def test_an_alarm_about_a_build_is_right(self):
        red = np.zeros((4, 3), dtype=bool)
        red[1:, 0] = True
        builds = np.zeros((4, 3))
        builds[2:, 0] = [0.01979, 0.01981]  # the threshold is a logarithm of 0.01980
        outcome = Outcome(
            regressed=red,
            improved=None,
            unchanged=None,
            covered=None,
            launches=np.ones((4, 3), dtype=int),
            builds=builds,
        )
        counts = verdict_quality._count_clean(outcome, 20).counts
        assert (counts["alarm"], counts["false_alarm"]) == (3, 2)

    def test_unchanged_is_wrong_of_what_is_slow_with_its_build(self):
        change = np.full((1, 4), np.log(1.04))
        change[0, 0] = 0.0
        outcome = Outcome(
            regressed=np.zeros((1, 4), dtype=bool),
            improved=None,
            unchanged=np.ones((1, 4), dtype=bool),
            covered=np.ones((1, 4), dtype=bool),
            launches=np.ones((1, 4), dtype=int),
            builds=np.array([[0.0, -0.001, 0.0, 0.001]]),
        )
        kind = np.zeros((1, 4), dtype=int)
        counts = verdict_quality._count_planted(
            lambda _: outcome, 100 * change, 4.0, kind, 20
        ).counts
        assert (counts["slow"], counts["wrong_unchanged"]) == (2, 2)

    @pytest.mark.parametrize(
        ("successes", "trials", "low", "high"),
        [(0, 2000, 0, 0.001843), (3, 2000, 0.000309, 0.004377), (5, 5, 0.478, 1)],
    )
    def test_the_interval_is_exact(self, successes, trials, low, high):
        assert verdict_quality.clopper_pearson(successes, trials) == pytest.approx(
            (low, high), rel=2e-3
        )


class TestNoiseModels:
    def test_the_spread_of_launches_is_the_one_described(self):
        setting = noise_models.MIX
        suite = noise_models.draw_suite(generator(), setting, 40, 50)
        base, head = noise_models.draw_launches(generator(2), suite, 4, 20)
        d = np.median(head, axis=-1) - np.median(base, axis=-1)
        spread = {
            one.name: d[suite.kind == index].std() for index, one in enumerate(setting.classes)
        }
        expected = {"quiet": 0.2, "boost": 0.65, "dispatch": 1.95, "bimodal": 2.9, "heavy": 0.8}
        assert spread == pytest.approx(expected, rel=0.2)

    @pytest.mark.parametrize("setting", noise_models.SETTINGS, ids=lambda one: one.name)
    def test_no_model_favours_a_side(self, setting):
        suite = noise_models.draw_suite(generator(), setting, 20, 50)
        base, head = noise_models.draw_launches(generator(2), suite, 2, 10)
        d = np.median(head, axis=-1) - np.median(base, axis=-1)
        assert np.isfinite(d).all()
        assert abs(np.mean(d)) < 4 * d.std() / np.sqrt(d.size)

    @pytest.mark.parametrize(
        ("name", "least"),
        [
            ("case offsets of runs 0.5 %, new", 0.45),
            ("common offset of runs 1 %, new", 0.6),
            ("run-bound offsets", 0.15),
        ],
    )
    def test_what_a_build_has_is_in_each_launch(self, name, least):
        suite = noise_models.draw_suite(generator(), verdict_quality.MODELS[name], 10, 50)
        base, head = noise_models.draw_launches(generator(2), suite, 16, 8)
        d = np.mean(np.median(head, axis=-1) - np.median(base, axis=-1), axis=-1)
        assert suite.builds.std() > least
        rest = d - suite.builds
        assert abs(np.corrcoef(rest.ravel(), suite.builds.ravel())[0, 1]) < 0.2
        assert rest.std() < d.std()

    def test_without_such_a_model_builds_are_alike(self):
        suite = noise_models.draw_suite(generator(), noise_models.MIX, 2, 50)
        noise_models.draw_launches(generator(2), suite, 2, 8)
        assert not suite.builds.any()

    def test_the_same_seed_draws_the_same(self):
        suites = [noise_models.draw_suite(generator(), noise_models.MIX, 2, 50) for _ in range(2)]
        one, two = (noise_models.draw_launches(generator(3), suite, 2, 8)[0] for suite in suites)
        np.testing.assert_array_equal(one, two)


class TestAnchors:
    @pytest.mark.parametrize("anchor", anchors.ANCHORS, ids=lambda one: one.name)
    def test_sees_what_is_far_beyond_its_noise_and_nothing_in_equal_samples(self, anchor):
        samples = 0.1 * generator().standard_normal((2, 3, anchor.launches, anchor.samples)).astype(
            np.float32
        )
        slower, used = anchor.decide(samples, samples + np.float32(100))
        assert slower.all()
        assert (used >= 1).all()
        assert not anchor.decide(samples, samples)[0].any()

    def test_smirnov_by_hand(self):
        one = np.array([[0.0, 1.0, 2.0]], dtype=np.float32)
        assert anchors._smirnov(one, one + 10) == pytest.approx([2 / 20])
        assert anchors._smirnov(one, one + 0.5) == pytest.approx([1.0])


def test_scale_is_measured(capsys):
    judge_scale.main(["--cases", "200"])
    assert "| 200 " in capsys.readouterr().out
