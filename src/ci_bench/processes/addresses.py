"""Place the memory of a launch's processes: at random for each launch, the same for both sides.

The speed of code depends on the addresses of code and data: a change in the size of the environment
can flip a conclusion (Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously
Wrong!", ASPLOS 2009). If each side had separate random addresses, processes of the same code would
differ by several percent when a step is many small operators. With shared addresses most of that
cancels in their ratio. Since every launch draws new ones, none is preferred: common random numbers
(docs/internals/adr/0006).

Owns both halves: the parent's draw, and its use in a server, which imports nothing else for that.
"""

import ctypes
import mmap
import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

PADDING, LEFT_OUT = "CI_BENCH_PADDING", "CI_BENCH_PAGES_LEFT_OUT"
ADDR_NO_RANDOMIZE = 0x0040000
"""From linux/personality.h: personality(2)."""
_AS_IT_IS, _REFUSED = 0xFFFFFFFF, -1
_PAGE = 4096
_MOST_PAGES = 1 << 20
"""4 GiB of addresses, of which no page is ever touched.

Libraries of 2 MiB and more are aligned to 2 MiB.
"""
_kept: list[mmap.mmap] = []


@dataclass(frozen=True, kw_only=True, slots=True)
class Addresses:
    """The values that determine addresses.

    They are the seed of Python's hashes, bytes of the environment, and pages that are left out.
    """

    hash_seed: int
    padding: int
    pages: int

    def environ(
        self, command: Sequence[str], environ: Mapping[str, str], *, usual: int | None
    ) -> dict[str, str]:
        """Return the environment to start a command in this place.

        `usual` comes from `started_alike`. The stack starts below both, so they are filled up to
        whole pages: a longer path on one side moves nothing within one.
        """
        place = {} if usual is None else {LEFT_OUT: f"{self.pages:07d} {usual:08x}"}
        every = {**environ, **place, "PYTHONHASHSEED": f"{self.hash_seed:010d}", PADDING: ""}
        used = sum(
            len(os.fsencode(text)) + 1
            for text in (*command, *(f"{name}={value}" for name, value in every.items()))
        )
        return {**every, PADDING: "x" * (-used % _PAGE + self.padding)}


def drawn(key: str) -> Addresses:
    """Draw the addresses of a launch: the same for the same key."""
    import random

    coin = random.Random(key)  # noqa: S311 - addresses need no secrecy from code at them
    return Addresses(
        hash_seed=coin.randrange(1 << 32),
        padding=coin.randrange(_PAGE),
        pages=coin.randrange(_MOST_PAGES),
    )


@contextmanager
def started_alike() -> Iterator[int | None]:
    """Start this thread's processes without random layout in the block.

    Yields the previous setting (personality(2)). Yields `None` if that is impossible: a container's
    filter of system calls may refuse it (docker's default one does). Each side then has its own
    addresses.
    """
    usual = _personality(_AS_IT_IS)
    allowed = _personality(usual | ADDR_NO_RANDOMIZE) != _REFUSED
    try:
        yield usual if allowed else None
    finally:
        if allowed:
            _personality(usual)


def take_place(environ: Mapping[str, str]) -> None:
    """Leave out the drawn pages, so later memory is beyond them.

    Call in a server that has imported nothing yet.
    """
    pages = int(environ.get(LEFT_OUT, "0").split()[0])
    with suppress(OSError):  # with limited addresses, the layout stays as it is
        if pages:
            _kept.append(
                mmap.mmap(-1, pages * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
            )


def begin_as_usual(environ: MutableMapping[str, str]) -> None:
    """Start later processes with the user's usual layout, in a server that has its place."""
    if place := environ.pop(LEFT_OUT, None):
        _personality(int(place.split()[1], 16))


def _personality(value: int) -> int:
    """Set how the kernel starts this process's programs; return the previous setting.

    See personality(2).
    """
    return int(ctypes.CDLL(None).personality(ctypes.c_ulong(value)))
