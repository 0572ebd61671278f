"""Both sides of a paired run: prepared around measuring, or by `setup` for another process.

`setup` serves measuring without a network: it runs with one, and `gate --prepared` without. Neither
needs a token, and neither hands one on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ci_bench.checkouts.bases import SHORT
from ci_bench.checkouts.paired import Place, SidePair, paired_sides, reopen_sides, seal_prepared
from ci_bench.checkouts.seals import engine_grounds, seal
from ci_bench.checkouts.sides import Side
from ci_bench.checkouts.worktrees import WantedTrees, make_trees
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.config_files import config_path
from ci_bench.commands.loading import benchmark_paths, plugins_of
from ci_bench.commands.measuring import Measurement
from ci_bench.commands.output import tell
from ci_bench.commands.own_suites import base_config
from ci_bench.configuration.config import function_entries
from ci_bench.configuration.plugins import caller_tree, side_tree
from ci_bench.errors import OutOfReach
from ci_bench.processes.launch import make_folder
from ci_bench.processes.users import users_of
from ci_bench.records.config import Config
from ci_bench.records.results import Case, SideName
from ci_bench.runner.base_plan import BasePlan, plan_base
from ci_bench.suites.command.options import STDOUT
from ci_bench.suites.functions.plan import must_be_imported


@contextmanager
def open_sides(config: Config, settings: Measuring, cases: Sequence[Case]) -> Iterator[SidePair]:
    """Open both sides for measuring: the prepared ones, or new ones, which are removed in the end.

    Base's processes may change the paths in its tree that `cases` write to by their own options.
    """
    base = settings.base or config.base
    if settings.prepared is not None:
        pair = reopen_sides(
            place_of(settings, settings.prepared, _outputs(cases)), base=base, setup=config.setup
        )
        tell_sides(pair)
        yield pair
        return
    with make_folder() as scratch:
        place = place_of(settings, Path(scratch), _outputs(cases))
        with paired_sides(place, base=base, setup=config.setup) as pair:
            tell_sides(pair)
            yield pair


def with_policy_of_base(config: Config, settings: Measuring, sides: Sequence[Side]) -> Config:
    """Return the configuration with base's policy, if base's tree has one.

    Head must not decide what fails it, also in a gate by hand. A configuration outside of the
    checkout is for both sides, and so is the one of nodes that prepare the sides themselves.
    """
    (base,) = (side for side in sides if side.name is SideName.BASE)
    if base.folder is None or base.failure is not None:
        return config
    policy = base_config(settings, config, base.folder).policy
    if policy == config.policy:
        return config
    commit = (base.source.commit or "")[:SHORT]
    tell(
        f"base's policy is used (commit {commit}): this tree's is different, and counts once it is"
        " on the base branch"
    )
    return replace(config, policy=policy)


def planned_with_base(
    measurement: Measurement, settings: Measuring, sides: Sequence[Side]
) -> Measurement:
    """Return the measurement with the plan of base's own tree, and with base's policy."""
    base_plan = plan_base_of(measurement, settings, sides)
    return replace(
        measurement,
        base_plan=base_plan,
        config=with_policy_of_base(measurement.config, settings, sides),
    )


def plan_base_of(
    measurement: Measurement, settings: Measuring, sides: Sequence[Side]
) -> BasePlan | None:
    """Return the plan of base's own tree and configuration; `None` if base cannot be prepared.

    If nodes make the sides themselves, base's tree is checked out here, and planned by the nodes'
    configuration.
    """
    (base,) = (side for side in sides if side.name is SideName.BASE)
    if base.failure is not None:
        return None
    if base.folder is not None:
        return plan_base(
            side_tree(base),
            base_config(settings, measurement.config, base.folder),
            measurement.plan,
            filters=settings.filter,
            reproduce=measurement.again,
        )
    config = measurement.config
    request = WantedTrees(
        repository=settings.here,
        base=base.source.commit,
        setup=config.setup,
        environ=settings.environ,
        leave_out=(settings.output,),
    )
    with make_folder() as scratch:
        trees = make_trees(request, Path(scratch) / "trees")
        folder = trees.base.folder / trees.checkout.prefix
        if trees.base.failure is not None or not folder.is_dir():
            return None
        tree = caller_tree(folder, settings.environ)
        return plan_base(
            tree,
            measurement.config,
            measurement.plan,
            filters=settings.filter,
            reproduce=measurement.again,
        )


@contextmanager
def planning_sealed(settings: Measuring) -> Iterator[None]:
    """Check that planning by the tree's code leaves the engine and prepared sides unchanged.

    Raises:
        OutOfReach: it changed one of them.
        NotPrepared: nothing was prepared.
    """
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
    """Return whether planning has to import a file of benchmarks."""
    entries = function_entries(config_path(settings), benchmark_paths(settings))
    return any(must_be_imported(settings.here, entry) for entry in entries)


def _outputs(cases: Sequence[Case]) -> tuple[str, ...]:
    """Return the files in a tree that commands write their results to, as globs."""
    outputs = (case.params.get("output") for case in cases if case.suite == "command")
    return tuple(str(output) for output in outputs if output and output != STDOUT)


def place_of(settings: Measuring, scratch: Path, writes: tuple[str, ...] = ()) -> Place:
    """Return the place of a run's sides, with the folder `scratch` for them."""
    return Place(
        repository=settings.here,
        environ=settings.environ,
        scratch=scratch,
        logs=settings.output / "setup",
        leave_out=(settings.output,),
        writes=writes,
        users=users_of(settings.environ),
        observe=lambda now: tell(
            f"{now.side}: set-up {now.done + 1} of {now.total}: {now.command}"
        ),
    )


def tell_sides(pair: SidePair) -> None:
    """Print the chosen base, and why a side cannot be measured."""
    source = pair.base.source
    tell(f"base is {source.chosen_by}, commit {source.commit}")
    for side in pair.sides:
        if side.failure is not None:
            tell(f"{side.name} cannot be measured: {side.failure}")
