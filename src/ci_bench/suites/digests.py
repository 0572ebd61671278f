"""Digests of tensors: what tells whether two sides start from the same weights and compute from the same inputs.

SHA-256 over the format, and the bytes in C order. Shapes are left out: a weight that is only viewed in another shape is the same
weight. Imports torch; for worker processes.
"""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor


def plain(value: Tensor) -> Tensor:
    """The numbers of any tensor as a dense, contiguous one on the host, without a copy where it is one; complex ones as pairs."""
    told = value.detach()
    told = told.dequantize() if told.is_quantized else told
    told = told.to_dense() if told.layout is not torch.strided else told
    told = torch.view_as_real(told.resolve_conj()) if told.is_complex() else told
    return told.resolve_neg().cpu().contiguous()


def digest(value: Tensor) -> str:
    """The digest of one tensor, hexadecimal."""
    told = plain(value)
    found = hashlib.sha256(str(told.dtype).encode())
    found.update(told.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def digests(named: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """The digest of each, by name and in their order: of ``model.named_parameters()``, say."""
    return {name: digest(value) for name, value in named}
