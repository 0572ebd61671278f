"""Rows of a batch in each of several processes, and how their results make the whole.

One process computes a batch, several compute parts of it. The value of a part stands for some rows
of the whole, or is a mean or a sum over them. Only the model's author knows which, so one process
finds out by computing the whole and its parts. A value may be none of these: with batch norm, a
row's result depends on the others. Several processes cannot compute such a batch. Imports torch.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.utils import _pytree as pytree

from ci_bench.suites.contract import Ranks, Unsupported
from ci_bench.suites.shared.worker.sharing import gathered

Left = Mapping[str, Tensor]


class BatchKind(StrEnum):
    """The relation of a part's value to the whole's."""

    ROWS = "rows"
    """Its rows."""
    SAME = "same"
    """The same."""
    MEAN = "mean"
    """The mean over its rows, of the mean over all."""
    SUM = "sum"
    """The sum over its rows, of the sum over all."""
    ROOT = "root"
    """A sum over its rows, divided by the root of how many they are."""

    def weight(self, part_rows: int, rows: int) -> float:
        """Return the factor for the value of a part of `part_rows` rows.

        With it all parts add up to the whole of `rows`.
        """
        return {BatchKind.MEAN: part_rows / rows, BatchKind.ROOT: math.sqrt(part_rows / rows)}.get(
            self, 1.0
        )


FOUND = "batch-parts.json"
OWN_MASKS = "it draws random numbers, and each process has its own"
"""Why a step of several processes is not refereed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundParts:
    """Relations between parts of a batch of `rows` and its whole.

    `is_random` means that a step draws random numbers.
    """

    rows: int
    kinds: Mapping[str, BatchKind]
    is_random: bool

    def write(self, scratch: Path) -> None:
        """Write the findings for the case's other stages."""
        (scratch / FOUND).write_text(
            json.dumps({"rows": self.rows, "kinds": self.kinds, "is_random": self.is_random})
        )


