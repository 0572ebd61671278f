"""What trainings write of their steps: logs as they are in the wild, JSON lines, and what is refused."""

import json
import time
from contextlib import suppress

import pytest

from ci_bench.formats.series import Unreadable
from ci_bench.formats.training_log import read

LONGEST_S = 2.0

NANO = """step 0: train loss 10.9890, val loss 10.9889
iter 0: loss 10.9886, time 32045.14ms, mfu -100.00%
iter 1: loss 10.9812, time 31.20ms, mfu -100.00%
"""
TITAN = """[rank0]:[titan] 2025-01-01 10:00:00,123 - root - INFO - Training starts at step 1
[rank0]:[titan] 2025-01-01 10:00:01,123 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss:  8.1234  \x1b[38mgrad_norm:  1.2345  \
\x1b[33mmemory:  1.20GiB(1.26%)  \x1b[34mtps: 1,234  \x1b[36mtflops: 0.12  \x1b[35mmfu: 0.01%\x1b[39m
[rank0]:[titan] 2025-01-01 10:00:02,123 - root - INFO - \x1b[31mstep:  2  \x1b[32mloss:  8.0234  \x1b[38mgrad_norm:  1.1345  \
"""
MEGATRON = (
    " [2025-01-01 10:00:00] iteration        {}/     100 | consumed samples:           32 | elapsed time per iteration (ms): 1{}.5 | "
    "learning rate: 1.5E-06 | global batch size:    32 | lm loss: 1.03{}E+01 | loss scale: 1.0 | grad norm: 2.5 | "
)
TRAINER = """{'loss': '4.25', 'grad_norm': '1.5', 'learning_rate': '5e-05', 'epoch': '0.1'}
{'loss': 4.125, 'grad_norm': 1.25, 'learning_rate': 4e-05, 'epoch': 0.2}
{'eval_loss': 4.0, 'eval_runtime': 0.1}
{'train_runtime': 1.5, 'train_loss': 4.18, 'epoch': 1.0}
"""
STATE = json.dumps(
    {
        "global_step": 2,
        "log_history": [
            {"loss": 4.25, "grad_norm": 1.5, "step": 1},
            {"loss": 4.125, "grad_norm": 1.25, "step": 2},
            {"train_loss": 4.18, "train_runtime": 1.0, "step": 2, "total_flos": 3.0}
        ],
    },
    indent=2,
)  # fmt: skip


def steps(text, names=None, form="auto"):
    return [
        [(one.step, one.loss, one.grad_norm, one.time_s) for one in rank]
        for rank in read(text, names or {}, form).ranks
    ]


def test_nano_gpt() -> None:
    assert steps(NANO) == [
        [(0, 10.9886, None, pytest.approx(32.04514)), (1, 10.9812, None, pytest.approx(0.0312))]
    ]


def test_torchtitan() -> None:
    assert steps(TITAN) == [[(1, 8.1234, 1.2345, None), (2, 8.0234, 1.1345, None)]]


def test_megatron() -> None:
    text = "\n".join(MEGATRON.format(number, number, number) for number in (1, 2))
    assert steps(text) == [
        [(1, 10.31, 2.5, pytest.approx(0.0115)), (2, 10.32, 2.5, pytest.approx(0.0125))]
    ]


def test_what_transformers_prints() -> None:
    assert steps(TRAINER) == [[(None, 4.25, 1.5, None), (None, 4.125, 1.25, None)]]


def test_the_state_that_transformers_trainer_keeps_without_the_mean_of_the_end() -> None:
    for text in (STATE, json.dumps(json.loads(STATE))):
        assert steps(text) == [[(1, 4.25, 1.5, None), (2, 4.125, 1.25, None)]]


