"""Measures two commits of this repository against each other, in turns: for `bisect` and `history check`.

The later commit is checked out beside, in a store that borrows the repository's objects, and the usual pair is made from there.
So the user's checkout is never touched, and a killed run leaves nothing in it.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.commands.bench import Bench
from ci_bench.commands.inputs import load_with_suites, noise_folder
from ci_bench.commands.output import tell
from ci_bench.errors import NoBase

if TYPE_CHECKING:
    from ci_bench.engine.trees.git import Git
    from ci_bench.engine.trees.sides import Side
    from ci_bench.noise_floor import NoiseFolder
    from ci_bench.records.comparison import Comparison
    from ci_bench.records.config import Config
    from ci_bench.suites.base import Suite

_SHORT = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Unbuilt:
    """A commit that could not be measured, and why."""

    commit: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Laboratory:
    """What comparing commits takes: the configuration, which counts for all of them, and where documents go."""

    config: "Config"
    find: "Callable[[str], Suite]"
    noise: "NoiseFolder"
    output: Path
    reproduce: str

    def compare(self, base: str, head: str, filters: Sequence[str]) -> "Comparison | Unbuilt":
        """Measure `head` against `base` in turns, until the verdict is settled. Raises `CiBenchError`."""
        from ci_bench import pipeline, planning
        from ci_bench.records.case import SideName, Status
        from ci_bench.records.comparison import BaselineMode

        output = self.output / f"{base[:_SHORT]}-{head[:_SHORT]}"
        plan = planning.plan(self.config, filters, self.find)
        bench = Bench(config=self.config, plan=plan, output=output, reproduce=self.reproduce)
        with self._sides(base, head, output) as sides:
            broken = next((side for side in sides if side.failure is not None), None)
            if broken is not None:
                return Unbuilt(commit=str(broken.source.commit), reason=str(broken.failure))
            results = bench.measure(sides, noise=self.noise)
        for name, commit in ((SideName.HEAD, head), (SideName.BASE, base)):
            failed = next((row for row in results[name].cases if row.status is not Status.OK and row.failure), None)
            if failed is not None and failed.failure is not None:
                return Unbuilt(commit=commit, reason=f"{failed.case.id}: {failed.failure.reason}")
        measured = results[SideName.HEAD]
        return pipeline.judge(
            measured,
            pipeline.Baseline(mode=BaselineMode.PAIRED, results=results[SideName.BASE]),
            policy=self.config.policy,
            folder=output,
            calibration=self.noise.find(measured.environment.identity),
            rule=pipeline.rule_of(self.config.run),
        )

    @contextmanager
    def _sides(self, base: str, head: str, output: Path) -> "Iterator[Sequence[Side]]":
        from ci_bench.engine.process.launch import make_folder
        from ci_bench.engine.trees.checkout import borrow, open_checkout
        from ci_bench.engine.trees.paired import Place, paired_sides

        checkout = open_checkout(Path.cwd(), os.environ)
        setup = self.config.setup
        if setup.cache is not None:
            setup = replace(setup, cache=str((Path.cwd() / setup.cache).resolve()))
        with make_folder() as made:
            scratch = Path(made).resolve()
            folder = scratch / "head" / (checkout.top.name or "tree")
            folder.mkdir(parents=True)
            borrow(checkout, scratch / "store").add_worktree(head, folder)
            repository = folder / checkout.prefix
            if not repository.is_dir():
                raise NoBase(f"{head[:_SHORT]} has no folder {checkout.prefix}; run this command at the top of the repository")
            place = Place(
                repository=repository,
                environ=os.environ,
                scratch=scratch / "sides",
                logs=output / "setup",
                observe=lambda now: tell(f"{now.side}: set-up {now.done + 1} of {now.total}: {now.command}"),
            )
            place.scratch.mkdir()
            with paired_sides(place, base=base, setup=setup) as pair:
                yield pair.sides


def laboratory(arguments: argparse.Namespace, command: str) -> Laboratory:
    """From flags to what comparing takes; `command` is how the user measures again. Raises `BadConfig`."""
    config, find = load_with_suites(arguments)
    return Laboratory(config=config, find=find, noise=noise_folder(arguments), output=arguments.output, reproduce=command)


def git_here() -> "Git":
    """git, in the repository of this folder. Raises `BadCheckout`."""
    from ci_bench.engine.trees.checkout import open_checkout

    return open_checkout(Path.cwd(), os.environ).git


def commit_of(git: "Git", name: str) -> str:
    """The commit that a name stands for. Raises `NoBase`."""
    found = git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found is None:
        raise NoBase(f"{name!r} is no commit, branch or tag of this clone")
    return found
