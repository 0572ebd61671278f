"""Prepares both sides of a paired run, and takes them away again.

Everything is made in one folder of the caller's, outside the checkout, which is left exactly as it is: removing that folder is
all the tidying there is, also of what a killed run left.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci_bench.engine.trees.kept import keep, recall
from ci_bench.engine.trees.layers import engine_layer, engine_sites
from ci_bench.engine.trees.setup import Preparing, Workshop, home_of, set_up
from ci_bench.engine.trees.sides import Side
from ci_bench.engine.trees.worktrees import Trees, Wanted, make_trees, remove
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
    """Both sides, and the rule by which the base commit was chosen, in words."""

    base: Side
    head: Side
    rule: str

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
    """Prepare both sides in `place.scratch` and leave them there. Raises what `paired_sides` raises."""
    folder = place.scratch.resolve() / FOLDER
    remove(folder)
    cache = folder / "cache" if setup.cache is None else place.repository.resolve() / setup.cache
    own = (place.scratch, place.logs, *((cache,) if setup.cache else ()), *place.leave_out)
    wanted = Wanted(repository=place.repository, base=base, setup=setup, environ=place.environ, leave_out=own)
    trees = make_trees(wanted, folder)
    logger.info("base is %s, commit %s", trees.rule, trees.base.source.commit)
    if setup.commands:
        _make(cache, "setup.cache")
        _make(place.logs, "the folder for the logs of set-up")
    for log in (path for name in SideName for path in place.logs.glob(f"{name}-[0-9]*.log")):
        log.unlink()
    shop = _workshop(place, setup, trees, cache=cache, folder=folder)
    base_side, head_side = (set_up(tree, trees.store.git, shop) for tree in (trees.base, trees.head))
    pair = Pair(base=base_side, head=head_side, rule=trees.rule)
    homes = {tree.name: home_of(tree, shop) for tree in (trees.base, trees.head)}
    keep(folder, pair.sides, homes, checkout=shop.checkout, rule=pair.rule)
    return pair


def reopen_sides(scratch: Path, environ: Mapping[str, str]) -> Pair:
    """The sides that `prepare_sides` left in `scratch`, for a process that only measures: one without the network, say.

    Everything has to lie at the same paths as then; workers see what of `environ` they may. Raises `BadDocument` where nothing
    was prepared.
    """
    base, head, rule = recall(scratch.resolve() / FOLDER, environ)
    return Pair(base=base, head=head, rule=rule)


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
