"""Casts of models and tensors to other precisions, in which complex numbers stay complex.

``module.to(torch.bfloat16)`` and ``module.to(torch.float64)`` turn complex weights into real ones.
The measured model, or the truth, would then be a different model. No complex type of 16 bits is in
wide use, so complex numbers keep theirs. Imports torch.
"""

import torch
from torch import Tensor, nn


def cast_module(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The module in a floating type: complex weights and buffers in complex128 for fp64, as they are for narrow types."""
    if not any(value.is_complex() for value in (*module.parameters(), *module.buffers())):
        return module.to(dtype)
    module._apply(lambda value: in_type(value, dtype))  # type: ignore[no-untyped-call] # noqa: SLF001 - what `Module.to` calls
    return module


def in_type(value: Tensor, dtype: torch.dtype, *, copy: bool = False) -> Tensor:
    """A tensor in a floating type; complex ones as in `cast_module`, whole numbers as they are.

    Without `copy`, it shares its memory with a tensor that is in this type.
    """
    if value.is_complex() and dtype is torch.float64:
        return value.to(torch.complex128, copy=copy)
    if value.is_floating_point():
        return value.to(dtype, copy=copy)
    return value.clone() if copy else value


def real_parts(value: Tensor) -> Tensor:
    """Real numbers as they are; complex ones as pairs, [..., 2]."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
