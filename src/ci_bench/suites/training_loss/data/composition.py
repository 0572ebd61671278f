"""Composes labelled reviews from phrases; the same seed gives the same rows on every Python.

Owns vocabulary (venues, aspects, graded adjectives, modifiers, neutral sentences), sampling and
grammar, no files. A grade runs from -2 (one star) to 2 (five stars). Changing any entry changes the
committed reviews: run generate.py again. A review judges two to four aspects of one venue; the
weighted mean of their grades gives its stars. The label is the stars minus one, except for
LABEL_NOISE of the rows, whose text is written for a neighbouring star.

Only Random.random() is called: Python promises its sequence for a seed, but not that of choice,
shuffle or sample (https://docs.python.org/3/library/random.html#notes-on-reproducibility).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from string import Formatter
from typing import TypeVar

GRADES = (-2, -1, 0, 1, 2)
Graded = Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Aspect:
    """One side of a venue that a review judges; `weight` is its share in the stars."""

    weight: int
    subjects: tuple[str, ...]
    adjectives: Graded


@dataclass(frozen=True, kw_only=True)
class Venue:
    """A kind of business: its main aspect, the others, and sentences without an opinion."""

    main: Aspect
    others: tuple[Aspect, ...]
    neutral: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Modifier:
    """Words before an adjective, and the grade that each grade of adjective has after them."""

    words: tuple[str, ...]
    grade_of: Mapping[int, int]


MODIFIERS = (
    Modifier(words=("very", "really", "so", "extremely", "incredibly"), grade_of={-1: -2, 1: 2}),
    Modifier(words=("absolutely", "simply", "truly", "completely"), grade_of={-2: -2, 2: 2}),
    Modifier(words=("fairly", "rather", "quite", "pretty"), grade_of={-1: -1, 0: 0, 1: 1}),
    Modifier(words=("only slightly", "barely", "just a touch"), grade_of={-1: 0, 1: 0}),
    Modifier(words=("not", "not really", "never", "hardly"), grade_of={2: -1, 1: -1, -1: 1, -2: 0}),
    Modifier(words=("anything but", "the opposite of"), grade_of={2: -2, -2: 2}),
)

COMMON_ADJECTIVES: Graded = {
    -2: ("terrible", "awful", "horrible", "dreadful", "appalling", "abysmal", "disgraceful"),
    -1: ("bad", "poor", "disappointing", "unimpressive", "weak", "unpleasant"),
    0: ("okay", "average", "acceptable", "ordinary", "passable", "unremarkable", "nothing special"),
    1: ("good", "nice", "pleasant", "solid", "enjoyable", "likeable"),
    2: ("excellent", "wonderful", "fantastic", "superb", "outstanding", "amazing", "perfect"),
}

SERVICE = Aspect(
    weight=1,
    subjects=(
        "the service was",
        "our waiter was",
        "the staff were",
        "the people at the counter were",
        "the manager was",
    ),
    adjectives={
        -2: ("rude", "hostile", "insulting", "unbearable"),
        -1: ("slow", "inattentive", "careless", "unhelpful"),
        0: ("neutral", "businesslike", "predictable"),
        1: ("friendly", "helpful", "polite", "attentive"),
        2: ("charming", "impeccable", "heroic", "marvellous"),
    },
)
PRICE = Aspect(
    weight=1,
    subjects=("the price was", "the bill was", "the value for money was", "what we paid was"),
    adjectives={
        -2: ("outrageous", "criminal", "scandalous"),
        -1: ("steep", "inflated", "excessive"),
        0: ("standard", "typical", "unsurprising"),
        1: ("fair", "reasonable", "modest"),
        2: ("unbeatable", "incredible", "sensational"),
    },
)
PLACE = Aspect(
    weight=1,
    subjects=(
        "the place was",
        "the atmosphere was",
        "the decor was",
        "the building was",
        "the music was",
    ),
    adjectives={
        -2: ("filthy", "disgusting", "depressing", "revolting"),
        -1: ("noisy", "cramped", "shabby", "gloomy"),
        0: ("plain", "functional", "conventional"),
        1: ("cosy", "clean", "bright", "tidy"),
        2: ("gorgeous", "stunning", "magical", "enchanting"),
    },
)
WAIT = Aspect(
    weight=1,
    subjects=(
        "the wait was",
        "the booking was",
        "the parking was",
        "the opening times were",
        "the website was",
    ),
    adjectives={
        -2: ("endless", "ridiculous", "infuriating"),
        -1: ("long", "confusing", "annoying"),
        0: ("normal", "usual", "moderate"),
        1: ("short", "easy", "convenient"),
        2: ("effortless", "flawless", "ideal"),
    },
)
FOOD = Aspect(
    weight=2,
    subjects=(
        "the food was",
        "everything we ate was",
        "my main course was",
        "the pasta was",
        "the desserts were",
    ),
    adjectives={
        -2: ("inedible", "rotten", "sickening", "repulsive"),
        -1: ("bland", "greasy", "overcooked", "soggy"),
        0: ("edible", "simple", "forgettable"),
        1: ("tasty", "fresh", "flavourful", "appetising"),
        2: ("delicious", "exquisite", "divine", "heavenly"),
    },
)
ROOM = Aspect(
    weight=2,
    subjects=(
        "the room was",
        "our suite was",
        "the bed was",
        "the bathroom was",
        "the breakfast was",
    ),
    adjectives={
        -2: ("unliveable", "mouldy", "infested", "nightmarish"),
        -1: ("stuffy", "dated", "draughty", "uncomfortable"),
        0: ("basic", "simple", "forgettable"),
        1: ("comfortable", "spacious", "quiet", "welcoming"),
        2: ("luxurious", "spotless", "heavenly", "palatial"),
    },
)
GOODS = Aspect(
    weight=2,
    subjects=(
        "the shoes were",
        "the coat I bought was",
        "the selection was",
        "the quality was",
        "the repair was",
    ),
    adjectives={
        -2: ("worthless", "useless", "defective", "unusable"),
        -1: ("flimsy", "scratched", "limited", "clumsy"),
        0: ("basic", "generic", "forgettable"),
        1: ("sturdy", "stylish", "practical", "reliable"),
        2: ("magnificent", "exceptional", "phenomenal", "first class"),
    },
)

VENUES = (
    Venue(
        main=FOOD,
        others=(SERVICE, PRICE, PLACE, WAIT),
        neutral=(
            "I ordered the {dish} and a glass of {drink}.",
            "We shared the {dish} and the {dish}.",
            "We got a table near the {spot}.",
            "They serve {dish} until {hour}.",
            "My {friend} had the {dish}.",
        ),
    ),
    Venue(
        main=ROOM,
        others=(SERVICE, PRICE, PLACE, WAIT),
        neutral=(
            "We stayed for {number} nights in {month}.",
            "Our room was on the {ordinal} floor, next to the {spot}.",
            "Check in starts at {hour}.",
            "The hotel is {number} minutes from the {landmark}.",
            "My {friend} booked it for a trip in {month}.",
        ),
    ),
    Venue(
        main=GOODS,
        others=(SERVICE, PRICE, PLACE, WAIT),
        neutral=(
            "I went in for a {item} on {day}.",
            "They sell {item}s on the {ordinal} floor.",
            "The shop is across from the {landmark}.",
            "I was looking for a {item} for my {friend}.",
            "They close at {hour} on {day}.",
        ),
    ),
)

OPENINGS = (
    "We came here on a {day} {time} with my {friend}.",
    "I stopped by on {day} around {hour}.",
    "This was our {ordinal} visit since {month}.",
    "My {friend} and I tried this place in {month}.",
    "We were in town for {number} days.",
    "It is {number} blocks from the {landmark}.",
    "I have been here {number} times.",
    "We found it after a walk to the {landmark}.",
)

HEARSAY = (
    "My {friend} had called it {adjective}.",
    "Somebody online said it was {adjective}, so we were curious.",
    "The {adjective} place next door was closed.",
    "Last year it had a reputation for being {adjective}.",
)

CONTRASTS = (
    "{first}, but {second}.",
    "Although {first}, {second}.",
    "While {first}, {second}.",
    "{first}, yet {second}.",
)
AGREEMENTS = (
    "{first}, and {second}.",
    "{first}. Also, {second}.",
    "{first}, plus {second}.",
    "{first}; {second}.",
)
SINGLES = (
    "{first}.",
    "I thought {first}.",
    "To be honest, {first}.",
    "As for the rest, {first}.",
    "This time {first}.",
)

CLOSINGS: Graded = {
    -2: ("Avoid it at all costs.", "I want my money back.", "We will never return.", "Stay away."),
    -1: (
        "I would not hurry back.",
        "We expected more.",
        "There are better options nearby.",
        "Not for us.",
    ),
    0: (
        "It does the job.",
        "We may or may not return.",
        "It was neither here nor there.",
        "Three stars from me.",
    ),
    1: ("We would come back.", "Worth a visit.", "I liked it overall.", "We left happy."),
    2: (
        "I cannot recommend it enough.",
        "We loved every minute.",
        "A new favourite.",
        "Do not miss it.",
    ),
}

SLOTS: Mapping[str, tuple[str, ...]] = {
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "time": ("morning", "afternoon", "evening", "night"),
    "month": ("January", "March", "April", "June", "July", "September", "October", "December"),
    "hour": ("noon", "two", "five", "six", "seven", "eight", "nine", "midnight"),
    "number": ("two", "three", "four", "five", "six", "ten"),
    "ordinal": ("first", "second", "third", "fourth", "fifth"),
    "friend": (
        "sister",
        "brother",
        "husband",
        "wife",
        "mother",
        "father",
        "boss",
        "cousin",
        "neighbour",
        "daughter",
    ),
    "landmark": (
        "station",
        "river",
        "museum",
        "park",
        "bridge",
        "market",
        "library",
        "airport",
        "stadium",
        "harbour",
    ),
    "spot": ("window", "kitchen", "door", "stairs", "bar", "garden", "fireplace", "lift"),
    "dish": (
        "soup",
        "salad",
        "burger",
        "pizza",
        "curry",
        "salmon",
        "noodles",
        "tacos",
        "lamb",
        "risotto",
        "pancakes",
    ),
    "drink": ("wine", "water", "beer", "lemonade", "cider", "juice"),
    "item": (
        "jacket",
        "lamp",
        "watch",
        "phone",
        "bag",
        "chair",
        "kettle",
        "bicycle",
        "ring",
        "camera",
    ),
}


LABELS = 5
LABEL_NOISE = 0.05
PLAIN_SHARE = 0.65
OPENING_SHARE = 0.8
NEUTRAL_SHARE = 0.5
HEARSAY_SHARE = 0.15
CLOSING_SHARE = 0.5
GRADE_OFFSETS = (-2, -1, -1, 0, 0, 0, 0, 1, 1, 2)
MEAN_TOLERANCE = 0.375  # a binary fraction: rounding must not decide
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
    """Return `count` reviews without a repeated text.

    Each block of five rows holds each label once.
    """
    rng = Random(seed)  # noqa: S311 - reviews need no secrecy
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
    return Review(text=_write_text(rng, _pick(rng, VENUES), GRADES[expressed]), label=label)


def _neighbour(rng: Random, label: int) -> int:
    return _pick(rng, [near for near in (label - 1, label + 1) if 0 <= near < LABELS])


def _write_text(rng: Random, venue: Venue, grade: int) -> str:
    opinions = _draw_opinions(rng, venue, grade)
    openings = [_fill(rng, _pick(rng, OPENINGS))] if rng.random() < OPENING_SHARE else []
    asides = [_fill(rng, _pick(rng, venue.neutral))] if rng.random() < NEUTRAL_SHARE else []
    hearsay = [_fill(rng, _pick(rng, HEARSAY))] if rng.random() < HEARSAY_SHARE else []
    closings = [_pick(rng, CLOSINGS[grade])] if rng.random() < CLOSING_SHARE else []
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
    """Check that the weighted mean of the grades lies within MEAN_TOLERANCE of `grade`."""
    weight = sum(opinion.aspect.weight for opinion in opinions)
    total = sum(opinion.aspect.weight * opinion.grade for opinion in opinions)
    return abs(total - weight * grade) <= MEAN_TOLERANCE * weight


def _judge(rng: Random, opinions: Sequence[Opinion]) -> list[str]:
    """Return one sentence for each pair of opinions, and one for the opinion left over."""
    pairs = [opinions[start : start + 2] for start in range(0, len(opinions), 2)]
    return [_capitalised(_sentence(rng, pair)) for pair in pairs]


def _sentence(rng: Random, opinions: Sequence[Opinion]) -> str:
    clauses = [
        f"{_pick(rng, opinion.aspect.subjects)} {_describe(rng, opinion)}" for opinion in opinions
    ]
    if len(clauses) == 1:
        return _pick(rng, SINGLES).format(first=clauses[0])
    templates = CONTRASTS if opinions[0].grade * opinions[1].grade < 0 else AGREEMENTS
    return _pick(rng, templates).format(first=clauses[0], second=clauses[1])


def _describe(rng: Random, opinion: Opinion) -> str:
    """Return a plain adjective of the grade, or a modified one of another grade."""
    if rng.random() < PLAIN_SHARE:
        return _adjective(rng, opinion.aspect, opinion.grade)
    words, grade = _pick(rng, _modified_ways(opinion.grade))
    return f"{_pick(rng, words)} {_adjective(rng, opinion.aspect, grade)}"


def _modified_ways(grade: int) -> list[tuple[tuple[str, ...], int]]:
    return [
        (modifier.words, before)
        for modifier in MODIFIERS
        for before, after in modifier.grade_of.items()
        if after == grade
    ]


def _adjective(rng: Random, aspect: Aspect, grade: int) -> str:
    return _pick(rng, _pick(rng, (aspect.adjectives, COMMON_ADJECTIVES))[grade])


def _fill(rng: Random, template: str) -> str:
    """Replace each {slot} by a word of it; {adjective} is a common adjective of any grade."""
    return "".join(
        literal + (_slot_word(rng, slot) if slot else "")
        for literal, slot, _, _ in Formatter().parse(template)
    )


def _slot_word(rng: Random, slot: str) -> str:
    if slot == "adjective":
        return _pick(rng, COMMON_ADJECTIVES[_pick(rng, GRADES)])
    return _pick(rng, SLOTS[slot])


def _capitalised(sentence: str) -> str:
    return ". ".join(part[0].upper() + part[1:] for part in sentence.split(". "))


def _pick(rng: Random, items: Sequence[Item]) -> Item:
    return items[int(rng.random() * len(items))]


def _shuffled(rng: Random, items: Sequence[Item]) -> list[Item]:
    return [
        item
        for _, _, item in sorted((rng.random(), index, item) for index, item in enumerate(items))
    ]
