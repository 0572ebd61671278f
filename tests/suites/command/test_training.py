"""Commands that train, base against head: what is planted is found, what is honest passes, and steps have times."""

import json
from dataclasses import replace

import pytest
from command_builders import QUICK, fault_beside_same, judge, measure, measure_here, step_time
from event_files import tensorboard, wandb

from ci_bench.formats.training_log import read
from ci_bench.records.results import Role, SideName, Status
from ci_bench.suites.command import training

TRAINER = """
import os
import numpy
import ci_bench

STEPS, RATE, RANKS = 20, 0.1, 2
draws = numpy.random.default_rng(0)
weights = draws.standard_normal((16, 4), dtype="float32")
target = draws.standard_normal((16, 4), dtype="float32")
order = -1 if "BACKWARDS" in os.environ else 1

for step in range(STEPS):
    batch = draws.standard_normal((32, 16), dtype="float32")
    batch[:, 0] *= 3
    losses, gradients = [], []
    for rank in range(RANKS):
        rows = batch[rank::RANKS][::order]
        apart = rows @ weights - rows @ target
        losses.append(numpy.tanh(apart * apart).mean(dtype="float32"))
        slope = (1 - numpy.tanh(apart * apart) ** 2) * 2 * apart / apart.size
        gradients.append(sum(numpy.outer(row, s) for row, s in zip(rows, slope)))
    gradient = sum(gradients) / RANKS
    weights -= RATE * gradient * len(batch)
    for rank in range(RANKS):
        ci_bench.step(loss=losses[rank], grad_norm=numpy.linalg.norm(gradient), tokens=16, rank=rank)
"""
ENTRY = {
    "name": "pretrain",
    "command": ["python", "train.py"],
    "losses": {"rounding": [{"BACKWARDS": "1"}]},
}
BASE, HEAD = SideName.BASE, SideName.HEAD


def gate(tmp_path, head, *, base=TRAINER, entry=None, options=QUICK):
    trees = {side: tmp_path / side for side in (BASE, HEAD)}
    for side, content in ((BASE, base), (HEAD, head)):
        trees[side].mkdir()
        (trees[side] / "train.py").write_text(content)
    results = measure(tmp_path, entry or ENTRY, trees=trees, options=options)
    assert {row.status for result in results.values() for row in result.cases} == {Status.OK}, [
        row.failure for result in results.values() for row in result.cases
    ]
    return results, judge(results)


HONEST = {
    "the same": ([], "bitwise"),
    "rows backwards": ([("[::order]", "[::-order]")], "numeric_parity"),
    "halves added": ([("sum(gradients) / RANKS", "(gradients[0] / 2 + gradients[1] / 2)")], None),
}
"""Head's changes that are no finding; the second shows that head is no copy."""
PLANTED = {
    "the learning rate is 10 % off": (
        ("RATE, RANKS = 20, 0.1", "RATE, RANKS = 20, 0.11"),
        "at step 1",
    ),
    "the learning rate is 1 % off": (
        ("RATE, RANKS = 20, 0.1", "RATE, RANKS = 20, 0.101"),
        "at step 1",
    ),
    "rank 1 trains on rank 0's rows": (
        ("batch[rank::RANKS]", "batch[0::RANKS]"),
        "rank 1 of 2 first, by the loss at step 0",
    ),
    "gradients are summed": (
        ("sum(gradients) / RANKS", "sum(gradients)"),
        "all 2 ranks first, by the gradient norm at step 0",
    ),
    "another seed": (("default_rng(0)", "default_rng(1)"), "at step 0"),
    "a step that is left out": (("weights -= RATE", "if step != 7: weights -= RATE"), "at step 8"),
    "a loss that is no number": (
        ("losses.append(", "losses.append(numpy.float32('nan') if step == 5 else "),
        "at step 5",
    ),
}
"""Head's changes that are found, and where."""
UNTOLD = {
    "a shorter training": (
        [("STEPS, RATE, RANKS = 20", "STEPS, RATE, RANKS = 19")],
        [],
        "19 (candidate) and 20 (reference) steps",
    ),
    "no seed": (
        [("default_rng(0)", "default_rng()")],
        [("default_rng(0)", "default_rng()")],
        "run again, its first loss is",
    ),
    "no rounding": (
        [("[::order]", "[::-order]")],
        [],
        "repeated every bit; name some under `losses.rounding`",
    ),
}
"""Changes of head and base after which nobody knows, and why. That is no pass."""


