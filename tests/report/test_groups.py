"""What cases that changed have in common: a planted group is named, scattered changes are none, and no finding is lost."""

import random
from dataclasses import replace
from io import StringIO
from itertools import product

import pytest
from report_builders import case, comparison, fail, memory, pair
from rich.console import Console
from test_html_report import parsed, rendered

from ci_bench.records.comparison import Comparison, Verdict
from ci_bench.records.config import Rule
from ci_bench.report.groups import covered, groups
from ci_bench.report.markdown import render_comment, render_report
from ci_bench.report.terminal import print_comparison

DTYPES = ("bf16", "fp16", "fp32", "fp64", "int8", "fp8e4m3", "fp8e5m2")
GRID = tuple(product(DTYPES, (16, 32, 64, 96, 128, 256), range(12)))
"""504 cases: types, head sizes and twelve shapes of each."""


def ids(points=GRID) -> list[str]:
    return [
        f"functions/attention[dtype={dtype},head={head},shape={2 ** (shape + 4)}x{head}]"
        for dtype, head, shape in points
    ]


def run(
    slower=(), better=(), points=GRID, *, arms=("mine",), size: float = 0.04, extra=()
) -> Comparison:
    """A gate of all points, of which some became slower by `size`, and some faster."""
    slower, better = {*slower}, {*better}

    def timed(place: int, arm: str):
        spread = 0.0001 * (place % 7)
        if arm == arms[-1] and place in slower:
            return pair(arm=arm, verdict=Verdict.REGRESSED, speedup=1 / (1 + size + spread))
        if arm == arms[-1] and place in better:
            return pair(arm=arm, verdict=Verdict.IMPROVED, speedup=1 + size + spread)
        return pair(arm=arm)

    cases = [
        case(
            name,
            Verdict.REGRESSED if place in slower else Verdict.UNCHANGED,
            pairs=(*(timed(place, arm) for arm in arms), memory(arm=arms[0])),
            arms=arms,
            reference=arms[0],
            speedups=(),
        )
        for place, name in enumerate(ids(points))
    ]
    findings = tuple(
        fail(Rule.REGRESSED, f"step time of {arms[-1]}: {size:.0%} slower", cases[place].id)
        for place in sorted(slower)
    )
    return comparison(*cases, headline="Regressed", findings=(*findings, *extra))


def places(**wanted) -> list[int]:
    names = ("dtype", "head", "shape")
    return [
        place
        for place, point in enumerate(GRID)
        if all(
            dict(zip(names, point, strict=True))[name] in values for name, values in wanted.items()
        )
    ]


PLANTED = places(dtype={"bf16"}, head={128})


def conditions(value: Comparison) -> list[tuple[bool, dict[str, str], int, int]]:
    return [
        (group.worse, dict(group.conditions), len(group.pairs), group.size)
        for group in groups(value)
    ]


def test_twelve_of_five_hundred_that_share_two_parameters_are_named_by_them() -> None:
    value = run(PLANTED)
    assert (len(value.cases), len(PLANTED)) == (504, 12)
    (group,) = groups(value)
    assert (group.name, group.conditions) == (
        "functions/attention",
        (("dtype", "bf16"), ("head", "128")),
    )
    assert (group.extent, group.change) == (
        "each of the 12 cases",
        "up to 4.1 % slower in each of the 12 cases (median: 4.0 % slower)",
    )
    assert covered(value, (group,)) == {*value.judgement.findings}


def claimed(number: int, draws: int = 20) -> int:
    """Of so many draws of scattered cases, how many have a group."""
    return sum(
        bool(groups(run(random.Random(seed).sample(range(len(GRID)), number))))
        for seed in range(draws)
    )


@pytest.mark.parametrize("number", [2, 12, 50, 250])
def test_scattered_changes_are_no_group(number: int) -> None:
    """By the rule one draw in twenty may look like a group, and none of these does."""
    assert claimed(number) == 0


def test_without_the_bound_on_chance_they_would_be(monkeypatch) -> None:
    monkeypatch.setattr("ci_bench.report.groups.CHANCE", float("inf"))
    assert claimed(250) > 0


def test_one_case_is_just_itself() -> None:
    value = run(PLANTED[:1])
    assert groups(value) == ()
    assert covered(value, ()) == frozenset()
    assert "together" not in render_comment(value)


