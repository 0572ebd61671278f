"""The fence, the number of calls, and the warm-up rule."""

import gc

import numpy as np
import pytest

from ci_bench.worker import fence as timing

SAMPLES = timing.WINDOWS * timing.WINDOW_SAMPLES


class FakeTime:
    """A clock that only steps and synchronising move, and a log of what was called."""

    def __init__(
        self, monkeypatch, *, step_s: float = 0.0, pending_s: float = 0.0, ramp_s: float = 0.0
    ) -> None:
        self.now, self.calls, self.log = 0.0, 0, []
        self.step_s, self.pending_s, self.ramp_s = step_s, pending_s, ramp_s
        self.owed = 0.0
        for timed in (timing.time_calls, timing.warm_up):
            monkeypatch.setitem(timed.__kwdefaults__, "now", self.read)

    def read(self) -> float:
        self.log.append("clock")
        return self.now

    def step(self) -> None:
        self.log.append("step")
        self.now += self.step_s + max(0.0, self.ramp_s * (20 - self.calls))
        self.owed += self.pending_s
        self.calls += 1

    def take(self, calls: int = 1) -> float:
        return timing.time_calls(self.step, calls=calls, synchronize=self.synchronize)

    def synchronize(self) -> None:
        self.log.append("synchronize")
        self.now += self.owed
        self.owed = 0.0


def test_the_fence_is_synchronise_start_work_synchronise_stop(monkeypatch) -> None:
    fake = FakeTime(monkeypatch)
    timing.time_calls(fake.step, calls=2, synchronize=fake.synchronize)
    assert fake.log == ["synchronize", "clock", "step", "step", "synchronize", "clock"]


def test_work_that_is_only_queued_is_timed_too_and_earlier_work_is_not(monkeypatch) -> None:
    fake = FakeTime(monkeypatch, step_s=0.001, pending_s=0.01)
    fake.step()
    assert timing.time_calls(fake.step, calls=4, synchronize=fake.synchronize) == pytest.approx(
        0.011
    )


@pytest.mark.parametrize(
    ("step_s", "sample_s", "calls"), [(1.0, 0.5, 1), (0.5, 0.5, 1), (0.25, 0.5, 2), (0.1, 0.5, 8)]
)
def test_a_sample_lasts_long_enough_and_not_twice_too_long(
    monkeypatch, step_s, sample_s, calls
) -> None:
    fake = FakeTime(monkeypatch, step_s=step_s)
    assert timing.find_calls(fake.take, sample_s=sample_s) == calls


def test_a_slow_first_time_does_not_make_samples_too_short() -> None:
    """A call takes 1.25 ms, and the first four take five each."""
    slow = iter([0.005])
    assert (
        timing.find_calls(
            lambda calls: next(slow, 0.00125) if calls == 4 else 0.00125, sample_s=0.02
        )
        == 16
    )


def test_a_long_step_is_timed_only_once() -> None:
    taken: list[int] = []
    assert timing.find_calls(lambda calls: taken.append(calls) or 5.0, sample_s=0.02) == 1
    assert taken == [1]


def test_a_step_that_takes_no_time_does_not_search_for_ever(monkeypatch) -> None:
    monkeypatch.setattr(timing, "MAX_CALLS", 64)
    fake = FakeTime(monkeypatch)
    assert timing.find_calls(fake.take, sample_s=0.02) == 64


def _noise(scale: float) -> np.ndarray:
    return scale * np.random.default_rng(3).standard_normal(SAMPLES)


ROWS = np.arange(SAMPLES)
SERIES = {
    "flat": (np.full(SAMPLES, 0.01), True),
    "a trend below one per cent": (0.01 * (1 + 0.008 * ROWS / SAMPLES), True),
    "one outlier": (np.where(ROWS == 7, 0.1, 0.01), True),
    "a ramp down": (0.01 * (1 + 0.2 * (SAMPLES - ROWS) / SAMPLES), False),
    "a ramp up (throttling)": (0.01 * (1 + 0.2 * ROWS / SAMPLES), False),
    "a planted trend of five per cent under noise of one": (
        0.01 * (1 + 0.05 * ROWS / SAMPLES + _noise(0.01)),
        False,
    ),
    "a step in the middle": (np.where(ROWS < 8, 0.02, 0.01), False),
    "too few": (np.full(SAMPLES - 1, 0.01), False),
    "none": (np.empty(0), False),
}


@pytest.mark.parametrize("name", SERIES)
def test_steady_means_no_trend_worth_naming(name: str) -> None:
    values, steady = SERIES[name]
    assert timing.is_steady(list(values)) is steady


@pytest.mark.parametrize("seed", range(10))
def test_noise_alone_makes_warming_up_longer_but_does_not_keep_it_from_ending(seed: int) -> None:
    values = list(0.01 * (1 + 0.05 * np.random.default_rng(seed).standard_normal(200)))
    assert any(timing.is_steady(values[:end]) for end in range(SAMPLES, 200))


@pytest.mark.parametrize("seed", range(10))
def test_a_planted_trend_of_one_per_cent_a_sample_is_seen_through_noise_of_half_a_per_cent(
    seed: int,
) -> None:
    noise = 0.005 * np.random.default_rng(seed).standard_normal(60)
    values = list(0.01 * (1 + 0.01 * np.arange(60) + noise))
    assert not any(timing.is_steady(values[:end]) for end in range(SAMPLES, 60))


def test_only_the_last_windows_count() -> None:
    assert timing.is_steady([1.0, 0.5, 0.1, *[0.01] * SAMPLES])


def test_warming_up_ends_when_steady(monkeypatch) -> None:
    fake = FakeTime(monkeypatch, step_s=0.01, ramp_s=0.001)
    values, steady = timing.warm_up(fake.take, limit_s=100, samples=20)
    assert steady
    assert 20 < len(values) < 20 + SAMPLES + 1
    assert values[0] == pytest.approx(0.03)


def test_warming_up_ends_with_the_time_and_says_that_it_is_not_steady(monkeypatch) -> None:
    fake = FakeTime(monkeypatch, step_s=1.0, ramp_s=10)
    values, steady = timing.warm_up(fake.take, limit_s=5, samples=20)
    assert (len(values), steady) == (timing.MIN_WARMUP_CALLS, False)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_held_off_and_put_back(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with timing.hold_garbage_collector():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
