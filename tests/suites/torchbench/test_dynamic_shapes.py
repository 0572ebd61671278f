"""Batches that differ in rows and in length: the same ones in both arms, every size verified, recompilations counted, marks kept.

State: models of the zoo and of `planted_models`, one thread, CPU, `aot_eager`, which compiles
shapes as inductor does.
"""

import pytest
import torch
from torchbench_builders import accuracy, checks_of, opened, own, word

from ci_bench.errors import BadConfig
from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Unsupported, no_mark
from ci_bench.suites.shared.planning.sizes import DynamicShapes
from ci_bench.suites.shared.worker.marks import shape_marks
from ci_bench.suites.torchbench.options import parse
from ci_bench.suites.torchbench.plan import SUITE
from ci_bench.worker.compilation import CompileCounter

pytestmark = pytest.mark.engine

BOTH = {"dynamic": True, "varies": ["batch", "sequence"]}
ROWS_OF_DECODER, LENGTH_OF_DECODER = 8, 24


def texts(**options):
    return own("Texts", mode="inference", **BOTH, model_options=options)


def compiled_twice(**entry):
    """What dynamo counted of two steps over all sizes, and the sizes."""
    case, workload = opened(**entry)
    counter = CompileCounter()
    program = workload.open(case.arms[1])
    program.step(no_mark)
    program.step(no_mark)
    return counter.read(), [tuple(sample.args[0].shape) for sample in program._ready.samples]


def test_rows_and_lengths_differ_by_themselves_and_are_those_of_both_arms():
    case, workload = opened(models=["decoder"], mode="inference", **BOTH)
    eager, candidate = (workload.open(arm)._ready.samples for arm in case.arms)
    assert all(
        torch.equal(one.args[0], other.args[0]) for one, other in zip(eager, candidate, strict=True)
    )
    shapes = [tuple(one.args[0].shape) for one in eager]
    assert {rows for rows, _ in shapes} == {4, 6, 8, 10, 12}
    assert {length for _, length in shapes} == {12, 15, 18, 21, 24}
    assert [rows / ROWS_OF_DECODER for rows, _ in shapes] != [
        length / LENGTH_OF_DECODER for _, length in shapes
    ]


def test_lengths_alone_leave_the_rows_as_they_are():
    case, workload = opened(models=["decoder"], mode="inference", dynamic=True, varies=["sequence"])
    shapes = [tuple(one.args[0].shape) for one in workload.open(case.arms[0])._ready.samples]
    assert {rows for rows, _ in shapes} == {ROWS_OF_DECODER}
    assert len({length for _, length in shapes}) == 5


@pytest.mark.parametrize(
    ("shapes", "mode"),
    [("symbols", "inference"), ("marked", "training"), ("unbacked", "inference")],
)
def test_every_size_is_verified(shapes, mode):
    case, workload = opened(models=["decoder"], mode=mode, dynamic_shapes=shapes, **BOTH)
    evidence = workload.verify(case.arms)
    check = checks_of(evidence)["accuracy"]
    assert (check.outcome, evidence.facts["verified_batches"]) == (Outcome.PASS, 5), check.detail


def test_one_graph_serves_all_marked_sizes_and_a_model_that_needs_more_is_counted():
    marked, sizes = compiled_twice(
        models=["decoder"], mode="inference", dynamic_shapes="marked", **BOTH
    )
    assert (marked.graphs, marked.recompiles, len(set(sizes))) == (1, 0, 5)
    unrolled, sizes = compiled_twice(models=["lstm"], mode="inference", **BOTH)
    assert unrolled.recompiles == len({length for _, length in sizes}) - 1


def test_a_result_that_is_wrong_at_one_length_fails_and_its_neighbour_passes():
    right, wrong = (accuracy(**texts(wrong=flag)) for flag in (False, True))
    assert (right.outcome, word(right)) == (Outcome.PASS, "pass"), right.detail
    assert (wrong.outcome, word(wrong)) == (Outcome.FAIL, "fail_accuracy")
    fixed = accuracy(**own("Texts", mode="inference", model_options={"wrong": True}))
    assert fixed.outcome is Outcome.PASS, "with one length the defect does not show"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (
            {"models": ["lstm"], "dynamic_shapes": "marked"},
            "the model depends on a marked size: Constraints violated",
        ),
        (
            {**texts(asks=True), "dynamic_shapes": "unbacked", "nopython": True},
            "the model depends on a marked size: ",
        ),
        ({"models": ["vit"]}, "varies: no input of this model has a sequence"),
        ({"models": ["mlp"]}, "varies: no input of this model has a sequence"),
    ],
)
def test_a_model_without_such_shapes_is_skipped_with_the_reason(entry, reason):
    case, workload = opened(**{"mode": "inference", **BOTH, **entry})
    with pytest.raises(Unsupported, match=reason):
        workload.verify(case.arms)


def test_a_failure_that_has_nothing_to_do_with_sizes_stays_a_failure():
    case, workload = opened(
        **own(
            "Texts", mode="inference", backend="test_planted:none", dynamic_shapes="marked", **BOTH
        )
    )
    with pytest.raises(Exception, match="test_planted") as found:
        workload.verify(case.arms)
    assert not isinstance(found.value, Unsupported)


@pytest.mark.parametrize("shapes", ["marked", "unbacked"])
def test_the_dimensions_that_differ_are_marked_and_no_others(shapes):
    case, workload = opened(
        models=["decoder"],
        mode="inference",
        dynamic=True,
        varies=["sequence"],
        dynamic_shapes=shapes,
    )
    (sample, *others) = workload.open(case.arms[0])._ready.samples
    leaves = [(one.args, one.target) for one in (sample, *others)]
    shape_marks(DynamicShapes(shapes), leaves)(leaves[0])
    attribute = "_dynamo_dynamic_indices" if shapes == "marked" else "_dynamo_unbacked_indices"
    assert [sorted(getattr(leaf, attribute)) for leaf in (sample.args[0], sample.target)] == [
        [1],
        [1],
    ]


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"varies": ["sequence"]}, r"varies: shapes are not dynamic; add `dynamic: true`"),
        (
            {"dynamic_shapes": "marked"},
            r"dynamic_shapes: shapes are not dynamic; add `dynamic: true`",
        ),
        (
            {"dynamic": True, "dynamic_shapes": "marked", "backend": "export"},
            "export is captured without it; leave it out",
        ),
        (
            {"dynamic": True, "dynamic_shapes": "unbacked", "compile": {"dynamic": True}},
            "contradicted by `dynamic` under `compile`",
        ),
    ],
)
def test_what_would_not_act_is_refused(entry, fault):
    with pytest.raises(BadConfig, match=fault):
        SUITE.plan({"models": ["decoder"], "mode": "inference", **entry})


def test_cases_that_ask_for_neither_have_the_parameters_of_earlier_versions():
    (case,) = SUITE.plan({"models": ["mlp"], "mode": "inference", "dynamic": True})
    assert {"varies", "dynamic_shapes"} & set(case.params["settings"]) == set()
    (case,) = SUITE.plan(
        {"models": ["decoder"], "mode": "inference", **BOTH, "dynamic_shapes": "marked"}
    )
    assert parse(case.params).as_params() == case.params
