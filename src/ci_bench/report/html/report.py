"""The HTML report of a comparison: verdict and policy, then the cases, then the machines.

Owns the order of the parts. Every text goes through `markup.tag`, every figure of a chart through
the page's packed data.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ci_bench.records.comparison import (
    BaselineMode,
    CaseComparison,
    ComparedSide,
    Comparison,
    Finding,
)
from ci_bench.records.config import Severity
from ci_bench.report import columns
from ci_bench.report.averages import averages
from ci_bench.report.changes import CHANGES, SHOWN, changes, rest
from ci_bench.report.charts.overview import case_charts, change_chart
from ci_bench.report.charts.samples import rows_of
from ci_bench.report.charts.sweeps import sweep_charts
from ci_bench.report.charts.values import Density, Material, density
from ci_bench.report.groups import Group, covered, groups
from ci_bench.report.html.cases import case_fold, case_parts, case_table
from ci_bench.report.html.heat_maps import drawn_maps, heat_maps
from ci_bench.report.html.markup import Child, Html, join, tag
from ci_bench.report.html.page import Assets, render_page, values_of
from ci_bench.report.html.tables import drawn, fact, folded, identifier, table, word
from ci_bench.report.modes import modes
from ci_bench.report.next_step import next_step
from ci_bench.report.rows import Row, labels, main_rows, outcome_mood
from ci_bench.report.summary import summary
from ci_bench.report.text import UNKNOWN, clean, percent
from ci_bench.report.words import Mood

NOTHING = Material()
_OPEN_AT_FIRST = 3
_SEVERITIES = {
    Severity.FAIL: ("fails the run", "bad"),
    Severity.WARN: ("warning", "unsure"),
    Severity.NOTE: ("note", "new"),
}
_OUTCOMES = {
    Mood.BAD: "Failed",
    Mood.OPEN: "Not decided",
    Mood.UNSURE: "Passed with warnings",
    Mood.GOOD: "Passed",
}
_MODES = {
    BaselineMode.PAIRED: "base and head measured in turns, in one run",
    BaselineMode.FILE: "head against an earlier run",
    BaselineMode.ARTIFACT: "head against an earlier run's artifact",
    BaselineMode.NONE: "head only, without a baseline",
}


def render_html(comparison: Comparison, *, assets: Assets, material: Material = NOTHING) -> str:
    """Return the whole page.

    Without the raw documents in `material`, charts show medians and intervals only.
    """
    anchors = {case.id: f"case-{number}" for number, case in enumerate(comparison.cases)}
    headline = comparison.judgement.headline
    alike, judged = groups(comparison), change_chart(comparison)
    sweeps = sweep_charts(comparison)
    body = (
        tag("h1", "ci-bench report"),
        _verdict(comparison),
        _changed(comparison),
        _groups(alike),
        _findings(comparison, anchors, covered(comparison, alike)),
        _run(comparison),
        _thresholds(comparison),
        _mismatches(comparison),
        join((tag("h2", "Changes"), tag("div", id="changes"))) if judged.rows else None,
        drawn_maps(heat_maps(comparison, alike)),
        join((tag("h2", "Arms compared"), tag("div", id="sweeps"))) if sweeps else None,
        tag("h2", "Cases", id="all-cases"),
        case_table(comparison, anchors),
        _modes(comparison),
        _means(comparison),
        tag("h2", "Case by case"),
        tag("noscript", tag("p", "Case details need JavaScript; report.md has the same figures.")),
        _cases(comparison, anchors),
        _time(material),
        tag("h2", "Machines"),
        _environment(comparison),
        tag("p", f"Written by ci-bench {comparison.tool_version}.", class_="muted"),
    )
    drawn = density(len(comparison.cases))
    data = {
        "changes": judged,
        "sweeps": sweeps,
        "cases": [_packed(case, material, anchors[case.id], drawn) for case in comparison.cases],
    }
    return render_page(
        title=f"ci-bench: {clean(headline, cap=120)}", body=join(body), assets=assets, data=data
    )


def _verdict(comparison: Comparison) -> Html:
    mood = outcome_mood(comparison)
    judgement = comparison.judgement
    policy = "The policy is met" if judgement.met else "The policy is not met"
    counted = {
        severity: sum(finding.severity is severity for finding in judgement.findings)
        for severity in _SEVERITIES
    }
    tally = ", ".join(
        f"{number:,} {_plural(severity, number)}" for severity, number in counted.items() if number
    )
    return tag(
        "section",
        tag("p", judgement.headline, class_="headline"),
        tag(
            "p",
            word(_OUTCOMES[mood], mood.name.lower()),
            f" {policy}: exit code {judgement.exit_code}{f'; {tally}' if tally else ''}.",
        ),
        _next(comparison),
        (
            tag("p", "No baseline: ", comparison.absence or "none was given")
            if comparison.base is None
            else None
        ),
        _statistics(summary(comparison)),
        class_=f"verdict {mood.name.lower()}",
        aria_label="Verdict",
    )


def _changed(comparison: Comparison) -> Html | None:
    """Return the rows of the comment's first table, and a sentence on the rest."""
    rows = changes(comparison)
    others = rest(comparison)
    if not rows and not others:
        return None
    shown = drawn("What changed", CHANGES, rows[:SHOWN], names=3) if rows else None
    more = f"… and {len(rows) - SHOWN:,} more, in the tables below." if len(rows) > SHOWN else ""
    lines = [tag("p", line) for line in (more, others) if line]
    return join([tag("h2", "What changed"), *([shown] if shown is not None else []), *lines])


