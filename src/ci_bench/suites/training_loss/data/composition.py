"""Composes labelled reviews from the phrases; the same seed gives the same rows on every Python.

Owns sampling and grammar, no files. A review judges two to four aspects of one venue; the weighted mean of their
grades gives its stars. The label is the stars minus one, except for LABEL_NOISE of the rows, whose text is written
for a neighbouring star.

Only Random.random() is called: Python promises its sequence for a seed, but not that of choice, shuffle or sample
(https://docs.python.org/3/library/random.html#notes-on-reproducibility).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from string import Formatter
from typing import TypeVar

from ci_bench.suites.training_loss.data import phrases
from ci_bench.suites.training_loss.data.phrases import Aspect, Venue

LABELS = 5
LABEL_NOISE = 0.05
PLAIN_SHARE = 0.65
OPENING_SHARE = 0.8
NEUTRAL_SHARE = 0.5
HEARSAY_SHARE = 0.15
CLOSING_SHARE = 0.5
GRADE_OFFSETS = (-2, -1, -1, 0, 0, 0, 0, 1, 1, 2)
MEAN_TOLERANCE = 0.375  # a binary fraction, so that no rounding decides
ASPECT_COUNTS = (2, 3, 3, 4)

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Review:
    """One row: English text and its label, 0 (one star) to 4 (five stars)."""

    text: str
    label: int


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """One aspect with the grade that the review gives it."""

    aspect: Aspect
    grade: int


def compose_reviews(*, seed: int, count: int) -> tuple[Review, ...]:
    """Return `count` reviews without a repeated text; each block of five rows holds each label once."""
    rng = Random(seed)  # noqa: S311 - reviews are no secret
    unique: dict[str, Review] = {}
    for label in _label_sequence(rng, count):
        review = _compose_review(rng, label)
        while review.text in unique:
            review = _compose_review(rng, label)
        unique[review.text] = review
    return tuple(unique.values())


def _label_sequence(rng: Random, count: int) -> Iterator[int]:
    for start in range(0, count, LABELS):
        yield from _shuffled(rng, range(LABELS))[: count - start]


def _compose_review(rng: Random, label: int) -> Review:
    expressed = _neighbour(rng, label) if rng.random() < LABEL_NOISE else label
    return Review(text=_write_text(rng, _pick(rng, phrases.VENUES), phrases.GRADES[expressed]), label=label)


def _neighbour(rng: Random, label: int) -> int:
    return _pick(rng, [near for near in (label - 1, label + 1) if 0 <= near < LABELS])


def _write_text(rng: Random, venue: Venue, grade: int) -> str:
    opinions = _draw_opinions(rng, venue, grade)
    openings = [_fill(rng, _pick(rng, phrases.OPENINGS))] if rng.random() < OPENING_SHARE else []
    asides = [_fill(rng, _pick(rng, venue.neutral))] if rng.random() < NEUTRAL_SHARE else []
    hearsay = [_fill(rng, _pick(rng, phrases.HEARSAY))] if rng.random() < HEARSAY_SHARE else []
    closings = [_pick(rng, phrases.CLOSINGS[grade])] if rng.random() < CLOSING_SHARE else []
    body = _shuffled(rng, [*_judge(rng, opinions), *asides, *hearsay])
    return " ".join([*openings, *body, *closings])


def _draw_opinions(rng: Random, venue: Venue, grade: int) -> list[Opinion]:
    """Draw grades near `grade` until their weighted mean is close to it."""
    others = _shuffled(rng, venue.others)[: _pick(rng, ASPECT_COUNTS) - 1]
    aspects = _shuffled(rng, [venue.main, *others])
    while True:
        opinions = [Opinion(aspect=aspect, grade=_near(rng, grade)) for aspect in aspects]
        if averages_to(opinions, grade):
            return opinions


def _near(rng: Random, grade: int) -> int:
    return max(-2, min(2, grade + _pick(rng, GRADE_OFFSETS)))


def averages_to(opinions: Sequence[Opinion], grade: int) -> bool:
    """Say whether the weighted mean of the grades lies within MEAN_TOLERANCE of `grade`."""
    weight = sum(opinion.aspect.weight for opinion in opinions)
    total = sum(opinion.aspect.weight * opinion.grade for opinion in opinions)
    return abs(total - weight * grade) <= MEAN_TOLERANCE * weight


def _judge(rng: Random, opinions: Sequence[Opinion]) -> list[str]:
    """Return one sentence for each pair of opinions, and one for the opinion left over."""
    pairs = [opinions[start : start + 2] for start in range(0, len(opinions), 2)]
    return [_capitalised(_sentence(rng, pair)) for pair in pairs]


def _sentence(rng: Random, opinions: Sequence[Opinion]) -> str:
    clauses = [f"{_pick(rng, opinion.aspect.subjects)} {_describe(rng, opinion)}" for opinion in opinions]
    if len(clauses) == 1:
        return _pick(rng, phrases.SINGLES).format(first=clauses[0])
    templates = phrases.CONTRASTS if opinions[0].grade * opinions[1].grade < 0 else phrases.AGREEMENTS
    return _pick(rng, templates).format(first=clauses[0], second=clauses[1])


def _describe(rng: Random, opinion: Opinion) -> str:
    """Return a plain adjective of the grade, or one of another grade that a modifier brings to it."""
    if rng.random() < PLAIN_SHARE:
        return _adjective(rng, opinion.aspect, opinion.grade)
    words, grade = _pick(rng, _modified_ways(opinion.grade))
    return f"{_pick(rng, words)} {_adjective(rng, opinion.aspect, grade)}"


def _modified_ways(grade: int) -> list[tuple[tuple[str, ...], int]]:
    return [
        (modifier.words, before)
        for modifier in phrases.MODIFIERS
        for before, after in modifier.grade_of.items()
        if after == grade
    ]


def _adjective(rng: Random, aspect: Aspect, grade: int) -> str:
    return _pick(rng, _pick(rng, (aspect.adjectives, phrases.COMMON_ADJECTIVES))[grade])


def _fill(rng: Random, template: str) -> str:
    """Replace each {slot} by a word of that slot; {adjective} is a common adjective of any grade."""
    return "".join(literal + (_slot_word(rng, slot) if slot else "") for literal, slot, _, _ in Formatter().parse(template))


def _slot_word(rng: Random, slot: str) -> str:
    if slot == "adjective":
        return _pick(rng, phrases.COMMON_ADJECTIVES[_pick(rng, phrases.GRADES)])
    return _pick(rng, phrases.SLOTS[slot])


def _capitalised(sentence: str) -> str:
    return ". ".join(part[0].upper() + part[1:] for part in sentence.split(". "))


def _pick(rng: Random, items: Sequence[Item]) -> Item:
    return items[int(rng.random() * len(items))]


def _shuffled(rng: Random, items: Sequence[Item]) -> list[Item]:
    return [item for _, _, item in sorted((rng.random(), index, item) for index, item in enumerate(items))]