def read_found(scratch: Path) -> FoundParts:
    """Read the findings of the stage that prepared."""
    values = json.loads((scratch / FOUND).read_text())
    kinds = {name: BatchKind(kind) for name, kind in values["kinds"].items()}
    return FoundParts(rows=int(values["rows"]), kinds=kinds, is_random=bool(values["is_random"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPart:
    """The rows of rank `rank` of `count`, of a batch of `rows`, in their order.

    Ranks have equally many rows, or one more or less.
    """

    rows: int
    rank: int
    count: int

    @property
    def bounds(self) -> tuple[int, int]:
        """Its first row, and the one after its last."""
        return self.rows * self.rank // self.count, self.rows * (self.rank + 1) // self.count

    @property
    def own(self) -> int:
        """The number of rows."""
        first, end = self.bounds
        return end - first

    def cut(self, tree: Any) -> Any:
        """Cut this part out of a tree of tensors.

        Tensors with a row for each of the batch become views of the part's rows.
        """
        first, end = self.bounds

        def own_rows(value: Any) -> Any:
            return (
                value[first:end]
                if isinstance(value, Tensor) and value.dim() and value.shape[0] == self.rows
                else value
            )

        return pytree.tree_map(own_rows, tree)

    def factor(self, kind: BatchKind) -> float:
        """Return the factor for a rank's own loss.

        It makes the mean of all ranks' gradients that of the whole loss.
        """
        return self.count * kind.weight(self.own, self.rows)


def parts_of(rows: int, count: int) -> tuple[BatchPart, ...]:
    """Return all parts of a batch.

    Raises `Unsupported` if one would have no row.
    """
    if rows < count:
        raise Unsupported(
            f"{rows} rows are too few for {count} processes; use a larger `batch_size`"
        )
    return tuple(BatchPart(rows=rows, rank=rank, count=count) for rank in range(count))


def find_kinds(
    expected: Left, parts: Sequence[Left], places: Sequence[BatchPart], epsilon: float
) -> dict[str, BatchKind]:
    """Find the relation of each value of the parts to the whole's, by name.

    One process computed all of them, with roundings of `epsilon`.

    Raises:
        Unsupported: a value fits no `BatchKind`.
    """
    tolerance = math.sqrt(epsilon)
    kinds = {}
    for name, value in expected.items():
        pieces = [part[name] for part in parts if name in part]
        kind = next(
            (
                kind
                for kind in BatchKind
                if len(pieces) == len(places) and _fits(kind, value, pieces, places, tolerance)
            ),
            None,
        )
        if kind is None:
            raise Unsupported(
                f"the model computes {name} differently for part of a batch than for the whole"
                " batch, as with batch norm, so several processes cannot be compared with one"
            )
        kinds[name] = kind
    return kinds


def _fits(
    kind: BatchKind,
    expected: Tensor,
    pieces: Sequence[Tensor],
    places: Sequence[BatchPart],
    tolerance: float,
) -> bool:
    total = _combine(kind, pieces, places)
    if total is None or total.shape != expected.shape or total.dtype != expected.dtype:
        return False
    if not expected.is_floating_point():
        return torch.equal(total, expected)
    error, size = (
        float(tensor.double().nan_to_num().norm())
        for tensor in (total.double() - expected.double(), expected)
    )
    return error <= tolerance * size


def _combine(
    kind: BatchKind, pieces: Sequence[Tensor], places: Sequence[BatchPart]
) -> Tensor | None:
    """Combine the parts' values as those of a kind; `None` if their shapes differ."""
    if kind is BatchKind.ROWS:
        rows = [len(value) if value.dim() else None for value in pieces]
        same = len({value.shape[1:] for value in pieces}) == 1
        return torch.cat([*pieces]) if same and rows == [place.own for place in places] else None
    if len({value.shape for value in pieces}) > 1:
        return None
    if kind is BatchKind.SAME:
        return pieces[0] if all(torch.equal(pieces[0], value) for value in pieces) else None
    weighed = [
        value.double() * kind.weight(place.own, place.rows)
        for value, place in zip(pieces, places, strict=True)
    ]
    return torch.stack(weighed).sum(dim=0).to(pieces[0].dtype)


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """Makes wholes of the ranks' values, each of its `part`.

    `kinds` are by name, equal in all ranks.
    """

    ranks: Ranks
    part: BatchPart
    kinds: Mapping[str, BatchKind]
    device: str

    def whole(self, results: Left) -> dict[str, Tensor]:
        """Return the values that one process would have.

        A collective; names and shapes must be those for which `kinds` were found.
        """
        return {
            name: self._join(self.kinds[name], value)
            for name, value in results.items()
            if name in self.kinds
        }

    def _join(self, kind: BatchKind, value: Tensor) -> Tensor:
        match kind:
            case BatchKind.ROWS:
                return gathered_rows(value, self.part, self.ranks)
            case BatchKind.SAME:
                return value
            case _:
                weight = kind.weight(self.part.own, self.part.rows)
                weighted = [
                    float(number) * weight
                    for number in value.detach().double().reshape(-1).tolist()
                ]
                summed = torch.tensor(
                    gathered(weighted, self.ranks.count, self.device), dtype=torch.float64
                ).sum(dim=0)
                return summed.reshape(value.shape).to(value.device, value.dtype)


def gathered_rows(value: Tensor, part: BatchPart, ranks: Ranks) -> Tensor:
    """Return the rows of all ranks in their order, byte for byte, in every rank.

    A collective.
    """
    most = max(place.own for place in parts_of(part.rows, part.count))
    row = value.detach().contiguous().reshape(value.shape[0], -1).view(torch.uint8)
    padded = torch.zeros(most, row.shape[1], dtype=torch.uint8, device=value.device)
    padded[: len(row)] = row
    padded_parts = [torch.empty_like(padded) for _ in range(ranks.count)]
    torch.distributed.all_gather(padded_parts, padded)
    rows = torch.cat(
        [
            tensor[: place.own]
            for tensor, place in zip(padded_parts, parts_of(part.rows, part.count), strict=True)
        ]
    )
    return rows.contiguous().view(value.dtype).reshape(part.rows, *value.shape[1:])


def combined(
    run: Callable[[Any], Left], batch: Any, rows: int, count: int, *, epsilon: float
) -> dict[str, BatchKind]:
    """Find how parts of a batch make its whole, by the results of `run` on a batch.

    Raises `Unsupported`.
    """
    places = parts_of(rows, count)
    return find_kinds(run(batch), [run(place.cut(batch)) for place in places], places, epsilon)
