"""The benchmark of the history: its noise is what it says, its contenders do what they are called, its store is a store."""

import numpy as np
import pytest
from benchmarks.history_store import generated, written

from benchmarks import history_quality
from ci_bench.history.compaction import BYTES_PER_RUN, BYTES_PER_VALUE


def rng():
    return np.random.Generator(np.random.PCG64(1))


@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_the_noise_has_its_spread_and_follows_itself_as_much_as_it_says(rho):
    values = history_quality.noise(rng(), 20, 2_000, rho)
    lagged = np.mean(values[:, 1:] * values[:, :-1]) / np.mean(values**2)
    assert (values.std(), lagged) == (pytest.approx(1.0, abs=0.05), pytest.approx(rho, abs=0.05))


def test_a_plain_threshold_sees_any_value_that_stands_out():
    values = np.ones(40)
    values[20] = 1.03
    assert history_quality.plain(values) == [20]


def test_a_null_series_is_quiet_and_a_step_is_seen(monkeypatch):
    monkeypatch.setattr(history_quality, "RUNS", 300)
    assert history_quality.false_series(rng(), 0.0, 50, history_quality.ours) <= 0.02
    assert history_quality.false_series(rng(), 0.0, 50, history_quality.plain) > 0.9
    assert history_quality.seen_within(rng(), 0.0, 20) >= 0.7


def test_what_is_planted_is_what_it_is_called():
    assert history_quality.stepped(10, (4, 0.02)) == pytest.approx([0.0] * 4 + [np.log(1.02)] * 6)
    assert np.exp(history_quality.sloped(60, 10, 50, 0.003))[[10, 11, 50, 59]] == pytest.approx(
        [1, 1.003, 1.003**40, 1.003**40]
    )


def test_steps_are_called_steps_and_drifts_drifts(monkeypatch):
    monkeypatch.setattr(history_quality, "RUNS", 100)
    rows = {
        row["planted"]: float(row["drift said, white"].removesuffix(" %"))
        for row in history_quality.slow_or_sudden(rng(), 20)
    }
    assert rows["0.3 % a run over 40 of 100"] >= 90
    assert max(rows[name] for name in history_quality.STEPS) <= 5


def test_store_and_page_are_written_and_measured(tmp_path):
    figures = written(generated(np.ones((10, 100))), tmp_path / "store", tmp_path / "trend.html")
    assert figures["compacted, bytes"] < figures["records, bytes"]
    assert figures["compacted, bytes"] <= BYTES_PER_VALUE * 1_000 + BYTES_PER_RUN * 100
    assert figures["page, bytes"] == (tmp_path / "trend.html").stat().st_size
