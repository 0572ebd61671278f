"""Scores explanations of injected slowdowns in small steps, made as the engine makes them.

Each side runs in a process that is forked for it (again for each plant), as a launch forks its
workers, under the code that explains there; the judge matches the two profiles. The table shows if
the first part of the change is on a planted line (or a graph break there), and how much of the
change is attributed, in all and to planted lines. For unchanged code it shows how often a part is
named that would be blamed if the code was judged slower.

``python -m benchmarks.cause_quality [--json FILE [--resume] [--at-most N]]`` prints the table of
docs/internals/measurements.md. The file keeps the profiles: ``--resume`` continues an earlier call,
and judges its items again.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.cause_plants import APART, FRESH, PLANTED, PLANTS, STEPS, Plant
from benchmarks.tables import publish, render
from ci_bench.judge.policy.causes import cause_of
from ci_bench.records.causes import Cause, CausePart
from ci_bench.records.profiles import Profile, RowKind
from ci_bench.suites.contract import Compiler, Context

ENOUGH = 0.8
"""Of the change, to be attributed."""
EVERY = (*PLANTS, *APART, *FRESH)
UNCHANGED = "unchanged"
"""The name of items that have the same step on both sides."""


class _Program:
    """A step from a file, as the suites' programs are."""

    items = None
    parts = ()

    def __init__(self, module: Any, compiler: Compiler) -> None:
        self.compiler = compiler
        self._run, self._inputs = module["run"], module["make"]()

    def step(self, _mark: object) -> None:
        """Call the step once."""
        self._run(*self._inputs)

    def finish(self) -> tuple[()]:
        """Return no checks."""
        return ()


class _Workload:
    """One arm, of the step in `step.py` here."""

    keeps_freed_memory = True

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    def open(self, _arm: str) -> _Program:
        """Run the file."""
        module: dict[str, Any] = {"__name__": "step"}
        path = Path("step.py").resolve()
        exec(compile(path.read_text(), str(path), "exec"), module)  # noqa: S102 - our own text
        return _Program(module, self._compiler)


def explained(source: str, *, compiled: bool, limit_s: float = 120.0) -> Profile:
    """Return the profile of a step, from a process of its own in a folder of its own."""
    context = get_context(
        "forkserver"
    )  # the caller may have run torch, whose threads a fork of it would wait for forever
    with tempfile.TemporaryDirectory() as folder:
        reader, writer = context.Pipe(duplex=False)
        child = context.Process(
            target=_explain, args=(source, compiled, Path(folder), limit_s, writer)
        )
        child.start()
        writer.close()
        try:
            answer: bytes = reader.recv_bytes()
        except EOFError as error:
            raise RuntimeError("the process that explains died") from error
        finally:
            child.join()
        return msgspec.json.decode(answer, type=Profile)


def _explain(source: str, compiled: bool, folder: Path, limit_s: float, writer: Any) -> None:  # noqa: FBT001 - of a process
    import torch

    from ci_bench.worker.profiling.arm import explain_arm

    tree = folder / "tree"
    tree.mkdir()
    os.chdir(tree)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
    torch.set_num_threads(1)
    Path("step.py").write_text(source)
    context = Context(device="cpu", scratch=folder, progress=lambda *_: None)
    workload: Any = _Workload(Compiler.DYNAMO if compiled else Compiler.NONE)
    (profile,) = explain_arm(workload, "arm", context=context, limit_s=limit_s).profiles
    writer.send_bytes(msgspec.json.encode(profile))


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """Both profiles of one plant, or of a step against itself; every figure is made from them."""

    name: str
    step: str
    base: Profile
    head: Profile


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Explanation of one plant, scored."""

    plant: str
    """The plant's name."""
    step: str
    """The name of the step that has it."""
    change: float
    """The relative change of the step's time in the profiles."""
    first: str
    """The part that the explanation names first, or "nothing"."""
    is_first: bool
    """True if that part is the plant."""
    attributed: float
    """The share of the change that the explanation attributes to anything."""
    to_planted: float
    """The share of the change that it attributes to planted lines."""


def answer_of(plant: Plant, cause: Cause) -> Answer:
    """Score an explanation: its first part, and the share of the change that it attributes.

    A planted graph break has no time of its own: naming the line of the break counts as first.
    """
    share = [part.share or 0.0 for part in cause.parts if is_planted(part, plant)]
    lines = {
        number for number, line in enumerate(plant.source().splitlines(), 1) if PLANTED in line
    }
    broken = any(
        graph_break.place.rpartition(":")[2] in map(str, lines) for graph_break in cause.new_breaks
    )
    first = cause.parts[0] if cause.parts else None
    base_s, head_s = cause.base_s or 0.0, cause.head_s or 0.0
    return Answer(
        plant=plant.name,
        step=plant.of,
        change=head_s / base_s - 1 if base_s else 0.0,
        first=", ".join((first.after or first.before)[:1]) if first else "nothing",
        is_first=broken or (first is not None and is_planted(first, plant)),
        attributed=cause.attributed or 0.0,
        to_planted=sum(share),
    )


def is_planted(part: CausePart, plant: Plant) -> bool:
    """Return whether a part is on a planted line.

    The own time of a function counts if the interpreter spends a planted line in it.
    """
    own_time = plant.interprets and part.kind is RowKind.PYTHON and part.after == ("run",)
    return own_time or any(PLANTED in code for code in part.codes)


