"""Evaluation accuracy of a trained model, through the `evaluate` library.

The package's own metric module is loaded by path, so no hub is needed.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ci_bench.suites.training_loss.corpus import DATA, Batch, Rows
from ci_bench.suites.training_loss.training import Trainee


def predict(trainee: Trainee, rows: Rows, *, batch_size: int, compiled: bool = True) -> Tensor:
    """The predicted class of every row, int64 [rows], on the CPU.

    The forward pass is compiled as the training step was, unless `compiled` is off. The last batch is filled up with repeated
    rows, so that one shape serves all.
    """
    trainee.model.eval()

    def forward(batch: Batch) -> Tensor:
        with trainee.autocast():
            return trainee.logits(batch)

    run: Callable[[Batch], Tensor] = trainee.compile(forward) if compiled else forward
    found = []
    with torch.no_grad():
        for indices in torch.arange(len(rows)).split(batch_size):  # type: ignore[no-untyped-call] # torch leaves it unannotated
            filled = torch.cat([indices, indices[:1].expand(batch_size - len(indices))])
            found.append(run(rows.batch(filled.to(rows.labels.device))).argmax(dim=-1)[: len(indices)].cpu())
    trainee.model.train()
    return torch.cat(found)


def accuracy(predictions: Tensor, labels: Tensor, *, cache: Path) -> float:
    """The share of right predictions, 0..1."""
    import evaluate

    metric = evaluate.load(str(DATA / "accuracy"), cache_dir=str(cache), keep_in_memory=True)
    return float(metric.compute(predictions=predictions.tolist(), references=labels.tolist())["accuracy"])


def disagreements(eager: Tensor, compiled: Tensor, labels: Tensor) -> tuple[int, int]:
    """How many rows only the eager forward pass got right, and how many only the compiled one."""
    eager_right, compiled_right = eager == labels, compiled == labels
    return int((eager_right & ~compiled_right).sum()), int((~eager_right & compiled_right).sum())
