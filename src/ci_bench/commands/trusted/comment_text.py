"""Texts for a pull request: the machines' verdicts as a comment, a title, annotations, counts.

Values in, text out.

A machine without a comparison is reported as a failure with its reason: a gate must not look green
because its results could not be read.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ci_bench.commands.trusted.judging import Judged, JudgedMachine
from ci_bench.github.checks import Annotation, AnnotationLevel
from ci_bench.records.comparison import RunVerdict, Verdict
from ci_bench.records.config import Severity
from ci_bench.report.cells import ICONS
from ci_bench.report.markdown import render_comment, render_report
from ci_bench.report.text import clean, code, fence, plain
from ci_bench.report.words import Mood

BUDGET = 60_000
"""UTF-16 units of a comment; GitHub takes 65,536."""
_NOTE = 2_000
"""Space reserved for the marker, the titles of machines and the notes."""


WAITS = (
    "The base branch's configuration applies to a pull request, and this one adds it. Until it is"
    " merged, its own is used: it can fail this check and never pass it. The next pull request is"
    " compared."
)
"""Comment on the first pull request, which adds the configuration."""
SHARED = (
    "_Another open pull request has the same head commit and does not pass; the commit's check"
    " covers both._"
)
"""Note on a pull request that passes although the check does not."""


OWN_RULES = (
    "_Judged by this branch's own configuration: the check is neutral at best and does not count"
    " for a pull request._"
)
"""Note for a branch that is not the default branch."""


def on_request(filters: Sequence[str]) -> str:
    """Return the note on a run that a comment requested.

    It names the filters of the request, and states that the run gates nothing.
    """
    chosen = f" of the cases that match {', '.join(map(code, filters))}" if filters else ""
    return f"_Measured on request{chosen}. This run gates nothing._"


def not_judged_on_request(reason: str) -> str:
    """Explain why a run that a comment requested has no verdict, as its comment."""
    return f"### Not judged\n\nThis run on request has no verdict.\n\n{fence(reason, lines=20)}"


def not_judged(reason: str) -> str:
    """Explain why a verdict is missing, as the text of a check."""
    return f"No verdict was computed, so this check does not pass.\n\n{fence(reason, lines=20)}"


def title(judged: Judged) -> str:
    """Return one line: the headline of the only machine, or the number of failed machines."""
    if judged.waits and not judged.failed:
        return clean(f"Nothing to compare with yet: {judged.waits}.", cap=250)
    if len(judged.machines) == 1:
        return clean(_headline(judged.machines[0]), cap=250)
    failed = [machine for machine in judged.machines if machine.failed]
    if not failed:
        return _of_several(judged)
    return clean(
        f"Failed on {len(failed)} of {len(judged.machines)} machines: {_headline(failed[0])}",
        cap=250,
    )


def _of_several(judged: Judged) -> str:
    undecided = [
        machine
        for machine in judged.machines
        if machine.doubt
        or (machine.comparison and machine.comparison.judgement.verdict is RunVerdict.UNDECIDED)
    ]
    if not undecided:
        return f"Passed on all {len(judged.machines)} machines."
    headline = _headline(undecided[0])
    return clean(
        f"Not decided on {len(undecided)} of {len(judged.machines)} machines: {headline}",
        cap=250,
    )


def comment(judged: Judged, *, marker: str | None = None) -> str:
    """Return the comment: failed machines first, the notes last.

    `marker` becomes the first line.
    """
    budget = (BUDGET - _NOTE) // max(1, len(judged.machines))
    ordered = sorted(
        judged.machines, key=lambda machine: (not machine.failed, machine.exit_code == 0)
    )
    parts = [marker] if marker else []
    first = bool(judged.waits) and not judged.failed
    parts += (
        [f"### {_icon(judged)} {_plain(title(judged))}"]
        if len(judged.machines) != 1 or first
        else []
    )
    parts += [WAITS] if judged.waits else []
    for machine in ordered:
        parts += [f"---\n\n**{code(machine.name)}**"] if len(judged.machines) != 1 else []
        text = _machine(machine, budget)
        parts.append(_without_verdict(text) if first else text)
    return "\n\n".join([*parts, *judged.notes]).rstrip() + "\n"


def report(judged: Judged, *, closed: Sequence[str] = ()) -> str:
    """Return the comment's text without a limit, for the job's summary.

    `closed` are the parts that could not be written to GitHub, with their reasons.
    """
    parts = [f"## {_plain(title(judged))}", WAITS] if judged.waits else []
    for machine in judged.machines:
        parts += [f"## {code(machine.name)}"] if len(judged.machines) != 1 else []
        text = render_report(machine.comparison) if machine.comparison else _fault(machine)
        parts.append(_without_verdict(text) if judged.waits and not judged.failed else text)
    unwritten = [f"_{_plain(why)}_" for why in closed]
    return "\n\n".join([*parts, *judged.notes, *unwritten]).rstrip() + "\n"


def changed(judged: Judged) -> bool:
    """Return whether there is something to report: a failure, a warning, or a figure that moved."""
    return bool(judged.waits) or any(
        machine.comparison is None
        or not machine.comparison.judgement.met
        or any(
            finding.severity is not Severity.NOTE
            for finding in machine.comparison.judgement.findings
        )
        or any(pair.verdict.moved for case in machine.comparison.cases for pair in case.pairs)
        for machine in judged.machines
    )


def annotations(judged: Judged, path: str) -> tuple[Annotation, ...]:
    """Return the findings that fail or warn, as annotations of the configuration.

    A case does not have its own file.
    """
    levels = {Severity.FAIL: AnnotationLevel.FAILURE, Severity.WARN: AnnotationLevel.WARNING}
    several = len(judged.machines) != 1
    return tuple(
        Annotation(
            path=path,
            line=1,
            level=levels[severity],
            title=name,
            message=_about(machine.name, message) if several else message,
        )
        for machine in judged.machines
        for severity, name, message in _complaints(machine)
        if severity in levels
    )


def _complaints(machine: JudgedMachine) -> Iterator[tuple[Severity, str, str]]:
    """Yield a machine's complaints: severity, name and text."""
    if machine.fault is not None:
        yield Severity.FAIL, "no verdict", clean(str(machine.fault), cap=1000)
    for finding in machine.comparison.judgement.findings if machine.comparison else ():
        message = clean(finding.message, cap=1000)
        text = message if finding.case is None else f"{message} ({clean(finding.case, cap=160)})"
        yield finding.severity, finding.rule.replace("_", " "), text


