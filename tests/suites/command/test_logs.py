"""Logs of trainers, base against head, from their text to the verdict: no change passes without a word. Pure."""

import math
import re
from dataclasses import replace

import pytest
from log_forms import (
    EVALUATED,
    FORMS,
    STEPS,
    TIMED,
    Run,
    json_lines,
    losses,
    nano_gpt,
    trainer_prints,
)

from ci_bench.cli import main
from ci_bench.formats.series import Unreadable
from ci_bench.formats.training_log import read
from ci_bench.judge.compare import compare
from ci_bench.judge.parity.verdict import learning_of
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Policy
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import (
    Case,
    CaseResult,
    Environment,
    Lane,
    Launch,
    Results,
    Role,
    RunState,
    Source,
    Status,
)
from ci_bench.records.results import Run as RunInfo
from ci_bench.suites.command import training
from ci_bench.suites.command.options import Losses
from ci_bench.suites.command.outputs import Output, find_losses, read_losses
from ci_bench.suites.command.process import CommandPlace
from ci_bench.suites.command.selecting import BadOutput

CASE = Case(id="command/t", suite="command", name="t", params={}, arms=("a",), reference="a")
BASE = Run()
DOZEN = 12


def row(text, names, perturbed=3):
    """A side whose command wrote this, and wrote it again in other environments."""
    log = read(text, names)
    kinds = [training.TraceKind(role=Role.REFERENCE)]
    kinds += [
        training.TraceKind(role=Role.PERTURBED, start=f"rounding_{number}", index=number)
        for number in range(1, perturbed + 1)
    ]
    traces = [training.trace_of(log, "a", kind) for kind in kinds]
    return CaseResult(
        case=CASE,
        status=Status.OK,
        reproduce="again",
        parity=training.evidence(traces, candidates=()),
    )


def gate(base, head, names=None):
    finding = learning_of(row(base, names or {}), row(head, names or {}))
    assert finding is not None
    return finding


def higher(by, first=0, last=STEPS):
    return replace(
        BASE,
        loss=[loss * (by if first <= step < last else 1) for step, loss in enumerate(BASE.loss)],
    )


