"""Roundings inside a call that its inputs' precision does not show. Imports torch.

They come from narrow types, TF32, and long sums. A shaken input shows how far one rounding of the
input moves a result. A function that computes in bf16 inside swallows such a shake, and rounds by
far more; a sum over a million numbers may be added up in a row, and the reference adds in pairs. So
a run of the reference in a mode of torch's dispatcher sees every operator, and moves its results by
one rounding of their type (Monte Carlo arithmetic, Parker 1997). Code outside of the dispatcher
(compiled, Triton, NumPy) is not seen.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FP32_EPSILON, TF32_EPSILON = 2.0**-24, 2.0**-11
NAMES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float64: "fp64",
}
_ATEN = torch.ops.aten
_CAST = _ATEN._to_copy  # noqa: SLF001 - its name
PRODUCTS = {
    _ATEN.mm,
    _ATEN.bmm,
    _ATEN.addmm,
    _ATEN.baddbmm,
    _ATEN.mv,
    _ATEN.addmv,
    _ATEN.dot,
    _ATEN.convolution,
}
MOVING = {
    *(
        _ATEN.clone,
        _ATEN.copy_,
        _ATEN.cat,
        _ATEN.stack,
        _ATEN.index,
        _ATEN.index_select,
        _ATEN.gather,
        _ATEN.where,
    ),
    *(
        _ATEN.masked_fill,
        _ATEN.constant_pad_nd,
        _ATEN.relu,
        _ATEN.maximum,
        _ATEN.minimum,
        _ATEN.amax,
        _ATEN.amin,
    ),
    *(
        _ATEN.max,
        _ATEN.min,
        _ATEN.sort,
        _ATEN.topk,
        _ATEN.neg,
        _ATEN.abs,
        _ATEN.fill_,
        _ATEN.zero_,
        _ATEN.flip,
    ),
    *(
        _ATEN.repeat,
        _ATEN.roll,
        _ATEN.tril,
        _ATEN.triu,
        _ATEN.clamp,
        _ATEN.threshold_backward,
        _ATEN.embedding,
    ),
}
"""Operators that choose or move numbers, and round none."""
SUMS = {
    _ATEN.sum,
    _ATEN.mean,
    _ATEN.cumsum,
    _ATEN.linalg_vector_norm,
    _ATEN.var,
    _ATEN.std,
    _ATEN.var_mean,
    _ATEN.logsumexp,
}
LONG = 256
"""Terms from which a sum's order matters more than what shaken inputs show."""


