"""Small logs in the forms that trainers write, with losses, norms, evaluations and times of the tests' choice."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

STEPS = 120


def losses(steps=STEPS):
    """A training of a small language model, deterministic."""
    return [3.1 + 7.4 * 0.975**step + 0.013 * ((step * 7919) % 11 - 5) / 5 for step in range(steps)]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a form writes: a loss and a norm for each step, an evaluation after every 20th, and milliseconds."""

    loss: list = field(default_factory=losses)
    norm: list = field(
        default_factory=lambda: [1.5 + ((step * 31) % 17) / 40 for step in range(STEPS)]
    )
    evaluated: float = 1.0
    ms: float = 31.5

    def evaluations(self):
        return {
            step: (self.loss[step] + 0.2) * self.evaluated for step in range(19, len(self.loss), 20)
        }

    def rows(self):
        return list(zip(range(len(self.loss)), self.loss, self.norm, strict=False))


def _lines(run, line, evaluation=None, first=0):
    """A line for each step, and one for each evaluation after its step."""
    found, evaluations = [], run.evaluations()
    for step, loss, norm in run.rows():
        found.append(line(step + first, loss, norm))
        if evaluation is not None and step in evaluations:
            found.append(evaluation(step + first, evaluations[step]))
    return "\n".join(found) + "\n"


def nano_gpt(run):
    return _lines(
        run,
        lambda step, loss, _: f"iter {step}: loss {loss:.4f}, time {run.ms:.2f}ms, mfu 3.00%",
        lambda step, loss: f"step {step}: train loss {loss - 0.1:.4f}, val loss {loss:.4f}",
    )


def torchtitan(run):
    return _lines(
        run,
        lambda step, loss, norm: (
            f"[rank0]:[titan] 2025-01-01 10:00:00,{step:03d} - root - INFO - \x1b[31mstep: {step:2d}  \x1b[32mloss: {loss:8.4f}"
            f"  \x1b[38mgrad_norm: {norm:7.4f}  \x1b[33mmemory:  0.90GiB(1.10%)  tps: 1,{step:03d}  mfu: 0.10%\x1b[39m"
        ),
        lambda step, loss: (
            f"[rank0]:[titan] 2025-01-01 - root - INFO - validate step: {step:2d}  validation loss: {loss:8.4f}"
        ),
        first=1,
    )


def torchtune(run):
    return _lines(
        run,
        lambda step, loss, norm: f"Step {step} | loss:{loss!r} lr:2e-05 grad_norm:{norm!r}",
        first=1,
    )


def megatron(run):
    def line(step, loss, norm):
        return (
            f" [2025-01-01 10:00:00] iteration {step:8d}/     500 | consumed samples: {32 * step:12d} | elapsed time per iteration "
            f"(ms): {run.ms:.1f} | learning rate: 1.5E-06 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} |"
        )

    evaluation = "validation loss at iteration {} | lm loss value: {:.6E} | lm loss PPL: 1.0E+02 |"
    return _lines(run, line, evaluation.format, first=1)


def deepspeed(run):
    return _lines(
        run,
        lambda step, loss, _: (
            f"steps: {step} loss: {loss:.4f} iter time (s): {run.ms / 1e3:.3f} samples/sec: 8.1"
        ),
    )


def fairseq(run):
    head = "2026-01-02 09:00:00 | INFO |"
    return _lines(
        run,
        lambda step, loss, norm: (
            f"{head} train_inner | epoch 001: {step:6d} / 3000 loss={loss:.3f}, wps=29000, gnorm={norm:.3f}"
        ),
        lambda _, loss: (
            f"{head} valid | epoch 001 | valid on 'valid' subset | loss {loss:.3f} | ppl 9.5"
        ),
        first=1,
    )


def torchvision(run):
    return _lines(
        run,
        lambda step, loss, _: (
            f"Epoch: [0]  [{step:4d}/120]  eta: 0:00:10  lr: 0.1  loss: {loss:.4f} ({loss + 0.1:.4f})"
        ),
        lambda step, loss: f"Test:  [{step:4d}/120]  eta: 0:00:10  loss: {loss:.4f} ({loss:.4f})",
    )