EDITS = {
    "the same": BASE,
    "1 % higher in the last two thirds": higher(1.01, first=STEPS // 3),
    "the last 30 % missing": replace(BASE, loss=BASE.loss[: 7 * STEPS // 10]),
    "other evaluations": replace(BASE, evaluated=1.1),
    "other times": replace(BASE, ms=62.0),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_edit_of_a_log_passes_silently(form) -> None:
    write = FORMS[form]
    found = {name: gate(write(BASE), write(run)) for name, run in EDITS.items()}
    assert str(found["the same"].verdict) == "bitwise"
    assert f"read {STEPS} steps" in found["the same"].detail
    assert "a loss 1 % off would have scored" in found["the same"].detail
    assert str(found["1 % higher in the last two thirds"].verdict) == "different_math"
    missing = found["the last 30 % missing"]
    assert str(missing.verdict) == "insufficient_data"
    assert f"no difference in the {7 * STEPS // 10} steps that both runs have" in missing.detail
    assert (missing.steps, missing.recorded) == (7 * STEPS // 10, STEPS)
    evaluated = found["other evaluations"]
    assert str(evaluated.verdict) == ("different_math" if form in EVALUATED else "bitwise")
    assert ("the training is equal, but the loss of evaluation 1 of 6" in evaluated.detail) == (
        form in EVALUATED
    )
    assert str(found["other times"].verdict) == "bitwise"


@pytest.mark.parametrize("form", sorted(TIMED - {"keras", "deepspeed"}))
def test_times_are_read(form) -> None:
    times = training.step_times(read(FORMS[form](BASE), {}).ranks)
    assert times[0][0] == pytest.approx(BASE.ms * (1.0 if form == "json_lines" else 1e-3), rel=1e-2)


@pytest.mark.parametrize("first", [52, 80, 110])
def test_a_change_late_in_the_training_is_found(first) -> None:
    found = gate(trainer_prints(BASE), trainer_prints(higher(1.02, first=first)))
    assert str(found.verdict) == "different_math"
    assert "the mean loss of steps" in found.detail


def test_a_run_that_ends_after_1000_steps_is_no_pass() -> None:
    lines = [f"s:{step} trl:{2 + 9 * math.exp(-step / 300):.4f}" for step in range(3000)]
    found = gate("\n".join(lines), "\n".join(lines[:1100]), {"loss": "trl", "step": "s"})
    assert str(found.verdict) == "insufficient_data"
    assert "1,100 (candidate) and 3,000 (reference) steps" in found.detail


def without_norm(text, at=8):
    lines = text.splitlines()
    lines[at] = re.sub(r"'grad_norm': '[\d.]+', ", "", lines[at])
    return "\n".join(lines)


def test_norms_count_although_one_is_missing() -> None:
    run = replace(BASE, evaluated=1.0)
    thrice = replace(run, norm=[3 * norm for norm in run.norm])
    base = without_norm(trainer_prints(run))
    found = gate(base, without_norm(trainer_prints(thrice)))
    assert (str(found.verdict), found.signal) == ("different_math", "grad_norm")
    same = gate(base, base)
    assert "gradient norms are compared at 119 of 120 steps" in same.detail
    one_sided = gate(trainer_prints(run), base)
    assert str(one_sided.verdict) == "insufficient_data"
    assert "119 (candidate) and 120 (reference) steps have a gradient norm" in one_sided.detail


def test_no_norm_is_told_where_none_was_recorded() -> None:
    found = gate(nano_gpt(BASE), nano_gpt(BASE))
    assert found.grad_norm_score is None
    assert "gradient norm" not in found.detail


def renumbered(step):
    return "\n".join(
        f'{{"step": {step(number)}, "loss": {loss:.4f}}}' for number, loss in enumerate(BASE.loss)
    )


def test_steps_are_matched_by_the_logs_own_numbers() -> None:
    by_ten = renumbered(lambda number: 10 * number + 10)
    apart = "\n".join(
        f'{{"step": {10 * number + 10}, "loss": {loss * (1.05 if number >= 33 else 1):.4f}}}'
        for number, loss in enumerate(BASE.loss)
    )
    found = gate(by_ten, apart)
    assert (str(found.verdict), found.step) == ("different_math", "step 340")
    assert "at step 340" in found.detail
    later = gate(renumbered(lambda number: number), renumbered(lambda number: number + 500))
    assert str(later.verdict) == "insufficient_data"
    assert "the candidate's steps are 500 to 619, and the reference's 0 to 119" in later.detail
    rarely = gate(renumbered(lambda number: number), renumbered(lambda number: 10 * number))
    assert not rarely.verdict.holds


def with_holes(**values):
    rows = []
    for step, loss, norm in BASE.rows():
        shown = {"step": step, "loss": loss, "grad_norm": values.get(f"at_{step}", norm)}
        rows.append(str(shown).replace("'", '"').replace("nan", "NaN").replace("inf", "Infinity"))
    return "\n".join(rows)


SCALED = {"at_0": math.inf, "at_1": math.nan}


@pytest.mark.parametrize(
    ("base", "head", "verdict", "words"),
    [
        (SCALED, SCALED, "bitwise", "gradient norms are compared at 118 of 120 steps"),
        (SCALED, {**SCALED, "at_15": math.nan}, "non_finite", "grad_norm is nan at step 15"),
        (
            SCALED,
            {**SCALED, "at_6": 9.0},
            "different_math",
            "gradient norm leaves the rounding envelope at step 6",
        ),
        (
            {**SCALED, "at_15": math.nan},
            SCALED,
            "inconclusive",
            "the reference itself is not finite (grad_norm at step 15)",
        ),
    ],
    ids=[
        "equal holes",
        "a hole of head's own",
        "another norm after the holes",
        "a hole of base's own",
    ],
)
def test_steps_without_a_number_on_both_sides_are_skipped(base, head, verdict, words) -> None:
    found = gate(with_holes(**base), with_holes(**head))
    assert str(found.verdict) == verdict
    assert words in found.detail


def test_digits_that_are_too_few_are_no_pass() -> None:
    coarse = "\n".join(f"step {step} loss {loss:.1f}" for step, loss in enumerate(losses()))
    found = gate(coarse, coarse)
    assert str(found.verdict) == "insufficient_sensitivity"
    assert found.detail.startswith("head against base: a loss 1 % off would have scored")
    assert "so a small fault would pass: log more digits or train more steps" in found.detail


def test_numbers_are_read_as_they_were_meant() -> None:
    ((one, two),) = read(
        "step 0 loss 0,693 grad_norm 1.4M\nstep 1 loss 1,234 grad_norm 9.2K", {}
    ).ranks
    assert (one.loss, two.loss, one.grad_norm, two.grad_norm) == (0.693, 1.234, 1.4e6, 9200)
    with pytest.raises(Unreadable, match="line 2: '1,234' may be"):
        read("step 0 loss 2\nstep 1 loss 1,234", {})
    with pytest.raises(Unreadable, match=r"line 1: loss is .*, whose unit is not known"):
        read("loss 3.2x", {})


def test_a_placeholder_of_one_rank_is_left_out() -> None:
    log = read(FORMS["two_ranks"](BASE), {})
    assert (len(log.ranks), log.numbers) == (1, (7,))
    assert "steps of rank 0, which writes the placeholder -1" in log.remarks


@pytest.mark.parametrize(
    ("text", "names", "words"),
    [
        ("step 1 trl: 3.0\nstep 2 trl: 2.9", {}, "name it with `losses.loss`: it has 'trl'"),
        ("epoch,step,objective\n0,1,3.0\n0,2,2.9", {}, "it has 'epoch', 'step', 'objective'"),
        ("step 1 loss 3\nstep 1 loss 4\nstep 2 loss 3", {}, "step 1 of rank 0 is there twice"),
        ('{"key": "eval_accuracy", "value": 0.7}', {}, "no record of it has a loss"),
    ],
)
def test_what_cannot_be_read_says_what_to_name(text, names, words) -> None:
    with pytest.raises(Unreadable, match=re.escape(words)):
        read(text, names)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            '{{"loss": 10.37349, "grad_norm": 0.0, "step": {}}}',
            "learning unknown: the loss never moves: it is 10.3735 at every step",
        ),
        ('{{"loss": 10.37349, "grad_norm": 1.{:02d}}}', "learning unknown: the loss never moves"),
        ('{{"loss": -1, "step": {}}}', "learning unknown: every loss is -1, a placeholder"),
        (
            '{{"loss": 10.{0:02d}, "grad_norm": 0.0, "step": {0}}}',
            "learning unknown: every gradient norm is exactly 0",
        ),
    ],
    ids=["dead", "flat", "placeholder", "no gradient"],
)
def test_a_training_that_stands_still_is_no_pass(line, words) -> None:
    text = "\n".join(line.format(step) for step in range(30))
    found = gate(text, text)
    assert str(found.verdict) == "insufficient_data"
    assert words in found.detail


def test_show_prints_what_would_be_read(tmp_path, capsys) -> None:
    (tmp_path / "a.log").write_text(FORMS["megatron"](BASE))
    (tmp_path / "b.csv").write_text(FORMS["lightning"](BASE))
    assert main(["show", str(tmp_path / "a.log"), str(tmp_path / "b.csv")]) == 0
    shown = capsys.readouterr().out
    for words in (
        "read 120 steps of rank 0; loss fell from 10.49 to 3.456; not training steps: 6 evaluations",
        "steps 1 to 120",
        "gradient norms: 120 of 120 steps",
        "time of a step: 0.0315 s",
        "a loss 1 % off would have scored",
        "no gradient norms",
        "no times of steps",
    ):
        assert words in shown
    (tmp_path / "c.log").write_text("nothing")
    assert main(["show", str(tmp_path / "c.log")]) == 2
    assert "neither a ci-bench document nor a training log" in capsys.readouterr().err


def printed(tmp_path, text, *, named=None):
    """The output of a run that printed this text, and wrote no file."""
    place = CommandPlace(cwd=tmp_path, environ={}, folder=tmp_path)
    place.stdout.write_text(text)
    return Output(named=named, own=tmp_path / "own", place=place)


def test_losses_on_standard_output_are_found(tmp_path) -> None:
    output = find_losses(printed(tmp_path, json_lines(BASE)), Losses())
    assert len(read_losses(output, Losses()).ranks[0]) == STEPS


def test_a_written_file_wins_over_standard_output(tmp_path) -> None:
    output = printed(tmp_path, json_lines(BASE))
    output.own.write_text(json_lines(replace(BASE, loss=BASE.loss[:DOZEN])))
    assert len(read_losses(find_losses(output, Losses()), Losses()).ranks[0]) == DOZEN


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "step 1 loss 2.5\nstep 1 loss 2.4\n",
            "and standard output cannot be read: step 1 of rank 0 is there twice",
        ),
        ("hello\n", "the command wrote nothing to CI_BENCH_OUTPUT"),
    ],
)
def test_unreadable_standard_output_is_refused(tmp_path, text, reason) -> None:
    with pytest.raises(BadOutput, match=reason):
        read_losses(find_losses(printed(tmp_path, text), Losses()), Losses())


