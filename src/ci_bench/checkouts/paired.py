"""Prepare both sides of a paired run, store them for a process that measures later, remove them.

Everything is made in one folder of the caller's, outside the checkout, which stays exactly as it
is. Removing that folder cleans up everything, also after a killed run. The stored state is JSON:
the folders of each side, and the terms it was made for. It has no environment variables: those
belong to the measuring process. Sides made for something else (another commit, another set-up,
another engine) are refused: they would answer a different question.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import ci_bench
from ci_bench.checkouts.bases import SHORT
from ci_bench.checkouts.checkout import Checkout, ObjectStore, borrow, open_checkout, snapshot
from ci_bench.checkouts.layers import engine_layer, engine_sites
from ci_bench.checkouts.seals import Seal, base_grounds, engine_grounds, seal
from ci_bench.checkouts.setup import (
    ENGINE,
    Home,
    Preparing,
    Workshop,
    home_of,
    make_side,
    set_up,
    side_environment,
)
from ci_bench.checkouts.sides import Side
from ci_bench.checkouts.worktrees import STORE, Trees, WantedTrees, make_trees, remove
from ci_bench.errors import CannotWrite, NotPrepared
from ci_bench.processes.users import Users, let_pass
from ci_bench.records.config import Setup
from ci_bench.records.results import SideName, Source

FILE = "sides.json"
SHOWN_FILES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """The terms of prepared sides: the request, and the engine that measures them."""

    base: str | None
    """Requested base; `None` to choose it."""
    setup: Setup
    """Set-up of the configuration."""
    engine: str
    """Folder of the engine's package."""
    python: str
    """Path of the engine's interpreter."""
    version: str
    """Version of ci-bench."""
    users: str | None = None
    """Numbers of base's and head's users, as ``BASE:HEAD``; `None` without separate users."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptSide:
    """One side, with absolute paths."""

    name: SideName
    """Name of the side."""
    tree: str
    """Folder of its tree."""
    here: str
    """Folder in the tree where its workers start."""
    venv: str | None
    """Folder of its environment; `None` for the engine's."""
    source: Source
    """Commit of the side, and its origin."""
    failure: str | None
    """Reason why it cannot be measured; `None` if it can."""
    user: int | None = None
    """Number of the user that its processes run as; `None` for the caller."""
    own: str | None = None
    """Home folder of that user; `None` without one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptSides:
    """The prepared sides: base and head, their terms and checkout.

    `snapshot` is the commit of the checked-out files, changes included.
    """

    terms: Terms
    checkout: str
    snapshot: str
    sides: tuple[KeptSide, KeptSide]


def terms_of(base: str | None, setup: Setup, users: Users | None = None) -> Terms:
    """Return the terms of sides that this very process makes or measures."""
    engine = str(Path(ci_bench.__file__).resolve().parent)
    owners = f"{users.base}:{users.head}" if users else None
    return Terms(
        base=base,
        setup=setup,
        engine=engine,
        python=sys.executable,
        version=ci_bench.__version__,
        users=owners,
    )


def kept_side(side: Side, home: Home) -> KeptSide:
    """Return the stored form of a side."""
    return KeptSide(
        name=side.name,
        tree=str(home.tree),
        here=str(home.here),
        venv=str(home.venv) if home.venv else None,
        source=side.source,
        failure=side.failure,
        user=home.user,
        own=str(home.own) if home.own else None,
    )


def write(state: KeptSides, folder: Path) -> None:
    """Store the places of both sides."""
    import msgspec

    (folder / FILE).write_bytes(msgspec.json.encode(state))


def read(folder: Path) -> KeptSides:
    """Read the state stored in a folder. Raises `NotPrepared` if it is invalid."""
    import msgspec

    path = folder / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptSides)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise NotPrepared(
            f"{path}: no prepared sides can be read there ({error}); prepare them first"
        ) from error


def refuse_others(
    folder: Path, state: KeptSides, terms: Terms, checkout: Checkout, leave_out: Sequence[Path]
) -> None:
    """Refuse sides, stored in `folder`, that were prepared for other terms or another checkout.

    New untracked files, which a job may leave, do not count as other code. Raises `NotPrepared`,
    and the errors of `snapshot`.
    """
    faults = [*_other_terms(state.terms, terms), *_other_code(folder, state, checkout, leave_out)]
    if faults:
        raise NotPrepared(
            f"the prepared sides cannot be measured here: {'; '.join(faults)}; run `ci-bench setup`"
            " again"
        )


def home_of_kept(side: KeptSide) -> Home:
    """Return the home of a stored side."""
    venv, user_home = (Path(folder) if folder else None for folder in (side.venv, side.own))
    return Home(
        tree=Path(side.tree), here=Path(side.here), venv=venv, user=side.user, own=user_home
    )


def side_of(side: KeptSide, environ: Mapping[str, str], *, checkout: Path, folder: Path) -> Side:
    """Return a stored side for measuring, in the environment of this process."""
    home = home_of_kept(side)
    visible = side_environment(environ, home, checkout=checkout, folder=folder)
    failure = side.failure
    if failure is None and not home.here.is_dir():
        failure = (
            f"the prepared sides are no longer at {home.here}; mount them at the path where they"
            " were made"
        )
    return make_side(side.name, home, visible, source=side.source, failure=failure)


def _other_terms(then: Terms, now: Terms) -> Iterator[str]:
    for name in (term.name for term in fields(Terms) if term.name != "setup"):
        before, after = getattr(then, name), getattr(now, name)
        if before != after:
            yield f"{name} was {_describe_term(before)}, now it is {_describe_term(after)}"
    for name in (term.name for term in fields(Setup)):
        if getattr(then.setup, name) != getattr(now.setup, name):
            yield f"setup.{name} has changed"


def _describe_term(value: str | None) -> str:
    return "left to choose" if value is None else value


def _other_code(
    folder: Path, state: KeptSides, checkout: Checkout, leave_out: Sequence[Path]
) -> Iterator[str]:
    if str(checkout.top) != state.checkout:
        yield f"it belongs to the checkout {state.checkout}, this is {checkout.top}"
        return
    head = next(side.source.commit for side in state.sides if side.name is SideName.HEAD) or ""
    if checkout.head != head:
        yield f"head was commit {head[:SHORT]}, now {checkout.head[:SHORT]} is checked out"
        return
    with TemporaryDirectory(prefix="ci-bench-") as scratch:
        store = borrow(checkout, Path(scratch) / STORE)
        now = snapshot(checkout, store, leave_out=leave_out)
        names = (
            []
            if now == state.snapshot
            else _changed(state.snapshot, now, store, folder / STORE / "objects")
        )
    if names:
        yield (
            "files have changed since:"
            f" {', '.join(names[:SHOWN_FILES])}{' …' if len(names) > SHOWN_FILES else ''}"
        )


def _changed(before: str, after: str, store: ObjectStore, kept_objects: Path) -> list[str]:
    """Return the files that differ between two commits, without new ones.

    `before` is in the kept objects.
    """
    with (store.folder / "objects" / "info" / "alternates").open("a") as alternates:
        alternates.write(f"{kept_objects}\n")
    output = store.git.run("diff-tree", "-r", "-z", "--name-only", "--diff-filter=a", before, after)
    return [name for name in output.split("\0") if name]


logger = logging.getLogger(__name__)

FOLDER = "paired"
CACHE = "CI_BENCH_CACHE"
"""The variable that names a folder to use instead of `setup.cache`."""


def quiet(_: Preparing) -> None:
    """Do nothing, for callers without a display."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The dependencies of preparing sides."""

    repository: Path
    """Folder in the user's checkout; workers start in the same one of each tree."""
    environ: Mapping[str, str]
    """Caller's environment, unchanged: its secrets are not passed on."""
    scratch: Path
    """Private folder for trees and environments."""
    logs: Path
    """Folder for the output of set-up commands."""
    leave_out: tuple[Path, ...] = ()
    """Files and folders of the checkout that are not part of head, such as our output."""
    writes: tuple[str, ...] = ()
    """Globs of files that base's processes may change, in addition to `setup.writes`."""
    observe: Callable[[Preparing], None] = quiet
    """Called with the progress before each command."""
    users: Users | None = None
    """Separate users of the sides, out of each other's reach; `None` for the caller."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SidePair:
    """Both sides; base's `source` names the rule for its commit.

    `seal` covers base and the engine.
    """

    base: Side
    head: Side
    seal: Seal = field(compare=False)

    @property
    def sides(self) -> tuple[Side, Side]:
        """Base and head, in this order."""
        return self.base, self.head


@contextmanager
def paired_sides(place: Place, *, base: str | None, setup: Setup) -> Iterator[SidePair]:
    """Prepare both sides for the block, and remove them at its end, whatever ends it.

    `base` is the commit to compare with; `None` chooses it (see `bases.choose_base`). A side whose
    set-up fails is in the pair, with its `failure`; the other one is still prepared.

    Raises:
        BadCheckout: no checkout exists, or it cannot be measured as it is.
        NoBase: the base cannot be determined, or is not in this clone.
        CannotWrite: the folder for logs or for the cache cannot be made.
        GitFailed: git is missing, or failed at something that should work.
    """
    try:
        yield prepare_sides(place, base=base, setup=setup)
    finally:
        remove(place.scratch / FOLDER)


def prepare_sides(place: Place, *, base: str | None, setup: Setup) -> SidePair:
    """Prepare both sides in `place.scratch` and leave them there, unless that is interrupted.

    Raises the errors of `paired_sides`, and `CannotWrite` if other files are in the place.
    """
    folder = place.scratch.resolve() / FOLDER
    if folder.exists() and not any((folder / name).exists() for name in (FILE, STORE)):
        raise CannotWrite(
            f"{folder} holds something else; choose another folder to prepare both sides in"
        )
    remove(folder)
    try:
        return _prepare(place, folder, base=base, setup=setup)
    except BaseException:
        remove(folder)
        raise


def reopen_sides(place: Place, *, base: str | None, setup: Setup) -> SidePair:
    """Return the sides that `prepare_sides` left in `place.scratch`.

    Call it from a process that only measures, for example one without the network. All paths must
    be the same as then; workers see the permitted part of `place.environ`. Nothing is written
    there.

    Raises:
        NotPrepared: nothing was prepared, or for another base, set-up, engine or checkout, or
        the checkout has changed since.
    """
    folder = place.scratch.resolve() / FOLDER
    state = read(folder)
    checkout = open_checkout(place.repository, place.environ)
    refuse_others(folder, state, terms_of(base, setup, place.users), checkout, _list_omitted(place))
    base_side, head_side = (
        side_of(side, place.environ, checkout=checkout.top, folder=folder) for side in state.sides
    )
    (home,) = (home_of_kept(side) for side in state.sides if side.name is SideName.BASE)
    return SidePair(
        base=base_side, head=head_side, seal=_seal(home, place, setup, checkout.top, folder)
    )


def prepared_head(scratch: Path, here: Path, environ: Mapping[str, str]) -> Side:
    """Return head as `prepare_sides` left it in `scratch`, for planning.

    Its `failure` is the reason if its environment lacks the packages of set-up. Raises
    `NotPrepared`.
    """
    folder = scratch.resolve() / FOLDER
    (head,) = (side for side in read(folder).sides if side.name is SideName.HEAD)
    return side_of(head, environ, checkout=open_checkout(here, environ).top, folder=folder)


def are_ready(scratch: Path) -> bool:
    """Return whether both sides that `prepare_sides` left in `scratch` can be measured.

    Raises `NotPrepared`.
    """
    return all(side.failure is None for side in read(scratch.resolve() / FOLDER).sides)


def seal_prepared(scratch: Path, checkout: Path) -> Seal:
    """Return a seal on the engine, and on base if `prepare_sides` left it in `scratch`.

    It is for head's code that runs before measuring. Raises `NotPrepared`.
    """
    folder = scratch.resolve() / FOLDER
    homes = [home_of_kept(side) for side in read(folder).sides if side.name is SideName.BASE]
    base = (
        ground
        for home in homes
        for ground in base_grounds(tree=home.tree, venv=home.venv, engine=folder / ENGINE)
    )
    return seal((*base, *engine_grounds(checkout)))


def _prepare(place: Place, folder: Path, *, base: str | None, setup: Setup) -> SidePair:
    cache = _cache(place, setup, folder)
    omitted = (*_list_omitted(place), *((cache,) if setup.cache else ()))
    request = WantedTrees(
        repository=place.repository,
        base=base,
        setup=setup,
        environ=place.environ,
        leave_out=omitted,
    )
    trees = make_trees(request, folder)
    for passable in (place.scratch, folder) if place.users else ():
        let_pass(passable)
    if setup.commands:
        _make(cache, "setup.cache")
        _make(place.logs, "the folder for the logs of set-up")
    for log in (path for name in SideName for path in place.logs.glob(f"{name}-[0-9]*.log")):
        log.unlink()
    shop = _workshop(place, setup, trees, cache=cache, folder=folder)
    base_home, head_home = home_of(trees.base, shop), home_of(trees.head, shop)
    base_side = set_up(trees.base, trees.store.git, shop)
    sealed = _seal(base_home, place, setup, shop.checkout, folder)
    head_side = set_up(trees.head, trees.store.git, shop)
    if setup.commands and (breaks := sealed.breaks()):
        reason = f"while head was set up, {'; '.join(breaks)}"
        base_side, head_side = (
            replace(side, failure=side.failure or reason) for side in (base_side, head_side)
        )
    state = KeptSides(
        terms=terms_of(base, setup, place.users),
        checkout=str(shop.checkout),
        snapshot=trees.head.commit,
        sides=(kept_side(base_side, base_home), kept_side(head_side, head_home)),
    )
    write(state, folder)
    return SidePair(base=base_side, head=head_side, seal=sealed)


def _cache(place: Place, setup: Setup, folder: Path) -> Path:
    """Return the cache of set-up.

    In the action's container the checkout is read-only, and the job's copy is elsewhere.
    """
    if setup.cache is None:
        return folder / "cache"
    return Path(place.environ.get(CACHE) or place.repository.resolve() / setup.cache)


def _seal(home: Home, place: Place, setup: Setup, checkout: Path, folder: Path) -> Seal:
    """Seal base, ready to be measured, and the engine.

    Code of the checkout on the engine's path is neither.
    """
    writes = (*setup.writes, *place.writes)
    base = base_grounds(tree=home.tree, venv=home.venv, engine=folder / ENGINE, writes=writes)
    return seal((*base, *engine_grounds(checkout)))


def _list_omitted(place: Place) -> tuple[Path, ...]:
    return (
        place.scratch.resolve(),
        place.logs.resolve(),
        *(path.resolve() for path in place.leave_out),
    )


def _workshop(place: Place, setup: Setup, trees: Trees, *, cache: Path, folder: Path) -> Workshop:
    layer = engine_layer(trees.checkout.top, engine_sites())
    if layer.own:
        names = ", ".join(path.name for path in layer.own)
        logger.info(
            "left out of both sides, since it would bring code of the checkout into them: %s", names
        )
    return Workshop(
        setup=setup,
        environ=place.environ,
        checkout=trees.checkout.top,
        prefix=trees.checkout.prefix,
        folder=folder,
        logs=place.logs.resolve(),
        cache=cache,
        layer=layer,
        observe=place.observe,
        users=place.users,
    )


def _make(folder: Path, what: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(
            f"{what}: {folder} cannot be made: {error.strerror}; choose another one"
        ) from error
