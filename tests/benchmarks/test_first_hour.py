"""A new user's first hour in five small repositories: the repositories are sound, and steps come out as expected."""

import ast
from dataclasses import replace

import pytest
from benchmarks.first_hour import FirstHour, Outcome, table
from benchmarks.small_project import CONFIG, Step
from benchmarks.small_projects import PROJECTS

from ci_bench.configuration.config import load_config

BY_KIND = {project.kind: project for project in PROJECTS}


@pytest.mark.parametrize("project", PROJECTS, ids=BY_KIND)
def test_every_edit_fits(project, tmp_path):
    """`init` writes what is expected, each change applies to it, and Python can read the result."""
    hour = FirstHour(project, tmp_path)
    (init,) = hour.take([Step.INIT])
    assert init.is_right, init.row()
    for step in project.changes:
        hour._change(step)
        for path in hour.tree.rglob("*.py"):
            ast.parse(path.read_text(), str(path))
        assert load_config(hour.tree / CONFIG).entries, step
    assert {*project.changes} == {*Step} - {Step.INIT, Step.FIRST, Step.UNCHANGED, Step.ACCEPTED}


OUTCOME = Outcome(
    project=BY_KIND["a pure-Python package"],
    step=Step.SLOWER,
    code=1,
    headline="Failed: encode.",
    seconds=1,
)
OPEN = "Not decided: 1 of 4 metrics (encode): too noisy to see 30 % here."


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        ({}, True),
        ({"code": 0}, False),
        ({"headline": "Failed: average."}, False),
        ({"headline": OPEN, "code": 0}, False),
        ({"step": Step.UNCHANGED, "code": 0}, False),
        ({"step": Step.UNCHANGED, "code": 0, "headline": "Passed: 2 cases."}, True),
        ({"step": Step.UNCHANGED, "code": 0, "headline": OPEN}, True),
        ({"step": Step.UNCHANGED, "headline": OPEN}, False),
        ({"step": Step.FIRST, "headline": "Nothing to compare with yet: 2 new benchmarks."}, True),
        ({"step": Step.FIRST, "code": 0, "headline": "Passed: 2 cases."}, False),
    ],
)
def test_an_outcome_is_right(change, is_right):
    outcome = replace(OUTCOME, **change)
    assert outcome.is_right is is_right
    assert outcome.row()["observed"].endswith("(wrong)") is not is_right


def test_the_table_has_a_row_for_each_step():
    long = replace(
        OUTCOME,
        headline="Failed: encode: suspected: step time 449 % slower; 1 warning.",
        seconds=12.4,
    )
    other = replace(
        OUTCOME,
        project=BY_KIND["a model library"],
        step=Step.FIRST,
        code=0,
        headline="Passed: 1 case.",
    )
    kinds = ("a pure-Python package", "a model library")
    assert table([long, other]) == [
        {
            "step": "slower",
            "expected": "1: Failed",
            kinds[0]: "1: Failed: encode: suspected: step time 449 % slower (12 s)",
            kinds[1]: "–",
        },
        {
            "step": "first pull request",
            "expected": "1: Nothing to compare with yet",
            kinds[0]: "–",
            kinds[1]: "0: Passed: 1 case (1 s) **wrong**",
        },
    ]


ROWS = [
    ("a pure-Python package", (Step.FIRST, Step.HARMFUL)),
    ("tests with pytest-benchmark", (Step.NEW, Step.DELETED)),
    ("a model library", (Step.HARMLESS, Step.HARMFUL)),
    ("a kernel library", (Step.SLOWER, Step.ACCEPTED)),
    ("a training script", (Step.HARMLESS, Step.HARMFUL)),
]


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "steps"), ROWS, ids=[kind for kind, _ in ROWS])
def test_steps_come_out_as_expected(kind, steps, tmp_path):
    wrong = [
        outcome.row()
        for outcome in FirstHour(BY_KIND[kind], tmp_path).take(steps)
        if not outcome.is_right
    ]
    assert wrong == []
