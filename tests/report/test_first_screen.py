"""What stands before the first fold: verdict, worst finding, case, size and a next step that works when pasted."""

import argparse
import math
import re
import shlex
from dataclasses import replace

import pytest
from endings import BUILDERS, compared
from judge_builders import judged
from rendered import render
from test_verdict import SCENES, SCOPES, Scope

from ci_bench.command_line.flags import make_parser
from ci_bench.records.comparison import RunVerdict
from ci_bench.records.config import DEFAULT_SEVERITIES, Floor, Policy, Rule, Severity, SuitePolicy
from ci_bench.report.cells import ICONS
from ci_bench.report.changes import changes
from ci_bench.report.markdown import render_comment
from ci_bench.report.next_step import next_step
from ci_bench.report.rows import labels
from ci_bench.report.words import Mood

MOST_LINES, MOST_COLUMNS = 25, 7
WORDS = {
    RunVerdict.PASSED: (("✅", "⚠️"), ("Passed: ",)),
    RunVerdict.UNDECIDED: ((ICONS[Mood.OPEN],), ("Not decided: ", "Nothing to compare with yet: ")),
    RunVerdict.FAILED: ((ICONS[Mood.BAD],), ("Failed: ", "Not compared: ")),
}
SIZED = {
    Rule.REGRESSED,
    Rule.SUSPECTED,
    Rule.POSSIBLE,
    Rule.COMMON_SHIFT,
    Rule.BELOW_FLOOR,
    Rule.IMPLAUSIBLE,
    Rule.PARITY_BROKEN,
    Rule.LEARNING_CHANGED,
    Rule.OUTPUTS_CHANGED,
    Rule.ACCURACY_BROKEN,
}
"""The rules whose finding is a quantity."""
SHOWN = {Rule.POSSIBLE: "may be worse", Rule.PARITY_UNDECIDED: "parity not shown"}
"""Rules that a row words in another way."""
SIZE = re.compile(r"\d\s?%|\d times|\d graph breaks|(speedup|floor) .*\d")
POLICY = Policy(suites={"floored": SuitePolicy(floors={Floor.SPEEDUP: 2.0})}, drift=0.05)


def flags(parser: argparse.ArgumentParser) -> set[str]:
    """All flags of a parser and of its commands."""
    chosen = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    inner = [flags(command) for action in chosen for command in action.choices.values()]
    return {flag for action in parser._actions for flag in action.option_strings}.union(*inner)


def first_screen(comment: str) -> list[str]:
    return comment.partition("<details>")[0].rstrip().splitlines()


def gaps(comparison, screen: list[str]) -> list[str]:
    """What a reader does not find where it belongs."""
    icons, words = WORDS[comparison.judgement.verdict]
    title = screen[0].replace("\\", "")
    loud = [found for found in comparison.judgement.findings if found.severity is not Severity.NOTE]
    missing = (
        []
        if any(title.startswith(f"### {icon} {word}") for icon in icons for word in words)
        else ["verdict"]
    )
    if loud and comparison.judgement.verdict is not RunVerdict.PASSED and (worst := loud[0]):
        text = "\n".join(screen).replace("\\", "")
        missing += (
            []
            if worst.case is None
            or re.search(
                rf"(: |; |, |\(|`){re.escape(labels(comparison)[worst.case])}(?!\w)", title
            )
            else ["case"]
        )
        missing += (
            []
            if worst.case is None or f"`{labels(comparison)[worst.case]}`" in text
            else ["row of the case"]
        )
        told = (
            SHOWN.get(worst.rule, worst.rule.replace("_", " ")) in text.lower()
            or worst.message.lower() in text.lower()
        )
        missing += [] if told or worst.rule is Rule.INCOMPARABLE else ["worst finding"]
        missing += [] if worst.rule not in SIZED or SIZE.search(title) else ["size"]
    if comparison.judgement.verdict is not RunVerdict.PASSED:
        missing += [] if any(line.startswith("**Next:** ") for line in screen) else ["next step"]
    return missing


