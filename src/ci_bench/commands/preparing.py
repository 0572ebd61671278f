"""Both sides of a paired run: made and removed around measuring, or made by `setup` and measured by another process.

`setup` is for where measuring has no network: it runs where there is one, and `gate --prepared` where there is none. Neither
needs a token, and neither hands one on.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.commands.inputs import load
from ci_bench.commands.output import tell
from ci_bench.errors import ExitCode

if TYPE_CHECKING:
    from ci_bench.engine.trees.paired import Pair, Place
    from ci_bench.engine.trees.sides import Side
    from ci_bench.records.config import Config


def setup(arguments: argparse.Namespace) -> int:
    """Make both sides ready, and leave them for `gate --prepared`. A side that cannot be made ready is the gate's to report."""
    from ci_bench.engine.trees.paired import prepare_sides

    config = load(arguments)
    _tell(prepare_sides(_place(arguments, arguments.prepared), base=arguments.base or config.base, setup=config.setup))
    tell(f"prepared in {arguments.prepared}; measure with: ci-bench gate --prepared {arguments.prepared}")
    return int(ExitCode.OK)


@contextmanager
def open_sides(config: "Config", arguments: argparse.Namespace) -> "Iterator[Sequence[Side]]":
    """Both sides, ready to be measured: those that were prepared, or new ones, which are removed in the end."""
    from ci_bench.engine.process.launch import make_folder
    from ci_bench.engine.trees.paired import paired_sides, reopen_sides

    base = arguments.base or config.base
    if arguments.prepared is not None:
        pair = reopen_sides(_place(arguments, arguments.prepared), base=base, setup=config.setup)
        _tell(pair)
        yield pair.sides
        return
    with make_folder() as scratch, paired_sides(_place(arguments, Path(scratch)), base=base, setup=config.setup) as pair:
        _tell(pair)
        yield pair.sides


def _place(arguments: argparse.Namespace, scratch: Path) -> "Place":
    from ci_bench.engine.trees.paired import Place

    return Place(
        repository=Path.cwd(),
        environ=os.environ,
        scratch=scratch,
        logs=arguments.output / "setup",
        leave_out=(arguments.output,),
        observe=lambda now: tell(f"{now.side}: set-up {now.done + 1} of {now.total}: {now.command}"),
    )


def _tell(pair: "Pair") -> None:
    source = pair.base.source
    tell(f"base is {source.chosen_by}, commit {source.commit}")
    for side in pair.sides:
        if side.failure is not None:
            tell(f"{side.name} cannot be measured: {side.failure}")