def test_a_named_file_is_not_replaced(tmp_path) -> None:
    output = printed(tmp_path, json_lines(BASE), named="log.txt")
    with pytest.raises(BadOutput, match=r"log\.txt: the command wrote no such file"):
        read_losses(find_losses(output, Losses()), Losses())


def test_lines_that_are_no_steps_are_counted() -> None:
    text = json_lines(BASE) + '{"train_runtime": 3.0, "loss": 4.0}\n'
    log = read(text, {})
    assert (len(log.ranks[0]), log.remarks) == (STEPS, "6 evaluations, 1 average")


def test_mlperfs_values_are_named_by_their_keys() -> None:
    text = "\n".join(
        f':::MLLOG {{"key": "{key}", "value": {value}, "metadata": {{"step_num": {step}}}}}'
        for step, value in enumerate(losses(DOZEN))
        for key in ("train_loss", "eval_accuracy")
    )
    log = read(text, {"step": "step_num"})
    assert [record.step for record in log.ranks[0]] == list(range(DOZEN))


def test_a_counter_that_only_some_records_have_is_no_step() -> None:
    text = " 10%|█ | 1/10 [00:01<00:09]{'loss': 3.0}\n{'loss': 2.9}\n 30%|███ | 3/10 [00:03<00:07]\r{'loss': 2.8}\n"
    assert [(record.step, record.loss) for record in read(text, {}).ranks[0]] == [
        (None, 3.0),
        (None, 2.9),
        (None, 2.8),
    ]


