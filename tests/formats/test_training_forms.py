"""Forms of training logs: which steps, losses, norms and evaluations are read, and which losses are not."""

import json
from dataclasses import dataclass

import pytest

from ci_bench.formats.series import Unreadable
from ci_bench.formats.training_log import read
from ci_bench.formats.training_steps import by_rank

LOSSES = tuple(round(4 - 0.1 * step, 4) for step in range(12))


@dataclass(frozen=True)
class Form:
    """A line for a step by its number `s`, loss `x` and evaluation `v`, and the labels of the first and the last step."""

    line: str
    first: str = "0"
    last: str = "11"
    norm: bool = False
    evaluations: int = 0
    others: tuple[str, ...] = ()
    head: str = ""


BOX = "│ {s} │ {x} │ {v} │"
RULE = "----------------------------\n"
LINES = {
    "minGPT": Form("iter_dt 85.20ms; iter {s}: train loss {x}"),
    "llm.c": Form("step {s}/12 | loss {x} (+0.12z)| norm 1.5 (-0.3z)| lr 8.57e-07 | 3060.23 ms", norm=True),
    "train_gpt2.c": Form("step {s}: train loss {x} (took 1234.5 ms)"),
    "NeMo": Form("[NeMo I 2025] iteration {s}/11 | global_step: {s} | reduced_train_loss: {x} | consumed_samples: 5"),
    "diffusers": Form("Steps:  {s}%|█ | {s}/12 [00:10<01:30, 1.1it/s, lr=1e-5, step_loss={x}]"),
    "Composer": Form("[batch={s}/12]:\n\t Train time/batch: 9\n\t Train loss/train/total: {x}"),
    "OLMo": Form(
        "INFO\t[step={s}/12,epoch=0]\n    optim/total_grad_norm=1.5\n    train/CrossEntropyLoss={x}\n    train/Perplexity=9",
        norm=True,
    ),
    "record of lines": Form("Step {s}:\n  loss      = {x}\n  grad_norm = 1.5\n", norm=True),
    "NeMo RL": Form("===== Step {s}/12 =====\n📊 Training Results:\n  • Loss: {x}\n  • Avg Reward: 0.1"),
    "MaxText": Form("I0101 10:00:00.1 140 metric_logger.py:181] completed step: {s}, seconds: 1.2, loss: {x}"),
    "CLU": Form("I0101 10:00:00.1 140 logging_writer.py:48] [{s}] accuracy=0.1, loss={x}"),
    "GitHub Actions": Form("2024-01-01T10:00:00.1234567Z iter {s}: loss {x}, time 31.2ms"),
    "level": Form("2024-01-01 10:00:00 INFO step {s} loss {x}"),
    "structlog": Form("2024-01-01 10:00:00 [info     ] train_step                     loss={x} step={s}"),
    "logfmt": Form('ts=2024-01-01T10:00:00Z level=info msg="train step" loss={x} step={s}'),
    "icefall": Form(
        "INFO [train.py:898] (0/4) Epoch 1, batch {s}, loss[loss={x}, simple_loss=9.1, over 12.00 frames. ], tot_loss[loss=7.1]",
        others=("simple_loss",),
    ),
    "fairseq JSON": Form('| INFO | train_inner | {{"epoch": 1, "update": 0.003, "loss": "{x}", "num_updates": "{s}"}}'),
    "PyTorch's tutorial": Form("[1, {s}] loss: {x}"),
    "tensors": Form("step {s} loss tensor({x}, device='cuda:0', grad_fn=<NllLossBackward0>)"),
    "numpy": Form("{s}: {{'loss': np.float32({x}), 'acc': np.float32(0.5)}}"),
    "jax": Form("step {s}: loss=Array({x}, dtype=float32)"),
    "xtuner": Form("01/01 10:00:00 - mmengine - INFO - Iter(train) [ {s}/12]  lr: 1e-5  time: 1.2  loss: {x}"),
    "swift": Form("{{'loss': {x}, 'epoch': 0.1, 'global_step/max_steps': '{s}/12', 'percentage': '1.00%'}}"),
    "ggml": Form("train_opt_callback: iter= {s} sample=9/1000 sched=0.1 loss={x} dt=00:00:12 eta=01:02:03 |->"),
    "words": Form("Step {s} of 12: current loss = {x} (3.1 ms)"),
    "litgpt": Form("Epoch 1 | iter {s} step 0 | loss train: {x}, val: n/a | iter time: 31.2 ms"),
    "micro-batches": Form(
        "micro step 0/2 | micro_loss 9.1\nmicro step 1/2 | micro_loss 9.2\nstep {s} | loss {x}", others=("micro_loss",)
    ),
    "mixture of experts": Form("step: {s} aux_loss: 0.02 z_loss: 0.001 loss: {x}", others=("aux_loss", "z_loss")),
    "speechbrain": Form("epoch: {s}, lr: 1e-3 - train loss: {x} - valid loss: {v}", "epoch 0", "epoch 11", evaluations=12),
    "flax": Form("I0101 train.py:147] epoch: {s}, train_loss: {x}, test_loss: {v}", "epoch 0", "epoch 11", evaluations=12),
    "Keras by epoch": Form("Epoch {s}/12\n - 1s - 8ms/step - loss: {x} - val_loss: {v}", "epoch 0", "epoch 11", evaluations=12),
    "Markdown": Form("| {s} | {x} |", head="| Step | Training Loss |\n|------|---------------|\n"),
    "rich": Form(BOX, evaluations=12, head="┏━━┳━━┓\n┃ Step ┃ Train Loss ┃ Val Loss ┃\n┡━━╇━━┩\n"),
    "fastai": Form("{s}         {x}         {v}       00:12", "epoch 0", "epoch 11", evaluations=12,
                   head="epoch     train_loss  valid_loss  time\n"),
    "header of columns": Form("{s} {x} 0.1", head="step loss lr\n"),
    "stable-baselines": Form(
        RULE + "| time/               |       |\n|    total_timesteps  | {s}   |\n| train/              |       |\n"
        "|    loss             | {x}   |\n|    value_loss       | 45.6  |\n" + RULE,
        others=("train/value_loss",),
    ),
    "LLaMA-Factory": Form('{{"current_steps": {s}, "total_steps": 12, "loss": {x}, "epoch": 0.5}}'),
    "W&B": Form('{{"_step": {s}, "_runtime": 1.5, "train/loss": {x}, "train/grad_norm": 1.5}}', norm=True),
    "JSON with messages": Form('{{"levelname": "INFO", "message": "step {s} loss {x} grad_norm 1.5"}}', norm=True),
    "nested JSON": Form('{{"step": {s}, "train": {{"loss": {x}}}, "val": {{"loss": {v}}}}}', evaluations=12),
    "capitals": Form("{s}\t{x}\t1.5", norm=True, head="Step\tLoss\tGradNorm\n"),
    "notebook": Form("{s}\t{x}\t{v}", evaluations=12, head="Step\tTraining Loss\tValidation Loss\n"),
    "Megatron with several losses": Form(
        " iteration {s}/ 12 | lm loss: {x} | mtp_1 loss: 9.1 | loss scale: 1.0 | grad norm: 1.5 |\n"
        " validation loss at iteration {s} | lm loss value: {v} | lm loss PPL: 9.1 | mtp_1 loss value: 9.1 |",
        norm=True, evaluations=24, others=("mtp_1 loss",),
    ),
    "heads": Form("step {s} head_1 loss 9.1 head_2 loss 9.2 loss {x}", others=("head_1 loss", "head_2 loss")),
    "T5X": Form(
        "I0101 logging_writer.py:48] [{s}] collection=train accuracy=0.1, loss={x}, z_loss=9.1\n"
        "I0101 logging_writer.py:48] [{s}] collection=training_eval/c4 loss={v}", evaluations=12, others=("z_loss",)
    ),
    "Flax's ImageNet": Form("[{s}] train_loss={x}\nI0101 train.py:375] eval epoch: 0, loss: {v}", evaluations=12),
    "estimator": Form(
        "INFO:tensorflow:loss = {x}, step = {s} (0.3 sec)\n"
        "INFO:tensorflow:Saving dict for global step {s}: global_step = {s}, loss = {v}", evaluations=12
    ),
    "MindSpore": Form("epoch: 1 step: {s}, loss is {x}"),
    "Flair": Form("2024 epoch 1 - iter {s}/12 - loss {x} - lr: 0.1\n2024 DEV : loss {v} - f1-score (micro avg)  0.8", evaluations=12),
    "OLMo-core": Form("INFO\t[step={s}/12,epoch=1]\n    train/CE loss={x}\n    eval/lm/c4-validation/CE loss={v}", evaluations=12),
    "outputs of Keras": Form(
        "{s}/12 - 0s - a_loss: 9.1 - loss: {x} - val_a_loss: 9.2 - val_loss: {v}", evaluations=24, others=("a_loss",)
    ),
    "Composer's evaluations": Form(
        "[batch={s}/12]:\n\t Train loss/train/total: {x}\n[Eval batch=1/8]\n\t Eval metrics/eval/LanguageCrossEntropy: {v}",
        others=("Eval metrics/eval/LanguageCrossEntropy",),
    ),
    "PyTorch Geometric": Form("Epoch: {s:03d}, Loss: {x}, Val: 0.7, Test: 0.6", "epoch 0", "epoch 11", others=("Val", "Test")),
    "Swin": Form("INFO Train: [0/3][{s}/12]\teta 0:01:00 lr 0.1\tloss {x} (9.1)"),
    "bar of rich": Form("Epoch 0/9  ━━━━ {s}/12 0:00:10 • 0:01:30 1.23it/s train_loss: {x}"),
    "Coqui": Form(
        "   --> STEP: {s}/12 -- GLOBAL_STEP: {s}\n     | > decoder_loss: 9.1  (9.2)\n     | > loss: {x}  (9.1)\n"
        " > EVALUATION \n     | > avg_loss: {v} (+0.0)", others=("decoder_loss", "avg_loss")
    ),
    "spaCy": Form("  0       {s}     {x}    0.12", head="E    #       LOSS NER  SCORE \n---  ------  --------  ------\n"),
    "boosting of sklearn": Form("    {s}     {x}     0.85s", head="  Iter    Train Loss    Remaining Time\n"),
    "skorch": Form(
        "      {s}        \x1b[36m{x}\x1b[0m        \x1b[35m{v}\x1b[0m  0.0523", "epoch 0", "epoch 11", evaluations=12,
        head="  epoch    train_loss    valid_loss     dur\n-------  ------------  ------------  ------\n",
    ),
    "console of ultralytics": Form(
        "      Epoch    GPU_mem   box_loss       Size\n\r      {s}/12      2.2G      9.1        640:  50%|███     | 4/8 [00:01<00:01]"
        "\r      {s}/12      2.2G      {x}        640: 100%|██████| 8/8 [00:02<00:00, 5.1it/s]", "epoch 0", "epoch 11"
    ),
    "Ludwig": Form(
        "╒══════════╤════════╕\n│ Survived │   loss │\n╞══════════╪════════╡\n│ train    │ {x} │\n├──────────┼────────┤\n"
        "│ validation │ {v} │\n╘══════════╧════════╛", "", "", evaluations=12
    ),
    "chart of W&B": Form('"{s}","{x}","{x}"', head='"Step","sunny-1 - train/loss","sunny-1 - train/loss__MIN"\n'),
    "Ray Train": Form('{{"loss": {x}, "training_iteration": {s}, "config": {{"loss": "ce", "optimizer": {{"lr": 0.1}}}}}}'),
    "JSON of torchtitan": Form(
        '{{"step": {s}, "loss_metrics/global_avg_loss": {x}, "loss_metrics/global_max_loss": 9.1}}',
        others=("loss_metrics/global_max_loss",),
    ),
    "JSON of three levels": Form('{{"step": {s}, "metrics": {{"train": {{"loss": {x}}}, "val": {{"loss": {v}}}}}}}', evaluations=12),
    "total and part": Form("step {s} total_loss: 9.1 lm_loss: {x}", others=("total_loss",)),
    "timm": Form("{s},{x},{v},12.5", "epoch 0", "epoch 11", evaluations=12, others=("eval_top1",), head="epoch,train_loss,eval_loss,eval_top1\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_a_form_is_read(name) -> None:
    form = LINES[name]
    text = form.head + "".join(
        form.line.format(s=step, x=loss, v=loss + 1) + "\n" for step, loss in enumerate(LOSSES)
    )
    log = read(text, {})
    (steps,) = log.ranks
    assert tuple(step.loss for step in steps) == LOSSES
    assert (steps[0].label, steps[-1].label) == (form.first, form.last)
    assert {step.time_s for step in steps} <= {None, 0.0312}
    assert [step.grad_norm for step in steps] == [1.5 if form.norm else None] * len(LOSSES)
    assert (len(log.evaluations), log.others) == (form.evaluations, form.others)


DOCUMENTS = {
    "history of Keras": {"loss": LOSSES, "val_loss": LOSSES},
    "nested history": {"history": {"loss": LOSSES}},
    "points": {"loss": list(enumerate(LOSSES))},
    "export of TensorBoard": [[1.7e9 + step, step, loss] for step, loss in enumerate(LOSSES)],
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_read(name) -> None:
    (steps,) = read(json.dumps(DOCUMENTS[name]), {}).ranks
    assert [(step.label, step.loss) for step in steps] == [
        (str(step), loss) for step, loss in enumerate(LOSSES)
    ]


def test_a_table_with_decimal_commas_is_read() -> None:
    text = "step;loss;grad_norm\r\n" + "".join(
        f"{step};{loss:.4f};1.500\r\n".replace(".", ",") for step, loss in enumerate(LOSSES)
    )
    (steps,) = read(text, {}).ranks
    assert [(step.loss, step.grad_norm) for step in steps] == [(loss, 1.5) for loss in LOSSES]
    assert read("step;loss\r\n0;1,5\r\n1;1,400\r\n", {}).ranks[0][1].loss == 1.4
    with pytest.raises(Unreadable, match="'1,500' may be"):
        read("step;loss\n0;1,500\n1;1,400\n", {})


@pytest.mark.parametrize("prefix", ["{}:", "[GPU{}]", "[rank{}]:"])
def test_a_label_of_each_task_is_a_rank(prefix) -> None:
    text = "".join(
        f"{prefix.format(rank)} step {step} loss {loss + rank}\n"
        for step, loss in enumerate(LOSSES)
        for rank in (1, 0)
    )
    log = read(text, {})
    assert [[step.loss for step in rank] for rank in log.ranks] == [
        list(LOSSES),
        [loss + 1 for loss in LOSSES],
    ]


def test_a_loss_that_is_no_number_keeps_its_step() -> None:
    (steps,) = read(
        "".join(f"loss {loss} step {step}\n" for step, loss in enumerate([*LOSSES[:-1], "nan"])), {}
    ).ranks
    assert [step.step for step in steps] == list(range(12))
    assert steps[-1].loss != steps[-1].loss


def test_a_bar_drawn_after_an_evaluation_is_one_step() -> None:
    bars = ""
    for epoch in range(3):
        for place, loss in enumerate(LOSSES, 1):
            bars += f"\rEpoch {epoch}: {place}/12 [00:00<00:01, train_loss_step={loss}]"
        bars += "\rValidation DataLoader 0: 3/3 [00:00<00:00]\x1b[A\r"
        bars += f"Epoch {epoch}: 12/12 [00:00<00:01, train_loss_step={LOSSES[-1]}, val_loss=2.5]\n"
    log = read(bars, {})
    assert len(log.ranks[0]) == 3 * len(LOSSES)
    assert log.ranks[0][-1].label == "epoch 2, iteration 12"


def test_a_resumed_run_counts_once() -> None:
    lines = [f"step {step} loss {loss}" for step, loss in enumerate(LOSSES)]
    log = read("\n".join(lines[:8] + [line.replace("loss 3", "loss 2") for line in lines[5:]]), {})
    assert [step.step for step in log.ranks[0]] == list(range(12))
    assert [step.loss for step in log.ranks[0]][4:6] == [3.6, 2.5]
    assert log.remarks == "3 steps that a resumed run repeated"


def test_a_percentage_is_no_step() -> None:
    with pytest.raises(Unreadable, match="step 3 of rank 0 is there twice"):
        read("step: 3 loss: 2.5\nstep: 3 loss: 2.4\n", {})
    steps = read("Steps: 3% 7/200 loss: 2.5\nSteps: 3% 8/200 loss: 2.4\n", {}).ranks[0]
    assert [step.step for step in steps] == [7, 8]


def test_lines_between_json_are_left_out() -> None:
    lines = [json.dumps({"step": step, "loss": loss}) for step, loss in enumerate(LOSSES)]
    text = "\n".join([*lines[:5], "UserWarning: this is slow", *lines[5:]])
    for banner in ("", "[rank0] starting\n"):
        assert len(read(banner + text, {}).ranks[0]) == len(LOSSES)
    with pytest.raises(Unreadable, match="line 12 is not a JSON object"):
        read("\n".join(lines)[:-4], {})


def test_evaluations_come_first_in_json_after_a_banner() -> None:
    lines = [
        json.dumps({"step": step, "val": {"loss": 9.0}, "train": {"loss": loss}})
        for step, loss in enumerate(LOSSES)
    ]
    log = read("[rank0] starting\n" + "\n".join(lines), {})
    assert (tuple(step.loss for step in log.ranks[0]), log.evaluations) == (LOSSES, (9.0,) * 12)


@pytest.mark.parametrize(
    "text",
    [
        "step 1 lossless: 2.5\n",
        "[0/5] Loss_D: 1.7 Loss_G: 4.5\n",
        "pg_loss:0.1 vf_loss:0.2\n",
        "iter 0 D loss: 1.7 G loss: 4.5\n",
    ],
)
def test_one_of_several_losses_must_be_named(text) -> None:
    with pytest.raises(Unreadable, match=r"name it with `losses\.loss`"):
        read(text * 12, {})


def test_a_mean_of_an_epoch_is_no_step() -> None:
    lines = "".join(
        f"1epoch:train:{step}-{step}batch: acc=0.1, loss={loss}\n"
        for step, loss in enumerate(LOSSES)
    )
    log = read(lines + "1epoch results: [train] loss=3.1, [valid] loss=3.0\n", {})
    assert (len(log.ranks[0]), log.remarks) == (12, "1 average")


def test_ranks_have_the_same_steps() -> None:
    log = read('{"step": 0, "rank": 0, "loss": 1}\n{"step": 0, "rank": 1, "loss": 2}', {})
    assert by_rank([record for rank in log.ranks for record in rank]) == log.ranks


@pytest.mark.parametrize(
    ("line", "name", "others"),
    [
        ("{s}:\tlearn: {x}\ttest: {v}\tbest: 9.1 (3)\ttotal: 51ms", "learn", ()),  # CatBoost
        ("[{s}]\ttrain-rmse:{x}\teval-rmse:{v}", "train-rmse", ()),
        ("[{s}]\ttraining's l2: {x}\tvalid_1's l2: {v}", "training's l2", ()),
        (
            '{{"step": {s}, "train_mse": {x}, "val_mse": {v}, "val_mae": 9.1}}',
            "train_mse",
            ("val_mae",),
        ),
    ],
)
def test_the_evaluation_of_a_named_loss_is_compared(line, name, others) -> None:
    text = "".join(line.format(s=n, x=loss, v=loss + 1) + "\n" for n, loss in enumerate(LOSSES))
    log = read(text, {"loss": name})
    assert tuple(step.loss for step in log.ranks[0]) == LOSSES
    assert (log.evaluations, log.others) == (tuple(loss + 1 for loss in LOSSES), others)


def test_a_score_in_the_line_of_an_evaluation_is_named() -> None:
    text = "".join(
        f"Ep. 1 : Up. {100 * n} : Sen. 12,345 : Cost {loss} : Time 12.3s\n"
        f"[valid] Ep. 1 : Up. {100 * n} : cross-entropy : 210.1 : new best\n"
        for n, loss in enumerate(LOSSES)
    )
    log = read(text, {"loss": "Cost"})  # Marian
    assert [step.label for step in log.ranks[0]] == [str(100 * n) for n in range(12)]
    assert log.others == ("cross-entropy",)


def test_ranks_in_brackets_are_ranks() -> None:
    text = "".join(
        f"2024-01-01 INFO [train.py:898] ({rank}/2) Epoch {epoch}, batch {n}, loss[loss={loss + rank}, over 12.00 frames.]\n"
        for epoch in (1, 2)
        for n, loss in enumerate(LOSSES)
        for rank in (0, 1)
    )
    log = read(text, {})
    assert [rank[0].loss for rank in log.ranks] == [4.0, 5.0]
    assert [step.label for step in log.ranks[0]][11:13] == [
        "epoch 1, iteration 11",
        "epoch 2, iteration 0",
    ]


@pytest.mark.parametrize(
    "line",
    ["Train: {e} [{s:4d}/12 (  4%)]  Loss: {x} (9.1)", "Train: [{e}/3][{s}/12]\tloss {x} (9.1)"],
)
def test_epochs_are_numbered_as_the_log_has_them(line) -> None:
    text = "".join(
        line.format(e=e, s=n, x=loss) + "\n" for e in (0, 1) for n, loss in enumerate(LOSSES)
    )
    labels = [step.label for step in read(text, {}).ranks[0]]
    assert (labels[0], labels[-1]) == ("epoch 0, iteration 0", "epoch 1, iteration 11")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Epoch {e} iter {s} loss {x}", "epoch 1, iteration 0 of rank 0 is there twice"),
        ("step {s} loss {x}", "step 0 of rank 0 is there twice"),
    ],
)
def test_a_run_that_was_started_again_is_refused(line, words) -> None:
    lines = [line.format(e=e, s=n, x=loss) for e in (0, 1) for n, loss in enumerate(LOSSES)]
    if "{e}" not in line:
        lines = lines[:12]
    with pytest.raises(Unreadable, match=f"{words}.*keep one attempt of a run"):
        read("\n".join(lines[:-5] + lines[-12:]), {})


def test_a_run_that_was_resumed_in_an_epoch_has_epochs() -> None:
    lines = [f"step {n} loss {loss}" for n, loss in enumerate(LOSSES)]
    labels = [step.label for step in read("\n".join(lines[8:] + lines), {}).ranks[0]]
    assert labels[3:5] == ["epoch 1, iteration 11", "epoch 2, iteration 0"]


def test_a_summary_is_not_the_training() -> None:
    text = "".join(f"Epoch {n} completed: loss {loss}\n" for n, loss in enumerate(LOSSES))
    for end in ("{'train_runtime': 3.5, 'train_loss': 9.1}", "final train loss: 9.1"):
        assert [step.loss for step in read(text + end, {}).ranks[0]] == list(LOSSES)


def test_names_in_inner_objects_are_shown() -> None:
    stats = {"total_loss": 2.5, "policy_loss": 0.1}
    line = json.dumps({"training_iteration": 1, "info": {"learner": {"default": stats}}})
    with pytest.raises(Unreadable, match=r"it has 'info\.learner\.default\.total_loss', 'info"):
        read(f"{line}\n" * 12, {})
    name = "info.learner.default.total_loss"
    assert len(read(f"{line}\n", {"loss": name}, "jsonl").ranks[0]) == 1


def test_losses_among_evaluations_are_shown() -> None:
    line = "epoch={}: train_epoch_loss=tensor(2.5) eval_epoch_loss=tensor(2.6)\n"
    with pytest.raises(Unreadable, match=r"only 12 evaluations; .*: it has 'train_epoch_loss'$"):
        read("".join(map(line.format, range(12))), {})
    rows = "".join(
        json.dumps({"split": "dev-small", "step": n, "loss": 2.5}) + "\n" for n in range(12)
    )
    with pytest.raises(Unreadable, match="no training step, only 12 evaluations"):
        read(rows, {})
