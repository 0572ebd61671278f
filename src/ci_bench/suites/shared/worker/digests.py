"""Digests of tensors: they show if two sides start from the same weights and inputs.

SHA-256 over the format, and the bytes in C order. Shapes are left out: a weight that is only viewed
in another shape is the same weight. `checksum` is a quick one for comparisons within a process.
Imports torch; for worker processes.
"""

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

WORD, WORDS = 8, 1 << 18
"""Bytes of a word, and the number of words that a checksum reads in one pass: 2 MiB."""
GOLDEN, MIXER, STEP = -0x61C8864680B583EB, -0x40A7B892E31B1A47, 0x5851F42D4C957F2D
"""Odd numbers of 64 bits: SplitMix64's, and Knuth's multiplier for MMIX."""


def plain(value: Tensor) -> Tensor:
    """Return the numbers of any tensor as a dense, contiguous one on the host.

    It is copied only if it is not one already. Complex numbers become pairs.
    """
    tensor = value.detach()
    tensor = tensor.dequantize() if tensor.is_quantized else tensor
    tensor = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return tensor.resolve_neg().cpu().contiguous()


def digest(value: Tensor) -> str:
    """Return the digest of one tensor, hexadecimal."""
    tensor = plain(value)
    hasher = hashlib.sha256(str(tensor.dtype).encode())
    hasher.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def digests(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """Return the digest of each tensor by name, in order, as of ``model.named_parameters()``."""
    return {name: digest(value) for name, value in tensors}


def checksum(value: Tensor) -> int:
    """Return a checksum of a tensor's bytes: its 64-bit words times odd numbers, modulo 2^64.

    It is computed on the tensor's device. An odd number has an inverse modulo 2^64, so a change of
    one word always shows; a change of several shows except with a chance of 1 in 2^64.
    """
    value = value.detach()
    if value.layout is not torch.strided:
        value = value.to_dense()
    integers = value.int_repr() if value.is_quantized else value.resolve_conj().resolve_neg()
    flat = integers.contiguous().reshape(-1).view(torch.uint8)
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    weights = _odd_numbers(min(WORDS, -(-flat.numel() // WORD)), flat.device)
    for place in range(0, flat.numel(), WORDS * WORD):
        piece = flat[place : place + WORDS * WORD]
        if piece.numel() % WORD or piece.storage_offset() % WORD:
            piece = nn.functional.pad(piece, (0, -piece.numel() % WORD)).clone()
        words = piece.view(torch.int64)
        total = total * STEP + (words * weights[: words.numel()]).sum()
    return int(total)


@lru_cache(maxsize=16)
def _odd_numbers(count: int, device: torch.device) -> Tensor:
    """Return odd numbers spread over 64 bits.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    mixed = torch.arange(1, count + 1, dtype=torch.int64, device=device) * GOLDEN
    mixed = (mixed ^ (mixed >> 30)) * MIXER
    return (mixed ^ (mixed >> 27)) | 1


def plain_parts(name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield a parameter as tensors that every operation knows.

    These are itself, or the parts of a tensor that only wraps some. A quantised weight is one of
    those (numbers of eight bits, scales, zero points); it has no sum and no difference.
    """
    if not is_traceable_wrapper_subclass(value):
        yield name, value
        return
    inner, _ = value.__tensor_flatten__()
    for part in inner:
        yield from plain_parts(f"{name}.{part}", getattr(value, part))