def test_evaluations_alone_can_be_named() -> None:
    text = "step:0/9 val_loss:10.8 train_time:0ms\nstep:125/9 val_loss:5.2 train_time:99ms\n"
    with pytest.raises(Unreadable, match="no training step, only 2 evaluations; name another loss"):
        read(text, {})
    log = read(text, {"loss": "val_loss"})
    assert [(record.step, record.loss) for record in log.ranks[0]] == [(0, 10.8), (125, 5.2)]
    assert not log.evaluations


def test_the_loss_of_a_test_set_is_an_evaluation() -> None:
    text = "Train Epoch: 1 [0/640 (0%)]\tLoss: 2.3\nTrain Epoch: 1 [64/640 (10%)]\tLoss: 2.2\nTest set: Average loss: 0.05\n"
    log = read(text, {})
    assert ([record.label for record in log.ranks[0]], log.evaluations) == (["0", "64"], (0.05,))


def test_a_bar_that_is_drawn_twice_is_one_step() -> None:
    text = "".join(
        f"\r{step}/20 [00:01<00:01, loss={loss:.4f}]" * 2 for step, loss in enumerate(losses(21))
    )
    log = read(text + "\n", {})
    assert [record.step for record in log.ranks[0]] == list(range(1, 21))


def ranked(*factors, first=0):
    """Records of as many ranks, whose losses are higher by these factors from a step on."""
    return "\n".join(
        f'{{"step": {step}, "rank": {rank}, "loss": {loss * (by if step >= first else 1):.4f}}}'
        for step, loss in enumerate(BASE.loss)
        for rank, by in enumerate(factors)
    )


@pytest.mark.parametrize(
    ("first", "words"),
    [(8, "rank 0, 1 of 3 first, by the loss"), (60, "rank 0 of 3: the mean loss of")],
)
def test_ranks_that_part_evenly_are_found(first, words) -> None:
    """Their mean is unchanged."""
    found = gate(ranked(1, 1, 1), ranked(1.01, 0.99, 1, first=first))
    assert str(found.verdict) == "different_math"
    assert words in found.detail


@pytest.mark.parametrize(("theirs", "ours"), [(2, 1), (1, 2), (2, 4)])
def test_logs_of_other_ranks_are_no_pass(theirs, ours) -> None:
    found = gate(ranked(*[1] * theirs), ranked(*[1] * ours))
    assert str(found.verdict) == "insufficient_data"
    assert f"the logs are of {ours} (candidate) and {theirs} (reference) ranks" in found.detail


def test_the_only_loss_is_named() -> None:
    lines = "".join(f"step {step} packet_loss: {loss:.4f}\n" for step, loss in enumerate(BASE.loss))
    assert "on both sides; the loss is 'packet_loss'" in gate(lines, lines).detail


def test_losses_that_are_not_read_are_named() -> None:
    lines = "".join(
        f"[{step}/120] Loss_D: {loss:.4f} Loss_G: 1.25\n" for step, loss in enumerate(BASE.loss)
    )
    found = gate(lines, lines, {"loss": "Loss_D"})
    assert (
        "read 120 steps of rank 0; loss fell from 10.49 to 3.456 on both sides; not compared: 'Loss_G'"
        in found.detail
    )


def test_the_headline_names_an_evaluation() -> None:
    """The training is equal, so neither a step nor a size of rounding is the training's."""
    base, head = (sides(row(json_lines(run), {})) for run in (BASE, EDITS["other evaluations"]))
    judgement = compare(
        base=base, head=head, policy=Policy(), mode=BaselineMode.FILE, absence="", tool_version="1"
    ).judgement
    assert judgement.headline == (
        "Failed: t: evaluation loss off by 10 % from evaluation 1 (the training is equal, head against base)."
    )


def sides(case):
    run = RunInfo(
        id="r",
        started_at="2026-01-01T00:00:00Z",
        state=RunState.COMPLETE,
        config_digest="c",
        device="cpu",
    )
    environment = Environment(identity={"cpu": "x"}, condition={})
    times = STEP_TIME.of("a", Launch(launch=0, values=(0.1, 0.1)), lane=Lane.WALL)
    case = replace(case, metrics=(times,))
    return Results(
        tool_version="1", run=run, source=Source(), environment=environment, cases=(case,)
    )