def changed(*changes):
    text = TRAINER
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text


def learned(tmp_path, programs, **more):
    """For each named pair of base's and head's program: the finding on losses, and the rules that it broke. One gate for all."""
    trees = {side: tmp_path / side for side in (BASE, HEAD)}
    for side, position in ((BASE, 0), (HEAD, 1)):
        trees[side].mkdir()
        for number, program in enumerate(programs.values()):
            (trees[side] / f"train{number}.py").write_text(program[position])
    entries = [
        ENTRY | {"name": f"case{number}", "command": ["python", f"train{number}.py"], **more}
        for number in range(len(programs))
    ]
    comparison = judge(measure(tmp_path, *entries, trees=trees))
    findings = [(finding.case, str(finding.rule)) for finding in comparison.judgement.findings]
    return {
        name: (
            case.learning,
            {rule for where, rule in findings if where == case.id and rule.startswith("learning")},
        )
        for name, case in zip(programs, comparison.cases, strict=True)
    }


def test_what_is_honest_is_no_finding(tmp_path) -> None:
    found = learned(
        tmp_path, {name: (TRAINER, changed(*changes)) for name, (changes, _) in HONEST.items()}
    )
    for name, (_, verdict) in HONEST.items():
        finding, rules = found[name]
        assert finding.verdict.holds, (name, finding.detail)
        assert not rules, name
        assert verdict in {None, str(finding.verdict)}, (name, finding.detail)


def test_what_is_planted_is_found_with_its_step(tmp_path) -> None:
    found = learned(
        tmp_path, {name: (TRAINER, changed(change)) for name, (change, _) in PLANTED.items()}
    )
    for name, (_, where) in PLANTED.items():
        finding, rules = found[name]
        assert finding.verdict.broken, (name, finding.detail)
        assert rules == {"learning_changed"}, name
        assert where in finding.detail, (name, finding.detail)


def test_what_nobody_knows_is_no_pass_and_says_why(tmp_path) -> None:
    common = {name: value for name, value in UNTOLD.items() if name != "no rounding"}
    found = learned(
        tmp_path,
        {name: (changed(*base), changed(*head)) for name, (head, base, _) in common.items()},
    )
    (tmp_path / "deaf").mkdir()
    head, base, _ = UNTOLD["no rounding"]
    deaf = {"rounding": [{"UNHEARD_OF": "1"}]}
    found |= learned(
        tmp_path / "deaf", {"no rounding": (changed(*base), changed(*head))}, losses=deaf
    )
    for name, (_, _, why) in UNTOLD.items():
        finding, rules = found[name]
        assert str(finding.verdict) == "insufficient_data", (name, finding.detail)
        assert rules == {"learning_unknown"}, name
        assert why in finding.detail, (name, finding.detail)


def test_arms_are_held_against_the_reference_arm(tmp_path) -> None:
    arms = {
        "plain": "python train.py",
        "backwards": "BACKWARDS=1 python train.py",
        "faster": "sed 's/0.1,/0.11,/' train.py | python -",
    }
    entry = {"name": "pretrain", "arms": arms, "losses": ENTRY["losses"]}
    _, comparison = gate(tmp_path, TRAINER, entry=entry)
    assert {found.arm: str(found.verdict) for found in comparison.cases[0].parity} == {
        "backwards": "numeric_parity",
        "faster": "different_math",
    }


def test_a_run_in_another_rounding_and_one_more_in_each_launch_are_kept(tmp_path) -> None:
    results, _ = gate(tmp_path, TRAINER, options=replace(QUICK, launches=2))
    traces = results[HEAD].cases[0].parity.traces
    assert {(trace.role, trace.start, trace.index) for trace in traces} == {
        (Role.REFERENCE, "as_it_is", 0),
        (Role.PERTURBED, "rounding_1", 1),
        (Role.PERTURBED, "again_0", 100),
        (Role.PERTURBED, "again_1", 101),
    }
    metric = step_time(results[HEAD].cases[0])
    assert (metric.name, metric.items, [launch.launch for launch in metric.launches]) == (
        "step_time",
        32,
        [0, 1],
    )
    assert [(len(launch.warmup), len(launch.values)) for launch in metric.launches] == [
        (3, 16),
        (3, 16),
    ], "the first has no begin"


