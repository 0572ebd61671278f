"""A plan that no document holds is refused before anything is measured."""

import json
from pathlib import Path

import pytest

from ci_bench.errors import BadConfig, BadInput
from ci_bench.fleet.packing import LAST, PIECES
from ci_bench.judge.times.sequential import SequentialRule
from ci_bench.records.config import Config, SuiteEntry
from ci_bench.records.results import Case
from ci_bench.runner.planning import MOST_CASES, plan, require_room
from ci_bench.suites.contract import Stage, StageKind, Suite


class Installed(Suite):
    """An installed plugin that plans a case of this name."""

    name, options_schema = "own", {"type": "object"}

    def __init__(self, **odd):
        self.odd = odd

    def plan(self, options):
        plain = {
            "id": "own/it[n=1]",
            "suite": "own",
            "name": "it",
            "params": {"n": 1},
            "arms": ("one",),
            "reference": "one",
        }
        return (Case(**plain | self.odd),)

    def stages(self, case):
        return (Stage(kind=StageKind.TIME, arms=case.arms),)


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        (
            {"id": "own/it[n=1, m=2]"},
            r"own plans what no document holds, 'own/it\[n=1, m=2\]': \$\.id: ",
        ),
        ({"name": "it is"}, r"own plans what no document holds, 'own/it\[n=1\]': \$\.name: "),
        ({"arms": ("one", "a b")}, r"\$\.arms\[1\]: "),
        ({"params": {"n": float("inf")}}, r"\$\.params\.n"),
    ],
    ids=["id", "name", "arm", "parameter"],
)
def test_a_case_that_no_document_holds_is_refused_before_it_is_measured(odd, says):
    config = Config(entries=(SuiteEntry(suite="own", options={}),))
    assert len(plan(config, (), lambda _: Installed())) == 1
    with pytest.raises(BadConfig, match=says):
        plan(config, (), lambda _: Installed(**odd))


SCHEMAS = Path(__file__).parents[2] / "schemas"


def test_a_plan_is_no_larger_than_a_document():
    row = (None, None)
    assert len(require_room((row,) * MOST_CASES)) == MOST_CASES
    with pytest.raises(
        BadInput, match="the plan has 10,001 cases, but a document holds at most 10,000: split it"
    ):
        require_room((row,) * (MOST_CASES + 1))


@pytest.mark.parametrize("kind", ["results", "comparison"])
def test_documents_hold_as_many_cases_as_a_plan_may_have(kind):
    schema = json.loads((SCHEMAS / f"{kind}.json").read_text())
    assert schema["properties"]["cases"]["maxItems"] == MOST_CASES


@pytest.mark.parametrize("what", ["parts", "losses"])
def test_documents_hold_as_many_leases_as_a_thousand_slots_measure(what):
    """Each is a part, and may be a loss at all of its attempts but the last."""
    schema = json.loads((SCHEMAS / "results.json").read_text())
    leases = len(SequentialRule().looks) * (len(PIECES) + LAST) * 1000
    assert schema["properties"][what]["maxItems"] >= 2 * leases
