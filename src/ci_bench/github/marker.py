"""The hidden first line by which ci-bench knows its own comment, and which run wrote it. Pure.

``<!-- ci-bench:v1 key=default run=17 attempt=1 head=0123…cdef -->``. All values are of a fixed alphabet, so that none can end
the HTML comment. Anyone can paste such a line: it says what a comment claims to be, its author says whether it is.
"""

import re
from dataclasses import dataclass

from ci_bench.errors import BadInput
from ci_bench.github.context import RunId

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MARKER = re.compile(
    r"<!-- ci-bench:v1 key=(?P<key>[A-Za-z0-9][A-Za-z0-9._-]{0,63}) run=(?P<run>[0-9]{1,18}) attempt=(?P<attempt>[0-9]{1,6})"
    r" head=(?P<head>[0-9a-f]{40,64}) -->"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Marker:
    """Which comment this is (`key`: one repository may have several gates), of which run, about which commit.

    Raises `BadInput` where the key has other letters than it may.
    """

    key: str
    run: RunId
    head: str

    def __post_init__(self) -> None:
        """A key with a space or ``-->`` in it could not be read back."""
        if not KEY.fullmatch(self.key):
            raise BadInput(f"the key is {self.key!r:.80}; it takes letters, digits, `.`, `_` and `-`, 64 at most")

    def __str__(self) -> str:
        """The line."""
        return f"<!-- ci-bench:v1 key={self.key} run={self.run.id} attempt={self.run.attempt} head={self.head} -->"


def read_marker(body: str) -> Marker | None:
    """The marker in a comment's first line."""
    found = _MARKER.fullmatch(body.partition("\n")[0].strip())
    if found is None:
        return None
    run = RunId(id=int(found["run"]), attempt=int(found["attempt"]))
    return Marker(key=found["key"], run=run, head=found["head"])
