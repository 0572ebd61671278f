"""hyperfine's JSON (``--export-json FILE``), read and written. Times only, in seconds.

https://github.com/sharkdp/hyperfine#json
"""

import json
from collections import Counter
from collections.abc import Iterator
from statistics import fmean, median, stdev
from typing import Any

from ci_bench.formats.exporting import Export, Written, split_times
from ci_bench.formats.parsing import Node, is_missing
from ci_bench.formats.series import Absent, Reading, Runs, Series, one_run
from ci_bench.records.results import Better


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    results = root.get("results")
    return (
        results is not None
        and isinstance(results.value, list)
        and all(result.has("command", "mean") for result in results.items())
    )


def read(root: Node) -> Reading:
    """Read the times of every command: each run's if they were exported, else their median.

    A command that ended with an error in some run (hyperfine's ``--ignore-failure``) failed: its
    time is that of something else.
    """
    series: list[Series] = []
    failed: list[Absent] = []
    results = list(root.field("results").items())
    counts = Counter(map(_name, results))
    for result in results:
        name = _name(result, all_parameters=counts[_name(result)] > 1)
        codes = result.get("exit_codes")
        wrong = [code.value for code in codes.items() if code.value != 0] if codes else []
        if codes and wrong:
            meant = "if it is meant, have the command end with 0: hyperfine 'COMMAND || true'"
            how = "a signal" if wrong[0] is None else f"exit code {wrong[0]}"
            failed.append(
                Absent(
                    benchmark=name,
                    reason=(
                        f"{len(wrong)} of {len(list(codes.items()))} runs ended with {how}; {meant}"
                    ),
                )
            )
        else:
            series += _series(name, result)
    return Reading(series=tuple(series), failed=tuple(failed), tool="hyperfine")


def _name(result: Node, *, all_parameters: bool = False) -> str:
    """Return the command, and the parameters that it doesn't show, or all of them."""
    name, params = result.field("command").text(), result.get("parameters")
    values = [(key, str(value.value)) for key, value in params.fields()] if params else []
    hidden = [(key, value) for key, value in values if all_parameters or value not in name]
    return f"{name} [{', '.join(f'{key}={value}' for key, value in hidden)}]" if hidden else name


def _series(name: str, result: Node) -> Iterator[Series]:
    times = result.get("times")
    seconds = (
        times.numbers()
        if times and times.value
        else ((result.get("median") or result.field("mean")).number(),)
    )
    yield Series(benchmark=name, runs=_processes(seconds), unit="s", better=Better.LOWER)
    for part in ("user", "system"):
        if (mean := result.get(part)) is not None and not is_missing(mean.value):
            values = one_run(mean.number())
            yield Series(
                benchmark=name,
                measure=f"{part}_time",
                runs=values,
                unit="s",
                better=Better.LOWER,
                derived=True,
            )
    memory = result.get("memory_usage_byte")
    if memory is not None and memory.value:
        yield Series(
            benchmark=name,
            measure="memory",
            runs=_processes(memory.numbers()),
            unit="bytes",
            better=Better.LOWER,
            peak=True,
        )


def _processes(values: tuple[float, ...]) -> Runs:
    """Make one launch per number: hyperfine starts the command for each."""
    return tuple((value,) for value in values)


def write(export: Export) -> Written:
    """Write all samples of each time, as runs of a command of that name."""
    times, left_out = split_times(export)
    results = [_result(name, [value for run in runs for value in run]) for name, runs in times]
    return Written(text=json.dumps({"results": results}, indent=2) + "\n", left_out=left_out)


def _result(name: str, seconds: list[float]) -> dict[str, Any]:
    return {
        "command": name,
        "mean": fmean(seconds),
        "stddev": stdev(seconds) if len(seconds) > 1 else None,
        "median": median(seconds),
        "min": min(seconds),
        "max": max(seconds),
        "times": seconds,
    }