def excess(comment: str) -> list[str]:
    """What of a comment is larger than a reader takes in."""
    lines = first_screen(comment)
    found = [f"{len(lines)} lines"] if len(lines) > MOST_LINES else []
    return found + [
        f"{len(table[0])} columns: {table[0]}"
        for table in render(comment).tables
        if len(table[0]) > MOST_COLUMNS
    ]


def commands(comment: str) -> list[list[str]]:
    """The commands of ci-bench in a comment, folded ones included."""
    spans = [
        *render(comment).code,
        *(line for text in render(comment).fenced for line in text.splitlines()),
    ]
    return [
        shlex.split(span)[1:]
        for span in spans
        if span.startswith("ci-bench ") and shlex.split(span)[1:]
    ]


def situation(rule: Rule):
    return judged(*SCENES[rule], policy=POLICY, scope=SCOPES.get(rule, Scope()))


@pytest.mark.parametrize("rule", sorted(SCENES))
def test_every_rule_has_a_readable_first_screen(rule):
    comparison = situation(rule)
    comment = render_comment(comparison)
    assert (gaps(comparison, first_screen(comment)), excess(comment)) == ([], [])


@pytest.mark.parametrize("name", BUILDERS)
def test_every_ending_has_a_readable_first_screen(name):
    comment = render_comment(compared(name))
    assert (gaps(compared(name), first_screen(comment)), excess(comment)) == ([], [])


@pytest.mark.parametrize("name", BUILDERS)
def test_every_command_parses(name):
    for arguments in commands(render_comment(compared(name))):
        make_parser().parse_args(arguments)


NAMED = re.compile(r"ci-bench ([a-z][a-z-]*(?: --[a-z][a-z-]*(?: [A-Z]+)?)*)")
"""A command in a sentence: its name and the flags that follow it."""


def mentioned(sentence: str) -> list[list[str]]:
    """The commands that a sentence names with a flag; the others need more to run."""
    return [found.split() for found in NAMED.findall(sentence) if "--" in found]


@pytest.mark.parametrize("rule", sorted(SCENES))
def test_every_next_step_parses(rule):
    step = next_step(situation(rule))
    if step is None:
        return
    lines = [*mentioned(step.text), *([shlex.split(step.command)[1:]] if step.command else [])]
    for arguments in lines:
        make_parser().parse_args(arguments)
    assert {*re.findall(r"--[a-z][a-z-]+", step.text)} <= flags(make_parser())


def test_the_situations_have_commands_and_mentions():
    steps = [step for rule in SCENES if (step := next_step(situation(rule)))]
    assert sum(bool(step.command) for step in steps) >= 10
    assert any(mentioned(step.text) for step in steps)


def test_a_mention_of_an_unknown_flag_is_noticed():
    (arguments,) = mentioned("Save it: ci-bench gate --baseline PATH --keep-baseline.")
    with pytest.raises(SystemExit):
        make_parser().parse_args(arguments)


def test_a_command_with_an_unknown_flag_is_noticed():
    comment = render_comment(compared("regressed"))
    (first, *_) = commands(comment.replace("--filter", "--only"))
    with pytest.raises(SystemExit):
        make_parser().parse_args(first)


MOST_WORDS = 25
HEADLINES = {
    **{
        f"a scene of {rule}": judged(*SCENES[rule], policy=POLICY, scope=SCOPES.get(rule, Scope()))
        for rule in SCENES
    },
    **{name: compared(name) for name in BUILDERS},
}


@pytest.mark.parametrize("name", HEADLINES)
def test_a_headline_is_one_short_sentence(name):
    headline = HEADLINES[name].judgement.headline
    assert len(headline.split()) <= MOST_WORDS
    assert not re.search(r"[.?!] ", headline)
    clauses = [clause for part in headline.rstrip(".").split("; ") for clause in part.split(", ")]
    assert len(clauses) == len({*clauses}), "each fact once"


