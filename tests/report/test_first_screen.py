"""The first screen of a comment, twelve lines and no fold: verdict, worst finding, case, size and next step are there."""

import re

import pytest
from judge_builders import judged
from test_verdict import SCENES, SCOPES, Scope

from ci_bench.records.comparison import RunVerdict
from ci_bench.records.config import DEFAULT_SEVERITIES, Floor, Policy, Rule, Severity, SuitePolicy
from ci_bench.report.cells import ICONS
from ci_bench.report.markdown import render_comment
from ci_bench.report.words import Mood

LINES = 12
WORDS = {
    RunVerdict.PASSED: (("✅", "⚠️"), "Passed: "),
    RunVerdict.UNDECIDED: ((ICONS[Mood.OPEN],), "Not decided: "),
    RunVerdict.FAILED: ((ICONS[Mood.BAD],), "Failed: "),
}
SIZED = {
    Rule.REGRESSED,
    Rule.SUSPECTED,
    Rule.POSSIBLE,
    Rule.COMMON_SHIFT,
    Rule.BELOW_FLOOR,
    Rule.IMPLAUSIBLE,
    Rule.ACCURACY_BROKEN,
}
"""The rules whose finding is a quantity."""
POLICY = Policy(suites={"floored": SuitePolicy(floors={Floor.SPEEDUP: 2.0})}, drift=0.05)


def first_screen(comment: str) -> list[str]:
    return comment.partition("<details>")[0].splitlines()[:LINES]


def gaps(comparison, screen: list[str]) -> list[str]:
    """What a reader does not find on the first screen."""
    text = "\n".join(screen).replace("\\", "")
    icons, word = WORDS[comparison.judgement.verdict]
    loud = [found for found in comparison.judgement.findings if found.severity is not Severity.NOTE]
    missing = [] if any(screen[0].startswith(f"### {icon} {word}") for icon in icons) else ["verdict"]
    if loud:
        worst = loud[0]
        missing += [] if worst.rule.replace("_", " ") in text or worst.message in text else ["worst finding"]
        missing += [] if worst.case is None or f"`{worst.case}`" in text else ["case"]
        missing += [] if worst.rule not in SIZED or re.search(r"\d\s?%|\d(\.\d+)? times|speedup|\d of", text) else ["size"]
    if comparison.judgement.verdict is not RunVerdict.PASSED:
        missing += [] if any(line.startswith("**Next:** ") for line in screen) else ["next step"]
    return missing


def situation(rule: Rule):
    return judged(*SCENES[rule], policy=POLICY, scope=SCOPES.get(rule, Scope()))


@pytest.mark.parametrize("rule", sorted(SCENES))
def test_a_reader_finds_what_matters_on_the_first_screen(rule):
    comparison = situation(rule)
    assert gaps(comparison, first_screen(render_comment(comparison))) == []


def test_there_are_thirty_situations_of_all_three_verdicts():
    assert len(SCENES) >= 30
    assert {situation(rule).judgement.verdict for rule in SCENES} == {*RunVerdict}
    assert {rule for rule, severity in DEFAULT_SEVERITIES.items() if severity is Severity.FAIL} <= {*SCENES}


@pytest.mark.parametrize("lost", ["verdict", "worst finding", "case", "size", "next step"])
def test_a_comment_that_hides_one_of_them_would_be_seen(lost):
    comparison = situation(Rule.REGRESSED)
    screen = first_screen(render_comment(comparison))
    hidden = {
        "verdict": lambda line: line.replace("Failed: ", ""),
        "worst finding": lambda line: line.replace("regressed", "different").replace("threshold", ""),
        "case": lambda line: line.replace("`s/a`", ""),
        "size": lambda line: re.sub(r"\d|speedup", "", line),
        "next step": lambda line: line.replace("**Next:**", ""),
    }[lost]
    assert lost in gaps(comparison, [hidden(line) for line in screen])
