"""The messages of ``cargo criterion --message-format=json``, read: one JSON object on each line.

A sample is the time of some iterations, so a number is that time divided by their count.
https://bheisler.github.io/criterion.rs/book/cargo_criterion/external_tools.html
"""

from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Reading, Runs, Series, one_run
from ci_bench.records.results import Better

_COMPLETE = "benchmark-complete"
_REASONS = {_COMPLETE, "group-complete"}


def matches(root: Node) -> bool:
    """Return whether it looks like this format.

    Each message has a reason, and criterion's are among them.
    """
    messages = _messages(root)
    if not messages or not all(message.has("reason") for message in messages):
        return False
    return any(
        message.field("reason").value in _REASONS
        for message in messages
        if isinstance(message.field("reason").value, str)
    )


def _messages(root: Node) -> list[Node]:
    return list(root.items()) if isinstance(root.value, list) else [root]


def read(root: Node) -> Reading:
    """Read the time of an iteration of each benchmark, by sample."""
    done = [message for message in _messages(root) if message.field("reason").value == _COMPLETE]
    return Reading(series=tuple(map(_series, done)), tool="cargo-criterion")


def _series(row: Node) -> Series:
    typical = row.get("typical") or row.field("mean")
    runs: Runs = one_run(typical.field("estimate").number())
    counts, totals = row.get("iteration_count"), row.get("measured_values")
    unit = row.get("unit") or typical.field("unit")
    if (
        counts
        and totals
        and counts.value
        and len(counts.numbers()) == len(totals.numbers())
        and all(counts.numbers())
    ):
        runs = one_run(
            *(
                total / count
                for total, count in zip(totals.numbers(), counts.numbers(), strict=True)
            )
        )
    return Series(
        benchmark=row.field("id").text(), runs=runs, unit=unit.text(), better=Better.LOWER
    )
