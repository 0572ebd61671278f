"""Predictions of a trained classifier: classes of rows, their accuracy, and disagreements.

Accuracy is that of the `evaluate` library, by the package's own metric module, which is loaded by
path and needs no hub.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ci_bench.suites.training_loss.corpus import Batch, Rows
from ci_bench.suites.training_loss.model_files import DATA
from ci_bench.suites.training_loss.training import Trainee


def predict(trainee: Trainee, rows: Rows, *, batch_size: int, compiled: bool = True) -> Tensor:
    """Return the predicted class of every row, int64 [rows], on the CPU.

    The forward pass is compiled as the training step was, unless `compiled` is off. The last batch
    is filled up with repeated rows, so one shape serves all.
    """
    trainee.model.eval()

    def forward(batch: Batch) -> Tensor:
        with trainee.autocast():
            return trainee.logits(batch)

    run: Callable[[Batch], Tensor] = trainee.compile(forward) if compiled else forward
    classes = []
    with torch.no_grad():
        for indices in torch.arange(len(rows)).split(batch_size):  # type: ignore[no-untyped-call] # torch leaves it unannotated
            filled = torch.cat([indices, indices[:1].expand(batch_size - len(indices))])
            classes.append(
                run(rows.batch(filled.to(rows.labels.device))).argmax(dim=-1)[: len(indices)].cpu()
            )
    trainee.model.train()
    return torch.cat(classes)


def accuracy(predictions: Tensor, labels: Tensor, *, cache: Path) -> float:
    """Return the share of right predictions, 0..1."""
    import evaluate

    metric = evaluate.load(str(DATA / "accuracy"), cache_dir=str(cache), keep_in_memory=True)
    return float(
        metric.compute(predictions=predictions.tolist(), references=labels.tolist())["accuracy"]
    )


def disagreements(eager: Tensor, compiled: Tensor, labels: Tensor) -> tuple[int, int]:
    """Count the rows that only the eager forward pass got right, and only the compiled one."""
    eager_right, compiled_right = eager == labels, compiled == labels
    return int((eager_right & ~compiled_right).sum()), int((~eager_right & compiled_right).sum())
