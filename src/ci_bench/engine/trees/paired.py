"""Prepares both sides of a paired run, and takes them away again.

Everything is made in one folder of the caller's, outside the checkout, which is left exactly as it is: removing that folder is
all the tidying there is, also of what a killed run left.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci_bench.engine.trees.checkout import open_checkout
from ci_bench.engine.trees.kept import FILE, Kept, kept_side, read, refuse_others, side_of, terms_of, write
from ci_bench.engine.trees.layers import engine_layer, engine_sites
from ci_bench.engine.trees.setup import Preparing, Workshop, home_of, set_up
from ci_bench.engine.trees.sides import Side
from ci_bench.engine.trees.worktrees import STORE, Trees, Wanted, make_trees, remove
from ci_bench.errors import CannotWrite
from ci_bench.records.case import SideName
from ci_bench.records.config import Setup

logger = logging.getLogger(__name__)

FOLDER = "paired"


def quiet(_: Preparing) -> None:
    """For callers without a display."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """What preparing sides needs from outside.

    `repository` is a folder in the user's checkout; its workers' folder is the same one in each tree. `environ` is the caller's
    environment, as it is: what is secret in it goes no further. `scratch` is a private folder for trees and environments, `logs`
    is where the output of set-up commands is kept. `leave_out` are files and folders of the checkout that are no part of head,
    such as our own output.
    """

    repository: Path
    environ: Mapping[str, str]
    scratch: Path
    logs: Path
    leave_out: tuple[Path, ...] = ()
    observe: Callable[[Preparing], None] = quiet


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Both sides; base's `source` says how its commit was chosen."""

    base: Side
    head: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        """Base and head, in this order."""
        return self.base, self.head


@contextmanager
def paired_sides(place: Place, *, base: str | None, setup: Setup) -> Iterator[Pair]:
    """Prepare both sides for the block, and remove them with its end, whatever ends it.

    `base` is the commit to compare with; `None` chooses it (see `bases.choose_base`). A side whose set-up fails is in the pair,
    with its `failure`; the other one is prepared all the same.

    Raises:
        BadCheckout: there is no checkout, or it cannot be measured as it is.
        NoBase: the base cannot be told, or is not in this clone.
        CannotWrite: the folder for logs or for the cache cannot be made.
        GitFailed: git is missing, or failed at something that should work.
    """
    try:
        yield prepare_sides(place, base=base, setup=setup)
    finally:
        remove(place.scratch / FOLDER)


def prepare_sides(place: Place, *, base: str | None, setup: Setup) -> Pair:
    """Prepare both sides in `place.scratch` and leave them there, unless that is interrupted.

    Raises what `paired_sides` raises, and `CannotWrite` where the place is taken by something that is not ours.
    """
    folder = place.scratch.resolve() / FOLDER
    if folder.exists() and not any((folder / name).exists() for name in (FILE, STORE)):
        raise CannotWrite(f"{folder} holds something else; choose another folder to prepare both sides in")
    remove(folder)
    try:
        return _prepare(place, folder, base=base, setup=setup)
    except BaseException:
        remove(folder)
        raise


def reopen_sides(place: Place, *, base: str | None, setup: Setup) -> Pair:
    """The sides that `prepare_sides` left in `place.scratch`, for a process that only measures: one without the network, say.

    Everything has to lie at the same paths as then; workers see what of `place.environ` they may. Nothing is written there.

    Raises:
        NotPrepared: nothing was prepared, or for another base, set-up, engine or checkout, or the checkout has changed since.
    """
    folder = place.scratch.resolve() / FOLDER
    kept = read(folder)
    checkout = open_checkout(place.repository, place.environ)
    refuse_others(folder, kept, terms_of(base, setup), checkout, _own(place))
    base_side, head_side = (side_of(side, place.environ, checkout=checkout.top, folder=folder) for side in kept.sides)
    return Pair(base=base_side, head=head_side)


def _prepare(place: Place, folder: Path, *, base: str | None, setup: Setup) -> Pair:
    cache = folder / "cache" if setup.cache is None else place.repository.resolve() / setup.cache
    own = (*_own(place), *((cache,) if setup.cache else ()))
    wanted = Wanted(repository=place.repository, base=base, setup=setup, environ=place.environ, leave_out=own)
    trees = make_trees(wanted, folder)
    if setup.commands:
        _make(cache, "setup.cache")
        _make(place.logs, "the folder for the logs of set-up")
    for log in (path for name in SideName for path in place.logs.glob(f"{name}-[0-9]*.log")):
        log.unlink()
    shop = _workshop(place, setup, trees, cache=cache, folder=folder)
    made = [(set_up(tree, trees.store.git, shop), home_of(tree, shop)) for tree in (trees.base, trees.head)]
    kept_base, kept_head = (kept_side(*one) for one in made)
    kept = Kept(
        terms=terms_of(base, setup), checkout=str(shop.checkout), snapshot=trees.head.commit, sides=(kept_base, kept_head)
    )
    write(kept, folder)
    return Pair(base=made[0][0], head=made[1][0])


def _own(place: Place) -> tuple[Path, ...]:
    return place.scratch.resolve(), place.logs.resolve(), *(path.resolve() for path in place.leave_out)


def _workshop(place: Place, setup: Setup, trees: Trees, *, cache: Path, folder: Path) -> Workshop:
    layer = engine_layer(trees.checkout.top, engine_sites())
    if layer.own:
        names = ", ".join(path.name for path in layer.own)
        logger.info("left out of both sides, since it would bring code of the checkout into them: %s", names)
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
    )


def _make(folder: Path, what: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"{what}: {folder} cannot be made: {error.strerror}; choose another one") from error