@pytest.mark.parametrize("name", BUILDERS)
def test_the_first_row_is_of_the_case_in_the_headline(name):
    comparison = compared(name)
    first = next(iter(changes(comparison)), None)
    if (
        comparison.judgement.verdict is RunVerdict.FAILED
        and first is not None
        and first.case is not None
    ):
        assert first.label in comparison.judgement.headline


def test_the_rows_of_a_group_come_where_its_first_finding_does():
    labelled = [row.label for row in changes(compared("grouped"))]
    assert labelled == [
        "attention[dtype=fp32,length=2560]",
        "attention[dtype=fp32,length=2496]",
        "attention[dtype=bf16]",
    ]


def test_there_are_thirty_situations_of_all_three_verdicts():
    assert len(SCENES) >= 30
    assert {situation(rule).judgement.verdict for rule in SCENES} == {*RunVerdict}
    assert {rule for rule, severity in DEFAULT_SEVERITIES.items() if severity is Severity.FAIL} <= {
        *SCENES
    }


@pytest.mark.parametrize(
    "lost", ["verdict", "worst finding", "case", "row of the case", "size", "next step"]
)
def test_a_comment_that_hides_one_of_them_is_noticed(lost):
    comparison = situation(Rule.REGRESSED)
    screen = first_screen(render_comment(comparison))
    hidden = {
        "verdict": lambda line: line.replace("Failed: ", ""),
        "worst finding": lambda line: line.replace("regressed", "different"),
        "case": lambda line: line.replace(" a: ", " ") if line.startswith("###") else line,
        "row of the case": lambda line: line.replace("`a`", ""),
        "size": lambda line: re.sub(r"\d", "", line),
        "next step": lambda line: line.replace("**Next:**", ""),
    }[lost]
    assert lost in gaps(comparison, [hidden(line) for line in screen])


def test_a_comment_that_is_too_large_is_noticed():
    wide = "| a | b | c | d | e | f | g | h |\n" + "| --- " * 8 + "|\n"
    assert excess(wide)[0].startswith("8 columns")
    assert excess("x\n" * 26) == ["26 lines"]


def test_the_next_step_of_open_metrics_is_the_number_of_launches_that_decides_them():
    value = compared("undecided")
    launches = max(
        pair.needed for case in value.cases for pair in case.pairs if pair.needed is not None
    )
    assert f"Raise run.max_launches to {math.ceil(launches)} (run.launches" in next_step(value).text

    budgeted = replace(value.head.run, asked={"budget_s": ("60.0",)})
    spent = next_step(replace(value, head=replace(value.head, run=budgeted))).text
    assert f"Raise the budget (--budget, run.budget_s), for {math.ceil(launches)} launch" in spent

    hopeless = tuple(
        replace(case, pairs=tuple(replace(pair, needed=None) for pair in case.pairs))
        for case in value.cases
    )
    assert "raise the threshold" in next_step(replace(value, cases=hopeless)).text


@pytest.mark.parametrize(
    ("load", "words"),
    [(9.93, "the machine (load 9.9 on 2 cores)"), (0.4, "the machine."), (None, "the machine.")],
)
def test_the_next_step_names_the_load(load, words):
    value = compared("undecided")
    environment = replace(
        value.head.environment, identity={"cpu_cores": 2}, condition={"load_1min": load}
    )
    assert (
        words in next_step(replace(value, head=replace(value.head, environment=environment))).text
    )


def test_the_next_step_names_the_case_of_a_line_that_is_not_the_worst_one():
    text = next_step(compared("explained")).text
    assert text == "Begin with reviews[precision=fp32]: look at model.py:42, then reproduce it:"


def test_a_verdict_without_a_comparison_says_that_the_gate_fails():
    assert next_step(compared("incomparable")).text.endswith(
        "The gate fails until they are compared."
    )
