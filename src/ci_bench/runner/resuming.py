"""Resume an interrupted run: read its results, check that they may be used, note progress.

`progress.json`, next to each side's `results.json`, holds the number of complete launches of each
case. Samples of two runs may only be mixed if nothing that matters has changed: the configuration,
the cases, the commit, the version of ci-bench and the machine. Unknown facts, such as the
uncommitted changes at the time, count as changed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ci_bench import __version__
from ci_bench.checkouts.sides import Side
from ci_bench.errors import CannotResume
from ci_bench.records import documents
from ci_bench.records.results import Case, Environment, Results, Run, SideName
from ci_bench.runner.ledger import Ledger

PROGRESS = "progress.json"
MAX_BYTES = 10_000_000
SHORT = 10
_ANEW = "; omit --resume to start over"


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier:
    """Results of an interrupted run, by side. `run` is the run that is resumed."""

    run: Run
    ledgers: Mapping[SideName, Ledger]
    environments: Mapping[SideName, Environment]


def note(ledger: Ledger, results: Path) -> None:
    """Write a side's progress next to its results. Raises `CannotWrite`."""
    document = {"kind": "progress", "schema_version": 1, "launches": dict(ledger.launches)}
    documents.write_text(json.dumps(document, indent=1) + "\n", results.with_name(PROGRESS))


def find_earlier(
    places: Mapping[SideName, Path],
    *,
    cases: Mapping[SideName, Sequence[Case]],
    sides: Sequence[Side],
    begun: Run,
) -> Earlier | None:
    """Return the run in these files, to resume as `begun`; `None` if there is not one.

    `cases` are those of each side's plan.

    Raises:
        CannotResume: something differs, or cannot be known to be the same.
        BadDocument: the results cannot be read.
    """
    if not any(path.exists() for path in places.values()):
        return None
    results_by_side = {name: documents.read_results(path) for name, path in places.items()}
    ids = {results.run.id for results in results_by_side.values()}
    faults = [] if len(ids) == 1 else ["base and head are of different runs"]
    for side in sides:
        faults += _differences(
            results_by_side[side.name], cases=cases[side.name], side=side, begun=begun
        )
    if faults:
        raise CannotResume(
            f"{places[SideName.HEAD]} cannot be resumed: {'; '.join(dict.fromkeys(faults))}{_ANEW}"
        )
    counts = [whole_launches(path) for path in places.values()]
    complete = {name: min(count.get(name, 0) for count in counts) for name in counts[0]}
    return Earlier(
        run=replace(next(iter(results_by_side.values())).run, workflow=begun.workflow),
        ledgers={
            name: Ledger(
                rows={row.case.id: row for row in results.cases},
                launches={
                    row.case.id: complete[row.case.id]
                    for row in results.cases
                    if complete.get(row.case.id)
                },
                spent=results.spent,
                measured_s=results.measured_s or 0.0,
            )
            for name, results in results_by_side.items()
        },
        environments={name: results.environment for name, results in results_by_side.items()},
    )


def _differences(
    results: Results, *, cases: Sequence[Case], side: Side, begun: Run
) -> Iterator[str]:
    if results.tool_version != __version__:
        yield f"it was started by ci-bench {results.tool_version}, this is {__version__}"
    if _settings(results.run) != _settings(begun):
        yield "the configuration has changed"
    elif [row.case for row in results.cases] != [*cases]:
        yield "the cases differ (is --filter the same?)"
    now = side.source
    if results.source.commit is None or now.commit is None:
        yield "without a git checkout, it is unknown whether the code is the same"
    elif results.source.commit != now.commit:
        yield (
            f"{side.name} was commit {results.source.commit[:SHORT]}, now it is"
            f" {now.commit[:SHORT]}"
        )
    elif results.source.dirty is not False or now.dirty is not False:
        yield f"{side.name} had or has uncommitted changes, which cannot be compared"


def _settings(run: Run) -> tuple[str, Mapping[str, tuple[str, ...]]]:
    """Return a run's settings: the file, and the flags except those that choose the cases."""
    return run.config_digest, {
        name: values for name, values in run.asked.items() if name != "filter"
    }


def require_machine(before: Environment | None, now: Environment) -> None:
    """Refuse to mix samples of two machines. An unknown machine does not count.

    Raises:
        CannotResume: this is another one.
    """
    if before is None or not before.identity or not now.identity:
        return
    then = {**before.identity, "gpu_uuid": before.condition.get("gpu_uuid")}
    here = {**now.identity, "gpu_uuid": now.condition.get("gpu_uuid")}
    changed = [name for name in sorted({*then, *here}) if then.get(name) != here.get(name)]
    if changed:
        names = ", ".join(
            f"{name} was {then.get(name)}, now {here.get(name)}" for name in changed[:5]
        )
        raise CannotResume(
            f"the run was started on another machine or with other software: {names}{_ANEW}"
        )


def whole_launches(results: Path) -> dict[str, int]:
    """Return the number of complete launches of each case, from a side's progress file.

    Raises `CannotResume`.
    """
    path = results.with_name(PROGRESS)
    try:
        with path.open("rb") as stream:
            raw: Any = json.loads(stream.read(MAX_BYTES))
        launches = raw["launches"]
        if raw["kind"] != "progress" or raw["schema_version"] != 1:
            raise CannotResume(f"{path}: ci-bench did not write this file{_ANEW}")
        if all(type(count) is int and count >= 0 for count in launches.values()):
            return dict(launches)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CannotResume(f"{path}: cannot be read ({type(error).__name__}){_ANEW}") from error
    raise CannotResume(f"{path}: counts of launches are whole numbers{_ANEW}")
