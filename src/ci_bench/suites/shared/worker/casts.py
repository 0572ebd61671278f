"""Casts of models and tensors to other precisions, in which complex numbers stay complex.

``module.to(torch.bfloat16)`` and ``module.to(torch.float64)`` turn complex weights into real ones.
The measured model, or the truth, would then be a different model. No complex type of 16 bits is in
wide use, so complex numbers keep theirs. Imports torch.
"""

import torch
from torch import Tensor, nn


def cast_module(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return the module in a floating type.

    For fp64, complex weights and buffers become complex128; for narrow types they stay as they are.
    """
    if not any(value.is_complex() for value in (*module.parameters(), *module.buffers())):
        return module.to(dtype)
    module._apply(lambda value: in_type(value, dtype))  # type: ignore[no-untyped-call] # noqa: SLF001 - what `Module.to` calls
    return module


def in_type(value: Tensor, dtype: torch.dtype, *, copy: bool = False) -> Tensor:
    """Return a tensor in a floating type; whole numbers stay as they are.

    Complex ones are cast as in `cast_module`. Without `copy`, it shares its memory with a tensor
    that is in this type.
    """
    if value.is_complex() and dtype is torch.float64:
        return value.to(torch.complex128, copy=copy)
    if value.is_floating_point():
        return value.to(dtype, copy=copy)
    return value.clone() if copy else value


def real_parts(value: Tensor) -> Tensor:
    """Return real numbers as they are; complex ones as pairs, [..., 2]."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


MOST_NAMED = 3


def rounded_buffers(module: nn.Module, dtype: torch.dtype) -> str:
    """Name the fp32 buffers whose values a cast changes: ``rotary.inv_freq by 0.39 %``.

    Empty if none.

    Angles and positions (`inv_freq`) lose digits there, as in users' models:
    https://github.com/huggingface/transformers/issues/25681.
    """
    descriptions = []
    for name, value in module.named_buffers():
        if value.dtype is not torch.float32 or not value.numel():
            continue
        error = (value - value.to(dtype).float()).abs() / value.abs()
        largest = float(error.nan_to_num(0.0, posinf=0.0).max())
        descriptions += [f"{name} by {100 * largest:.2g} %"] if largest > 0 else []
    more = [f"{len(descriptions) - MOST_NAMED} more"] if len(descriptions) > MOST_NAMED else []
    return ", ".join([*descriptions[:MOST_NAMED], *more])
