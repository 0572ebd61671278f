"""Reading what GitHub's JSON says, field by field: a field that is missing, null or of another type is `None`, never a guess."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ci_bench.errors import GitHubOdd


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object. Every accessor takes the names on the way: ``record.text("user", "login")``."""

    fields: Mapping[str, Any]

    @classmethod
    def of(cls, value: Any) -> "Record":
        """Take parsed JSON for an object. Raises `GitHubOdd` for anything else."""
        if not isinstance(value, Mapping):
            raise GitHubOdd("the answer holds no object where one is expected")
        return cls(value)

    @classmethod
    def each(cls, items: Sequence[Any]) -> Iterator["Record"]:
        """The objects of a list; anything else in it is passed over."""
        return (cls(item) for item in items if isinstance(item, Mapping))

    def text(self, *names: str) -> str | None:
        """A text."""
        value = self._at(names)
        return value if isinstance(value, str) else None

    def number(self, *names: str) -> int | None:
        """An integer, such as an id."""
        value = self._at(names)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def truth(self, *names: str) -> bool | None:
        """True or false."""
        value = self._at(names)
        return value if isinstance(value, bool) else None

    def inner(self, *names: str) -> "Record | None":
        """An object within."""
        value = self._at(names)
        return Record(value) if isinstance(value, Mapping) else None

    def need_text(self, *names: str) -> str:
        """A text that has to be there. Raises `GitHubOdd`."""
        value = self.text(*names)
        if value is None:
            raise GitHubOdd(f"the answer lacks the text {'.'.join(names)}")
        return value

    def need_number(self, *names: str) -> int:
        """An integer that has to be there. Raises `GitHubOdd`."""
        value = self.number(*names)
        if value is None:
            raise GitHubOdd(f"the answer lacks the number {'.'.join(names)}")
        return value

    def _at(self, names: Sequence[str]) -> Any:
        value: Any = self.fields
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value