def records(*, seconds, ranks=1, computed=None):
    """Thirty steps as JSON lines; `seconds` of each rank, and what it `computed` of them."""
    steps = [
        {"step": step, "rank": rank, "loss": 2.0, "step_time": seconds[rank]}
        for step in range(30)
        for rank in range(ranks)
    ]
    computing = [
        {} if computed is None else {"step_cpu_time": computed[step["rank"]]} for step in steps
    ]
    return "\n".join(json.dumps(step | more) for step, more in zip(steps, computing, strict=True))


def test_a_step_is_the_slowest_ranks(tmp_path) -> None:
    """Five per cent on one rank alone are five per cent of the step; a rank that is faster makes no step so."""
    planted = {(1.0, 1.05): "regressed", (1.05, 1.0): "regressed", (1.0, 0.9): "unchanged"}
    trees = {side: tmp_path / side for side in (BASE, HEAD)}
    for side, tree in trees.items():
        tree.mkdir()
        for number, seconds in enumerate(planted):
            (tree / f"steps{number}").write_text(
                records(seconds=seconds if side is HEAD else (1.0, 1.0), ranks=2)
            )
    entries = [
        {
            "name": f"ranks{number}",
            "command": f"cat steps{number}",
            "output": "stdout",
            "losses": {"rounding": []},
        }
        for number in range(len(planted))
    ]
    results = measure(tmp_path, *entries, trees=trees, options=replace(QUICK, launches=6))
    cases = zip(planted.items(), judge(results).cases, results[HEAD].cases, strict=True)
    for (seconds, verdict), case, row in cases:
        (pair,) = [one for one in case.pairs if one.metric == "step_time"]
        assert (pair.metric, pair.arm, str(pair.verdict)) == ("step_time", "command", verdict), (
            seconds
        )
        assert pair.speedup == pytest.approx(1 / max(seconds))
        assert (row.facts["rank_0_step_s"], row.facts["rank_1_step_s"]) == seconds, (
            "which rank it is, is told"
        )


def test_of_ranks_that_wait_for_each_other_the_one_that_works_longer_is_told() -> None:
    """Both take as long by the clock, since one computes longer; where a rank does not say so, nothing is told."""
    ranks = read(records(seconds=(1.05, 1.05), ranks=2, computed=(0.9, 0.95)), {}).ranks
    facts = training.facts(ranks, training.step_times(ranks))
    assert [facts[f"rank_{rank}_{what}_s"] for what in ("step", "cpu") for rank in (0, 1)] == [
        1.05,
        1.05,
        0.9,
        0.95,
    ]
    silent = (ranks[0], tuple(replace(record, cpu_s=None) for record in ranks[1]))
    assert "rank_0_cpu_s" not in training.facts(silent, training.step_times(silent))


@pytest.mark.parametrize(
    ("arrivals", "found"),
    [
        ([0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0]),
        ([0.0, 2.0, 2.0, 3.0], [1.0, 1.0, 1.0]),
        ([1.0, 1.0, 1.0, 4.0], [3.0]),
        ([5.0, 5.0, 5.0, 5.0], []),
    ],
    ids=["one by one", "two in a pipe", "a late reader at first", "all at the end"],
)
def test_steps_that_arrive_together_share_their_time(arrivals, found) -> None:
    """A whole run's duration is no step's: a scheduler decides how many lines a reader finds."""
    ranks = read("".join(f"step {step} loss 2.0\n" for step in range(4)), {}).ranks
    assert training.step_times(ranks, arrivals) == ((tuple(found),) if found else ())


def test_ranks_whose_first_steps_arrive_together_keep_the_steps_that_all_have() -> None:
    ranks = read(records(seconds=(1.0, 1.0), ranks=2), {}).ranks
    untimed = tuple(
        tuple(replace(record, time_s=None, clock_s=None) for record in steps) for steps in ranks
    )
    lines = 1 + max(record.line for steps in untimed for record in steps)
    arrivals = [float(max(line, 2)) for line in range(lines)]
    times = training.step_times(untimed, arrivals)
    assert len({*map(len, times)}) == 1
    assert training.timing(untimed, times, "command", launch=0, warmup_steps=0)


