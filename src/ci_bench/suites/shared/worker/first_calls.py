"""First calls of an arm in two processes: the one that verifies and the one that times.

They show that the timed code is the verified code. Inputs and start weights have the same forms and
values, outputs the same forms, and the same values to half of the format's digits. Values of
outputs are compared by a sketch: sums of all elements of a kind with random signs (Charikar, Chen,
Farach-Colton, "Finding frequent items in data streams", 2002). The distance of sketches is that of
the tensors, within a tenth or so. A digest would differ if a kernel adds up in another order.
Imports torch.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Protocol, cast

import torch
from torch import Tensor

from ci_bench.records.first_calls import TINY, VALUES, FirstCall
from ci_bench.suites.contract import Program
from ci_bench.suites.shared.worker.digests import checksum, plain_parts
from ci_bench.suites.shared.worker.numerics import FP32_EPSILON

Left = Mapping[str, Tensor]

OUTPUTS = "outputs"
KINDS = {
    "output": OUTPUTS,
    "logits": OUTPUTS,
    "state": OUTPUTS,
    "loss": "loss",
    "gradient": "gradients",
}
"""Kinds of a call's results by the start of their names. Weights and buffers follow from these."""
SHOWN = 4
"""The number of forms that are listed one by one."""
BUCKETS, WIDTH, ROWS = 32, 4096, 256
"""Numbers of a sketch; elements with separate signs; rows of those per sum (4 MiB of fp32)."""
SPREAD = 8.0
"""Allowed multiple of the difference between the reference's own runs."""
MOST_SLACK = 0.1
"""The largest useful allowance: beyond it, values of outputs show nothing."""


