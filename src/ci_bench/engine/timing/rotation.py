"""Copies of one program that are called in turn: no call finds its inputs in the caches of the call before.

Where memory lies decides how fast some programs run (which pages share a set of a cache), and one program's memory lies where it
lies for as long as its process lives. Over several copies that luck is averaged within a launch instead of between launches.
"""

from collections.abc import Callable, Sequence
from itertools import cycle

from ci_bench.records.case import Check
from ci_bench.suites.base import Mark, Program


class Rotation:
    """Copies of one arm's program, as one program: each call is one of the next copy."""

    def __init__(self, copies: Sequence[Program]) -> None:
        """`copies` are opened alike, two or more."""
        self.copies = tuple(copies)
        self.items, self.parts, self.compiler = copies[0].items, copies[0].parts, copies[0].compiler
        self._following = cycle([copy.step for copy in copies]).__next__

    def step(self, mark: Mark) -> None:
        """One call of the next copy."""
        self._following()(mark)

    def finish(self) -> tuple[Check, ...]:
        """The checks of every copy; of those of one name the worst counts."""
        return tuple(check for copy in self.copies for check in copy.finish())


def copies_of(program: Program) -> tuple[Program, ...]:
    """What is called in turn: the copies of a rotation, or the program alone."""
    return program.copies if isinstance(program, Rotation) else (program,)


def in_turn(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """One call that makes the next of these each time."""
    if len(calls) == 1:
        return calls[0]
    following = cycle(calls)

    def call() -> object:
        return next(following)()

    return call