def test_lines_of_standard_output_are_timed_as_they_come(tmp_path) -> None:
    slow = "import time\nfor step in range(12):\n    time.sleep(0.02)\n    print(f'step {step} loss 2.0')\n"
    entry = {
        "name": "lines",
        "command": ["python", "train.py"],
        "output": "stdout",
        "losses": {"rounding": []},
    }
    results, _ = gate(tmp_path, slow, base=slow, entry=entry)
    metric = step_time(results[HEAD].cases[0])
    assert len(metric.launches[0].values) == 8
    assert min(metric.launches[0].values) > 0.015


def test_processes_find_each_other_at_ports_that_are_nobodys(tmp_path) -> None:
    """In every run another one, and torchrun chooses its own."""
    show = "import os, ci_bench\nfor i in range(12): ci_bench.step(loss=float(os.environ['MASTER_PORT']))\n"
    entry = {"name": "port", "command": ["python", "train.py"], "losses": {"rounding": []}}
    results, _ = gate(tmp_path, show, base=show, entry=entry)
    ports = {
        trace.loss[0] for result in results.values() for trace in result.cases[0].parity.traces
    }
    assert len(ports) > 1
    assert all(1024 < port < 65536 for port in ports)


def test_where_no_step_has_a_time_the_whole_run_has(tmp_path) -> None:
    state = json.dumps(
        {"log_history": [{"step": step, "loss": 3.0 - step / 8} for step in range(12)]}
    )
    entry = {
        "name": "state",
        "command": "sleep 0.1; cp train.py state.json",
        "output": "state.json",
        "losses": {"rounding": []},
    }
    results, comparison = gate(tmp_path, state, base=state, entry=entry)
    metric = step_time(results[HEAD].cases[0])
    assert metric.name == "step_time"
    assert 0.1 < metric.launches[0].values[0] < 30
    assert comparison.cases[0].learning.verdict.holds


def event_file(losses):
    return tensorboard(
        *((step, 100.0 + step, {"Loss/train": loss, "lr": 0.1}) for step, loss in enumerate(losses))
    )


def offline_run(losses):
    return wandb(*({"train/loss": loss, "tokens": 64} for loss in losses))


@pytest.mark.parametrize(
    ("write", "name"), [(event_file, "events.out.tfevents.1"), (offline_run, "run-a.wandb")]
)
def test_losses_in_files_of_tensorboard_and_wandb_are_held_against_bases(
    tmp_path, write, name
) -> None:
    """The same passes; a loss that is 1 % off from step 7 on is found; a side that logs under another name is no pass."""
    right = [2.5 * 0.9**step for step in range(20)]
    rounded = [loss * (1 + 2e-7) for loss in right]
    wrong = [loss * (1.01 if step >= 7 else 1) for step, loss in enumerate(right)]
    trees = {side: tmp_path / side for side in (BASE, HEAD)}
    for side, learned_by_head in ((BASE, right), (HEAD, wrong)):
        trees[side].mkdir()
        for number, losses in enumerate((right, learned_by_head)):
            (trees[side] / f"case{number}").write_bytes(write(losses))
            (trees[side] / f"case{number}rounded").write_bytes(write(rounded))
    entries = [
        {
            "name": f"case{number}",
            "command": f"mkdir -p logs{number}; cp case{number}$ROUNDED logs{number}/{name}; ln -sfn logs{number} latest{number}",
            "env": {"ROUNDED": ""},
            "output": f"l*{number}/*",
            "losses": {"rounding": [{"ROUNDED": "rounded"}]},
        }
        for number in range(2)
    ]
    results = measure(tmp_path, *entries, trees=trees)
    assert "at step 7" in fault_beside_same(results)
    metric = step_time(results[SideName.BASE].cases[0])
    assert metric.launches[0].values == (1.0,) * 16, "the clock is that of what was logged"


def test_a_misspelt_tag_fails_the_case_with_the_right_one(tmp_path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "events").write_bytes(event_file([2.0] * 12))
    losses = {"format": "tensorboard", "loss": "Loss/trian", "rounding": []}
    entry = {
        "name": "tag",
        "command": "mkdir -p logs; cp events logs/events.out",
        "output": "logs/*",
        "losses": losses,
    }
    (row,) = measure_here(tmp_path, entry)
    assert row.status == Status.FAILED
    assert (
        "events.out cannot be read as tensorboard: loss: nothing is called 'Loss/trian'; did you mean 'Loss/train'"
        in (row.failure.reason)
    )
