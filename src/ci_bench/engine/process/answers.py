"""Collects what one worker sends. A worker cannot make it grow, or keep the parent busy, without bound."""

import os
from collections.abc import Callable

import msgspec

from ci_bench.engine.process.task import Answer, decode_answer

MAX_BYTES = 64 << 20
MAX_GARBLED = 1000


class Answers:
    """The answers of one worker: `kept` without progress, which is only passed on; `garbled` counts lines that are none."""

    def __init__(self, on_answer: Callable[[Answer], None]) -> None:
        """`on_answer` is called with each answer, progress included."""
        self.kept: list[Answer] = []
        self.garbled = 0
        self._on_answer = on_answer
        self._pieces: list[bytes] = []
        self._seen = 0

    @property
    def flooded(self) -> bool:
        """Whether the worker sent more than anything honest would."""
        return self._seen > MAX_BYTES or self.garbled > MAX_GARBLED

    def drain(self, reader: int) -> bool:
        """Take what is there now; False at the end of the stream, or when flooded."""
        while not self.flooded:
            try:
                data = os.read(reader, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.feed(data)
        return False

    def feed(self, data: bytes) -> None:
        """Take some bytes, wherever they were cut."""
        self._seen += len(data)
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._take(b"".join([*self._pieces, line]))
            self._pieces.clear()
        if rest:
            self._pieces.append(rest)

    def finish(self) -> None:
        """Count an unfinished last line as garbled."""
        self.garbled += bool(self._pieces)
        self._pieces.clear()

    def _take(self, line: bytes) -> None:
        try:
            answer = decode_answer(line)
        except (ValueError, msgspec.ValidationError, RecursionError, OverflowError):
            self.garbled += 1
            return
        if answer.progress is None:
            self.kept.append(answer)
        self._on_answer(answer)
