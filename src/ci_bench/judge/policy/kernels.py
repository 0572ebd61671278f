"""Diffs of generated kernels, paired with base's by name, then by what they fuse. Pure.

The number at the end of a name belongs to one compilation and is ignored. Sources come from
workers: what is compared and kept of them is bounded.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from difflib import unified_diff

from ci_bench.judge.policy.matching import pair_off
from ci_bench.records.causes import KernelChange
from ci_bench.records.profiles import GeneratedKernel

MOST_CHANGES, MOST_LINES, MOST_LINE, MOST_ALONE = 12, 60, 140, 25
"""Kernels that are shown, lines of a diff and of what only one side has, and characters of a line."""
COMPARED_LINES = 150
"""Limit of a source; a diff takes the square of it."""
_NUMBERING = re.compile(r"(_\d+)+$")
_FUSED = re.compile(r"^[a-z_]*?fused_")
_GRAPH = re.compile(r"(?<![A-Za-z0-9])graph_\d+_")


def unnumbered(name: str) -> str:
    """A kernel's name without its numbering: ``triton_poi_fused_add_0`` as ``triton_poi_fused_add``."""
    return _NUMBERING.sub("", name)


def operators_of(name: str) -> frozenset[str]:
    """The words of the operators that a fused kernel's name lists; empty for other names."""
    plain = unnumbered(name)
    return (
        frozenset(_FUSED.sub("", plain).split("_")) - {""} if _FUSED.match(plain) else frozenset()
    )


def kernel_changes(
    base: Sequence[GeneratedKernel], head: Sequence[GeneratedKernel]
) -> tuple[KernelChange, ...]:
    """List different kernels: on both sides first, then new, then gone.

    A side without any kernels is unknown.
    """
    if not base or not head:
        return ()
    left, right = list(base), list(head)
    keys: tuple[Callable[[GeneratedKernel], Hashable | None], ...] = (
        _text,
        lambda one: unnumbered(one.name),
        lambda one: operators_of(one.name) or None,
    )
    pairs = [pair for key in keys for pair in pair_off(left, right, key)]
    changed = [
        KernelChange(before=one.name, after=two.name, diff=diff)
        for one, two in pairs
        if (diff := diff_of(one, two))
    ]
    new = [KernelChange(before="", after=one.name, diff=_alone(one, "+")) for one in right]
    gone = [KernelChange(before=one.name, after="", diff=_alone(one, "-")) for one in left]
    return (*changed, *new, *gone)[:MOST_CHANGES]


def diff_of(base: GeneratedKernel, head: GeneratedKernel) -> str:
    """Return the diff of the sources; empty if they are equal."""
    lines = list(unified_diff(_lines(base), _lines(head), n=2, lineterm=""))[2:]
    return _capped(lines, MOST_LINES)


def _alone(kernel: GeneratedKernel, sign: str) -> str:
    return _capped([f"{sign}{line}" for line in _lines(kernel)], MOST_ALONE)


def _text(kernel: GeneratedKernel) -> Hashable:
    return unnumbered(kernel.name), tuple(_lines(kernel))


def _lines(kernel: GeneratedKernel) -> list[str]:
    """The source without what is of one compilation: the numbers of kernels and of graphs."""
    text = _GRAPH.sub("", kernel.source.replace(kernel.name, unnumbered(kernel.name)))
    return [line.rstrip() for line in text.splitlines()[:COMPARED_LINES]]


def _capped(lines: Iterable[str], most: int) -> str:
    shown = [line if len(line) <= MOST_LINE else f"{line[: MOST_LINE - 1]}…" for line in lines]
    more = len(shown) - most
    return "\n".join(
        [*shown[:most], *([f"… {more:,} more line{'s' if more > 1 else ''}"] if more > 0 else [])]
    )
