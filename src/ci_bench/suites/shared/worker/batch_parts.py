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

    def weight(self, own: int, rows: int) -> float:
        """Return the factor for the value of a part of `own` rows.

        With it all parts add up to the whole of `rows`.
        """
        return {BatchKind.MEAN: own / rows, BatchKind.ROOT: math.sqrt(own / rows)}.get(self, 1.0)


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
        """For the case's other stages."""
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
    """The rows of rank `rank` of `count`, of a batch of `rows`: in their order, and as many as the others' but for one."""

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
        """A tree of tensors, of which those with a row for each of the batch are views of the own ones."""
        first, end = self.bounds

        def own(value: Any) -> Any:
            return (
                value[first:end]
                if isinstance(value, Tensor) and value.dim() and value.shape[0] == self.rows
                else value
            )

        return pytree.tree_map(own, tree)

    def factor(self, kind: BatchKind) -> float:
        """Return the factor for a rank's own loss.

        It makes the mean of all ranks' gradients that of the whole loss.
        """
        return self.count * kind.weight(self.own, self.rows)


def parts_of(rows: int, count: int) -> tuple[BatchPart, ...]:
    """All parts of a batch. Raises `Unsupported` if one would have no row."""
    if rows < count:
        raise Unsupported(
            f"{rows} rows are too few for {count} processes; use a larger `batch_size`"
        )
    return tuple(BatchPart(rows=rows, rank=rank, count=count) for rank in range(count))


def find_kinds(
    whole: Left, parts: Sequence[Left], places: Sequence[BatchPart], epsilon: float
) -> dict[str, BatchKind]:
    """Find the relation of each value of the parts to the whole's, by name.

    One process computed all of them, with roundings of `epsilon`.

    Raises:
        Unsupported: a value fits no `BatchKind`.
    """
    tolerance = math.sqrt(epsilon)
    found = {}
    for name, value in whole.items():
        own = [part[name] for part in parts if name in part]
        kind = next(
            (
                kind
                for kind in BatchKind
                if len(own) == len(places) and _fits(kind, value, own, places, tolerance)
            ),
            None,
        )
        if kind is None:
            raise Unsupported(
                f"the model computes {name} differently for part of a batch than for the whole"
                " batch, as with batch norm, so several processes cannot be compared with one"
            )
        found[name] = kind
    return found


def _fits(
    kind: BatchKind,
    whole: Tensor,
    own: Sequence[Tensor],
    places: Sequence[BatchPart],
    tolerance: float,
) -> bool:
    made = _made(kind, own, places)
    if made is None or made.shape != whole.shape or made.dtype != whole.dtype:
        return False
    if not whole.is_floating_point():
        return torch.equal(made, whole)
    apart, size = (
        float(one.double().nan_to_num().norm()) for one in (made.double() - whole.double(), whole)
    )
    return apart <= tolerance * size


def _made(kind: BatchKind, own: Sequence[Tensor], places: Sequence[BatchPart]) -> Tensor | None:
    """The whole of the parts' values, if they were of that kind; `None` if their shapes differ."""
    if kind is BatchKind.ROWS:
        rows = [len(value) if value.dim() else None for value in own]
        same = len({value.shape[1:] for value in own}) == 1
        return torch.cat([*own]) if same and rows == [place.own for place in places] else None
    if len({value.shape for value in own}) > 1:
        return None
    if kind is BatchKind.SAME:
        return own[0] if all(torch.equal(own[0], value) for value in own) else None
    weighed = [
        value.double() * kind.weight(place.own, place.rows)
        for value, place in zip(own, places, strict=True)
    ]
    return torch.stack(weighed).sum(dim=0).to(own[0].dtype)


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """Makes wholes of the ranks' values, each of its `part`.

    `kinds` are by name, equal in all ranks.
    """

    ranks: Ranks
    part: BatchPart
    kinds: Mapping[str, BatchKind]
    device: str

    def whole(self, left: Left) -> dict[str, Tensor]:
        """Return the values that one process would have.

        A collective; names and shapes must be those for which `kinds` were found.
        """
        return {
            name: self._whole(self.kinds[name], value)
            for name, value in left.items()
            if name in self.kinds
        }

    def _whole(self, kind: BatchKind, value: Tensor) -> Tensor:
        match kind:
            case BatchKind.ROWS:
                return gathered_rows(value, self.part, self.ranks)
            case BatchKind.SAME:
                return value
            case _:
                weight = kind.weight(self.part.own, self.part.rows)
                own = [float(one) * weight for one in value.detach().double().reshape(-1).tolist()]
                summed = torch.tensor(
                    gathered(own, self.ranks.count, self.device), dtype=torch.float64
                ).sum(dim=0)
                return summed.reshape(value.shape).to(value.device, value.dtype)


def gathered_rows(value: Tensor, part: BatchPart, ranks: Ranks) -> Tensor:
    """The rows of all ranks in their order, byte for byte, in every rank. A collective."""
    most = max(one.own for one in parts_of(part.rows, part.count))
    row = value.detach().contiguous().reshape(value.shape[0], -1).view(torch.uint8)
    own = torch.zeros(most, row.shape[1], dtype=torch.uint8, device=value.device)
    own[: len(row)] = row
    found = [torch.empty_like(own) for _ in range(ranks.count)]
    torch.distributed.all_gather(found, own)
    rows = torch.cat(
        [
            one[: place.own]
            for one, place in zip(found, parts_of(part.rows, part.count), strict=True)
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
