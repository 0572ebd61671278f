"""A training framework, as small as can be: a model, its loss, an optimizer, rows to learn from."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Takes what `rows` gives, and returns logits."""

    def __init__(self, width: int = 64, classes: int = 4) -> None:
        """Build two layers."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, features: Tensor) -> Tensor:
        """Map features of [rows, 16] to logits of [rows, classes]."""
        logits: Tensor = self.layers(features)
        return logits


def rows(split: str, count: int) -> Mapping[str, Tensor]:
    """Return the model's inputs by name, and `labels`; at most `count` rows are used."""
    generator = torch.Generator().manual_seed(len(split))
    features = torch.randn(count, 16, generator=generator)
    return {"features": features, "labels": features[:, :4].argmax(dim=1)}


def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the framework's own loss."""
    return nn.functional.cross_entropy(logits, labels, label_smoothing=0.05)


class Lion(torch.optim.Optimizer):
    """Steps by the sign of a moving average (Chen et al., https://arxiv.org/abs/2302.06675)."""

    def __init__(
        self, params: Iterable[Tensor], lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99)
    ) -> None:
        """Use `betas` for the step and for the running mean."""
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # noqa: ARG002 - torch's signature
        """Update the parameters once."""
        for group in self.param_groups:
            for parameter in group["params"]:
                average = self.state[parameter].setdefault("average", torch.zeros_like(parameter))
                near, far = group["betas"]
                parameter.add_(torch.lerp(parameter.grad, average, near).sign(), alpha=-group["lr"])
                average.lerp_(parameter.grad, 1 - far)
