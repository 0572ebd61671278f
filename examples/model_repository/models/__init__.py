"""The models of this repository."""

from collections.abc import Mapping

import torch
from torch import nn


class Mixer(nn.Module):
    """Mixes tokens, then channels. What ci-bench asks of it is its inputs and its loss."""

    def __init__(self, tokens: int = 32, width: int = 64, layers: int = 2, batch: int = 8) -> None:
        """Build a stack of `layers`."""
        super().__init__()
        self._shape = (batch, tokens, width)
        self.across = nn.ModuleList(nn.Linear(tokens, tokens) for _ in range(layers))
        self.within = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
            for _ in range(layers)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map features of [batch, tokens, width] to the same shape."""
        for across, within in zip(self.across, self.within, strict=True):
            features = features + across(features.transpose(1, 2)).transpose(1, 2)
            features = features + within(features)
        return features

    def get_example_inputs(self) -> Mapping[str, torch.Tensor]:
        """Return one batch."""
        return {"features": torch.randn(self._shape)}

    def get_target(self) -> torch.Tensor:
        """Return the target for that batch."""
        return torch.zeros(self._shape)

    def loss(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error."""
        return nn.functional.mse_loss(outputs, target)
