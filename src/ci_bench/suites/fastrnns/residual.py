"""ResNets in training mode, 1000 classes, images of three channels.

They are built from transformers' configuration, or are torchvision's own.

Weights are drawn from the seed by the library's own rule; nothing is downloaded.
"""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.fastrnns.options import CnnLibrary, FastrnnsOptions
from ci_bench.suites.fastrnns.variants import FastrnnsTask

CLASSES = 1000
LAYOUTS: dict[FastrnnsTask, dict[str, Any]] = {
    FastrnnsTask.RESNET18: {
        "layer_type": "basic",
        "depths": [2, 2, 2, 2],
        "hidden_sizes": [64, 128, 256, 512],
    },
    FastrnnsTask.RESNET50: {
        "layer_type": "bottleneck",
        "depths": [3, 4, 6, 3],
        "hidden_sizes": [256, 512, 1024, 2048],
    },
}
"""https://arxiv.org/abs/1512.03385, table 1."""


class Logits(nn.Module):
    """A model of transformers as a function of only the images, as tracers require."""

    def __init__(self, model: nn.Module) -> None:
        """Wrap a classifier."""
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, 3, S, S) to logits (N, 1000)."""
        logits: Tensor = self.model(pixel_values=images, return_dict=False)[0]
        return logits


def build_resnet(options: FastrnnsOptions, task: FastrnnsTask) -> nn.Module:
    """Build the network on the CPU in single precision, in training mode.

    Its weights are drawn from torch's generator in its current state.

    Raises:
        Unsupported: torchvision is requested and is not installed.
    """
    if options.cnn_library is CnnLibrary.TORCHVISION:
        model: nn.Module = getattr(_torchvision_models(), str(task))(
            weights=None, num_classes=CLASSES
        )
        return model.train()
    from transformers import ResNetConfig, ResNetForImageClassification

    layout: dict[str, Any] = {
        "num_channels": 3,
        "embedding_size": 64,
        "num_labels": CLASSES,
        **LAYOUTS[task],
    }
    config = ResNetConfig(**layout)
    return Logits(ResNetForImageClassification(config)).train()


def draw_weights(options: FastrnnsOptions, task: FastrnnsTask) -> dict[str, Tensor]:
    """Draw the initial weights and buffers, by name; torch's generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        return {
            name: value.detach().clone()
            for name, value in build_resnet(options, task).state_dict().items()
        }


def _torchvision_models() -> Any:
    library = CnnLibrary.TORCHVISION
    try:
        return import_module(f"{library}.models")
    except ImportError as error:
        message = (
            f"cnn_library {library}: it is not installed here; install it, or take transformers,"
            " which needs nothing more"
        )
        raise Unsupported(message) from error
