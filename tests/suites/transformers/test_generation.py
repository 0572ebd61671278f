"""The written-out greedy loop makes the tokens of `generate`, marks its two phases, and leaves its cache as it found it."""

import pytest
import torch
from transformers import GenerationMixin
from transformers_builders import agrees, outcomes, program, recipe, steps, tiny, workload

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Compiler, Unsupported
from ci_bench.suites.transformers.generation import require_generation
from ci_bench.suites.transformers.inputs import Inputs

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("fresh_dynamo")]

NEW = 6
WIDE = {"initializer_range": 0.3}
"""Weights so wide that the tokens are not all the same."""
FAMILIES = {
    "gpt2": tiny("gpt2", config=WIDE),
    "llama": tiny("llama", config=WIDE),
    "t5": tiny("t5", config={"initializer_factor": 8.0}),
    "whisper": {
        "model": {"path": "whisper", "config": {"max_source_positions": 10, "init_std": 0.3}}
    },
}


def entry(model, cache, **more):
    return {
        **FAMILIES[model],
        "mode": "generation",
        "cache": cache,
        "new_tokens": NEW,
        "prepared_inputs": 2,
        **more,
    }


def tokens_of(timed):
    return torch.cat(timed._tokens, dim=1)


def by_generate(model, cache):
    """What transformers itself makes of the first prompts."""
    one = recipe(**entry(model, cache))
    built = one.build()
    batch = Inputs(options=one.options, model=built, dtype=torch.float32, device="cpu").batches()[0]
    settings = built.generation_config
    settings.eos_token_id = settings.suppress_tokens = settings.begin_suppress_tokens = (
        settings.forced_decoder_ids
    ) = None
    settings.pad_token_id = 0
    if built.config.is_encoder_decoder:
        batch["decoder_input_ids"] = torch.full((2, 1), built.config.decoder_start_token_id)
    batch["inputs"] = batch.pop(built.main_input_name)
    # Whisper's own `generate` splits long sound; the one behind it is what it calls for each piece
    found = GenerationMixin.generate(
        built, **batch, do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW
    )
    return found[:, -NEW:]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("model", FAMILIES)
def test_tokens_are_those_of_generate(model, cache):
    timed = program(**entry(model, cache))
    steps(timed, 1)
    expected = by_generate(model, cache)
    assert torch.equal(tokens_of(timed), expected)
    assert len(expected.unique()) > 2, "or the test would see little"


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("model", ["gpt2", "t5"])
def test_a_generation_does_not_depend_on_the_one_before(model, cache):
    timed = program(**entry(model, cache))
    steps(timed, 1)
    first = tokens_of(timed)
    steps(timed, 2)
    assert torch.equal(tokens_of(timed), first), "two prompts take turns"


def test_its_phases_are_marked_and_counted():
    timed = program(**entry("gpt2", "dynamic"))
    assert [(part.metric, part.per, part.items) for part in timed.parts] == [
        ("first_token_time", 1, 2),
        ("token_time", NEW - 1, 2),
    ]
    assert timed.items == 2 * NEW
    calls, at_marks = [], []
    decode, prefill = timed._decode, timed._prefill
    timed._decode = lambda **named: calls.append("decode") or decode(**named)
    timed._prefill = lambda **named: calls.append("prefill") or prefill(**named)
    timed.step(lambda: at_marks.append(list(calls)))
    assert at_marks == [["prefill"], ["prefill", *["decode"] * (NEW - 1)]]


def test_the_logits_of_the_prompt_are_left_out_where_that_can_be():
    timed = program(**entry("gpt2", "dynamic"))
    shapes = []
    prefill = timed._prefill
    timed._prefill = lambda **named: shapes.append(prefill(**named)) or shapes[-1]
    steps(timed, 1)
    assert shapes[0].logits.shape[1] == 1


def compiled_calls(monkeypatch, **candidate):
    """How often the model was called under `torch.compile`, and otherwise, in one generation."""
    counts = {"compiled": 0, "eager": 0}

    def compiling(model, **named):
        def run(*values, **more):
            counts["compiled"] += 1
            counts["eager"] -= 1
            return model(*values, **more)

        return run

    monkeypatch.setattr(torch, "compile", compiling)
    timed = program(
        "dynamo-eager" + ("+whole" if candidate else ""),
        **entry("gpt2", "static", candidate={"backend": "eager", **candidate}),
    )
    timed.model.register_forward_pre_hook(lambda *_: counts.update(eager=counts["eager"] + 1))
    steps(timed, 1)
    return counts


def test_a_candidate_compiles_what_decodes(monkeypatch):
    assert compiled_calls(monkeypatch) == {"compiled": NEW - 1, "eager": 1}


def test_a_whole_candidate_compiles_the_prompt_too(monkeypatch):
    assert compiled_calls(monkeypatch, whole=True) == {"compiled": NEW, "eager": 0}


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("model", ["gpt2", "t5"])
def test_a_candidate_agrees_and_says_so_after_the_clock(model, cache):
    check = agrees(**entry(model, cache))
    assert check.outcome is Outcome.PASS, check.detail
    assert f"{2 * NEW} tensors agree" in check.detail
    timed = program("dynamo-eager", **entry(model, cache))
    steps(timed, 2)
    assert timed.compiler is Compiler.DYNAMO
    assert outcomes(timed) == {"finite_output": Outcome.PASS, "timed_output_agrees": Outcome.PASS}


def test_a_stale_token_is_seen_after_the_clock():
    timed = program("dynamo-eager", **entry("gpt2", "dynamic"))
    steps(timed, 1)
    timed._tokens = (*timed._tokens[:-1], (timed._tokens[-1] + 1) % 64)
    assert outcomes(timed)["timed_output_agrees"] is Outcome.FAIL


@pytest.mark.parametrize(
    ("model", "more", "reason"),
    [
        (tiny("bert"), {}, "BertForMaskedLM does not generate"),
        (tiny("vit"), {}, "ViTForImageClassification does not generate"),
        (tiny("gpt2"), {"only_pretrain_model": True}, "GPT2Model does not generate"),
    ],
)
def test_what_cannot_generate_is_skipped_with_the_reason(model, more, reason):
    with pytest.raises(Unsupported, match=reason):
        workload(**model, mode="generation", **more).prepare()


def test_a_model_with_another_kind_of_state_is_skipped():
    one = recipe(**entry("gpt2", "dynamic"))

    class Recurrent:
        def can_generate(self):
            return True

        def forward(self, input_ids, cache_params=None, use_cache=None):
            raise NotImplementedError

    with pytest.raises(Unsupported, match="keeps its state elsewhere than in past_key_values"):
        require_generation(Recurrent(), one.options)
