"""Sampled, ragged and by `generate` itself: each with what it agrees with, and with planted faults that are found."""

from dataclasses import replace

import pytest
import torch
from transformers import GenerationMixin, LogitsProcessorList
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers_builders import case, options, program, recipe, steps, tiny, verified, workload

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Unsupported
from ci_bench.suites.transformers import generation, inputs
from ci_bench.suites.transformers.inputs import Inputs
from ci_bench.suites.transformers.options import TokenSampling, parse
from ci_bench.suites.transformers.run import open_program
from ci_bench.suites.transformers.sampling import draw, gap, generator_of, noise, seed_of, warped
from ci_bench.suites.transformers.steps import nothing


@pytest.fixture
def untranslated(monkeypatch):
    """A candidate whose translation is the model itself: what is planted needs no compiler."""
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)


pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("fresh_dynamo")]

WIDE = {"initializer_range": 0.3}
FAMILIES = {"gpt2": tiny("gpt2", config=WIDE), "llama": tiny("llama", config=WIDE)}
OTHERS = {
    "t5": tiny("t5", config={"initializer_factor": 8.0}),
    "whisper": {
        "model": {"path": "whisper", "config": {"max_source_positions": 10, "init_std": 0.3}}
    },
}
NEW = 6
DRAWN = {"temperature": 0.7, "top_k": 40, "top_p": 0.9}


def entry(model="gpt2", **more):
    families = {**FAMILIES, **OTHERS}
    return {
        **families[model],
        "mode": "generation",
        "batch_size": 3,
        "new_tokens": NEW,
        "prepared_inputs": 2,
        **more,
    }


def timed(arm="eager", count=2, **more):
    one = program(arm, **entry(**more))
    steps(one, count)
    return one


def told(one):
    return {check.name: check for check in one.finish()}


def tokens_of(one):
    return torch.cat(one._tokens, dim=1)


MANNERS = {
    "drawn": {"sampling": DRAWN},
    "ragged": {"ragged": True},
    "generate": {"loop": "generate"},
    "all": {"sampling": DRAWN, "ragged": True, "loop": "generate"},
}


EVERY = {
    (model, manner, cache)
    for model in FAMILIES
    for manner in MANNERS
    for cache in ("dynamic", "static")
}
CHOSEN = {
    ("gpt2", "drawn", "static"),
    ("gpt2", "ragged", "static"),
    ("gpt2", "all", "static"),
    ("llama", "all", "dynamic"),
}
"""Each manner, model and cache at least once. The night takes the others."""


def check_agreement(model, manner, cache):
    more = {"model": model, "cache": cache, **MANNERS[manner]}
    checks = {(check.name, check.arm): check for check in verified(**entry(**more)).checks}
    assert set(checks) == {("agrees", "dynamo-eager")} | (
        {("rows_alone", "eager")} if "ragged" in MANNERS[manner] else set()
    )
    assert {check.outcome for check in checks.values()} == {Outcome.PASS}, checks
    for arm in ("eager", "dynamo-eager"):
        checks = told(timed(arm, **more))
        assert {check.outcome for check in checks.values()} == {Outcome.PASS}, checks
        assert "timed_output_agrees" in checks


@pytest.mark.parametrize(("model", "manner", "cache"), sorted(CHOSEN))
def test_a_compiled_arm_agrees_before_and_after_the_clock(model, manner, cache):
    check_agreement(model, manner, cache)


@pytest.mark.parametrize(("model", "manner", "cache"), sorted(EVERY - CHOSEN))
def test_every_manner_agrees_with_every_model_and_cache(model, manner, cache):
    check_agreement(model, manner, cache)


@pytest.mark.parametrize("manner", ["generate", "all"])
def test_both_loops_make_the_same_tokens_and_mark_the_same_phases(manner):
    more = {name: value for name, value in MANNERS[manner].items() if name != "loop"}
    own, theirs = timed(**more), timed(**more, loop="generate")
    assert torch.equal(tokens_of(own), tokens_of(theirs))
    assert len(tokens_of(own).unique()) > 4, "or the test would see little"
    assert own.parts == theirs.parts
    for one in (own, theirs):
        calls, at_marks = [], []
        hook = one.model.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        one.step(lambda at_marks=at_marks, calls=calls: at_marks.append(len(calls)))
        hook.remove()
        assert at_marks == [1, NEW]


@pytest.mark.parametrize("model", ["t5", "whisper"])
def test_an_encoder_decoder_is_driven_by_generate_as_by_the_own_loop(model):
    more = {"sequence_length": None} if model == "whisper" else {}
    own, theirs = timed(model=model, **more), timed(model=model, loop="generate", **more)
    assert torch.equal(tokens_of(own), tokens_of(theirs))
    assert len(tokens_of(own).unique()) > 2, "or the test would see little"
    assert told(theirs)["timed_output_agrees"].outcome is Outcome.PASS


