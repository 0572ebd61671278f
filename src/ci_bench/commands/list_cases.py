"""`ci-bench list`: print the cases of a gate, or the declaration that they need."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ci_bench.command_line.settings import Listing
from ci_bench.commands.output import say, tell
from ci_bench.commands.own_suites import load_with_suites
from ci_bench.errors import BadDocument, BadInput, ExitCode
from ci_bench.judge.wording import duration
from ci_bench.records import documents
from ci_bench.records.config import Config
from ci_bench.records.documents import Kind, schema
from ci_bench.records.results import Case, SideName, Status
from ci_bench.runner import planning
from ci_bench.starting.proposal import MINUTES_A_CASE
from ci_bench.suites.contract import Suite
from ci_bench.suites.registry import BUILT_IN, plans_from_tree

KINDS = {
    "command": "a command or training script",
    "fastrnns": "a recurrent network or ResNet",
    "functions": "a function",
    "torchbench": "a step of a model",
    "training_loss": "a training and its losses",
    "transformers": "a transformer",
}
"""Built-in suites, as a newcomer would describe their cases."""
_PLAIN = re.compile(r"(?:\./)?[A-Za-z_][A-Za-z0-9_./+-]*")
"""Text that needs no quotes in YAML, unless it is one of its words."""
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def list_cases(settings: Listing) -> int:
    """Print the cases of a gate, or the declaration that they need."""
    config, find = load_with_suites(settings)
    if settings.declare:
        return _declare(settings, config, find)
    plan = planning.plan(config, settings.filter, find, tell)
    took_s = _earlier_seconds(settings.output)
    for _, case in plan:
        say(f"{case.id}\n    {'; '.join(_described(case, took_s.get(case.id)))}\n")
    counted = "1 case" if len(plan) == 1 else f"{len(plan):,} cases"
    say(
        f"{counted} on device {config.run.device}."
        f" {_expected([took_s.get(case.id) for _, case in plan])}\n"
    )
    return int(ExitCode.OK)


def _described(case: Case, took_s: float | None) -> Iterator[str]:
    """Yield the kind of a case, its time in the previous run, and its arms if there are several."""
    yield KINDS.get(case.suite, "a plugin's case")
    if took_s is not None:
        yield f"about {duration(took_s)}"
    if len(case.arms) > 1:
        arms = (f"{arm} (reference)" if arm == case.reference else arm for arm in case.arms)
        yield f"arms: {', '.join(arms)}"


def _expected(took_s: Sequence[float | None]) -> str:
    """Estimate a gate's time: as in the previous run, or by a rule of thumb if a case is new."""
    earlier_s = [seconds for seconds in took_s if seconds is not None]
    if earlier_s and len(earlier_s) == len(took_s):
        return f"A gate takes about {duration(sum(earlier_s))}, as the previous run did."
    return (
        f"A gate takes about {MINUTES_A_CASE} min for each on two CPU cores; a training script"
        " takes ten runs or more."
    )


def _earlier_seconds(folder: Path) -> dict[str, float]:
    """Return the seconds of each passed case in the previous run: base plus head of a gate."""
    seconds: dict[str, float] = {}
    for side in SideName:
        with suppress(BadDocument):
            for row in documents.read_results(documents.place(folder, side)).cases:
                if row.status is Status.OK and row.duration_s:
                    seconds[row.case.id] = seconds.get(row.case.id, 0.0) + row.duration_s
    return seconds


def _declare(settings: Listing, config: Config, find: Callable[[str], Suite]) -> int:
    """Print the whole parts of the configuration that declare cases, with the plan of this tree."""
    if settings.filter:
        raise BadInput("--declare covers all cases; omit --filter")
    parts = declared_parts(config, find)
    if parts:
        say(_block(parts))
        tell("copy these parts into the configuration; each replaces the part with its name")
    else:
        tell("nothing has to be declared: the configuration defines all cases")
    return int(ExitCode.OK)


def declared_parts(config: Config, find: Callable[[str], Suite]) -> dict[str, Any]:
    """Return `plugins`, and the lists under `suites` whose plan reads files of the tree.

    Their entries contain the planned cases: as a number if a number is declared, or if there are
    more ids than allowed.
    """
    most = schema(Kind.CONFIG)["$defs"]["declared_cases"]["then"]["maxItems"]
    planned: dict[str, list[str] | int] = {}
    for declared, cases in planning.plan_declared(config, find):
        ids = [case.id for _, case in cases]
        planned[declared.field] = (
            len(ids) if isinstance(declared.cases, int) or len(ids) > most else ids
        )
    plugins = {
        name: {field: value for field, value in asdict(plugin).items() if value}
        for name, plugin in config.plugins.items()
    }
    suites: dict[str, list[dict[str, Any]]] = {}
    for entry, declared in zip(config.entries, planning.declarations(config), strict=True):
        declaration = {"cases": planned[declared.field]}
        if entry.suite not in BUILT_IN:
            plugins[entry.suite] = {**plugins.get(entry.suite, {}), **declaration}
        else:
            needed = entry.cases is not None or plans_from_tree(entry.suite, entry.options)
            suites.setdefault(entry.suite, []).append(
                {**entry.options, **(declaration if needed else {})}
            )
    lists = {
        name: entries
        for name, entries in suites.items()
        if any("cases" in entry for entry in entries)
    }
    return {name: part for name, part in (("plugins", plugins), ("suites", lists)) if part}


def _block(value: Any, indent: str = "") -> str:
    """Render mappings and lists as blocks of YAML, with a line for each value."""
    if isinstance(value, dict) and value:
        return "".join(
            f"{indent}{_word(name)}:{_inside(inner, indent)}" for name, inner in value.items()
        )
    if isinstance(value, list | tuple) and value:
        return "".join(f"{indent}- {_block(inner, f'{indent}  ').lstrip()}" for inner in value)
    return f"{indent}{_word(value)}\n"


def _inside(value: Any, indent: str) -> str:
    return (
        f"\n{_block(value, f'{indent}  ')}"
        if isinstance(value, dict | list | tuple) and value
        else f" {_word(value)}\n"
    )


def _word(value: Any) -> str:
    """Render a scalar as JSON, which is YAML too, or as bare text if that is unambiguous."""
    is_bare = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return value if is_bare else json.dumps(value, ensure_ascii=False)
