"""Batches that differ in rows and in length: the same for both arms, every size verified, recompilations counted, marks kept."""

import pytest
import torch
from transformers_builders import (
    agrees,
    case,
    cases,
    context,
    options,
    outcomes,
    program,
    tiny,
    workload,
)

from ci_bench.errors import BadConfig
from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Compiler, Unsupported, no_mark
from ci_bench.suites.transformers.options import parse
from ci_bench.suites.transformers.plan import SUITE
from ci_bench.suites.transformers.run import open_workload
from ci_bench.worker.compilation import CompileCounter

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("fresh_dynamo")]

BOTH = {"dynamic": True, "varies": ["batch", "sequence"], "batch_size": 4, "sequence_length": 16}
ROWS, LENGTHS = {2, 3, 4, 5, 6}, {8, 10, 12, 14, 16}


def sizes(one):
    return [tuple(batch["input_ids"].shape) for batch in one._program._parts.batches]


def compiled_twice(**entry):
    """What dynamo counted of two steps over all sizes."""
    only = case(**entry)
    counter = CompileCounter()
    opened = open_workload(only, context()).open(only.arms[1])
    opened.step(no_mark)
    opened.step(no_mark)
    return counter.read()


def test_rows_and_lengths_differ_by_themselves_and_are_those_of_both_arms():
    eager, candidate = (program(arm, **tiny("gpt2"), **BOTH) for arm in ("eager", "dynamo-eager"))
    assert sizes(eager) == sizes(candidate)
    assert ({rows for rows, _ in sizes(eager)}, {length for _, length in sizes(eager)}) == (
        ROWS,
        LENGTHS,
    )
    assert [rows / 4 for rows, _ in sizes(eager)] != [length / 16 for _, length in sizes(eager)]
    assert (eager.items, eager.parts, candidate.compiler) == (sum(ROWS), (), Compiler.DYNAMO)
    lengths_alone = program(**tiny("gpt2"), **{**BOTH, "varies": ["sequence"]})
    assert {rows for rows, _ in sizes(lengths_alone)} == {4}
    assert len(sizes(lengths_alone)) == 5


def test_images_differ_in_rows_alone():
    rows_alone = program(**tiny("vit"), dynamic=True, batch_size=4)
    assert {len(batch["pixel_values"]) for batch in rows_alone._program._parts.batches} == ROWS
    with pytest.raises(
        Unsupported,
        match=r"varies: ViTForImageClassification reads no sequence; use `varies: \[batch\]`",
    ):
        workload(**tiny("vit"), **BOTH).prepare()


def test_a_step_takes_every_size_and_trains_on_all_of_them():
    trained, by_hand = (
        program(**tiny("gpt2"), mode="training", **BOTH),
        program(**tiny("gpt2"), mode="training", **BOTH),
    )
    trained.step(no_mark)
    for _ in range(5):
        by_hand._program.step(no_mark)
    assert all(
        torch.equal(*pair)
        for pair in zip(trained.model.parameters(), by_hand.model.parameters(), strict=True)
    )
    assert set(outcomes(trained).values()) == {Outcome.PASS}


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_refereed_steps_leave_what_came_of_each_size_and_go_back(mode):
    timed = program(**tiny("gpt2"), mode=mode, **BOTH)
    timed.step(no_mark)
    before = [batch["input_ids"].clone() for batch in timed._program._parts.batches]
    shapes = sizes(timed)
    for moved in (False, True):
        assert timed.refresh(7, moved=moved)
        timed.step(no_mark)
        assert {
            name.split(".")[1] for name in timed.outputs() if name.startswith("outputs.")
        } == set("01234")
        assert ("loss" in timed.outputs()) is (mode == "training")
        now = [batch["input_ids"] for batch in timed._program._parts.batches]
        assert [not torch.equal(*pair) for pair in zip(now, before, strict=True)] == [not moved] * 5
        timed.resume()
        assert all(torch.equal(*pair) for pair in zip(now, before, strict=True))
    assert sizes(timed) == shapes