def _next(comparison: Comparison) -> Html | None:
    step = next_step(comparison)
    if step is None:
        return None
    return tag("p", f"Next: {step.text} ", tag("code", step.command) if step.command else None)


def _statistics(lines: Sequence[str]) -> Html | None:
    """Return the statistics of the run, folded as in the comment."""
    if not lines:
        return None
    return tag(
        "details", tag("summary", "How sure"), *(tag("p", line) for line in lines), class_="figures"
    )


def _plural(severity: Severity, number: int) -> str:
    singular = {Severity.FAIL: "failing finding", Severity.WARN: "warning", Severity.NOTE: "note"}[
        severity
    ]
    return singular if number == 1 else f"{singular}s"


def _groups(alike: Sequence[Group]) -> Html | None:
    """Return the table of groups: common parameters of changed cases."""
    headers = ("Change", "Cases of", "Where", "Metric", "Arm", "How much", "In")
    shown = table("Groups of cases that changed together", headers, map(_group, alike), names=3)
    return join((tag("h2", "Groups of cases"), shown)) if shown else None


def _group(group: Group) -> tuple[Child, ...]:
    conditions = ", ".join(f"{name}={value}" for name, value in group.conditions)
    where = identifier(conditions) if conditions else "everywhere"
    direction, mood = ("worse", "bad") if group.worse else ("better", "better")
    arm = identifier(group.arm) if group.several_arms else None
    return (
        word(direction, mood),
        identifier(group.name),
        where,
        group.title,
        arm,
        group.change,
        group.extent,
    )


def _findings(
    comparison: Comparison, anchors: Mapping[str, str], grouped_findings: frozenset[Finding]
) -> Html | None:
    """Return the findings of the policy: failures and warnings, then notes in a fold.

    Findings that groups report already are folded, too.
    """
    loud = [
        finding
        for finding in comparison.judgement.findings
        if finding.severity is not Severity.NOTE and finding not in grouped_findings
    ]
    alike = [
        finding
        for finding in comparison.judgement.findings
        if finding.severity is not Severity.NOTE and finding in grouped_findings
    ]
    quiet = [
        finding for finding in comparison.judgement.findings if finding.severity is Severity.NOTE
    ]
    headers, short = ("Policy", "Rule", "Finding", "Case"), labels(comparison)
    shown = table(
        "Findings", headers, (_finding(finding, anchors, short) for finding in loud), names=3
    )
    together = table(
        "Findings of groups",
        headers,
        (_finding(finding, anchors, short) for finding in alike),
        names=3,
    )
    notes = table(
        "Notes", headers, (_finding(finding, anchors, short) for finding in quiet), names=3
    )
    title = tag("h2", "Policy") if shown or together or notes else None
    of_groups = folded(f"Findings of these groups, case by case ({len(alike):,})", together)
    return join((title, shown, of_groups, folded(f"Notes ({len(quiet):,})", notes)))


