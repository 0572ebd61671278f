"""Both sides of a paired run: made and removed around measuring, or made by `setup` and measured by another process.

`setup` serves measuring without a network: it runs with one, and `gate --prepared` without. Neither
needs a token, and neither hands one on.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.command_line.flags import DEFAULT_OUTPUT
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.config_files import config_path
from ci_bench.commands.inputs import base_config, benchmark_paths, load, plugins_of
from ci_bench.commands.output import tell
from ci_bench.errors import ExitCode, OutOfReach

if TYPE_CHECKING:
    from ci_bench.checkouts.paired import Pair, Place
    from ci_bench.checkouts.sides import Side
    from ci_bench.commands.bench import Bench
    from ci_bench.records.config import Config
    from ci_bench.records.results import Case
    from ci_bench.runner.base_plan import BasePlan


def setup(settings: Measuring) -> int:
    """Make both sides ready, and leave them for `gate --prepared`. A side that cannot be made ready is the gate's to report.

    If neither side can be prepared, there is nothing to measure: the gate can only report that, and
    this ends as measuring would. For a lease it ends with its parent: the next lease would make the
    same sides.
    """
    from ci_bench.checkouts.paired import prepare_sides
    from ci_bench.fleet.local import STARTER
    from ci_bench.processes.descendants import ending_with

    assert settings.prepared is not None  # noqa: S101 - the flag is required
    config = load(settings)
    starter = settings.environ.get(STARTER)
    with ending_with(starter) if starter else nullcontext():
        pair = prepare_sides(_place(settings, settings.prepared), base=settings.base or config.base, setup=config.setup)
    _tell(pair)
    if all(side.failure is not None for side in pair.sides):
        tell(f"set-up failed on both sides: see the logs in {settings.output / 'setup'}, fix it and run it again")
        return int(ExitCode.MEASURING_FAILED)
    tell(f"prepared in {settings.prepared}; measure with: {shlex.join(['ci-bench', *_measuring(settings)])}")
    return int(ExitCode.OK)


def _measuring(settings: Measuring) -> list[str]:
    """The gate's flags for what was set up here: it refuses sides that were made of something else."""
    given = {"--config": settings.config, "--base": settings.base, "--prepared": settings.prepared}
    given |= {"--output": settings.output} if settings.output != DEFAULT_OUTPUT else {}
    return ["gate", *(part for flag, value in given.items() if value is not None for part in (flag, str(value)))]


@contextmanager
def open_sides(config: "Config", settings: Measuring, cases: "Sequence[Case]") -> "Iterator[Pair]":
    """Both sides, ready to be measured: those that were prepared, or new ones, which are removed in the end.

    Base's processes may change the paths in its tree that `cases` write to by their own options.
    """
    from ci_bench.checkouts.paired import paired_sides, reopen_sides
    from ci_bench.processes.launch import make_folder

    base = settings.base or config.base
    if settings.prepared is not None:
        pair = reopen_sides(_place(settings, settings.prepared, _outputs(cases)), base=base, setup=config.setup)
        _tell(pair)
        yield pair
        return
    with make_folder() as scratch:
        place = _place(settings, Path(scratch), _outputs(cases))
        with paired_sides(place, base=base, setup=config.setup) as pair:
            _tell(pair)
            yield pair


def with_policy_of_base(config: "Config", settings: Measuring, sides: "Sequence[Side]") -> "Config":
    """The configuration with base's policy, where base's tree has one: head does not say what fails it, by hand neither.

    A file outside of the checkout is for both sides, and so is what nodes get that make the sides themselves.
    """
    from ci_bench.checkouts.bases import SHORT
    from ci_bench.records.results import SideName

    (base,) = (side for side in sides if side.name is SideName.BASE)
    if base.folder is None or base.failure is not None:
        return config
    policy = base_config(settings, config, base.folder).policy
    if policy == config.policy:
        return config
    commit = (base.source.commit or "")[:SHORT]
    tell(f"base's policy is used (commit {commit}): this tree's is different, and counts once it is on the base branch")
    return replace(config, policy=policy)