def read_start(inputs: Iterable[Tensor], weights: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """Read forms and digests of the tensors that calls compute from, before the first call."""
    parts = [part for name, weight in weights for _, part in plain_parts(name, weight)]
    return {**_of("inputs", list(inputs)), **(_of("weights", parts) if parts else {})}


def read_call(start: Mapping[str, str], results: Left) -> FirstCall:
    """Return the first call, from its inputs and its results."""
    outputs = [value for name, value in sorted(results.items()) if kind_of(name) == OUTPUTS]
    holes = sum(
        int((~torch.isfinite(value.float())).sum()) for value in _by_kind(results).get(OUTPUTS, ())
    )
    forms = (
        {OUTPUTS: _described(outputs) + (f", {holes} of them not finite" if holes else "")}
        if outputs
        else {}
    )
    sketches = {kind: sketch(values) for kind, values in _by_kind(results).items()}
    finite = {kind: sums for kind, sums in sketches.items() if math.isfinite(math.hypot(*sums))}
    return FirstCall(words={**start, **forms}, sketches=finite)


def verified(
    call: FirstCall, *, epsilon: float, runs: Sequence[FirstCall] = (), draws: bool = False
) -> FirstCall:
    """Return the part of a verified call that a timed one has to repeat, with slack for rounding.

    `runs` are calls of the reference, fresh ones or from a start that is off by a rounding. Values
    that they do not repeat to a tenth are left out, and so are all results of a call that `draws`
    random numbers.
    """
    outputs = [each.words[OUTPUTS] for each in (call, *runs) if OUTPUTS in each.words]
    shaky = draws or len({*outputs}) > 1
    words = {
        subject: word for subject, word in call.words.items() if not (shaky and subject == OUTPUTS)
    }
    sketches, slack = {}, math.sqrt(max(epsilon, FP32_EPSILON))
    for kind, sums in {} if draws else call.sketches.items():
        distances = [math.dist(sums, run.sketches[kind]) for run in runs if kind in run.sketches]
        allowed = SPREAD * max(distances, default=0.0) / max(math.hypot(*sums), TINY)
        if allowed <= MOST_SLACK:
            sketches[kind], slack = sums, max(slack, allowed)
    return FirstCall(words=words, sketches=sketches, slack=slack)


def held_to(call: FirstCall, again: Mapping[str, str]) -> FirstCall:
    """Return the part of a call that another build in the same process repeats.

    It is found by the words of its start. Weights may come from a generator without a seed. Then
    each call's results differ.
    """
    lasting = {
        subject: word
        for subject, word in call.words.items()
        if subject == OUTPUTS or again.get(subject) == word
    }
    if len(lasting) == len(call.words):
        return call
    return FirstCall(
        words={subject: word for subject, word in lasting.items() if subject != OUTPUTS}
    )


def kind_of(name: str) -> str:
    """Return the kind of a tensor by its name; empty for tensors that follow from others."""
    return next((kind for word, kind in KINDS.items() if name.startswith(word)), "")


def sketch(values: Iterable[Tensor]) -> tuple[float, ...]:
    """Return `BUCKETS` sums with random signs over the finite elements of real tensors.

    Sums are accumulated in fp32 and fp64.
    """
    columns, total, place = _signs(WIDTH, 1), torch.zeros(WIDTH, dtype=torch.float64), 0
    for value in values:
        flat = value.detach().reshape(-1)
        for begin in range(0, flat.numel(), ROWS * WIDTH):
            piece = (
                flat[begin : begin + ROWS * WIDTH]
                .to(torch.float32)
                .nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            )
            rows = -(-piece.numel() // WIDTH)
            piece = torch.nn.functional.pad(piece, (0, rows * WIDTH - piece.numel())).reshape(
                rows, WIDTH
            )
            place = (place * 31 + rows) % (1 << 31)
            total += (_signs(rows, 2 + place).to(piece.device) @ piece).double().cpu()
    return tuple((total * columns).reshape(-1, BUCKETS).sum(0).tolist())


@cache
def _signs(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, (count,), generator=generator).mul_(2).sub_(1).to(torch.float32)


def _by_kind(results: Left) -> dict[str, list[Tensor]]:
    tensors: dict[str, list[Tensor]] = {}
    for name, value in sorted(results.items()):
        kind = kind_of(name)
        if (
            kind
            and value.is_floating_point()
            and value.numel()
            and value.layout is torch.strided
            and not value.is_quantized
        ):
            tensors.setdefault(kind, []).append(value)
    return tensors


def _of(subject: str, values: Sequence[Tensor]) -> dict[str, str]:
    hasher = hashlib.sha256()
    for value in values:
        hasher.update(f"{form_of(value)} {checksum(value.detach())}\0".encode())
    return {subject: _described(values), f"{VALUES}{subject}": hasher.hexdigest()[:16]}


def _described(values: Sequence[Tensor]) -> str:
    """Describe tensors by their forms: ``float32[192, 192], int64[8]``.

    Of many tensors it gives their number and their size together.
    """
    if len(values) <= SHOWN:
        return ", ".join(map(form_of, values)) or "none"
    kinds = ", ".join(sorted({_word(value.dtype) for value in values}))
    forms = hashlib.sha256("\0".join(sorted(map(form_of, values))).encode()).hexdigest()[:8]
    return (
        f"{len(values)} tensors of {sum(value.numel() for value in values):,} numbers in {kinds}"
        f" (forms {forms})"
    )


def form_of(value: Tensor) -> str:
    """Return a tensor's type and shape: ``float32[192, 192]``."""
    return f"{_word(value.dtype)}{list(value.shape)}"


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Begins(Program, Protocol):
    """A program whose first timed call is compared with its first verified one."""

    def operands(self) -> list[Tensor]:
        """Return the tensors that the next calls compute from, not copies."""

    def weights(self) -> Mapping[str, Tensor]:
        """Return the parameters that they compute from, by name, not copies."""

    def results(self) -> Left:
        """Return the results of the first call, named as `Refereed.outputs` does.

        Empty if one call does not show it.
        """


def reader_of(program: Program) -> Callable[[], FirstCall] | None:
    """Read the start of a program that was not called yet; return the reader of its first call.

    `None` if the program lacks what `Begins` has.
    """
    if not all(hasattr(program, name) for name in ("operands", "weights", "results")):
        return None
    fresh = cast("Begins", program)
    start = read_start(fresh.operands(), fresh.weights().items())
    return lambda: read_call(start, fresh.results())
