"""A training loop of one's own that is a generator, base against head: accumulation, clipping and a schedule as they are.

What is planted in it is found with its step, what computes the same otherwise passes, and steps
have their own times.
"""

import pytest
from command_builders import QUICK, judge, measure, measure_here, step_time

from ci_bench.records.results import SideName, Status

LOOP = """
import os
import numpy
import ci_bench

RATE, PARTS, LIMIT, WARMUP = 1.0, 3, 0.02, 5
order = -1 if "BACKWARDS" in os.environ else 1


def schedule(step):
    return min(1.0, (step + 1) / WARMUP)


def clipped(gradient):
    norm = numpy.sqrt((gradient * gradient).sum())
    return gradient * min(1.0, LIMIT / norm), norm


def slope(rows, weights, target):
    apart = rows @ weights - rows @ target
    height = numpy.tanh(apart * apart)
    slopes = (1 - height**2) * 2 * apart / apart.size
    return height.mean(dtype="float32"), sum(numpy.outer(row, s) for row, s in zip(rows, slopes))


def train(rate=RATE):
    draws = numpy.random.default_rng(0)
    weights, target = (draws.standard_normal((16, 4), dtype="float32") for _ in range(2))
    number = 0
    while True:
        batch = draws.standard_normal((36, 16), dtype="float32")
        losses, gradient = [], 0
        for part in range(PARTS):
            rows = batch[part::PARTS][::order]
            loss, own = slope(rows, weights, target)
            losses.append(loss)
            gradient = gradient + own / PARTS
        gradient, norm = clipped(gradient)
        weights = weights - numpy.float32(rate * schedule(number)) * gradient * 36
        yield ci_bench.Step(loss=sum(losses) / PARTS, grad_norm=norm, tokens=len(batch))
        number += 1
"""
ENTRY = {"name": "own", "losses": {"steps": 20, "rounding": [{"BACKWARDS": "1"}]}}
BASE, HEAD = SideName.BASE, SideName.HEAD

HONEST = {
    "the same": [],
    "rows backwards": [("[::order]", "[::-order]")],
    "parts are summed, then divided": [("+ own / PARTS", "+ own"), ("clipped(gradient)\n        w", "clipped(gradient / PARTS)\n        w")],
    "the schedule by another formula": [("min(1.0, (step + 1) / WARMUP)", "1.0 - max(0, WARMUP - 1 - step) / WARMUP")],
}  # fmt: skip
PLANTED = {
    "parts are not divided": (
        [("+ own / PARTS", "+ own")],
        "gradient norm leaves the rounding envelope at step 0",
    ),
    "the last part is dropped": ([("range(PARTS):", "range(PARTS - (number == 3)):")], "at step 3"),
    "each part is clipped": ([("own / PARTS", "clipped(own)[0] / PARTS")], "at step 0"),
    "the schedule is a step late": (
        [("(step + 1) / WARMUP", "max(step, 1) / WARMUP")],
        "at step 2",
    ),
    "the rate is 1 % off": ([("rate=RATE", "rate=1.01 * RATE")], "at step 1"),
}
"""Head's changes of the loop, and what is said of where they show."""


def changed(changes):
    text = LOOP
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text


def gated(tmp_path, heads):
    """For each of head's loops: what was found of its losses, its rules and its row."""
    trees = {side: tmp_path / side for side in (BASE, HEAD)}
    for side, loops in ((BASE, [LOOP] * len(heads)), (HEAD, heads)):
        (trees[side] / "package").mkdir(parents=True)
        for number, loop in enumerate(loops):
            (trees[side] / "package" / f"loop{number}.py").write_text(loop)
    entries = [
        {**ENTRY, "name": f"case{number}", "loop": f"package.loop{number}:train"}
        for number in range(len(heads))
    ]
    results = measure(tmp_path, *entries, trees=trees)
    rows = results[HEAD].cases
    assert {row.status for row in rows} == {Status.OK}, [row.failure for row in rows]
    comparison = judge(results)
    findings = [(finding.case, str(finding.rule)) for finding in comparison.judgement.findings]
    learned = [
        (
            case.learning,
            {rule for where, rule in findings if where == case.id and rule.startswith("learning")},
        )
        for case in comparison.cases
    ]
    return learned, rows


def test_what_computes_the_same_is_no_finding_and_steps_have_times(tmp_path) -> None:
    learned, rows = gated(tmp_path, [changed(changes) for changes in HONEST.values()])
    for name, (finding, rules) in zip(HONEST, learned, strict=True):
        assert finding.verdict.holds, (name, finding.detail)
        assert not rules, name
    assert str(learned[1][0].verdict) == "numeric_parity", "head is no copy"
    metric = step_time(rows[0])
    assert (metric.name, metric.arm, metric.items) == ("step_time", "loop", 36)
    (launch,) = metric.launches
    assert (len(launch.warmup), len(launch.values)) == (3, 17), "the first step has a time, too"
    assert rows[0].facts["training_steps"] == 20, "the loop has no end of its own"


def test_what_is_planted_in_the_loop_is_found_with_its_step(tmp_path) -> None:
    learned, _ = gated(tmp_path, [changed(changes) for changes, _ in PLANTED.values()])
    for (name, (_, where)), (finding, rules) in zip(PLANTED.items(), learned, strict=True):
        assert finding.verdict.broken, (name, finding.detail)
        assert rules == {"learning_changed"}, name
        assert where in finding.detail, (name, finding.detail)


def test_arms_are_arguments_and_are_held_against_the_reference(tmp_path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "loop.py").write_text(LOOP)
    arms = {"plain": {}, "same": {"rate": 1.0}, "faster": {"rate": 1.1}}
    (row,) = measure_here(tmp_path, {**ENTRY, "loop": "loop:train", "arguments": arms})
    assert row.status == Status.OK, row.failure
    traces = {trace.arm: trace for trace in row.parity.traces if trace.index == 0}
    assert traces["same"].loss == traces["plain"].loss != traces["faster"].loss


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        ("loop:trian", "loop has no function 'trian'"),
        ("loop:schedule", "missing 1 required positional argument"),
        ("lop:train", "No module named 'lop'"),
    ],
)
def test_a_loop_that_is_none_fails_the_case_with_what_it_said(tmp_path, loop, reason) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "loop.py").write_text(LOOP)
    (row,) = measure_here(tmp_path, {**ENTRY, "loop": loop}, options=QUICK)
    assert row.status == Status.FAILED
    assert reason in f"{row.failure.reason}\n{row.failure.log_tail}"