def test_a_compiled_encoder_decoder_is_driven_by_generate():
    assert (
        told(timed("dynamo-eager", model="t5", loop="generate", cache="static"))[
            "timed_output_agrees"
        ].outcome
        is Outcome.PASS
    )


def test_what_a_model_brings_for_generate_is_put_aside():
    """A penalty, tokens that are never made, an end of the text after the first token."""
    one = recipe(**entry(loop="generate"))
    built = one.build()
    (batch, _) = Inputs(
        options=one.options, model=built, dtype=torch.float32, device="cpu"
    ).batches()
    wanted = tokens_of(timed(count=1))
    brought = {
        "repetition_penalty": 5.0,
        "suppress_tokens": wanted[0].tolist(),
        "eos_token_id": wanted[:, 0].tolist(),
    }

    def generate():
        return torch.cat(
            generation.ByGenerate(built, one.options, None, compiles_prompt=False, first=0)(
                batch, {}, None, nothing
            ),
            dim=1,
        )

    built.generation_config.update(**brought)
    assert torch.equal(generate(), wanted)
    assert "forward" not in vars(built), "nothing is left behind"


@pytest.mark.usefixtures("untranslated")
def test_each_generation_draws_other_tokens_and_both_arms_the_same():
    one, other = (
        program(arm, **entry(sampling=DRAWN, prepared_inputs=1))
        for arm in ("eager", "dynamo-eager")
    )
    series = []
    for arm in (one, other):
        made = []
        for _ in range(3):
            steps(arm, 1)
            made.append(tokens_of(arm))
        series.append(made)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*series, strict=True))
    assert not torch.equal(series[0][0], series[0][1])


def test_the_candidate_of_generate_takes_single_tokens_alone_and_with_whole_the_prompt(monkeypatch):
    for whole, expected in ((False, [1] * (NEW - 1)), (True, [8, *[1] * (NEW - 1)])):
        lengths = []

        def compiling(model, lengths=lengths, **_):
            def run(*values, **named):
                lengths.append(named["input_ids"].shape[1])
                return model(*values, **named)

            return run

        monkeypatch.setattr(torch, "compile", compiling)
        candidate = {"backend": "eager", **({"whole": True} if whole else {})}
        one = program(
            "dynamo-eager" + ("+whole" if whole else ""),
            **entry(loop="generate", candidate=candidate),
        )
        steps(one, 1)
        assert lengths == expected


def test_ragged_prompts_are_padded_on_the_left_and_one_is_of_full_length():
    one = recipe(**entry(ragged=True, batch_size=64, sequence_length=8))
    (batch, *_) = Inputs(
        options=one.options, model=one.build(), dtype=torch.float32, device="cpu"
    ).batches()
    lengths = batch["attention_mask"].sum(dim=1)
    assert sorted(lengths.unique().tolist()) == [2, 3, 4, 5, 6, 7, 8]
    assert lengths[0] == 8
    assert torch.equal(batch["attention_mask"], batch["attention_mask"].cummax(dim=1).values)
    assert not batch["input_ids"][batch["attention_mask"] == 0].any()


# what is planted


def ignored_padding(monkeypatch):
    """Of one row, the last, the mask is lost."""
    real = generation.Padding.__init__

    def init(self, model, batch, given):
        real(self, model, batch, given)
        self._mask = self._mask.clone()
        self._mask[-1] = 1

    monkeypatch.setattr(generation.Padding, "__init__", init)


def wrong_positions(monkeypatch):
    real = generation.Padding.token
    monkeypatch.setattr(
        generation.Padding,
        "token",
        lambda self, number: {
            **real(self, number),
            "position_ids": torch.full_like(self._last, self._prompt - 1) + number,
        },
    )


@pytest.mark.usefixtures("untranslated")
@pytest.mark.parametrize("plant", [ignored_padding, wrong_positions])
@pytest.mark.parametrize("arm", ["eager", "dynamo-eager"])
def test_a_row_whose_padding_is_read_is_found_and_named(monkeypatch, plant, arm):
    plant(monkeypatch)
    checks = {(check.name, check.arm): check for check in verified(**entry(ragged=True)).checks}
    assert checks["rows_alone", "eager"].outcome is Outcome.FAIL
    one = timed(arm, ragged=True)
    check = told(one)["timed_output_agrees"]
    assert check.outcome is Outcome.FAIL, check.detail
    named = check.detail.partition("rows that are not: ")[2]
    short = [
        row
        for row, length in enumerate(one._batch["attention_mask"].sum(dim=1).tolist())
        if length < 8
    ]
    assert named
    assert {int(row) for row in named.split(", ")} <= (
        {2} if plant is ignored_padding else set(short)
    )


