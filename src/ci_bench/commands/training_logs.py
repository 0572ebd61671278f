"""Print the steps and digits that a gate would read from a training's log."""

import statistics
from pathlib import Path

from ci_bench.commands.output import say
from ci_bench.errors import BadDocument, BadInput
from ci_bench.formats.catalogue import decode, read
from ci_bench.formats.series import Unreadable
from ci_bench.formats.tool_files import read_content
from ci_bench.formats.training_log import Log
from ci_bench.formats.unread import tool_of
from ci_bench.judge.parity.verdict import numeric_finding
from ci_bench.records import documents
from ci_bench.records.results import Masks, Role
from ci_bench.suites.command import training
from ci_bench.suites.command.options import Losses
from ci_bench.suites.command.outputs import read_steps

ROUNDINGS = 3
"""Environments that `losses` tries by default."""


def is_log(path: Path) -> bool:
    """Return whether a file is not one of ci-bench's own documents."""
    if path.is_dir() or not path.exists():
        return False
    try:
        documents.document_kind(path)
    except BadDocument:
        return b'"schema_version"' not in path.read_bytes()[:1000]
    return False


def show_log(path: Path) -> None:
    """Print the steps, ranks, times, evaluations and digits of a log, and a gate's sensitivity.

    Raises:
        BadInput: it cannot be read.
    """
    if form := _form_of(path):
        raise BadInput(
            f"{path}: a file of benchmarks ({form}), not a training log; `ci-bench compare`"
            " compares it with another, and `ci-bench convert --to results` makes a document to"
            " show"
        )
    try:
        log = read_steps([path], Losses())
    except (Unreadable, OSError) as error:
        why = f"it looks like {tool}" if (tool := _tool_of(path)) else str(error)
        raise BadInput(f"{path}: neither a ci-bench document nor a training log: {why}") from None
    say(f"{path}\n" + "".join(f"  {line}\n" for line in _lines(log)))


def _form_of(path: Path) -> str:
    """Return the format of another tool's benchmark file; empty if it has none of them."""
    try:
        return read(decode(read_content(path))).form
    except Unreadable:
        return ""


def _tool_of(path: Path) -> str:
    """Return the tool whose benchmarks are in a file of no format; empty if it is unknown."""
    try:
        return tool_of(decode(read_content(path)))
    except Unreadable:
        return ""


def _lines(log: Log) -> list[str]:
    roles = [
        (Role.REFERENCE, training.AS_IT_IS),
        *((Role.PERTURBED, f"rounding_{number}") for number in range(1, ROUNDINGS + 1)),
    ]
    kinds = [
        training.TraceKind(role=role, start=start, index=index)
        for index, (role, start) in enumerate(roles)
    ]
    traces = [training.trace_of(log, "log", kind) for kind in kinds]
    candidate = training.trace_of(log, "log", training.TraceKind(role=Role.CANDIDATE))
    finding = numeric_finding(training.evidence(traces, candidates=()), candidate, Masks.ALIGNED)
    steps = log.ranks[0]
    norms = sum(step.grad_norm is not None for step in steps)
    numbering = (
        f"steps {steps[0].label} to {steps[-1].label}"
        if steps[0].label
        else "steps have no numbers, so they are counted"
    )
    times = training.step_times(log.ranks)
    return [
        finding.detail.rpartition("; read ")[2].replace(" on both sides", "").join(("read ", "")),
        numbering,
        f"gradient norms: {norms:,} of {len(steps):,} steps" if norms else "no gradient norms",
        f"time of a step: {statistics.median(times[0]):.4g} s" if times else "no times of steps",
        f"evaluations: {len(log.evaluations):,}" if log.evaluations else "no evaluations",
        f"compared with itself: {finding.detail.partition('; read ')[0]}",
    ]