def _about(name: str, message: str) -> str:
    return f"{clean(name)}: {message}"


def counts(judged: Judged) -> Mapping[str, int]:
    """Count the cases by result, over all machines.

    Every word is there, with 0 if it does not occur.
    """
    verdicts = Counter(
        case.verdict
        for machine in judged.machines
        if machine.comparison
        for case in machine.comparison.cases
    )
    return {verdict.value: verdicts[verdict] for verdict in Verdict}


def _headline(machine: JudgedMachine) -> str:
    if machine.doubt and not machine.exit_code:
        return f"Not decided: {machine.doubt}."
    return (
        machine.comparison.judgement.headline
        if machine.comparison
        else f"No verdict: {machine.fault}"
    )


def _machine(machine: JudgedMachine, budget: int) -> str:
    if machine.comparison is None:
        return _fault(machine)
    text = render_comment(machine.comparison, limit=budget).rstrip()
    if not machine.doubt or machine.exit_code:
        return text
    return f"### {ICONS[Mood.OPEN]} {_plain(_headline(machine))}\n\n{_without_verdict(text)}"


def _without_verdict(text: str) -> str:
    """Return a comment without its first line."""
    return text.partition("\n")[2].lstrip()


def not_measured(machine: JudgedMachine) -> str:
    """Explain in a note why a machine of a first pull request has no results."""
    return f"Not measured on {code(machine.name)}:\n\n{fence(str(machine.fault), lines=20)}"


def _fault(machine: JudgedMachine) -> str:
    """Return the error that prevented a machine's verdict.

    The text may repeat a hostile document: it stays inside a fence.
    """
    why = "The results of this run could not be judged, so it counts as failed."
    return f"### ❌ No verdict\n\n{why}\n\n{fence(str(machine.fault), lines=20)}"


def _icon(judged: Judged) -> str:
    moods = {
        RunVerdict.FAILED: Mood.BAD,
        RunVerdict.UNDECIDED: Mood.OPEN,
        RunVerdict.PASSED: Mood.GOOD,
    }
    return ICONS[moods[judged.verdict]]


def _plain(text: str) -> str:
    return plain(text)