@pytest.mark.usefixtures("untranslated")
@pytest.mark.parametrize("loop", ["own", "generate"])
@pytest.mark.parametrize("arm", ["eager", "dynamo-eager"])
@pytest.mark.parametrize("fault", ["temperature", "top_k", "top_p"])
def test_a_sampler_that_ignores_what_it_is_told_is_found(monkeypatch, loop, arm, fault):
    if loop == "generate":
        warper = {
            "temperature": TemperatureLogitsWarper,
            "top_k": TopKLogitsWarper,
            "top_p": TopPLogitsWarper,
        }[fault]
        monkeypatch.setattr(warper, "__call__", lambda _, __, scores: scores)
    else:
        usual = {"temperature": 1.0, "top_k": None, "top_p": 1.0}

        def ignoring(logits, sampling, generator):
            return draw(logits, replace(sampling, **{fault: usual[fault]}), generator)

        monkeypatch.setattr(generation, "draw", ignoring)
    settings = {
        "temperature": {"temperature": 0.3, "top_p": 0.5},
        "top_k": {"temperature": 1.5, "top_k": 5},
        "top_p": {"temperature": 1.5, "top_p": 0.5},
    }
    one = timed(arm, sampling=settings[fault], loop=loop, new_tokens=16)
    assert told(one)["timed_output_agrees"].outcome is Outcome.FAIL


@pytest.mark.parametrize("manner", MANNERS)
def test_a_candidate_that_decodes_wrongly_is_found_before_and_after_the_clock(monkeypatch, manner):
    def compiling(model, **_):
        def run(*values, **named):
            output = model(*values, **named)
            output.logits = output.logits.roll(1, dims=-1)
            return output

        return run

    monkeypatch.setattr(torch, "compile", compiling)
    checks = {
        (check.name, check.arm): check for check in verified(**entry(**MANNERS[manner])).checks
    }
    assert checks["agrees", "dynamo-eager"].outcome is Outcome.FAIL
    assert {check.outcome for (_, arm), check in checks.items() if arm == "eager"} <= {Outcome.PASS}
    assert (
        told(timed("dynamo-eager", **MANNERS[manner]))["timed_output_agrees"].outcome
        is Outcome.FAIL
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_other_rounding_is_no_other_choice(monkeypatch, precision):
    """The logits of a candidate are off by some roundings each, at the edges of top-k and of the nucleus, too."""
    random = torch.Generator().manual_seed(3)

    def compiling(model, **_):
        def run(*values, **named):
            output = model(*values, **named)
            off = (
                torch.randn(output.logits.shape, generator=random)
                * {"fp32": 2.0**-24, "bf16": 2.0**-8}[precision]
            )
            output.logits = (output.logits.float() * (1 + off)).to(output.logits.dtype)
            return output

        return run

    monkeypatch.setattr(torch, "compile", compiling)
    one = program(
        "dynamo-eager",
        **entry(sampling={"temperature": 1.2, "top_k": 20, "top_p": 0.8}, precision=precision),
    )
    for _ in range(20):
        steps(one, 1)
        check = told(one)["timed_output_agrees"]
        assert check.outcome is Outcome.PASS, check.detail


class SecondBest:
    """Takes away the likeliest token, from the third on."""

    def __init__(self, length):
        self._length = length

    def __call__(self, ids, logits):
        if ids.shape[1] < self._length + 2:
            return logits
        return logits.scatter(-1, logits.argmax(dim=-1, keepdim=True), -torch.inf)


@pytest.mark.usefixtures("untranslated")
@pytest.mark.parametrize("sampling", [None, DRAWN])
@pytest.mark.parametrize("arm", ["eager", "dynamo-eager"])
def test_a_generate_that_takes_other_tokens_is_found(monkeypatch, arm, sampling):
    real = GenerationMixin._get_logits_processor

    def appended(*given, **named):
        return LogitsProcessorList([*real(*given, **named), SecondBest(8)])

    monkeypatch.setattr(GenerationMixin, "_get_logits_processor", appended)
    one = timed(arm, loop="generate", sampling=sampling)
    assert told(one)["timed_output_agrees"].outcome is Outcome.FAIL


def dropping(layer):
    """A layer's cache that loses what the first position says, once two tokens were made."""
    real = layer.update

    def update(*values, **named):
        keys, kept = real(*values, **named)
        if kept.shape[-2] < 10:
            return keys, kept
        layer.values = kept.clone()
        layer.values[..., 0, :] = 0
        return keys, layer.values

    layer.update = update


@pytest.mark.usefixtures("untranslated")
@pytest.mark.parametrize("loop", ["own", "generate"])
@pytest.mark.parametrize("planted", [True, False])
def test_a_cache_that_drops_a_position_is_found(loop, planted):
    def opened(one_recipe, arm, script):
        one = open_program(one_recipe, arm, script)
        if planted and arm != "eager":
            make = one._empty_cache

            def empty():
                cache = make()
                for layer in cache.layers:
                    dropping(layer)
                return cache

            one._empty_cache = empty
        return one

    (check,) = verified(opened, **entry(loop=loop, sampling=DRAWN)).checks
    assert check.outcome is (Outcome.FAIL if planted else Outcome.PASS), check.detail


def test_ids_that_are_the_paddings_are_read_all_the_same():
    """Llama's prompts have id 0 in them, which `generate` takes for padding where it is given no mask."""
    one = recipe(**entry("llama"))
    batches = Inputs(
        options=one.options, model=one.build(), dtype=torch.float32, device="cpu"
    ).batches()
    assert any((batch["input_ids"] == 0).any() for batch in batches)
    assert torch.equal(
        tokens_of(timed(model="llama", count=1)),
        tokens_of(timed(model="llama", count=1, loop="generate")),
    )


# the arithmetic


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5},
        {"top_k": 7},
        {"top_p": 0.6},
        {"temperature": 2.0, "top_k": 20, "top_p": 0.8},
    ],
)
def test_what_is_left_out_is_what_generate_leaves_out(settings):
    logits = torch.randn(32, 100, generator=torch.Generator().manual_seed(1)) * 3
    sampling = TokenSampling(**settings)
    built = recipe(**entry()).build()
    config = built.generation_config
    config.update(
        do_sample=True,
        temperature=sampling.temperature,
        top_k=sampling.top_k or 0,
        top_p=sampling.top_p,
    )
    config._eos_token_tensor = None
    theirs = GenerationMixin._get_logits_processor(
        built, generation_config=config, input_ids_seq_length=1
    )(None, logits.clone())
    assert torch.equal(warped(logits, sampling), theirs)