def trainer_prints(run):
    return _lines(
        run,
        lambda step, loss, norm: str(
            {"loss": f"{loss:.4f}", "grad_norm": f"{norm:.4f}", "epoch": f"{step / 60:.4f}"}
        ),
        lambda step, loss: str(
            {"eval_loss": f"{loss:.4f}", "eval_runtime": f"{run.ms}", "epoch": f"{step / 60:.4f}"}
        ),
    )


def trainer_state(run):
    history = [
        {"loss": loss, "grad_norm": norm, "step": step + 1} for step, loss, norm in run.rows()
    ]
    history += [{"eval_loss": loss, "step": step + 1} for step, loss in run.evaluations().items()]
    history.append({"train_runtime": run.ms, "train_loss": 4.0, "step": len(run.loss)})
    return json.dumps({"global_step": len(run.loss), "log_history": history}, indent=1)


def json_lines(run):
    return _lines(
        run,
        lambda step, loss, norm: json.dumps(
            {"mode": "train", "step": step, "loss": loss, "grad_norm": norm, "dt": run.ms}
        ),
        lambda step, loss: json.dumps({"mode": "val", "step": step, "loss": loss}),
    )


def lightning(run):
    found = ["epoch,step,train_loss,val_loss"]
    evaluations = run.evaluations()
    for step, loss, _ in run.rows():
        found.append(f"{step // 40},{step},{loss!r},")
        found += [f"{step // 40},{step},,{evaluations[step]!r}"] if step in evaluations else []
    return "\r\n".join(found) + "\r\n"


def golden_values(run):
    values = {str(step + 1): round(loss, 5) for step, loss, _ in run.rows()}
    return json.dumps(
        {
            "lm loss": {
                "start_step": 1,
                "end_step": len(values),
                "step_interval": 1,
                "values": values,
            }
        },
        indent=1,
    )


def columns(run):
    return "\n".join(f"{step + 1} {loss!r}" for step, loss, _ in run.rows())


def bars(run):
    text = ""
    for step, loss, _ in run.rows():
        epoch, place = divmod(step, 10)
        text += f"\rEpoch {epoch}: {10 * place + 10:3d}%|{'█' * place}| {place + 1}/10 [00:00<00:00, 50.0it/s, loss={loss:.6f}]"
        text += "\n" if place == 9 else ""
    return text


def epochs(run):
    return _lines(
        run,
        lambda step, loss, _: (
            f"INFO | epoch: {step // 40 + 1}/300, iter: {step % 40 + 1}/40, mem: 1491Mb, total_loss: {loss:.3f}"
        ),
    )


def keras(run):
    evaluations = run.evaluations()
    return "\n".join(
        f"{step + 1}/120 [====] - 1s {run.ms:.0f}ms/step - loss: {loss:.4f}"
        + (f" - val_loss: {evaluations[step]:.4f}" if step in evaluations else "")
        for step, loss, _ in run.rows()
    )


def european(run):
    return _lines(
        run,
        lambda step, loss, norm: f"step={step} loss={loss:.4f} grad_norm={norm:.3f}".replace(
            ".", ","
        ),
    )


def suffixes(run):
    return _lines(
        run,
        lambda step, loss, norm: (
            f"iteration: {step} / 120 | grad_norm: {norm:.3f}K | tokens: 1.2M | loss: {loss:.4f}"
        ),
    )


def two_ranks(run):
    """A pipeline: the first rank has no loss, and says -1."""
    return _lines(
        run,
        lambda step, loss, _: (
            f"[rank0]:[own] - root - INFO - step: {step:2d}  loss: -1.0000  tps: 1,200\n"
            f"[rank7]:[own] - root - INFO - step: {step:2d}  loss: {loss:7.4f}  tps: 1,200"
        ),
    )


FORMS: dict[str, Callable[[Run], str]] = {
    form.__name__: form
    for form in (
        nano_gpt, torchtitan, torchtune, megatron, deepspeed, fairseq, torchvision, trainer_prints, trainer_state, json_lines,
        lightning, golden_values, columns, bars, epochs, keras, european, suffixes, two_ranks,
    )
}  # fmt: skip
EVALUATED = {"nano_gpt", "torchtitan", "megatron", "fairseq", "torchvision", "trainer_prints", "trainer_state", "json_lines", "lightning", "keras"}  # fmt: skip
"""The forms that have evaluations."""
TIMED = {"nano_gpt", "megatron", "deepspeed", "json_lines", "keras"}