def test_json_lines_of_several_ranks_in_any_order() -> None:
    lines = [
        {"step": step, "rank": rank, "loss": 10 * rank + step, "clock": 5.0 + step}
        for step in (1, 0)
        for rank in (1, 0)
    ]
    lines.insert(2, {"eval_loss": 3.0})
    assert steps("\n".join(map(json.dumps, lines))) == [[(0, 0, None, None), (1, 1, None, None)], [(0, 10, None, None), (1, 11, None, None)]]  # fmt: skip


def test_names_of_ones_own() -> None:
    text = '{"n": 1, "ce": 2.5, "gn": 1, "took_ms": 12}\n{"n": 2, "ce": "nan", "gn": 1, "took_ms": 13, "loss": 9}'
    (first, second) = read(
        text, {"step": "n", "loss": "ce", "grad_norm": "gn", "time": "took_ms"}
    ).ranks[0]
    assert (first.step, first.loss, first.grad_norm, first.time_s) == (1, 2.5, 1, 0.012)
    assert second.loss != second.loss


@pytest.mark.parametrize("what", ["step", "grad_norm", "time", "clock", "tokens"])
def test_a_name_that_no_record_has_is_refused(what) -> None:
    """A misspelt gradient norm would leave the gate without a word."""
    for text in ('{"loss": 1, "gnorm": 2}', "loss: 1 gnorm: 2"):
        with pytest.raises(Unreadable, match=f"{what}: no record with a loss has 'gn'"):
            read(text, {what: "gn"}, "auto")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no record of it has a loss"),
        ("val loss 3.0\nloss scale: 1.0\nlossy 3", "no training step, only 1 evaluation"),
        ("loss scale: 1.0\nlossy 3", "no record of it has a loss"),
        ('{"loss": "high"}', "'high' is not a number"),
        ('{"loss": {"a": 1}}', "is not a number"),
        ('{"loss": 1}\n[2]', "line 2 is not a JSON object"),
        ('{"loss": 1, "step": 1}\n{"loss": 1, "step": 1}', "step 1 of rank 0 is there twice"),
        (
            '{"loss": 1, "step": 0}\n{"loss": 1, "step": 1, "rank": 1}',
            "rank 1 wrote 1 steps that are not the 1 of rank 0",
        ),
        ('{"loss": 1, "rank": 100000000000}', "not a whole number from 0 to 1023"),
        ('{"loss": 1, "step": 1e999}', "not a whole number"),
        ('{"loss": 1, "step_time": -1}', "is not a valid time or amount"),
        ('{"loss": 1, "clock": NaN}', "is not a valid time or amount"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(text, reason) -> None:
    with pytest.raises(Unreadable, match=reason):
        read(text, {}, "auto")


@pytest.mark.parametrize(
    "text",
    [
        "loss" + " " * 99_000 + "x",
        "loss 1" * 20_000,
        "step " * 20_000 + "loss 1",
        "=" * 99_000 + "loss",
        "test_" + "a/" * 49_000 + "loss",
        "eval_" * 19_000 + "loss: 1",
        "val " * 24_000,
        "a_1" * 33_000 + " loss 1",
        "x" * 99_000 + " loss value 1",
        "collection=" + "_eval" * 19_000,
        "[a.py:1] (" * 9_900,
        "[0/1]" * 19_000,
    ],
)
def test_lines_that_are_made_to_take_long_do_not(text) -> None:
    """Each is read in a hundredth of a second; a pattern that goes back and forth over the line would not end."""
    begun = time.process_time()
    with suppress(Unreadable):
        read(text, {}, "log")
    assert time.process_time() - begun < LONGEST_S


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("{'eval_accuracy': 0.81, 'eval_f1': 0.8, 'eval_runtime': 1.2, 'epoch': 1.0}", ("eval_accuracy", "eval_f1")),
        ("| test | test_acc: 0.81 | took: 3.2 |", ("test_acc",)),
        ("val/top5=91.2 val/loss=1.2", ("val/top5",)),
        ("accuracy: 0.81", ()),  # of a training step as well
        ("[12] valid-auc:0.31", ("valid-auc",)),
        ("eval_steps_per_second: 12.3", ()),
        ("map_size: 12 test_map_size: 3", ("test_map_size",)),
    ],
)  # fmt: skip
def test_scores_of_evaluations_are_named_for_only_losses_are_compared(line, names):
    steps = "".join(f"step {step} loss {3 / (step + 1):.4f}\n" for step in range(12))
    log = read(f"{steps}{line}\n", {})
    assert log.others == names
    assert len(log.ranks[0]) == 12


