"""Which models of a source an entry is about: by name, by pattern, by share. No torch here.

Shares are balanced by how long models took in an earlier run: the longest first, each to the share that has least. Where
nothing is known, a model counts as the median of the known ones.
"""

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.records.documents import read_results
from ci_bench.records.faults import nearest

WHERE = "suites.torchbench"


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What of a source is wanted.

    `models` and `exclude_exact` are exact names (empty: all, none), `filter` and `exclude` regular expressions, searched without
    regard to case; `partition` counts from 0.
    """

    models: tuple[str, ...] = ()
    filter: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclude_exact: tuple[str, ...] = ()
    partitions: int = 1
    partition: int = 0
    durations: str | None = None


def selection_from(entry: Mapping[str, Any]) -> Selection:
    """The selection of an entry of the configuration."""
    lists: dict[str, Any] = {name: tuple(entry.get(name, ())) for name in ("models", "filter", "exclude", "exclude_exact")}
    rest: dict[str, Any] = {name: entry[name] for name in ("partitions", "partition", "durations") if name in entry}
    return Selection(**lists, **rest)


def select(known: Sequence[str], wanted: Selection) -> tuple[str, ...]:
    """The chosen names in the source's order.

    Raises:
        BadConfig: a name or pattern is wrong, or nothing is left: an empty share would pass unseen.
    """
    _check_names(known, wanted)
    chosen = [name for name in known if not wanted.models or name in wanted.models]
    chosen = [name for name in chosen if not wanted.filter or any(_search("filter", one, name) for one in wanted.filter)]
    chosen = [name for name in chosen if not any(_search("exclude", one, name) for one in wanted.exclude)]
    chosen = [name for name in chosen if name not in wanted.exclude_exact]
    if not chosen:
        raise BadConfig(f"{WHERE}: none of {len(known)} models is chosen by models, filter and exclude; correct them")
    return _share(tuple(chosen), wanted)


def _check_names(known: Sequence[str], wanted: Selection) -> None:
    for field, names in (("models", wanted.models), ("exclude_exact", wanted.exclude_exact)):
        for name in names:
            if name not in known:
                raise BadConfig(f"{WHERE}.{field}: there is no model {name!r} among {len(known)}{nearest(name, known)}")


def _search(field: str, pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name, re.IGNORECASE) is not None
    except re.error as error:
        raise BadConfig(f"{WHERE}.{field}: {pattern!r} is no regular expression: {error}") from error


def _share(names: tuple[str, ...], wanted: Selection) -> tuple[str, ...]:
    if not 0 <= wanted.partition < wanted.partitions:
        last = wanted.partitions - 1
        raise BadConfig(
            f"{WHERE}.partition: {wanted.partition} is not in 0..{last}, and there are {wanted.partitions} partitions"
        )
    if wanted.partitions > len(names):
        message = f"{WHERE}.partitions: {wanted.partitions} partitions of {len(names)} models would leave some empty; take fewer"
        raise BadConfig(message)
    if wanted.partitions == 1:
        return names
    costs = costs_of(names, {} if wanted.durations is None else earlier_durations(Path(wanted.durations)))
    mine = set(balanced(costs, wanted.partitions)[wanted.partition])
    return tuple(name for name in names if name in mine)


def costs_of(names: Sequence[str], known: Mapping[str, float]) -> dict[str, float]:
    """Seconds by model; the median of the known ones, or 1, for the others."""
    found = [known[name] for name in names if name in known]
    usual = statistics.median(found) if found else 1.0
    return {name: known.get(name, usual) for name in names}


def balanced(costs: Mapping[str, float], shares: int) -> list[list[str]]:
    """Longest first, each to the share with the least so far (then the fewest): none is empty if there are names enough."""
    loads = [0.0] * shares
    split: list[list[str]] = [[] for _ in range(shares)]
    for name in sorted(costs, key=lambda one: (-costs[one], one)):
        least = min(range(shares), key=lambda index: (bool(split[index]), loads[index], len(split[index]), index))
        split[least].append(name)
        loads[least] += costs[name]
    return split


def earlier_durations(path: Path) -> dict[str, float]:
    """Seconds that each model took in an earlier run's results, all its cases together. Raises `BadDocument`."""
    found: dict[str, float] = {}
    for row in read_results(path).cases:
        if row.case.suite == "torchbench" and row.duration_s:
            model = str(row.case.params.get("model", row.case.name))
            found[model] = found.get(model, 0.0) + row.duration_s
    return found