def test_to_sample_is_to_be_greedy_about_perturbed_logits():
    logits = torch.randn(500, 64, generator=torch.Generator().manual_seed(2)) * 3
    exponential = noise(logits, generator_of(5, 9, "cpu"))
    sampling = TokenSampling(temperature=0.8, top_p=0.9)
    torch.manual_seed(seed_of(5, 9))
    drawn = torch.multinomial(warped(logits, sampling).softmax(dim=-1), 1)
    assert gap(logits, exponential, drawn, sampling, slack=1e-4).max() < 1e-4
    shifted = (drawn + 1) % 64
    assert (gap(logits, exponential, shifted, sampling, slack=1e-4) > 1e-4).float().mean() > 0.99
    wrong = torch.multinomial(warped(logits, sampling).softmax(dim=-1), 1)  # other random numbers
    assert (gap(logits, exponential, wrong, sampling, slack=1e-4) > 1e-4).float().mean() > 0.3


@pytest.mark.parametrize("swapped", [1e-5, 0.5])
def test_a_token_at_the_edge_of_the_likeliest_may_be_in_or_out_and_one_behind_it_is_not(swapped):
    """Logits of two computations: what is the second of two likeliest in one is the third in the other."""
    theirs, own = (
        torch.tensor([[3.0, 1.0 + swapped, 1.0, -9.0]]),
        torch.tensor([[3.0, 1.0, 1.0 + swapped, -9.0]]),
    )
    token, random = torch.tensor([[1]]), torch.tensor([[1.0, 1e-6, 1.0, 1.0]])
    sampling = TokenSampling(top_k=2)
    assert (warped(theirs, sampling) - random.log()).argmax() == 1
    found = gap(own, random, token, sampling, slack=1e-3)
    assert (found < 1e-4) if swapped < 1e-3 else found.isinf()


def test_nothing_depends_on_the_id_of_the_padding(monkeypatch):
    usual = tokens_of(timed(ragged=True))
    monkeypatch.setattr(inputs, "PADDING", 7)
    assert torch.equal(tokens_of(timed(ragged=True)), usual)


# what is asked for


def test_the_id_tells_the_manner_and_results_of_before_keep_theirs():
    assert case(**entry()).id.endswith(
        "new=6,cache=dynamic,precision=fp32,attention=auto,arm=dynamo-eager]"
    )
    assert not {"loop", "sampling", "ragged"} & set(case(**entry()).params)
    every = case(**entry(**MANNERS["all"]))
    assert "cache=dynamic,loop=generate,sampled=0.7:40:0.9,prompts=ragged,precision" in every.id
    assert parse(every.params) == options(**entry(**MANNERS["all"]))
    assert (
        case(**{**entry(**MANNERS["all"]), "mode": "inference"}).params
        == case(**{**entry(), "mode": "inference"}).params
    )


def test_ragged_prompts_of_an_encoder_are_skipped_with_the_reason():
    with pytest.raises(Unsupported, match="`ragged` is for decoders with a mask"):
        workload(**entry("t5", ragged=True)).prepare()
