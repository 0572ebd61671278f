"""How many steps and seconds a training of one's own takes to a target loss."""

import json
import math

import pytest
from command_builders import measure_here

from ci_bench.formats.training_log import read
from ci_bench.records.metrics import STEP_TIME
from ci_bench.suites.command import METRICS, STEPS_TO_TARGET, TIME_TO_TARGET, training

FALLING = [2.0 - 0.1 * step for step in range(12)]


def steps(*losses, target=1.5):
    lines = [
        json.dumps({"loss": loss, "rank": rank}) for rank, own in enumerate(losses) for loss in own
    ]
    found = training.to_target(
        read("\n".join(lines), {}).ranks, (), "loop", launch=0, target=target
    )
    return [metric.launches[0].values for metric in found]


@pytest.mark.parametrize(
    ("losses", "target", "reached"),
    [
        ((FALLING,), 1.8, [(5.0,)]),
        ((FALLING,), 1.5, [(8.0,)]),
        ((FALLING,), 0.5, []),
        ((FALLING,), None, []),
        ((FALLING[:4],), 2.0, []),
        (([2.0, 0.1, 2.0, 2.0, 2.0, 2.0, 2.0],), 1.5, []),
        ((FALLING, [loss + 1 for loss in FALLING]), 2.0, [(8.0,)]),
    ],
    ids=["at once", "later", "never", "not asked", "few steps", "one easy batch", "ranks"],
)
def test_the_mean_of_five_steps_counts(losses, target, reached) -> None:
    assert steps(*losses, target=target) == reached


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_reaches_nothing(odd) -> None:
    assert steps([odd] * 5 + FALLING[:2]) == []


def test_it_is_shown_only() -> None:
    for kind in (STEPS_TO_TARGET, TIME_TO_TARGET):
        assert kind in METRICS
        assert not kind.gates


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ([[0.5] + [0.25] * 11], [2.25]),
        ([[0.25] * 11], [1.75]),
        ([[0.25] * 12, [0.5] * 12], [4.0]),
        ([], []),
        ([[0.25] * 9], []),
    ],
    ids=["each step", "without the first", "the slowest rank", "no times", "too few"],
)
def test_seconds_are_those_of_its_steps(times, seconds) -> None:
    lines = [
        json.dumps({"loss": loss, "rank": rank})
        for rank in range(len(times) or 1)
        for loss in FALLING
    ]
    found = training.to_target(
        read("\n".join(lines), {}).ranks, times, "loop", launch=0, target=1.5
    )
    assert [
        metric.launches[0].values[0] for metric in found if metric.name == TIME_TO_TARGET.name
    ] == seconds


def test_each_launch_has_it(tmp_path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "train.py").write_text(
        "import time\nfor step in range(12):\n    time.sleep(0.05)  # lines that come at the end of the program have no times\n"
        "    print(f'step {step} loss {2.0 - 0.1 * step:.6f}', flush=True)\n"
    )
    (row,) = measure_here(
        tmp_path,
        {"name": "t", "command": "python train.py", "losses": {"rounding": [], "target": 1.5}},
    )
    values = {metric.name: [launch.values for launch in metric.launches] for metric in row.metrics}
    assert values[STEPS_TO_TARGET.name] == [(8.0,)] * len(values[STEP_TIME.name])


def test_a_loop_has_both(tmp_path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "train.py").write_text(
        "import ci_bench\ndef loop():\n    for step in range(12):\n        yield ci_bench.Step(loss=2.0 - 0.1 * step)\n"
    )
    (row,) = measure_here(
        tmp_path, {"name": "t", "loop": "train:loop", "losses": {"rounding": [], "target": 1.5}}
    )
    assert {STEPS_TO_TARGET.name, TIME_TO_TARGET.name} <= {metric.name for metric in row.metrics}, (
        row.reason
    )