def _finding(
    finding: Finding, anchors: Mapping[str, str], short: Mapping[str, str]
) -> tuple[Html | str | None, ...]:
    label, mood = _SEVERITIES[finding.severity]
    case = finding.case
    linked = (
        None
        if case is None
        else (
            identifier(case)
            if case not in anchors
            else tag("a", identifier(short[case]), href=f"#{anchors[case]}")
        )
    )
    return word(label, mood), finding.rule.replace("_", " "), finding.message, linked


def _run(comparison: Comparison) -> Html | None:
    """Return the commits, times and mode of the runs."""
    sides = {"base": comparison.base, "head": comparison.head}
    rows = ((name, *_side(side)) for name, side in sides.items() if side is not None)
    headers = ("Side", "Commit", "Branch", "Chosen by", "Started (UTC)", "Device", "State")
    return join(
        (
            tag("h2", "Runs"),
            tag("p", f"How: {_MODES[comparison.mode]}."),
            table("Runs", headers, rows),
        )
    )


def _side(side: ComparedSide) -> tuple[str, ...]:
    source, run = side.source, side.run
    commit = f"{source.commit or UNKNOWN}{' and uncommitted changes' if source.dirty else ''}"
    chosen = source.chosen_by or UNKNOWN
    return commit, source.branch or UNKNOWN, chosen, run.started_at, run.device, run.state


def _thresholds(comparison: Comparison) -> Html | None:
    """Return the thresholds in force, as the judged metrics have them."""
    pairs = [
        (case.suite, columns.title_of(pair), pair.threshold)
        for case in comparison.cases
        for pair in case.pairs
        if not pair.detail
    ]
    rows = [
        (suite, metric, percent(threshold)) for suite, metric, threshold in dict.fromkeys(pairs)
    ]
    return folded(
        f"Thresholds in force ({len(rows):,})",
        table("Thresholds", ("Suite", "Metric", "Least change that counts"), rows, names=3),
    )


def _mismatches(comparison: Comparison) -> Html | None:
    rows = [(m.field, fact(m.field, m.base), fact(m.field, m.head)) for m in comparison.mismatches]
    shown = table(
        "Differences between the machines",
        ("The two runs differ in", "Base", "Head"),
        rows,
        names=3,
    )
    return join((tag("h2", "Why they cannot be compared"), shown)) if shown else None


def _modes(comparison: Comparison) -> Html | None:
    """Return compiled arms side by side, a table for each suite."""
    mode_tables = modes(comparison)
    if not mode_tables:
        return None
    tables = (
        join(
            (
                tag("h3", mode_table.suite),
                drawn(
                    f"Compile modes of {mode_table.suite}",
                    columns.of_modes(mode_table.arms),
                    mode_table.rows,
                    names=2,
                ),
            )
        )
        for mode_table in mode_tables
    )
    return join(
        (tag("h2", "Compile modes"), *tables, tag("p", columns.MODES_LEGEND, class_="muted"))
    )


def _means(comparison: Comparison) -> Html | None:
    """Return the means over the cases of each suite, setting and arm, base to head."""
    shown = drawn("Means over cases", columns.MEANS, averages(comparison), names=4)
    return join((tag("h2", "Means over cases"), shown)) if shown else None


def _packed(
    case: CaseComparison, material: Material, anchor: str, drawn: Density
) -> dict[str, Any]:
    """Return the content of a case for the page's packed data.

    Packed it takes a tenth of the space.
    """
    parts = case_parts(case, rows_of(case.id, material), anchor=anchor)
    return {**values_of(case_charts(case, material, drawn)), "html": str(parts)}


def _cases(comparison: Comparison, anchors: Mapping[str, str]) -> Html:
    """Return a fold for each case, worst first as in the table.

    A case's mood is that of its worst arm.
    """
    worst: dict[str, Row] = {}
    for row in main_rows(comparison):
        worst.setdefault(row.case.id, row)
    numbers = {case.id: number for number, case in enumerate(comparison.cases)}
    sections = []
    for rank, (name, row) in enumerate(worst.items()):
        opened = rank < _OPEN_AT_FIRST and (row.mood is Mood.BAD or len(worst) < _OPEN_AT_FIRST)
        fold = case_fold(
            row.case,
            anchor=anchors[name],
            number=numbers[name],
            mood=row.mood,
            shown=row.word,
            opened=opened,
        )
        sections.append(fold)
    return join(sections)