def plan_base_of(bench: "Bench", settings: Measuring, sides: "Sequence[Side]") -> "BasePlan | None":
    """Return the plan of base's own tree and configuration; `None` if base cannot be prepared.

    If nodes make the sides themselves, base's tree is checked out here, and planned by the nodes'
    configuration.
    """
    from ci_bench.checkouts.worktrees import Wanted, make_trees
    from ci_bench.configuration.plugins import caller_tree, side_tree
    from ci_bench.processes.launch import make_folder
    from ci_bench.records.results import SideName
    from ci_bench.runner.base_plan import plan_base

    (base,) = (side for side in sides if side.name is SideName.BASE)
    if base.failure is not None:
        return None
    if base.folder is not None:
        return plan_base(
            side_tree(base),
            base_config(settings, bench.config, base.folder),
            bench.plan,
            filters=settings.filter,
            reproduce=bench.again,
        )
    config = bench.config
    wanted = Wanted(
        repository=settings.here,
        base=base.source.commit,
        setup=config.setup,
        environ=settings.environ,
        leave_out=(settings.output,),
    )
    with make_folder() as scratch:
        trees = make_trees(wanted, Path(scratch) / "trees")
        folder = trees.base.folder / trees.checkout.prefix
        if trees.base.failure is not None or not folder.is_dir():
            return None
        tree = caller_tree(folder, settings.environ)
        return plan_base(tree, bench.config, bench.plan, filters=settings.filter, reproduce=bench.again)


@contextmanager
def planning_sealed(settings: Measuring) -> "Iterator[None]":
    """Restrict planning that runs the tree's code.

    It must not change the engine, or sides made before.

    Raises:
        OutOfReach: it changed something of that.
        NotPrepared: nothing was prepared.
    """
    from ci_bench.checkouts.paired import seal_prepared
    from ci_bench.checkouts.seals import engine_grounds, seal

    if not plans_by_the_tree(settings):
        yield
        return
    here, prepared = settings.here, settings.prepared
    sealed = seal(engine_grounds(here)) if prepared is None else seal_prepared(prepared, here)
    yield
    if breaks := sealed.breaks():
        message = f"while the tree's own suites were planned, {'; '.join(breaks)}"
        raise OutOfReach(message)


def plans_by_the_tree(settings: Measuring) -> bool:
    """Return whether planning runs code of the tree."""
    return bool(plugins_of(settings)) or _imports_benchmarks(settings)


def _imports_benchmarks(settings: Measuring) -> bool:
    """Return whether a file of benchmarks has to be imported to be planned."""
    from ci_bench.configuration.config import function_entries
    from ci_bench.suites.functions.plan import must_be_imported

    entries = function_entries(config_path(settings), benchmark_paths(settings))
    return any(must_be_imported(settings.here, entry) for entry in entries)


def _outputs(cases: "Sequence[Case]") -> tuple[str, ...]:
    """The files in a tree that commands write their results to, as globs."""
    from ci_bench.suites.command.options import STDOUT

    named = (case.params.get("output") for case in cases if case.suite == "command")
    return tuple(str(output) for output in named if output and output != STDOUT)


def _place(settings: Measuring, scratch: Path, writes: tuple[str, ...] = ()) -> "Place":
    from ci_bench.checkouts.paired import Place
    from ci_bench.processes.users import users_of

    return Place(
        repository=settings.here,
        environ=settings.environ,
        scratch=scratch,
        logs=settings.output / "setup",
        leave_out=(settings.output,),
        writes=writes,
        users=users_of(settings.environ),
        observe=lambda now: tell(f"{now.side}: set-up {now.done + 1} of {now.total}: {now.command}"),
    )


def _tell(pair: "Pair") -> None:
    source = pair.base.source
    tell(f"base is {source.chosen_by}, commit {source.commit}")
    for side in pair.sides:
        if side.failure is not None:
            tell(f"{side.name} cannot be measured: {side.failure}")