@pytest.mark.parametrize(
    ("slower", "found"),
    [
        (PLANTED[1:], [(True, {"dtype": "bf16", "head": "128"}, 11, 12)]),
        (PLANTED[4:], []),
        (places(dtype={"fp8e4m3"}), [(True, {"dtype": "fp8e4m3"}, 72, 72)]),
        (
            [*PLANTED, *places(head={64})],
            [(True, {"head": "64"}, 84, 84), (True, {"dtype": "bf16", "head": "128"}, 12, 12)],
        ),
        ([*PLANTED, places(head={64})[0]], [(True, {"dtype": "bf16", "head": "128"}, 12, 12)]),
        (range(len(GRID)), [(True, {}, 504, 504)]),
        (range(12, len(GRID)), [(True, {}, 492, 504)]),
    ],
    ids=[
        "eleven of twelve",
        "eight of twelve",
        "one parameter",
        "two groups",
        "a group and one more",
        "all",
        "nearly all",
    ],
)
def test_the_largest_sets_are_named_with_how_many_of_them_changed(slower, found) -> None:
    assert conditions(run(slower)) == found


def test_what_became_faster_is_a_group_of_its_own_and_comes_after_what_became_slower() -> None:
    found = conditions(run(PLANTED, places(head={16})))
    assert found == [
        (True, {"dtype": "bf16", "head": "128"}, 12, 12),
        (False, {"head": "16"}, 84, 84),
    ]


def test_suspected_changes_belong_to_a_group_and_are_counted() -> None:
    value = run(PLANTED)
    cases = list(value.cases)
    for place in PLANTED[:3]:
        suspected = [
            replace(one, verdict=Verdict.SUSPECTED) if one.verdict is Verdict.REGRESSED else one
            for one in cases[place].pairs
        ]
        cases[place] = replace(cases[place], pairs=tuple(suspected))
    (group,) = groups(replace(value, cases=tuple(cases)))
    assert group.extent == "each of the 12 cases (3 of them suspected)"


def test_with_several_arms_the_group_names_the_one_that_changed() -> None:
    (group,) = groups(run(PLANTED, arms=("torch", "mine")))
    assert (group.arm, group.several_arms) == ("mine", True)
    assert "| step time (`mine`) | **up to 4.1 % slower" in render_comment(
        run(PLANTED, arms=("torch", "mine"))
    )


def test_a_comment_says_the_group_in_one_line_and_folds_its_findings_and_keeps_all_others() -> None:
    other = fail(Rule.CHECK_FAILED, "agrees (mine): off by 3", ids()[0])
    text = render_comment(run([*PLANTED, 3], extra=(other,)))
    line = "| ❌ regressed | `attention[dtype=bf16,head=128]` | step time | **up to 4.1 % slower in each of the 12 cases (median: 4.0 % slower)** |"
    top, fold, folded = text.replace("\u00a0", " ").partition("<summary>Findings in full (14)")
    line = line.replace("step time |", "step time | – | – |") if line not in top else line
    assert (top.count(line), bool(fold)) == (1, True)
    assert top.index(line) < top.index("off by 3")
    assert (
        top.count("| ❌ regressed |") == 2
    )  # the group, and the thirteenth case, which is in no group
    assert folded.count("- ❌ **regressed**") == 13
    assert render_report(run(PLANTED)).count("- ❌ **regressed**") == 12


def test_a_case_that_is_worse_in_another_way_too_keeps_its_finding_in_sight() -> None:
    value = run(PLANTED)
    first = value.cases[PLANTED[0]]
    worse = replace(
        first, pairs=(first.pairs[0], replace(first.pairs[1], verdict=Verdict.REGRESSED))
    )
    value = replace(value, cases=tuple(worse if one is first else one for one in value.cases))
    hidden = covered(value, groups(value))
    assert {finding.case for finding in value.judgement.findings} - {
        finding.case for finding in hidden
    } == {first.id}


def test_the_page_and_the_terminal_say_the_same() -> None:
    value = run(PLANTED)
    text = " ".join("".join(parsed(rendered(value)).text).split())
    assert "Groups of cases" in text
    assert "dtype=bf16, head=128" in text
    assert "Findings of these groups, case by case (12)" in text
    console = Console(file=StringIO(), width=300)
    print_comparison(value, console)
    said = console.file.getvalue()
    assert (
        "attention[dtype=bf16,head=128]: step time up to 4.1 % slower in each of the 12 cases (median: 4.0 % slower)"
        in said
    )


def test_names_from_outside_are_escaped() -> None:
    points = [
        (dtype, head, shape) for dtype in ("<b>x</b>", "`|@me") for _, head, shape in GRID[:36]
    ]
    value = run(range(36), points=points)
    assert conditions(value) == [(True, {"dtype": "<b>x</b>"}, 36, 36)]
    assert "`attention[dtype=<b>x</b>]` | step time" in render_comment(value)
    assert "<b>x" not in rendered(value)