class Roundings(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Mode that moves each operator's results by one rounding, if that is coarser than `epsilon`.

    `coarsest` is the largest rounding that was seen, and `named` its precision. With `serial`, long
    sums are moved as well, by what adding up in a row rounds. With `seed` 0 nothing is moved.
    """

    def __init__(self, epsilon: float, *, seed: int = 0, serial: bool = False) -> None:
        """Seed the moves.

        Called by `watch_roundings`.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.coarsest, self.named = epsilon, ""
        self._epsilon, self._serial, self._moving = epsilon, serial, bool(seed)
        self._coin = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator, and move what it returns."""
        result = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        operands = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if packet in MOVING or not operands:
            return result
        returned = result if isinstance(result, tuple | list) else (result,)
        for value, form in zip(returned, func._schema.returns, strict=False):  # noqa: SLF001 - torch has no other way
            viewed = form.alias_info is not None and not form.alias_info.is_write
            if (
                isinstance(value, Tensor)
                and value.is_floating_point()
                and value.numel()
                and not viewed
            ):
                self._see(value, packet, operands)
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Make dynamo skip the mode's own code; asking this loads dynamo."""
        return False

    def _see(self, value: Tensor, packet: Any, operands: Sequence[Tensor]) -> None:
        rounding, precision = _rounding(value, packet)
        if (
            packet is _CAST
            and operands[0].is_floating_point()
            and _rounding(operands[0], packet)[0] >= rounding
        ):
            return
        if rounding > self.coarsest:
            self.coarsest, self.named = rounding, precision
        if self._moving and rounding > self._epsilon:
            self._move(value, value.double() * rounding)
        in_a_row = (
            _in_a_row(operands[0], value, packet)
            if self._moving and self._serial and packet in SUMS
            else None
        )
        if in_a_row is not None:
            self._move(value, in_a_row, signs=True)

    def _move(self, value: Tensor, size: Tensor, *, signs: bool = False) -> None:
        noise = (
            2 * torch.rand(value.shape, generator=self._coin, dtype=torch.float64).to(value.device)
            - 1
        )
        value.copy_((value.double() + size * (noise.sign() if signs else noise)).to(value.dtype))


class _BesideDynamo(Roundings):  # type: ignore[no-untyped-call]
    """The same where dynamo is loaded, which would compile the mode's own code."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return super().__torch_dispatch__(func, types, args, kwargs)


def watch_roundings(epsilon: float, *, seed: int = 0, serial: bool = False) -> Roundings:
    """Return a mode of the dispatcher that sees roundings.

    Loads no dynamo, which takes 2 s (`torch.utils._python_dispatch`).
    """
    kind = _BesideDynamo if "torch._dynamo" in sys.modules else Roundings
    return kind(epsilon, seed=seed, serial=serial)


def _rounding(value: Tensor, packet: Any) -> tuple[float, str]:
    rounding = float(torch.finfo(value.dtype).eps) / 2
    tf32 = value.is_cuda and value.dtype is torch.float32 and packet in PRODUCTS
    if tf32 and torch.backends.cuda.matmul.allow_tf32:
        return TF32_EPSILON, "tf32"
    return rounding, NAMES.get(value.dtype, str(value.dtype).removeprefix("torch."))


def _in_a_row(terms: Tensor, value: Tensor, packet: Any) -> Tensor | None:
    """Return the rounding of a sum that is added up one by one in fp32; `None` for an unknown form.

    Each addition rounds its partial sum, with either sign: together the root of the sum of their
    squares times one rounding (Higham and Mary 2019, SIAM J. Sci. Comput. 41, A2815).
    """
    long = (
        max(terms.shape, default=0)
        if packet is _ATEN.cumsum
        else terms.numel() // max(1, value.numel())
    )
    if value.dtype is torch.float64 or not terms.is_floating_point() or long < LONG:
        return None
    wide = terms.double()
    if packet in {_ATEN.var, _ATEN.std, _ATEN.var_mean}:
        wide = (wide - wide.mean()).square()
    elif packet is _ATEN.linalg_vector_norm:
        wide = wide.square()
    elif packet is _ATEN.logsumexp:
        wide = (wide - wide.max()).exp()
    if packet is _ATEN.cumsum:
        along = next(
            (
                dim
                for dim in range(wide.dim())
                if torch.allclose(wide.cumsum(dim), value.double(), rtol=1e-3)
            ),
            None,
        )
        if along is None:
            return None
        return wide.cumsum(along).square().cumsum(along).sqrt() * FP32_EPSILON
    partial = _by_result(wide, value)
    if partial is None:
        return None
    sums = partial.cumsum(-1)
    share = sums.square().sum(-1).sqrt() / sums[..., -1].abs().clamp_min(
        torch.finfo(torch.float64).tiny
    )
    return value.double() * share.reshape(value.shape) * FP32_EPSILON


def _by_result(terms: Tensor, value: Tensor) -> Tensor | None:
    """Return the terms of each result in a separate row.

    `None` unless a single dimension, or all, were summed.
    """
    if value.numel() == 1:
        return terms.reshape(1, -1)
    for dim in range(terms.dim()):
        if list(value.squeeze().shape) == [
            size for place, size in enumerate(terms.shape) if place != dim and size != 1
        ]:
            return terms.movedim(dim, -1)
    return None
