"""Makes the files beside it, with the tools' own libraries: ``python make.py FOLDER``.

Made with torch 2.13.0, tensorboard 2.21.0, tensorboardX 2.6.5 and wandb 0.31.0; the tests need none
of the last three.
"""

import os
import sys
from pathlib import Path

import numpy as np
import tensorboardX
import wandb
from torch.utils.tensorboard import SummaryWriter

STEPS = 12


def loss(step: int, rank: int = 0) -> float:
    """Of a step."""
    return 2.5 / (step + 1) + rank


def tensorboard(folder: Path) -> None:
    """Two ranks, by torch: scalars, evaluations, a histogram, a text."""
    for rank in range(2):
        with SummaryWriter(str(folder / f"rank_{rank}"), filename_suffix=".torch") as writer:
            writer.add_text("config", "a: 1")
            for step in range(STEPS):
                writer.add_scalar("Loss/train", loss(step, rank), step)
                writer.add_scalar("grad_norm", 1.0 + step, step)
                if step % 6 == 0:
                    writer.add_histogram("weights", np.arange(3.0), step, bins=3)
                    writer.add_scalar("Loss/val", 3.0, step)


def tensors(folder: Path) -> None:
    """Scalars as tensors, as TensorFlow 2 writes them."""
    with SummaryWriter(str(folder / "tensors"), filename_suffix=".new") as writer:
        for step in range(STEPS):
            writer.add_scalar("loss", loss(step), step, new_style=True)


def by_tensorboardx(folder: Path) -> None:
    """The same by tensorboardX."""
    with tensorboardX.SummaryWriter(str(folder / "x"), filename_suffix=".x") as writer:
        for step in range(STEPS):
            writer.add_scalar("loss", loss(step), step)


def offline_run(folder: Path) -> None:
    """A run of W&B: losses, evaluations between them, what is nested, a loss that is no number."""
    os.chdir(folder)
    settings = wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        save_code=False,
        x_disable_stats=True,
        x_disable_meta=True,
    )
    with wandb.init(project="p", id="abcd1234", mode="offline", settings=settings) as run:
        for step in range(STEPS):
            value = float("nan") if step == 5 else loss(step)
            run.log(
                {
                    "train/loss": value,
                    "train/grad_norm": 1.0 + step,
                    "lr": {"head": 0.1},
                    "note": "text",
                    "tokens": 512,
                }
            )
            if step % 4 == 3:
                run.log({"val/loss": 3.0})


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    tensorboard(target)
    tensors(target)
    by_tensorboardx(target)
    offline_run(target)
