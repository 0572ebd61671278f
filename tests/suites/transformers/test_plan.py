"""An entry's grid to cases to stages, with no torch."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from ci_bench.errors import BadConfig
from ci_bench.suites.contract import Cache, StageKind
from ci_bench.suites.registry import find_suite
from ci_bench.suites.transformers.options import (
    Candidate,
    Mode,
    TransformersOptions,
    Way,
    candidate_from,
    parse,
)
from ci_bench.suites.transformers.plan import SUITE

PRESETS = ["bert", "gpt2", "t5", "llama", "vit"]


def ids(**entry):
    return [case.id for case in SUITE.plan(entry)]


def test_the_default_is_every_preset_of_the_five_families():
    assert ids() == [
        "transformers/bert[mode=inference,batch=8,seq=128,precision=fp32,attention=auto,arm=inductor]",
        "transformers/gpt2[mode=inference,batch=8,seq=128,precision=fp32,attention=auto,arm=inductor]",
        "transformers/t5[mode=inference,batch=8,seq=128,precision=fp32,attention=auto,arm=inductor]",
        "transformers/llama[mode=inference,batch=8,seq=128,precision=fp32,attention=auto,arm=inductor]",
        "transformers/vit[mode=inference,batch=8,precision=fp32,attention=auto,arm=inductor]",
    ]


def test_lists_make_a_grid():
    found = ids(
        model="bert",
        batch_size=[1, 4],
        sequence_length=[8, 16],
        mode=["inference", "training"],
        precision=["fp32", "bf16"],
    )
    assert len(set(found)) == len(found) == 16
    assert (
        "transformers/bert[mode=training,batch=4,seq=16,precision=bf16,attention=auto,arm=inductor]"
        in found
    )


def test_what_does_not_apply_makes_no_further_cases():
    assert len(ids(model="vit", sequence_length=[8, 16], cache=["dynamic", "static"])) == 1
    assert (
        len(ids(model="gpt2", mode=["inference", "generation"], cache=["dynamic", "static"])) == 3
    )


def test_a_generation_is_told_by_its_tokens_and_cache():
    (found,) = ids(model="gpt2", mode="generation", cache="static", new_tokens=5)
    assert found == (
        "transformers/gpt2[mode=generation,batch=8,seq=128,new=5,cache=static,precision=fp32,attention=auto,arm=inductor]"
    )


def test_each_candidate_is_a_case_of_its_own():
    plan = SUITE.plan(
        {
            "model": "bert",
            "candidate": [
                "none",
                "torchscript",
                "max-autotune",
                {"backend": "aot_eager", "whole": True},
            ],
        }
    )
    assert [case.arms for case in plan] == [
        ("eager",),
        ("eager", "torchscript"),
        ("eager", "inductor+max-autotune"),
        ("eager", "aot_eager+whole"),
    ]
    assert {case.reference for case in plan} == {"eager"}


@pytest.mark.parametrize(
    ("word", "arm", "candidate"),
    [
        ("inductor", "inductor", Candidate()),
        ("aot_eager", "aot_eager", Candidate(backend="aot_eager")),
        ("eager", "dynamo-eager", Candidate(backend="eager")),
        ("reduce-overhead", "inductor+reduce-overhead", Candidate(mode="reduce-overhead")),
        ("torchscript", "torchscript", Candidate(way=Way.TORCHSCRIPT)),
        ("export", "export", Candidate(way=Way.EXPORT)),
        (
            "mine.backends:compile",
            "mine.backends:compile",
            Candidate(backend="mine.backends:compile"),
        ),
        (
            {"fullgraph": True, "dynamic": False},
            "inductor+fullgraph+static-shapes",
            Candidate(fullgraph=True, dynamic=False),
        ),
        (
            {"dynamic": True, "whole": True},
            "inductor+dynamic-shapes+whole",
            Candidate(dynamic=True, whole=True),
        ),
    ],
)
def test_a_candidate_is_read_and_named(word, arm, candidate):
    assert candidate_from(word) == candidate
    assert candidate.arm == arm


@pytest.mark.parametrize(
    "words", [["inductor", "inductor"], ["none", "none"], ["eager", {"backend": "eager"}]]
)
def test_one_candidate_named_twice_is_refused(words):
    with pytest.raises(
        BadConfig, match=r"suites\.transformers\.mine\.candidate: .* is listed twice"
    ):
        SUITE.plan({"name": "mine", "candidate": words})


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"speed": False, "memory": False}, r"memory: neither speed nor memory"),
        ({"memory": False, "memory_timeline": True}, r"memory_timeline: needs memory: true"),
        (
            {"batch_size": list(range(1, 51)), "sequence_length": list(range(1, 51))},
            r"the grid has more than 2,000 cases",
        ),
    ],
)
def test_contradictions_are_refused(entry, fault):
    with pytest.raises(BadConfig, match=fault):
        SUITE.plan(entry)


FULL = {
    "model": {
        "name": "mine",
        "path": "owner/model",
        "revision": "v1",
        "pretrained": True,
        "config": {"hidden_size": 8},
    },
    "mode": "generation",
    "batch_size": 3,
    "sequence_length": 5,
    "precision": "amp_bf16",
    "attention": "sdpa",
    "candidate": {"backend": "aot_eager", "dynamic": True},
    "memory": False,
    "memory_limit_bytes": 10,
    "only_pretrain_model": True,
    "optimizer": "SGD",
    "optimizer_options": {"momentum": 0.9, "betas": [0.1, 0.2]},
    "lr": 0.5,
    "dropout": True,
    "cache": "static",
    "new_tokens": 7,
    "prepared_inputs": 2,
    "seed": 9,
}


@pytest.mark.parametrize("entry", [{}, {"candidate": "none"}, {"candidate": "export"}, FULL])
def test_params_are_read_back_as_the_same_options(entry):
    for case in SUITE.plan(entry):
        options = parse(case.params)
        stored = json.loads(json.dumps(case.params))
        assert parse(stored) == options
        assert parse(stored).as_params() == case.params


def test_every_field_of_an_entry_reaches_the_case():
    (case,) = SUITE.plan(FULL)
    options = parse(case.params)
    assert options.model.config == {"hidden_size": 8}
    assert (
        options.model.path,
        options.model.revision,
        options.model.pretrained,
        options.model.on_hub,
    ) == (
        "owner/model",
        "v1",
        True,
        True,
    )
    given = {name: value for name, value in FULL.items() if name not in {"model", "candidate"}}
    assert {name: case.params[name] for name in given} == given
    assert options.candidate == Candidate(backend="aot_eager", dynamic=True)


def test_an_entrys_name_comes_before_the_models():
    assert ids(name="nightly", model="bert")[0].startswith("transformers/nightly.bert[")
    assert ids(name="nightly", model={"path": "bert", "name": "wide"})[0].startswith(
        "transformers/nightly.wide["
    )


def kinds(case):
    return [(stage.kind, stage.arms, stage.cache, stage.launches) for stage in SUITE.stages(case)]


def test_stages_come_in_order():
    (case,) = SUITE.plan({"model": "bert"})
    once, twice = (0,), (0, 1)
    assert kinds(case) == [
        (StageKind.PREPARE, (), Cache.SHARED, once),
        (StageKind.ALONE, ("inductor",), Cache.COLD, None),
        (StageKind.VERIFY, ("eager", "inductor"), Cache.SHARED, once),
        (StageKind.ALONE, ("eager",), Cache.SHARED, twice),
        (StageKind.ALONE, ("inductor",), Cache.SHARED, twice),
        (StageKind.VERIFY, ("eager",), Cache.SHARED, once),
        (StageKind.VERIFY, ("inductor",), Cache.SHARED, once),
        (StageKind.TIME, ("eager", "inductor"), Cache.SHARED, None),
    ]


def test_speed_and_memory_can_be_left_out():
    (fast,) = SUITE.plan({"model": "bert", "memory": False})
    assert {kind for kind, arms, cache, _ in kinds(fast) if cache is Cache.SHARED} == {
        StageKind.PREPARE,
        StageKind.VERIFY,
        StageKind.TIME,
    }
    (lean,) = SUITE.plan({"model": "bert", "speed": False})
    assert StageKind.TIME not in {kind for kind, *_ in kinds(lean)}
    assert lean.due.times == ()


def test_the_eager_arm_alone_is_looked_at_once():
    (case,) = SUITE.plan({"model": "bert", "candidate": "none"})
    assert [(kind, arms) for kind, arms, *_ in kinds(case)] == [
        (StageKind.PREPARE, ()),
        (StageKind.VERIFY, ("eager",)),
        (StageKind.ALONE, ("eager",)),
        (StageKind.TIME, ("eager",)),
    ]


def test_what_is_owed_depends_on_the_mode_and_the_candidate():
    owed = {
        (mode, candidate): case.due
        for mode in Mode
        for candidate in ("inductor", "torchscript")
        for case in SUITE.plan({"model": "gpt2", "mode": str(mode), "candidate": candidate})
    }
    assert owed[Mode.INFERENCE, "inductor"].checks == (
        "compiled",
        "agrees",
        "refereed",
        "finite_output",
        "timed_output_agrees",
    )
    assert owed[Mode.INFERENCE, "torchscript"].checks == (
        "agrees",
        "refereed",
        "finite_output",
        "timed_output_agrees",
    )
    assert owed[Mode.TRAINING, "inductor"].checks == (
        "compiled",
        "agrees",
        "refereed",
        "finite_loss",
        "gradients",
        "updates_weights",
    )
    assert (
        owed[Mode.TRAINING, "inductor"].times
        == owed[Mode.INFERENCE, "inductor"].times
        == ("step_time",)
    )
    assert owed[Mode.GENERATION, "inductor"].times == ("first_token_time", "token_time")


def test_parts_of_a_step_are_shown_and_the_phases_of_a_generation_gate():
    (training,) = SUITE.plan({"model": "gpt2", "mode": "training"})
    (generation,) = SUITE.plan({"model": "gpt2", "mode": "generation"})
    assert training.details == (
        "zero_grad_time",
        "forward_time",
        "backward_time",
        "optimizer_time",
        "process_vram",
    )
    assert generation.details == ("step_time", "process_vram")


@pytest.mark.parametrize(
    ("model", "needed"),
    [
        ("bert", False),
        ("google-bert/bert-base-uncased", True),
        ({"config": {"model_type": "bert"}}, False),
    ],
)
def test_only_ids_on_the_hub_need_a_network(model, needed):
    (case,) = SUITE.plan({"model": model})
    assert SUITE.needs_network(case) is needed


def test_planning_needs_no_torch_and_no_transformers():
    assert find_suite("transformers") is SUITE
    script = "import sys, ci_bench.suites.transformers.plan as p; p.SUITE.plan({}); "
    script += "assert not {'torch', 'transformers'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_default_of_the_grid_is_that_of_the_options():
    (case,) = SUITE.plan({"model": "bert"})
    options = parse(case.params)
    assert options == replace(TransformersOptions(model=options.model), candidate=Candidate())
