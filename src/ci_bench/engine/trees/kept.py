"""What a process that prepared sides leaves for one that measures them, as JSON: where each side lives.

No environment variable is in it: those are of the process that measures.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ci_bench.engine.trees.setup import Home, make_side, side_environment
from ci_bench.engine.trees.sides import Side
from ci_bench.errors import BadDocument
from ci_bench.records.case import SideName
from ci_bench.records.results import Source

FILE = "sides.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptSide:
    """One side: paths are absolute, `failure` is why it cannot be measured."""

    name: SideName
    tree: str
    here: str
    venv: str | None
    source: Source
    failure: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """Base and head, of which checkout, and the rule that chose the base."""

    checkout: str
    rule: str
    sides: tuple[KeptSide, KeptSide]


def keep(folder: Path, sides: tuple[Side, Side], homes: Mapping[SideName, Home], *, checkout: Path, rule: str) -> None:
    """Write down where both sides live."""
    import msgspec

    base, head = (_kept(side, homes[side.name]) for side in sides)
    content = msgspec.json.encode(Kept(checkout=str(checkout), rule=rule, sides=(base, head)))
    (folder / FILE).write_bytes(content)


def recall(folder: Path, environ: Mapping[str, str]) -> tuple[Side, Side, str]:
    """Base, head, and the rule that chose the base. Raises `BadDocument` where nothing was prepared."""
    import msgspec

    path = folder / FILE
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError) as error:
        raise BadDocument(f"{path}: no prepared sides can be read there ({error}); prepare them first") from error
    base, head = (_side(side, environ, checkout=Path(kept.checkout), folder=folder) for side in kept.sides)
    return base, head, kept.rule


def _kept(side: Side, home: Home) -> KeptSide:
    return KeptSide(
        name=side.name,
        tree=str(home.tree),
        here=str(home.here),
        venv=str(home.venv) if home.venv else None,
        source=side.source,
        failure=side.failure,
    )


def _side(side: KeptSide, environ: Mapping[str, str], *, checkout: Path, folder: Path) -> Side:
    home = Home(tree=Path(side.tree), here=Path(side.here), venv=Path(side.venv) if side.venv else None)
    visible = side_environment(environ, home, checkout=checkout, folder=folder)
    failure = side.failure
    if failure is None and not home.here.is_dir():
        failure = f"what was prepared is not at {home.here} any more; mount it at the path where it was made"
    return make_side(side.name, home, visible, source=side.source, failure=failure)
