"""A step of each side as an icicle: the step, its lines, what they call, as wide as they take long.

One scale for both sides.

Drawn here as SVG, which needs no script and no network. The picture repeats the table next to it,
which serves readers who don't see the picture.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ci_bench.records.profiles import Profile, ProfileRow
from ci_bench.report.html.markup import Html, tag
from ci_bench.report.text import clean, seconds

WIDTH, HEIGHT, GAP = 1000.0, 22.0, 2.0
NARROWEST = 3.0
"""Narrower boxes are left out: they are in the table."""
_CHARACTER = 6.6
_COLOURS = 6
ELSEWHERE = "without a line"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Box:
    """A rectangle of the picture."""

    begun_s: float
    """The left edge: seconds from the start of the step."""
    taken_s: float
    """The width, in seconds."""
    level: int
    """The row from the top: 0 for the step, 1 for lines, 2 for calls."""
    name: str
    """The text in it, and in its tooltip."""
    colour: int
    """The number of its colour in the page's palette."""

    def drawn(self, scale_s: float) -> Html:
        """Draw it with its name, as far as it fits; a pointer that rests on it shows all of it."""
        x, width = WIDTH * self.begun_s / scale_s, max(0.0, WIDTH * self.taken_s / scale_s - 1)
        y = self.level * (HEIGHT + GAP)
        room = int((width - 6) / _CHARACTER)
        words = clean(self.name, cap=max(room, 1)) if room > 2 else ""  # noqa: PLR2004 - fewer are unreadable
        label = tag("text", words, x=f"{x + 4:.1f}", y=f"{y + 15:.1f}") if words else None
        size = {"width": f"{width:.1f}", "height": f"{HEIGHT:g}"}
        rect = tag("rect", x=f"{x:.1f}", y=f"{y:.1f}", class_=f"t{self.colour}", **size)
        return tag(
            "g", tag("title", f"{clean(self.name, cap=200)}: {seconds(self.taken_s)}"), rect, label
        )


def icicle(profile: Profile, *, scale_s: float, side: str) -> Html:
    """Draw one side; the whole width stands for `scale_s` seconds."""
    step_s = profile.step_s or 0.0
    step_box = _Box(
        begun_s=0.0, taken_s=step_s, level=0, name=f"{side}: {seconds(step_s)} a step", colour=5
    )
    boxes = [
        box.drawn(scale_s)
        for box in (step_box, *_lines(profile.rows))
        if WIDTH * box.taken_s / scale_s >= NARROWEST
    ]
    description = (
        f"{side}: a step of {seconds(step_s)} by line and operator; the table has the figures"
    )
    return tag(
        "svg",
        *boxes,
        viewBox=f"0 0 {WIDTH:g} {3 * (HEIGHT + GAP):g}",
        role="img",
        aria_label=description,
        class_="icicle",
    )


def _lines(rows: Sequence[ProfileRow]) -> Iterator[_Box]:
    """Yield the lines in the order of the source; below each the calls that it makes.

    The order puts the same line at the same place on both sides.
    """
    by_line: dict[str, list[ProfileRow]] = defaultdict(list)
    for row in rows:
        by_line[row.lines[0].place if row.lines else ELSEWHERE].append(row)
    begun_s = 0.0
    for place in sorted(by_line, key=_order):
        whole_s = sum(row.seconds for row in by_line[place])
        yield _Box(begun_s=begun_s, taken_s=whole_s, level=1, name=place, colour=0)
        inner_s = begun_s
        for row in sorted(by_line[place], key=lambda call: call.name):
            colour = 1 + sum(map(ord, row.name)) % (_COLOURS - 2)
            yield _Box(begun_s=inner_s, taken_s=row.seconds, level=2, name=row.name, colour=colour)
            inner_s += row.seconds
        begun_s += whole_s


def _order(place: str) -> tuple[bool, str, int]:
    file, _, number = place.rpartition(":")
    return place == ELSEWHERE, file, int(number) if number.isascii() and number.isdigit() else 0
