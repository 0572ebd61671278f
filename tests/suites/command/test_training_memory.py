"""Memory of a training of one's own: what each step leaves allocated, and the peak of the whole process."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from command_builders import measure_here

import ci_bench
from ci_bench.formats.series import Unreadable
from ci_bench.formats.training_log import read
from ci_bench.judge.times.metrics import by_memory
from ci_bench.records.comparison import Verdict
from ci_bench.records.results import Status
from ci_bench.suites.command import ALLOCATED_GROWTH, stepping, training

KIB, MIB = 1024, 1024**2
LOGITS = 12 * 64 * 65 * 4
"""The bytes of one step's logits in nanoGPT's smallest training."""
TRAINER = """
import ci_bench

LOGITS = 12 * 64 * 65 * 4


def train():
    kept = []
    for step in range(24):
        logits = bytearray(LOGITS)
        # kept.append(logits)
        yield ci_bench.Step(loss=2.0 / (step + 1))


if __name__ == "__main__":
    for number, step in enumerate(train()):
        print(f"step {number} loss {step.loss:.6f}", flush=True)
"""


def records(*readings, peaks=()):
    """A rank's records, with the bytes in use after each step."""
    lines = [
        json.dumps({"loss": 1.0, "allocated_bytes": reading, "rank": rank})
        for rank, own in enumerate(readings)
        for reading in own
    ]
    lines += [json.dumps({"loss": 1.0, "peak_allocated_bytes": peak}) for peak in peaks]
    return read("\n".join(lines), {}).ranks


def measured(ranks, warmup_steps=3):
    return {
        metric.name: metric.launches[0].values
        for metric in training.memory(ranks, "loop", launch=0, warmup_steps=warmup_steps)
    }


def test_growth_starts_after_the_warm_up() -> None:
    filling = [0, 5 * MIB, 9 * MIB]
    flat = [9 * MIB + 100 * (step % 3) for step in range(20)]
    leaking = [9 * MIB + LOGITS * step for step in range(20)]
    assert measured(records(filling + flat))["allocated_growth"][0] < KIB
    assert measured(records(filling + leaking))["allocated_growth"] == (LOGITS,)


def test_the_rank_that_grows_most_counts() -> None:
    still, growing = [MIB] * 20, [MIB + 50 * KIB * step for step in range(20)]
    assert measured(records(still, growing, still))["allocated_growth"] == (50 * KIB,)


@pytest.mark.parametrize(("steps", "names"), [(10, set()), (11, {"allocated_growth"})])
def test_few_readings_show_no_growth(steps, names) -> None:
    assert measured(records([MIB] * steps)).keys() == names


def test_programs_without_readings_have_no_growth() -> None:
    assert not measured(read("\n".join(f"step {step} loss 1.5" for step in range(20)), {}).ranks)


def test_the_highest_peak_counts() -> None:
    assert measured(records(peaks=[5 * MIB, 7 * MIB, 7 * MIB])) == {"peak_allocated": (7 * MIB,)}


def test_a_broken_reading_is_refused() -> None:
    with pytest.raises(Unreadable, match="allocated_bytes: -1 is not a whole number"):
        records([-1])


def test_allocated_bytes_are_exact() -> None:
    before = stepping.read_memory()["allocated_bytes"]
    kept = [bytearray(LOGITS) for _ in range(10)]
    assert stepping.read_memory()["allocated_bytes"] - before == pytest.approx(
        10 * LOGITS, rel=0.01
    )
    assert len(kept) == 10


@pytest.mark.parametrize("initialized", [True, False])
def test_gpus_count_once_they_are_used(monkeypatch, initialized) -> None:
    cuda = SimpleNamespace(
        is_initialized=lambda: initialized,
        device_count=lambda: 2,
        memory_allocated=lambda device: (3 + device) * 1024**3,
        max_memory_allocated=lambda device: (8 - device) * 1024**3,
    )
    monkeypatch.setitem(stepping.sys.modules, "torch", SimpleNamespace(cuda=cuda))
    found = stepping.read_memory()
    assert (found["allocated_bytes"] > 7 * 1024**3) is initialized
    assert found.get("peak_allocated_bytes") == (8 * 1024**3 if initialized else None)


def test_reading_memory_takes_no_time_of_a_step(tmp_path, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setenv("CI_BENCH_OUTPUT", str(tmp_path / "steps"))
    monkeypatch.setattr(stepping, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(stepping, "read_memory", lambda: now.__setitem__(0, now[0] + 5) or {})
    for _ in range(3):
        now[0] += 1
        ci_bench.step(loss=1.0)
    (steps,) = training.step_times(read((tmp_path / "steps").read_text(), {}).ranks)
    assert steps == (1.0, 1.0)


def twice(metric):
    """The metric as two launches have it that repeat exactly."""
    (launch,) = metric.launches
    return replace(metric, launches=(launch, replace(launch, launch=1)))


def test_leaks_are_found_and_unchanged_trainings_pass(tmp_path) -> None:
    """A leak of logits in a loop, the same loop without it, and a program that only prints its losses."""
    (tmp_path / "tree").mkdir()
    for name, text in (("same", TRAINER), ("leak", TRAINER.replace("# kept", "kept"))):
        (tmp_path / "tree" / f"{name}.py").write_text(text)
    losses = {"rounding": [], "warmup_steps": 3}
    loops = [{"name": name, "loop": f"{name}:train", "losses": losses} for name in ("same", "leak")]
    prints = {"name": "prints", "command": ["python", "same.py"], "losses": losses}
    same, leak, printed = measure_here(tmp_path, *loops, prints)
    assert {same.status, leak.status, printed.status} == {Status.OK}, printed.failure
    before, after = ({metric.name: twice(metric) for metric in row.metrics} for row in (same, leak))
    assert before.keys() == after.keys() == {"step_time", "allocated_growth", "peak_rss"}
    assert {metric.name for metric in printed.metrics} == {"step_time", "peak_rss"}
    assert after["allocated_growth"].launches[0].values[0] == pytest.approx(LOGITS, rel=0.02)
    kind = ALLOCATED_GROWTH
    found = [
        by_memory(
            before["allocated_growth"], head["allocated_growth"], kind.threshold, least=kind.least
        ).verdict
        for head in (after, before)
    ]
    assert found == [Verdict.REGRESSED, Verdict.UNCHANGED]
