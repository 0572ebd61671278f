"""Looks for the commit that made something worse, by halving: which commit to try next, and when the answer is known. Pure.

Owns the search. The order of candidates comes from git (`rev-list --bisect-all`, which also knows histories with merges), the
answer for a commit from a paired comparison; both are functions that are handed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Answer(StrEnum):
    """What a commit is: without the change, with it, or nothing that can be told, as where it cannot be built."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """One commit and its answer, with the reason in words."""

    commit: str
    answer: Answer
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Where the search ended. `culprit` is the first commit with the change; `None` where `suspects` could not be told apart."""

    culprit: str | None
    suspects: tuple[str, ...]
    tried: tuple[Tried, ...]


Remaining = Callable[[Sequence[str], str], Sequence[str]]
"""`(good, bad)` to the commits after all of `good` and up to `bad`, `bad` among them, the one that halves them best first."""

Judge = Callable[[str], Tried]


def search(good: str, bad: str, *, remaining: Remaining, judge: Judge) -> Outcome:
    """Halve until one commit is left, or only such as cannot be judged."""
    goods = [good]
    tried: list[Tried] = []
    while True:
        left = remaining(goods, bad)
        skipped = {one.commit for one in tried if one.answer is Answer.SKIP}
        following = next((commit for commit in left if commit != bad and commit not in skipped), None)
        if following is None:
            suspects = tuple(left)
            return Outcome(culprit=bad if suspects == (bad,) else None, suspects=suspects, tried=tuple(tried))
        answer = judge(following)
        tried.append(answer)
        if answer.answer is Answer.GOOD:
            goods.append(following)
        elif answer.answer is Answer.BAD:
            bad = following