def wanted(names: Sequence[str], repeats: int) -> list[tuple[str, str, str]]:
    """Return name, step and head's source of each item.

    These are all plants and each step against itself so many times, or only the named plants.
    """
    chosen = [
        (plant.name, plant.of, plant.source())
        for plant in EVERY
        if not names or plant.name in names
    ]
    if strangers := set(names) - {name for name, _, _ in chosen}:
        raise SystemExit(f"no plant is called {', '.join(map(repr, sorted(strangers)))}")
    again = range(0 if names else repeats)
    return [
        *chosen,
        *(
            (f"{UNCHANGED} {number}", step, source)
            for step, source in STEPS.items()
            for number in again
        ),
    ]


def left(items: Sequence[Item], names: Sequence[str], repeats: int) -> list[tuple[str, str, str]]:
    """Return the items that were not measured yet."""
    done = {(item.name, item.step) for item in items}
    return [entry for entry in wanted(names, repeats) if entry[:2] not in done]


def measure(name: str, step: str, source: str, turns: int) -> Item:
    """Explain each side in turns; keep of each the profile with the quickest step.

    A machine is busy in some of them only.
    """
    sides = [
        [explained(text, compiled=step == "compiled") for text in (STEPS[step], source)]
        for _ in range(turns)
    ]
    base, head = (
        min(profiles, key=lambda profile: profile.step_s or math.inf)
        for profiles in zip(*sides, strict=True)
    )
    return Item(name=name, step=step, base=base, head=head)


def earlier(path: Path | None) -> list[Item]:
    """Return the items that an interrupted benchmark has written."""
    if path is None or not path.exists():
        return []
    return msgspec.convert(msgspec.json.decode(path.read_bytes())["items"], list[Item])


def main() -> None:
    """Measure the missing items, write each immediately, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="names of plants")
    parser.add_argument(
        "--repeats", type=int, default=4, help="how often unchanged steps are explained"
    )
    parser.add_argument(
        "--turns",
        type=int,
        default=1,
        help="how often each side is explained; the quickest step counts",
    )
    parser.add_argument(
        "--at-most", type=int, help="measure no more than so many items in this call"
    )
    parser.add_argument(
        "--json", type=Path, help="write profiles and figures here, after every item"
    )
    parser.add_argument(
        "--resume", action="store_true", help="count what --json has, by today's judge"
    )
    flags = parser.parse_args()
    items = earlier(flags.json) if flags.resume else []
    waiting = left(items, flags.only, flags.repeats)[: flags.at_most]
    if waiting:
        import torch._dynamo.backends.common
        import torch._inductor.compile_fx  # noqa: F401 - so that forked processes have them
    for name, step, source in waiting:
        items.append(measure(name, step, source, flags.turns))
        sys.stderr.write(f"{name}: {_figures(items[-1])}\n")
        if flags.json:
            flags.json.write_text(json.dumps({"items": msgspec.to_builtins(items)}))
    publish(
        table(items),
        {"items": msgspec.to_builtins(items), "figures": list(map(_figures, items))},
        flags.json,
    )
    if rest := len(left(items, flags.only, flags.repeats)):
        sys.stderr.write(f"{rest} items are left; the same command with --resume goes on\n")


def _figures(item: Item) -> dict[str, object]:
    """Return an item's figures without its profiles."""
    plant = next((candidate for candidate in EVERY if candidate.name == item.name), None)
    if plant is not None:
        return dict(
            msgspec.to_builtins(answer_of(plant, cause_of(item.base, item.head, slower=True)))
        )
    cause = cause_of(item.base, item.head)
    moved = (cause.head_s or 0.0) / (cause.base_s or math.inf) - 1
    return {
        "step": item.step,
        "moved": moved,
        "named": [part.after for part in cause.parts if part.change_s > 0],
    }


def table(items: Sequence[Item]) -> str:
    """Render the plants, those apart, and the parts named for unchanged code."""
    causes = {
        item.name: cause_of(item.base, item.head, slower=True)
        for item in items
        if not item.name.startswith(UNCHANGED)
    }
    text = ""
    for title, plants in (
        ("What was planted, and what was named", PLANTS),
        ("Plants apart", APART),
        ("Plants that are fresh", FRESH),
    ):
        if answers := [
            answer_of(plant, causes[plant.name]) for plant in plants if plant.name in causes
        ]:
            first, enough = (
                sum(answer.is_first for answer in answers),
                sum(answer.attributed >= ENOUGH for answer in answers),
            )
            median = statistics.median([answer.attributed for answer in answers])
            text += render(title, [_row(answer) for answer in answers])
            text += (
                f"\nranked first: {first} of {len(answers)}; 80 % attributed or more: {enough},"
                f" median {median:.0%}\n\n"
            )
    unchanged = [
        cause_of(item.base, item.head) for item in items if item.name.startswith(UNCHANGED)
    ]
    if unchanged:
        moved = [abs((cause.head_s or 0) / (cause.base_s or 1) - 1) for cause in unchanged]
        blamed = sum(part.change_s > 0 for cause in unchanged for part in cause.parts)
        distance = (
            f"steps apart by {max(moved):.1%} at most, {statistics.median(moved):.1%} in the middle"
        )
        text += (
            f"unchanged, {len(unchanged)} pairs: {distance}; {blamed} parts longer by more than"
            " their noise\n"
        )
    return text


def _row(answer: Answer) -> dict[str, str]:
    return {
        "planted": answer.plant,
        "step": answer.step,
        "slower by": f"{answer.change:.0%}",
        "first": f"`{answer.first}`",
        "ranked first": "yes" if answer.is_first else "**no**",
        "attributed": f"{answer.attributed:.0%}",
        "to planted lines": f"{answer.to_planted:.0%}",
    }


if __name__ == "__main__":
    main()