@pytest.mark.parametrize(
    ("line", "name", "losses"),
    [
        ("[{}]\ttrain-logloss:{}\tvalid-logloss:{}", "train-logloss", 1),  # XGBoost
        ("[{}]\ttrain-mlogloss:{}\teval-mlogloss:{}\ttest-mlogloss:{}", "train-mlogloss", 2),
        ("[{}]\tvalidation_0-logloss:{}\tvalidation_1-logloss:{}", "validation_0-logloss", 1),
        ("[{}]\ttraining's binary_logloss: {}\tvalid_1's binary_logloss: {}", "training's binary_logloss", 1),  # LightGBM
        ("[{}] training's multi_logloss: {} valid_1's multi_logloss: {} valid_2's multi_logloss: {}", "training's multi_logloss", 2),
    ],
)  # fmt: skip
def test_losses_of_a_booster_s_evaluations_are_compared(line, name, losses):
    text = "".join(
        line.format(n, *(round(3 / (n + 1) + place / 10, 5) for place in range(losses + 1))) + "\n"
        for n in range(12)
    )
    log = read(text, {"loss": name})
    assert [round(record.loss, 5) for record in log.ranks[0]] == [
        round(3 / (n + 1), 5) for n in range(12)
    ]
    assert len(log.evaluations) == 12 * losses
    assert log.evaluations[0] == 3.1
    assert not log.others


def test_a_column_of_scores_is_named():
    rows = "".join(f"{step},{3 / step:.4f},\n" for step in range(1, 13))
    assert read(f"step,train_loss,val_acc\n{rows}13,,0.8\n", {}, "csv").others == ("val_acc",)


@pytest.mark.parametrize("line", ["Train loss {} {:.4f} Grad Norm 1.5", "loss {}: {:.4f}", "epoch 0 loss {} {:.4f}", "Loss: {} -> {:.4f}"])  # fmt: skip
@pytest.mark.parametrize(("first", "stride"), [(0, 1), (20_000, 1), (10, 10)])
def test_a_number_that_counts_steps_is_no_loss(line, first, stride):
    text = "".join(line.format(first + stride * n, 3 / (n + 1)) + "\n" for n in range(40))
    with pytest.raises(Unreadable, match="the loss counts"):
        read(text, {})


@pytest.mark.parametrize(
    "losses", [[7] * 20, [20 - n for n in range(20)], [3, 5, 4, 6, 5, 7, 6, 8, 7]]
)
def test_whole_losses_that_do_not_count_are_losses(losses):
    assert len(read("".join(f"loss {loss}\n" for loss in losses), {}).ranks[0]) == len(losses)


def test_a_loss_that_the_user_names_may_count():
    text = "".join(f"loss {n} {3 / (n + 1):.4f}\n" for n in range(40))
    assert len(read(text, {"loss": "loss"}).ranks[0]) == 40


def test_lines_with_commas_are_no_table():
    text = "iter 0: loss 10.98, time 31.20ms\niter 1: loss 9.5, tokens 1,200.5\niter 2: loss 8.1\n"
    assert [record.loss for record in read(text, {}).ranks[0]] == [10.98, 9.5, 8.1]
    text = "iter 0: loss 10.98, 31.20ms\niter 1: loss 9.5 at 1,200.5\niter 2: loss 8.1, 3ms\n"
    assert [record.loss for record in read(text, {}).ranks[0]] == [10.98, 9.5, 8.1]
