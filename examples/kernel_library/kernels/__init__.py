"""A library of kernels: root mean square normalisation, the way this library does it."""

import torch


def rms_norm(rows: torch.Tensor, weight: torch.Tensor, epsilon: float = 1e-6) -> torch.Tensor:
    """Normalise rows of any dtype over the last dimension, in single precision."""
    wide = rows.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
    return (wide * scale).to(rows.dtype) * weight
