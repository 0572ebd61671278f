"""A worker's end of its two pipes: lines out, orders in."""

import os
from collections.abc import Iterator

from ci_bench.engine.process.task import Answer, Order, decode_order, encode


class Abandoned(Exception):  # noqa: N818 - nobody is told: whoever gave the orders is gone, or no longer listens
    """The orders ended before the order to finish."""


class Channel:
    """Says answers on one descriptor and takes orders from another."""

    def __init__(self, answers: int, orders: int) -> None:
        """Both descriptors are open; they are left so."""
        self._answers = answers
        self._orders = orders

    def say(self, answer: Answer) -> None:
        """Send one line."""
        self.send(encode(answer))

    def send(self, line: bytes) -> None:
        """Send one line that is encoded already."""
        data = memoryview(line)
        while data:
            data = data[os.write(self._answers, data) :]

    def orders(self) -> Iterator[Order]:
        """The parent's orders as they come; ends when the parent has closed its end."""
        rest = b""
        while data := os.read(self._orders, 1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            yield from map(decode_order, lines)
