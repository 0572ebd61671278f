"""What a process that prepared sides leaves for one that measures them, as JSON: where each side lives, and what it was made for.

No environment variable is in it: those are of the process that measures. Sides that were made for something else (another commit,
another set-up, another engine) are refused: measuring them would answer a question that nobody asked.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory

import ci_bench
from ci_bench.engine.trees.bases import SHORT
from ci_bench.engine.trees.checkout import Checkout, Store, borrow, snapshot
from ci_bench.engine.trees.setup import Home, make_side, side_environment
from ci_bench.engine.trees.sides import Side
from ci_bench.engine.trees.worktrees import STORE
from ci_bench.errors import NotPrepared
from ci_bench.records.case import SideName
from ci_bench.records.config import Setup
from ci_bench.records.results import Source

FILE = "sides.json"
SHOWN_FILES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What sides are made for: the base and the set-up that were asked for, and the engine that is to measure them."""

    base: str | None
    setup: Setup
    engine: str
    python: str
    version: str


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
    """Base and head, on which terms, of which checkout. `snapshot` is the commit of what was checked out, changes included."""

    terms: Terms
    checkout: str
    snapshot: str
    sides: tuple[KeptSide, KeptSide]


def terms_of(base: str | None, setup: Setup) -> Terms:
    """The terms of sides that are made, or measured, by this very process."""
    engine = str(Path(ci_bench.__file__).resolve().parent)
    return Terms(base=base, setup=setup, engine=engine, python=sys.executable, version=ci_bench.__version__)


def kept_side(side: Side, home: Home) -> KeptSide:
    """A side as it is written down."""
    return KeptSide(
        name=side.name,
        tree=str(home.tree),
        here=str(home.here),
        venv=str(home.venv) if home.venv else None,
        source=side.source,
        failure=side.failure,
    )


def write(kept: Kept, folder: Path) -> None:
    """Write down where both sides live."""
    import msgspec

    (folder / FILE).write_bytes(msgspec.json.encode(kept))


def read(folder: Path) -> Kept:
    """What was written down in a folder. Raises `NotPrepared` where that is nothing."""
    import msgspec

    path = folder / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise NotPrepared(f"{path}: no prepared sides can be read there ({error}); prepare them first") from error


def refuse_others(folder: Path, kept: Kept, terms: Terms, checkout: Checkout, leave_out: Sequence[Path]) -> None:
    """Refuse sides, kept in `folder`, that were prepared for something else than `terms`, or than what is checked out now.

    New files alone, as a job may leave them lying about, are no other code. Raises `NotPrepared`, and what `snapshot` raises.
    """
    faults = [*_other_terms(kept.terms, terms), *_other_code(folder, kept, checkout, leave_out)]
    if faults:
        raise NotPrepared(f"what was prepared cannot be measured here: {'; '.join(faults)}; run `ci-bench setup` again")


def side_of(side: KeptSide, environ: Mapping[str, str], *, checkout: Path, folder: Path) -> Side:
    """A side as it is measured, in the environment of this process."""
    home = Home(tree=Path(side.tree), here=Path(side.here), venv=Path(side.venv) if side.venv else None)
    visible = side_environment(environ, home, checkout=checkout, folder=folder)
    failure = side.failure
    if failure is None and not home.here.is_dir():
        failure = f"what was prepared is not at {home.here} any more; mount it at the path where it was made"
    return make_side(side.name, home, visible, source=side.source, failure=failure)


def _other_terms(then: Terms, now: Terms) -> Iterator[str]:
    for name in (field.name for field in fields(Terms) if field.name != "setup"):
        before, after = getattr(then, name), getattr(now, name)
        if before != after:
            yield f"{name} was {_said(before)}, now it is {_said(after)}"
    for name in (field.name for field in fields(Setup)):
        if getattr(then.setup, name) != getattr(now.setup, name):
            yield f"setup.{name} has changed"


def _said(value: str | None) -> str:
    return "left to choose" if value is None else value


def _other_code(folder: Path, kept: Kept, checkout: Checkout, leave_out: Sequence[Path]) -> Iterator[str]:
    if str(checkout.top) != kept.checkout:
        yield f"it is of the checkout {kept.checkout}, this is {checkout.top}"
        return
    head = next(side.source.commit for side in kept.sides if side.name is SideName.HEAD) or ""
    if checkout.head != head:
        yield f"head was commit {head[:SHORT]}, now {checkout.head[:SHORT]} is checked out"
        return
    with TemporaryDirectory(prefix="ci-bench-") as scratch:
        store = borrow(checkout, Path(scratch) / STORE)
        now = snapshot(checkout, store, leave_out=leave_out)
        names = [] if now == kept.snapshot else _changed(kept.snapshot, now, store, folder / STORE / "objects")
    if names:
        yield f"files have changed since: {', '.join(names[:SHOWN_FILES])}{' …' if len(names) > SHOWN_FILES else ''}"


def _changed(before: str, after: str, store: Store, kept_objects: Path) -> list[str]:
    """The files that differ between two commits, without new ones; `before` is among the objects that were kept."""
    with (store.folder / "objects" / "info" / "alternates").open("a") as alternates:
        alternates.write(f"{kept_objects}\n")
    told = store.git.run("diff-tree", "-r", "-z", "--name-only", "--diff-filter=a", before, after)
    return [name for name in told.split("\0") if name]
