"""Forms of values in documents: bounds and patterns that their JSON schemas state.

A document is declared once, as dataclasses whose fields have these types.
``tools/render_schemas.py`` makes the schemas of it, and takes a field's description from the text
below the field. Bounds are what a document may hold, not what is usual: they keep a stranger's file
from being expensive.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """Bounds of a value, of a list's or mapping's size, or of each key; `None` states none."""

    name: str = ""
    """Name of its definition in a schema; empty writes it out at each place."""
    description: str = ""
    """Description of the definition."""
    max_length: int | None = None
    """Most characters of a text."""
    min_length: int | None = None
    """Fewest characters of a text."""
    pattern: str | None = None
    """Regular expression that a text matches, anchored at both ends."""
    ge: float | None = None
    """Least number."""
    gt: float | None = None
    """Number that it is above."""
    le: float | None = None
    """Largest number."""
    lt: float | None = None
    """Number that it is below."""
    min_items: int | None = None
    """Fewest items of a list."""
    max_items: int | None = None
    """Most items of a list, or fields of a mapping."""
    choices: tuple[str | int, ...] = ()
    """All values that it may have; empty allows any."""
    example: str | tuple[str, ...] | None = None
    """A value that has the form."""


Label = Annotated[str, Bounds(max_length=200)]
"""Text of a few words."""
Remark = Annotated[str, Bounds(max_length=300)]
"""Text of a line or two."""
Sentence = Annotated[str, Bounds(max_length=1_000)]
"""Text of a few sentences."""
Text = Annotated[str, Bounds(max_length=10_000)]
"""Text of a paragraph or more."""
Log = Annotated[str, Bounds(max_length=100_000)]
"""The end of a process's output."""

Identifier = Annotated[str, Bounds(max_length=60, pattern=r"^[a-z0-9_]{1,60}$")]
"""Name in lower case, of a check for example."""
CaseId = Annotated[
    str,
    Bounds(
        name="case_id",
        description=("Stable text: cases of two runs are the same case if their ids are equal."),
        max_length=500,
        pattern=r"^[a-z0-9_]+/[A-Za-z0-9_.-]+(\[[A-Za-z0-9_.,=+:/-]*\])?$",
    ),
]
SuiteName = Annotated[
    str,
    Bounds(
        name="suite_name",
        description="The suite that plans the case.",
        max_length=60,
        pattern=r"^[a-z0-9_]{1,60}$",
    ),
]
ArmName = Annotated[
    str,
    Bounds(
        name="arm_name",
        description="A way of running the case.",
        max_length=80,
        pattern=r"^[A-Za-z0-9_.:+-]{1,80}$",
    ),
]
MetricName = Annotated[
    str,
    Bounds(
        name="metric_name",
        description="The name of a series of samples.",
        max_length=60,
        pattern=r"^[a-z0-9_]{1,60}$",
    ),
]
SlotName = Annotated[
    str,
    Bounds(
        name="slot_name",
        description="Identifies the device among others.",
        min_length=1,
        max_length=200,
    ),
]
PartNames = Annotated[
    tuple[Annotated[str, Bounds(max_length=200)], ...],
    Bounds(
        name="part_names",
        description="The names of a part; empty if the part is new or was removed.",
        max_items=6,
    ),
]
FileName = Annotated[str, Bounds(max_length=80, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}$")]
"""Name of a file, without a folder."""
ToolVersion = Annotated[str, Bounds(max_length=60, pattern=r"^[A-Za-z0-9_.+!-]{1,60}$")]
RunId = Annotated[str, Bounds(max_length=100, pattern=r"^[A-Za-z0-9_.:/+-]{1,100}$")]

Moment = Annotated[
    str,
    Bounds(
        max_length=40,
        pattern=(
            r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|\+00:00)$"
        ),
        example="2030-01-31T12:00:00Z",
    ),
]
"""Point in time: ISO 8601, in UTC."""
Digest = Annotated[str, Bounds(max_length=100, pattern=r"^[A-Za-z0-9:_-]{1,100}$")]
Sha256 = Annotated[
    str,
    Bounds(
        name="sha256",
        description="A digest, hexadecimal.",
        max_length=64,
        pattern=r"^[0-9a-f]{64}$",
    ),
]
Fingerprint = Annotated[str, Bounds(max_length=80, pattern=r"^sha256:[0-9a-f]{64}$")]
"""Digest of a machine's identity."""
Commit = Annotated[str, Bounds(max_length=64, pattern=r"^[0-9a-f]{7,64}$")]
Branch = Annotated[str, Bounds(max_length=255)]
Url = Annotated[str, Bounds(max_length=500, pattern=r"^https?://[!-~]{1,480}$")]

Count = Annotated[int, Bounds(ge=0)]
PositiveCount = Annotated[int, Bounds(ge=1)]
LeaseNumber = Annotated[int, Bounds(ge=0, le=100_000_000)]
Attempt = Annotated[int, Bounds(ge=1, le=1_000)]
"""Number of an attempt, from 1."""
NonNegative = Annotated[float, Bounds(ge=0)]
PositiveNumber = Annotated[float, Bounds(gt=0)]
Share = Annotated[float, Bounds(ge=0, le=1)]
WallSeconds = Annotated[float, Bounds(gt=0, le=10_000_000)]
RankValues = Annotated[
    tuple[Annotated[tuple[float | None, ...], Bounds(max_items=1_000_000)], ...],
    Bounds(
        name="rank_values",
        description=(
            "By rank and step; null if a value is not finite, or if the rank does not see it."
        ),
        max_items=10_000,
    ),
]

Fact = Annotated[
    str | int | float | bool | None,
    Bounds(
        name="fact",
        description=("One property of a machine or of a case; null if it could not be determined."),
        max_length=1_000,
    ),
]
Facts = Annotated[
    Mapping[Annotated[str, Bounds(max_length=60, pattern=r"^[a-z0-9_.]{1,60}$")], Fact],
    Bounds(name="facts", description="Properties by name.", max_items=200),
]
Value = Annotated[
    Any,
    Bounds(
        name="value",
        description="The value of a parameter: any small JSON value.",
        max_length=1_000,
        max_items=100,
    ),
]
