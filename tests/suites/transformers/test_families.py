"""Every preset runs on the CPU, in inference and training: its arms agree, its checks pass, its work is counted."""

from functools import cache

import pytest
from transformers_builders import (
    ONE_LAYER,
    case,
    context,
    outcomes,
    program,
    steps,
    tiny,
    verified,
    workload,
)

from ci_bench.records.results import Outcome
from ci_bench.suites.transformers.catalog import PRESETS
from ci_bench.suites.transformers.run import open_workload

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("fresh_dynamo")]

MODES = ("inference", "training")
CLASSES = {
    "bert": "BertForMaskedLM",
    "gpt2": "GPT2LMHeadModel",
    "t5": "T5ForConditionalGeneration",
    "llama": "LlamaForCausalLM",
    "vit": "ViTForImageClassification",
    "wav2vec2": "Wav2Vec2ForCTC",
    "whisper": "WhisperForConditionalGeneration",
}


def entry(model, mode):
    return {"model": model, "mode": mode, "batch_size": 1, "prepared_inputs": 2}


@cache
def facts_of(model, mode):
    return workload(**entry(model, mode), candidate="none").verify(("eager",)).facts


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", PRESETS)
def test_a_preset_runs_and_its_checks_pass(model, mode):
    one = workload(**entry(model, mode), candidate="none")
    one.prepare()
    timed = one.open("eager")
    assert steps(timed, 3) == [4 if mode == "training" else 0] * 3
    assert set(outcomes(timed).values()) == {Outcome.PASS}
    facts = facts_of(model, mode)
    assert facts["model_class"] == CLASSES[model]
    assert 400_000 < facts["parameters"] < 1_500_000
    assert facts["attention"] == "sdpa"
    assert facts["model_flops_per_step"] > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", ONE_LAYER)
def test_the_arms_of_a_family_agree(model, mode):
    (check,) = verified(**{**entry(model, mode), **tiny(model)}, candidate="eager").checks
    assert (check.name, check.arm, check.outcome) == ("agrees", "dynamo-eager", Outcome.PASS), (
        check.detail
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", PRESETS)
def test_the_arms_of_a_preset_agree(model, mode):
    (check,) = verified(**entry(model, mode), candidate="aot_eager").checks
    assert (check.name, check.arm, check.outcome) == ("agrees", "aot_eager", Outcome.PASS), (
        check.detail
    )


@pytest.mark.parametrize("model", PRESETS)
def test_a_training_step_is_thrice_the_work_of_a_pass(model):
    """Each product of the forward pass has two in the backward pass, but for those of inputs, which need no gradient."""
    work = {mode: facts_of(model, mode)["model_flops_per_step"] for mode in MODES}
    most = (
        3.2 if model == "wav2vec2" else 3.01
    )  # torch counts the backward pass of a grouped convolution as if it had one group
    assert 2.5 < work["training"] / work["inference"] <= most


def test_an_unpinned_case_is_the_same_workload_in_each_stage(tmp_path):
    """A case travels as JSON between processes; two workloads of it compute the same."""
    planned = case(**entry("bert", "inference"))
    first, second = (open_workload(planned, context(tmp_path)).open("eager") for _ in range(2))
    one, two = first.observe().values, second.observe().values
    assert all((one[name] == two[name]).all() for name in one)


def test_program_of_the_builder_is_that_of_the_workload():
    assert type(program(**entry("bert", "inference"))) is type(
        workload(**entry("bert", "inference")).open("eager")
    )
