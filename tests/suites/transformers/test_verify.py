"""What verification finds out, and what it says where it cannot."""

import pytest
import torch
from transformers_builders import agrees, context, program, recipe, tiny, verified, workload

from ci_bench.records.results import Lane, Outcome, Unit
from ci_bench.suites.contract import Unsupported
from ci_bench.suites.transformers import verify
from ci_bench.suites.transformers.run import open_program
from ci_bench.suites.transformers.verify import TransformersVerifier

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("fresh_dynamo")]


def test_facts_describe_the_case():
    facts = verified(**tiny("bert"), mode="training", candidate="none").facts
    assert facts["inputs"] == "input_ids [2, 8], attention_mask [2, 8], labels [2, 8]"
    assert (facts["throughput_counts"], facts["loss"]) == ("rows", "the model's own")
    assert facts["parameters"] == facts["trainable_parameters"] > 0
    bare = verified(
        **tiny("bert"), mode="training", candidate="none", only_pretrain_model=True
    ).facts
    assert bare["loss"] == "a fixed projection of its main output"
    assert (
        verified(**tiny("gpt2"), mode="generation", candidate="none").facts["throughput_counts"]
        == "tokens"
    )


def test_a_reference_that_does_not_fit_leaves_the_answer_unknown():
    def open_one(one, arm, script):
        if one.exact:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8 GiB")
        return open_program(one, arm, script)

    check = agrees(open_one, **tiny("bert"))
    assert check.outcome is Outcome.UNKNOWN
    assert "does not fit into memory" in check.detail


def broken(*, exact_alone, wrong=False):
    def open_one(one, arm, script):
        if one.exact or not exact_alone:
            raise RuntimeError("broken")
        found = open_program(one, arm, script)
        if wrong and arm != "eager":
            with torch.no_grad():
                next(found.model.parameters()).mul_(1.05)
        return found

    return open_one


def test_a_model_without_fp64_is_compared_with_eager():
    assert agrees(broken(exact_alone=True), **tiny("bert")).outcome is Outcome.PASS
    assert agrees(broken(exact_alone=True, wrong=True), **tiny("bert")).outcome is Outcome.FAIL
    generating = agrees(broken(exact_alone=True), **tiny("gpt2"), mode="generation")
    assert generating.outcome is Outcome.UNKNOWN
    assert (
        "does not generate in fp64, which the comparison needs: RuntimeError: broken"
        in generating.detail
    )


def test_a_model_that_fails_itself_is_the_cases():
    with pytest.raises(RuntimeError, match="broken"):
        agrees(broken(exact_alone=False), **tiny("bert"))


MIXTRAL = {
    "model_type": "mixtral", "vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "num_local_experts": 4,
}  # fmt: skip


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_mixture_of_experts_is_compared(mode):
    check = agrees(
        model={"config": MIXTRAL}, mode=mode, batch_size=1, sequence_length=8, candidate="aot_eager"
    )
    assert check.outcome is Outcome.PASS, check


def test_an_eager_arm_that_is_not_finite_is_no_measure():
    check = agrees(**tiny("bert", config={"initializer_range": 1e20}))
    assert check.outcome is Outcome.UNKNOWN
    assert "the reference itself has no finite number" in check.detail


def test_dropout_is_timed_as_asked_and_compared_without():
    entry = {**tiny("bert"), "mode": "training", "dropout": True}
    timed = program(**entry)
    assert {
        module.p for module in timed.model.modules() if isinstance(module, torch.nn.Dropout)
    } == {0.1}
    one, two = program(**entry), program(**entry)
    torch.manual_seed(1)
    first = one.observe().values["loss: of the step"]
    torch.manual_seed(2)
    assert two.observe().values["loss: of the step"] != first
    check = agrees(**entry)
    assert check.outcome is Outcome.PASS, check.detail


def test_the_arms_see_the_same_bytes():
    """Each arm of a comparison is built anew; a candidate that were fed otherwise would be told from eager by its outputs."""
    seen = {}

    def open_one(one, arm, script):
        opened = open_program(one, arm, script)
        seen[arm, one.exact] = {
            name: value.double() for name, value in opened.model.state_dict().items()
        }
        return opened

    agrees(open_one, **tiny("gpt2"))
    reference = seen["eager", True]
    for arm in ("eager", "dynamo-eager"):
        assert all(torch.equal(value, reference[name]) for name, value in seen[arm, False].items())


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"precision": "tf32"}, "precision tf32 needs an NVIDIA GPU"),
        (
            {"attention": "flash_attention_2"},
            "attention flash_attention_2 computes only in fp16 and bf16",
        ),
    ],
)
def test_what_this_machine_lacks_is_a_reason_to_skip(entry, reason):
    with pytest.raises(Unsupported, match=reason):
        workload(**tiny("bert"), **entry)


def test_a_look_on_a_gpu_brings_the_process_memory(monkeypatch):
    monkeypatch.setattr(verify, "process_vram", lambda device: (12345, "by its pid"))
    one = recipe(**tiny("bert"))
    looking = TransformersVerifier(
        recipe=one,
        context=type(context())(
            device="cuda:0", scratch=context().scratch, progress=context().progress
        ),
        open_program=open_program,
    )
    evidence = looking.look("dynamo-eager")
    (metric,) = evidence.metrics
    assert (metric.name, metric.arm, metric.unit, metric.lane) == (
        "process_vram",
        "dynamo-eager",
        Unit.BYTES,
        Lane.COUNTERS,
    )
    assert metric.launches[0].values == (12345.0,)
    assert evidence.facts == {"process_vram_found_dynamo_eager": "by its pid"}


def test_unknown_process_memory_is_a_fact_and_no_zero(monkeypatch):
    monkeypatch.setattr(verify, "process_vram", lambda device: (None, "NVML does not tell"))
    one = recipe(**tiny("bert"))
    looking = TransformersVerifier(
        recipe=one,
        context=type(context())(
            device="cuda:0", scratch=context().scratch, progress=context().progress
        ),
        open_program=open_program,
    )
    evidence = looking.look("eager")
    assert (evidence.metrics, evidence.facts) == (
        (),
        {"process_vram_found_eager": "NVML does not tell"},
    )