@pytest.mark.parametrize(
    ("shapes", "mode", "candidate"),
    [
        ("symbols", "inference", "eager"),
        ("marked", "training", "eager"),
        ("symbols", "inference", "export"),
    ],
)
def test_every_size_is_verified(shapes, mode, candidate):
    check = agrees(
        **{**tiny("bert"), **BOTH, "mode": mode, "dynamic_shapes": shapes, "candidate": candidate}
    )
    assert check.outcome is Outcome.PASS, check.detail
    assert "5 steps over all 5 batches" in check.detail


def test_a_result_that_is_wrong_at_one_length_fails_and_passes_where_no_batch_has_it():
    planted = {"candidate": "planted_compilers:wrong_at_ten"}
    wrong = agrees(**{**tiny("gpt2"), **BOTH, **planted})
    assert (wrong.outcome, "off by" in wrong.detail) == (Outcome.FAIL, True), wrong.detail
    assert (
        agrees(**{**tiny("gpt2"), **BOTH, "varies": ["batch"], **planted}).outcome is Outcome.PASS
    )


def test_one_graph_serves_all_marked_sizes_and_what_compiles_each_anew_is_counted():
    marked = compiled_twice(**{**tiny("gpt2"), **BOTH, "dynamic_shapes": "marked"})
    assert (marked.graphs, marked.recompiles) == (1, 0)
    anew = compiled_twice(
        **{**tiny("gpt2"), **BOTH, "candidate": {"backend": "eager", "dynamic": False}}
    )
    assert (anew.graphs, anew.recompiles) == (5, 4)


def test_a_model_that_depends_on_a_marked_size_is_skipped_with_the_reason(monkeypatch):
    opened = program("dynamo-eager", **{**tiny("gpt2"), **BOTH, "dynamic_shapes": "marked"})
    attend = opened.model.transformer.h[0].attn.forward
    monkeypatch.setattr(
        opened.model.transformer.h[0].attn,
        "forward",
        lambda states, *given, **named: attend(states[:, : unrolled(states)], *given, **named),
    )
    with pytest.raises(
        Unsupported,
        match="dynamic_shapes: the model depends on a marked size: Constraints violated",
    ):
        opened.step(no_mark)


def unrolled(states):
    """As many positions as there are, counted one by one, as a loop over them does."""
    return len([0 for _ in range(states.shape[1])])


def test_a_failure_that_has_nothing_to_do_with_sizes_stays_one():
    opened = program(
        "planted_compilers:no_compiler",
        **{
            **tiny("gpt2"),
            **BOTH,
            "dynamic_shapes": "marked",
            "candidate": "planted_compilers:no_compiler",
        },
    )
    with pytest.raises(Exception, match="this backend compiles nothing") as found:
        opened.step(no_mark)
    assert not isinstance(found.value, Unsupported)


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (
            {"varies": ["sequence"]},
            r"transformers\.varies: shapes are not dynamic; add `dynamic: true`",
        ),
        (
            {"dynamic_shapes": "marked"},
            r"transformers\.dynamic_shapes: shapes are not dynamic; add `dynamic: true`",
        ),
        (
            {"dynamic": True, "dynamic_shapes": "marked", "candidate": "export"},
            "export is captured without it; leave it out",
        ),
        (
            {"dynamic": True, "dynamic_shapes": "unbacked", "compile": {"dynamic": True}},
            "contradicted by `dynamic` under `compile`",
        ),
        (
            {"dynamic": True, "mode": ["inference", "generation"]},
            r"dynamic: each token of a generation makes it longer",
        ),
        (
            {"dynamic": True, "batch_size": [2, "largest"]},
            "largest is one size, and `dynamic: true` has several",
        ),
    ],
)
def test_what_would_not_act_is_refused(entry, fault):
    with pytest.raises(BadConfig, match=fault):
        SUITE.plan({"model": "gpt2", **entry})


def test_a_case_says_how_its_shapes_are_dynamic_and_others_have_the_parameters_of_earlier_versions():
    (plain,) = cases(model="gpt2")
    assert {"dynamic", "varies", "dynamic_shapes", "largest"} & set(plain.params) == set()
    (shaped,) = cases(model="gpt2", **BOTH, dynamic_shapes="unbacked")
    assert "seq=16,shapes=unbacked," in shaped.id
    assert parse(shaped.params).as_params() == shaped.params
    assert options(model="gpt2", **BOTH).varies == ("batch", "sequence")
