"""Turns off torch's dropout: all of it, all but one kind, or one place of a step.

Functions of torch are replaced while models are traced and run. Recurrent layers hand their share
to a kernel, and get another share. Imports torch.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

FUNCTIONS = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
)
"""Functions of `torch.nn.functional` that drop units; attention does, too."""
ATTENTION = functional.scaled_dot_product_attention


class Dropout(StrEnum):
    """A kind of dropout, by what drops."""

    LAYER = "dropout layers"
    ATTENTION = "attention"
    RECURRENT = "recurrent layers"


Place = tuple[Dropout, int]
"""A kind of dropout, and its how manieth in a step, from 0 on."""


@contextmanager
def without_dropout(keeping: Dropout | None = None) -> Iterator[None]:
    """Make torch's functions drop nothing, except for those of the kind `keeping`.

    Recurrent layers drop units themselves (`drop_nothing`).
    """
    silent: dict[Dropout, dict[str, Callable[..., Tensor]]] = {
        Dropout.LAYER: dict.fromkeys(FUNCTIONS, _keep_all),
        Dropout.ATTENTION: {ATTENTION.__name__: _attend_to_all},
    }
    with _replaced(
        {
            name: function
            for kind, functions in silent.items()
            for name, function in functions.items()
            if kind is not keeping
        }
    ):
        yield


def drop_nothing(module: nn.Module) -> None:
    """Make recurrent layers drop nothing: they hand the share between them to a kernel."""
    for inner in module.modules():
        if isinstance(inner, nn.RNNBase):
            inner.dropout = 0.0


@contextmanager
def leaving_out(module: nn.Module, place: Place | None) -> Iterator[Mapping[Dropout, int]]:
    """Leave out one place of a step of `module`; yield the number of places passed, by kind.

    Other places draw the same random numbers as without this.
    """
    passed = _Passed(left_out=place)
    recurrent = [
        inner
        for inner in module.modules()
        if isinstance(inner, nn.RNNBase)
        and inner.training
        and inner.dropout
        and inner.num_layers > 1
    ]
    silenced = [inner for inner in recurrent if passed.is_left_out(Dropout.RECURRENT)]
    shares = [inner.dropout for inner in silenced]
    names = (*FUNCTIONS, ATTENTION.__name__)
    originals = {name: getattr(functional, name) for name in names}
    try:
        for inner in silenced:
            inner.dropout = 0.0
        with _replaced(
            {
                name: _attending(original, passed)
                if name == ATTENTION.__name__
                else _dropping(original, passed)
                for name, original in originals.items()
            }
        ):
            yield passed.count
    finally:
        for inner, share in zip(silenced, shares, strict=True):
            inner.dropout = share


@dataclass(frozen=True, kw_only=True, slots=True)
class _Passed:
    left_out: Place | None
    count: Counter[Dropout] = field(default_factory=Counter)

    def is_left_out(self, kind: Dropout) -> bool:
        """Pass a place; return true if it is the one to leave out."""
        place = kind, self.count[kind]
        self.count[kind] += 1
        return place == self.left_out


def _dropping(function: Callable[..., Tensor], passed: _Passed) -> Callable[..., Tensor]:
    if function is _keep_all:
        return function
    _, trains, _ = function.__defaults__ or (0.5, True, False)

    def drop(
        input: Tensor,  # noqa: A002 - torch's names
        p: float = 0.5,
        training: bool = trains,  # noqa: FBT001 - likewise
        inplace: bool = False,  # noqa: FBT001, FBT002 - likewise
    ) -> Tensor:
        if not (p and training and passed.is_left_out(Dropout.LAYER)):
            return function(input, p, training, inplace)
        function(input, p, training)
        return input

    return drop


def _attending(function: Callable[..., Tensor], passed: _Passed) -> Callable[..., Tensor]:
    if function is _attend_to_all:
        return function

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        *rest: Any,
        **keywords: Any,
    ) -> Tensor:
        attended = function(query, key, value, attn_mask, dropout_p, *rest, **keywords)
        if not dropout_p or not passed.is_left_out(Dropout.ATTENTION):
            return attended
        return function(query, key, value, attn_mask, 0.0, *rest, **keywords)

    return attend


@contextmanager
def _replaced(functions: Mapping[str, Callable[..., Tensor]]) -> Iterator[None]:
    originals = {name: getattr(functional, name) for name in functions}
    try:
        for name, function in functions.items():
            setattr(functional, name, function)
        yield
    finally:
        for name, function in originals.items():
            setattr(functional, name, function)


def _keep_all(
    input: Tensor,  # noqa: A002 - torch's names
    p: float = 0.5,  # noqa: ARG001 - likewise
    training: bool = True,  # noqa: ARG001, FBT001, FBT002 - likewise
    inplace: bool = False,  # noqa: ARG001, FBT001, FBT002 - likewise
) -> Tensor:
    return input


def _attend_to_all(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    *rest: Any,
    **keywords: Any,
) -> Tensor:
    del dropout_p
    return ATTENTION(query, key, value, attn_mask, 0.0, *rest, **keywords)