_PARTS = 8
"""Of the bar of time; the page has as many colours."""


def _time(material: Material) -> Html | None:
    """Return where the time of the run went.

    It is a bar of the largest parts, samples first, and a table of all of them.
    """
    spent = material.spent
    if spent is None or not spent.rows:
        return None
    parts, total_s = spent.parts(_PARTS), sum(seconds for _, seconds in spent.parts(_PARTS))
    legend = [
        tag("li", tag("span", class_=f"swatch s{place}"), f"{name}, {seconds:.1f} s")
        for place, (name, seconds) in enumerate(parts)
    ]
    rows = [
        (stage, phase, *(f"{side_s:.1f}" for side_s in seconds))
        for stage, phase, seconds in spent.rows
    ]
    return join(
        (
            tag("h2", "Where the time went"),
            tag("p", f"{spent.share}.") if spent.share else None,
            (
                tag(
                    "p",
                    "Seconds of both sides; if both worked simultaneously, both count.",
                    class_="muted",
                )
                if len(material.timed) > 1
                else None
            ),
            tag("figure", _bar(parts, total_s), tag("ul", *legend, class_="legend"), class_="time"),
            folded(
                f"All of it ({len(rows):,})",
                table(
                    "Seconds by stage and phase",
                    ("Stage", "Phase", *(f"{name} (s)" for name in material.timed)),
                    rows,
                    names=2,
                ),
            ),
        )
    )


def _bar(parts: Sequence[tuple[str, float]], total_s: float) -> Html:
    """Draw one bar, 1,000 units wide, of all parts after each other.

    The list below it shows the same.
    """
    begun, drawn_parts = 0.0, []
    for place, (_, seconds) in enumerate(parts):
        width = 1000 * seconds / total_s if total_s else 0.0
        drawn_parts.append(
            tag("rect", x=f"{begun:.1f}", width=f"{width:.1f}", height="14", class_=f"t{place}")
        )
        begun += width
    return tag(
        "svg", *drawn_parts, viewBox="0 0 1000 14", preserveAspectRatio="none", aria_hidden="true"
    )


def _environment(comparison: Comparison) -> Html | None:
    """Return both machines, with their differences first."""
    sides = [side.environment for side in (comparison.base, comparison.head) if side]
    facts = [{**side.condition, **side.identity} for side in sides]
    fields = dict.fromkeys(name for side in sides for name in (*side.identity, *side.condition))
    rows = [(name, [fact(name, side_facts.get(name)) for side_facts in facts]) for name in fields]
    rows.sort(key=lambda row: len(set(row[1])) == 1)
    headers = ("Field", "Base", "Head") if comparison.base else ("Field", "Head")
    identity = {name for side in sides for name in side.identity}
    cells: list[list[Child]] = [
        [_field(name, identity), *_differing(values)] for name, values in rows
    ]
    note = (
        "Fields of the identity decide whether two runs can be compared; the condition is for"
        " information. Differences first."
    )
    return join((tag("p", note, class_="muted"), table("Environment", headers, cells, names=3)))


_UNITS = {"_bytes": "", "_c": " (°C)", "_w": " (W)", "_mhz": " (MHz)"}
"""How the unit at the end of a field's name is read; sizes say theirs with the value."""


def _field(name: str, identity: set[str]) -> Html:
    """Return a field's name for readers; its name in documents is the title."""
    stem, unit = next(
        ((name.removesuffix(end), unit) for end, unit in _UNITS.items() if name.endswith(end)),
        (name, ""),
    )
    title = f"{stem.replace('_', ' ')}{unit}"
    return tag("td", f"{title} (identity)" if name in identity else title, title=name)


def _differing(values: list[str]) -> list[Html]:
    differ = len(set(values)) > 1
    return [tag("td", value, class_="differs" if differ else None) for value in values]
