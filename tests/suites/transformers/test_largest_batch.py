"""`batch_size: largest`: a search of its own stage, by eager's steps, and what it found is what every later stage opens."""

from dataclasses import replace

import pytest
from transformers_builders import case, cases, context, tiny

from ci_bench.errors import BadConfig
from ci_bench.suites.contract import SizeLimits, StageKind
from ci_bench.suites.transformers.options import parse
from ci_bench.suites.transformers.plan import SUITE
from ci_bench.suites.transformers.run import open_workload

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("fresh_dynamo")]

LARGEST = {"batch_size": "largest", "largest_batch": {"most": 64, "memory_bytes": 1_000_000_000}}


def test_one_stage_searches_and_the_limits_are_parameters():
    only = case(model="gpt2", **LARGEST)
    assert ",batch=largest,seq=8," in only.id
    assert only.params["batch_size"] is None
    assert parse(only.params).largest == SizeLimits(most=64, memory_bytes=1_000_000_000)
    assert parse(only.params).as_params() == only.params
    searches = [stage for stage in SUITE.stages(only) if stage.kind is StageKind.SIZE]
    assert [(stage.arms, stage.exclusive, stage.limits) for stage in searches] == [
        (("eager",), True, parse(only.params).largest)
    ]
    assert StageKind.SIZE not in {stage.kind for stage in SUITE.stages(case(model="gpt2"))}


def test_largest_stands_beside_sizes_that_are_given():
    given, largest = cases(model="gpt2", **{**LARGEST, "batch_size": [3, "largest"]})
    assert (given.params["batch_size"], "largest" in given.params) == (3, False)
    assert parse(largest.params).largest is not None


def test_limits_of_no_search_are_refused():
    with pytest.raises(
        BadConfig,
        match=r"transformers\.largest_batch: no batch size is searched for; use `batch_size: largest`",
    ):
        SUITE.plan({"model": "gpt2", "batch_size": 4, "largest_batch": {"most": 8}})


@pytest.mark.parametrize(
    ("mode", "per_row"), [("inference", 1), ("training", 1), ("generation", 4)]
)
def test_what_was_found_is_what_every_later_stage_opens(mode, per_row):
    only = case(**tiny("gpt2"), **LARGEST, mode=mode)
    before = open_workload(only, context())
    before.prepare()
    assert before.open_sized("eager", 5).items == 5 * per_row
    with pytest.raises(AssertionError, match="the largest batch was not searched for"):
        before.open("eager")
    after = open_workload(only, replace(context(), largest_batch=3))
    assert {after.open(arm).items for arm in only.arms} == {3 * per_row}
