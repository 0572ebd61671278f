"""Timed calls of models under a referee: what remembers, skips or postpones is refused by name, what is honest is not."""

import pytest
from refereeing import evidence_of_turns, referee_checks
from torch._dynamo.utils import counters
from torchbench_builders import context, opened

from ci_bench.records.results import Outcome
from ci_bench.worker import referee

pytestmark = pytest.mark.engine


def refereed(entry, **options):
    """The check of the candidate after a launch of a few turns, some of them refereed."""
    case, workload = opened(**entry)
    return referee_checks(workload, case.arms, context(), **options).get(case.arms[-1])


def zoo(model, backend, **entry):
    return {"source": "zoo", "models": [model], "mode": "inference", "backend": backend, **entry}


def planted(name, model="mlp", **entry):
    return zoo(model, f"planted_replays:{name}", **entry)


CHEATS = {
    "by_address": "differs from the reference",
    "by_first_element": "differs from the reference",
    "by_count": "differs from the reference",
    "by_seed": "differs from the reference",
    "every_other": "differs from the reference",
    "half_batch": "differs from the reference",
    "while_collected": "differs from the reference",
    "lazily": "in place of tensors",
}


@pytest.mark.parametrize("name", CHEATS)
def test_what_was_not_computed_in_the_timed_call_is_refused_by_name(name):
    check = refereed(planted(name))
    assert check.outcome is Outcome.FAIL, check
    assert CHEATS[name] in check.detail


@pytest.mark.alone
def test_what_is_right_but_remembered_is_refused_for_its_time():
    check = refereed(planted("by_value", model="resnet"), calls=1)
    assert check.outcome is Outcome.FAIL, check
    assert "remembers results" in check.detail


def test_what_is_written_behind_the_clock_is_refused():
    check = refereed(planted("later"))
    assert check.outcome is Outcome.FAIL, check


def untouched(entry):
    """By arm, what was found to be changed of what all arms share."""
    case, workload = opened(**entry)
    checks = evidence_of_turns(workload, case.arms, context()).checks
    return {
        check.arm: (check.outcome, check.detail) for check in checks if check.name == "untouched"
    }


def test_what_replaces_a_function_that_checks_are_made_with_is_named(monkeypatch):
    monkeypatch.setattr(referee, "agree", referee.agree)  # it is put back
    outcome, said = untouched(planted("patching"))["eager"]
    assert outcome is Outcome.FAIL
    assert "replaced what samples and checks are made with: ci_bench.worker.referee.agree" in said


@pytest.mark.parametrize("backend", ["aot_eager", "planted_replays:static_outputs"])
def test_what_changes_nothing_that_is_shared_has_no_such_check(backend):
    assert untouched(zoo("mlp", backend)) == {}


HONEST = ["static_outputs", "by_shape", "on_own_buffers"]


@pytest.mark.parametrize(
    ("name", "calls"), [(name, calls) for name, calls in zip(HONEST, (1, 8, 8), strict=True)]
)
def test_honest_ways_to_be_fast_are_right(name, calls):
    check = refereed(planted(name), calls=calls)
    assert check.outcome is Outcome.PASS, check


MODELS = {
    "inference": ["resnet", "decoder", "gnn", "recommender"],
    "training": ["mlp", "encoder", "lstm"],
}


@pytest.mark.parametrize(
    ("mode", "model"), [(mode, model) for mode, models in MODELS.items() for model in models]
)
def test_a_right_backend_agrees_on_models_of_many_kinds(model, mode):
    check = refereed(zoo(model, "aot_eager", mode=mode), calls=2)
    assert check.outcome is Outcome.PASS, check


def test_copies_that_take_turns_are_all_looked_at():
    assert refereed(zoo("mlp", "aot_eager"), rotate=3).outcome is Outcome.PASS
    assert refereed(planted("by_address"), rotate=3).outcome is Outcome.FAIL


def test_gradients_of_before_are_refused():
    check = refereed(planted("stale_gradients", mode="training"))
    assert check.outcome is Outcome.FAIL, check


def of_the_reference(model):
    case, workload = opened(
        source="own", models=[f"planted_models:{model}"], mode="inference", backend="aot_eager"
    )
    return referee_checks(workload, case.arms[:1], context(), honest=False)["eager"]


@pytest.mark.parametrize("model", ["Remembering", "Tiring"])
def test_a_model_whose_eager_steps_are_not_computed_is_refused(model):
    check = of_the_reference(model)
    assert check.outcome is Outcome.FAIL, check
    assert "fresh build" in check.detail


def test_a_model_that_counts_its_calls_is_unknown_and_a_plain_one_passes():
    assert of_the_reference("Plain").outcome is Outcome.PASS
    check = of_the_reference("Numbering")
    assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True), check


def test_without_a_referee_the_check_says_so():
    check = refereed(planted("by_address"), referee=False)
    assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True)
    assert "run.referee is off" in check.detail


def test_a_launch_without_a_look_says_nothing():
    assert refereed(zoo("mlp", "aot_eager"), looks=False) is None


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_look_has_nothing_compiled_again(mode):
    compiled = []
    for looks in (False, True):
        counters.clear()
        refereed(zoo("mlp", "aot_eager", mode=mode), looks=looks)
        compiled.append((counters["stats"]["unique_graphs"], dict(counters["recompile_limit"])))
    assert compiled[0] == compiled[1]
