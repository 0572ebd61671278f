"""The table of gates on the simulated card: what is red, what was found, of how many."""

import pytest
from benchmarks.card_quality import is_alarm, rows

QUIET = {
    "planted": False,
    "cases": 2,
    "exit_code": 0,
    "verdicts": {"a": "unchanged", "b": "unchanged"},
    "launches": 4,
    "seconds": 9.0,
}


@pytest.mark.parametrize(
    ("changed", "alarm"),
    [
        ({}, False),
        ({"verdicts": {"a": "unchanged", "b": "improved"}}, False),
        ({"verdicts": {"a": "unchanged", "b": "inconclusive"}}, False),
        ({"verdicts": {"a": "unchanged", "b": "suspected"}}, True),
        ({"verdicts": {"a": "regressed", "b": "unchanged"}}, True),
        ({"exit_code": 1}, True),
    ],
)
def test_a_gate_of_unchanged_code_is_an_alarm_where_anything_of_it_is_worse(changed, alarm):
    assert is_alarm({**QUIET, **changed}) is alarm


def test_gates_and_cases_are_counted_apart():
    found = {
        **QUIET,
        "planted": True,
        "exit_code": 1,
        "verdicts": {"a": "regressed", "b": "inconclusive"},
    }
    same, slower = rows(
        [QUIET, found, QUIET, found, {**found, "verdicts": {"a": "regressed", "b": "regressed"}}]
    )
    assert (same["code"], same["gates"], same["launches a case"]) == (
        "unchanged",
        "2 of 2 cases",
        "2.0",
    )
    assert same["gates that are red"].startswith("0 of 2 [")
    assert same["cases regressed"].startswith("0 of 4 [")
    assert (slower["code"], slower["all verdicts"]) == ("+5 %", "inconclusive 2, regressed 4")
    assert slower["gates that are red"].startswith("3 of 3 [")
    assert slower["cases regressed"].startswith("4 of 6 [")
