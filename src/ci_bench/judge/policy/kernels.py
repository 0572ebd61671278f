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
"""Limits of kernels, lines of a diff, characters of a line, and lines of an unmatched kernel."""
COMPARED_LINES = 150
"""Limit of a source; a diff takes the square of it."""
_NUMBERING = re.compile(r"(_\d+)+$")
_FUSED = re.compile(r"^[a-z_]*?fused_")
_GRAPH = re.compile(r"(?<![A-Za-z0-9])graph_\d+_")


def unnumbered(name: str) -> str:
    """Return a kernel's name without its numbering: ``triton_poi_add`` of ``triton_poi_add_0``."""
    return _NUMBERING.sub("", name)


def operators_of(name: str) -> frozenset[str]:
    """Return the words of the operators that a fused kernel's name lists; empty for other names."""
    stem = unnumbered(name)
    return frozenset(_FUSED.sub("", stem).split("_")) - {""} if _FUSED.match(stem) else frozenset()


def kernel_changes(
    base: Sequence[GeneratedKernel], head: Sequence[GeneratedKernel]
) -> tuple[KernelChange, ...]:
    """List different kernels: on both sides first, then new, then gone.

    A side without any kernels is unknown.
    """
    if not base or not head:
        return ()
    base_only, head_only = list(base), list(head)
    keys: tuple[Callable[[GeneratedKernel], Hashable | None], ...] = (
        _text,
        lambda kernel: unnumbered(kernel.name),
        lambda kernel: operators_of(kernel.name) or None,
    )
    pairs = [pair for key in keys for pair in pair_off(base_only, head_only, key)]
    changed = [
        KernelChange(before=before.name, after=after.name, diff=diff)
        for before, after in pairs
        if (diff := diff_of(before, after))
    ]
    new = [
        KernelChange(before="", after=kernel.name, diff=_alone(kernel, "+")) for kernel in head_only
    ]
    gone = [
        KernelChange(before=kernel.name, after="", diff=_alone(kernel, "-")) for kernel in base_only
    ]
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
    """Return the lines of a source without the numbers of kernels and graphs.

    They are of one compilation.
    """
    text = _GRAPH.sub("", kernel.source.replace(kernel.name, unnumbered(kernel.name)))
    return [line.rstrip() for line in text.splitlines()[:COMPARED_LINES]]


def _capped(lines: Iterable[str], most: int) -> str:
    shown = [line if len(line) <= MOST_LINE else f"{line[: MOST_LINE - 1]}…" for line in lines]
    more = len(shown) - most
    return "\n".join(
        [*shown[:most], *([f"… {more:,} more line{'s' if more > 1 else ''}"] if more > 0 else [])]
    )
