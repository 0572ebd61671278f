"""Options to cases to stages, with no torch."""

import json
import subprocess
import sys

import pytest

from ci_bench.errors import BadConfig
from ci_bench.suites.contract import Cache, SizeLimits, StageKind
from ci_bench.suites.registry import find_suite
from ci_bench.suites.torchbench.catalogue import ZOO
from ci_bench.suites.torchbench.options import TorchbenchPrecision, parse
from ci_bench.suites.torchbench.plan import SUITE

ONE = {"models": ["mlp"], "mode": "inference"}


def test_there_is_a_case_for_each_model_mode_precision_and_backend():
    entry = {
        "models": ["mlp", "cnn"],
        "backend": ["inductor", "aot_eager"],
        "precision": ["fp32", "bf16"],
    }
    ids = [case.id for case in SUITE.plan(entry)]
    assert len(ids) == len(set(ids)) == 16
    assert ids[0] == "torchbench/cnn[backend=inductor,mode=training,precision=fp32]"
    assert {case.name for case in SUITE.plan({})} == {*ZOO}


def test_a_case_is_eager_against_one_backend():
    (case,) = SUITE.plan(ONE)
    assert (case.suite, case.name, case.arms, case.reference) == (
        "torchbench",
        "mlp",
        ("eager", "inductor"),
        "eager",
    )
    (own,) = SUITE.plan({**ONE, "backend": "eager"})
    assert own.arms == ("eager", "dynamo-eager")


def test_a_name_keeps_two_entries_apart():
    (case,) = SUITE.plan({**ONE, "name": "large", "batch_size": 512})
    assert case.id == "torchbench/large.mlp[backend=inductor,mode=inference,precision=fp32]"


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"name": "decoder"}, "decoder"),
        ({}, "package.models_decoder"),
        ({"name": "two", "models": ["a:b", "a:c"]}, "two.a_b"),
    ],
)
def test_one_own_model_has_the_entrys_name(more, name):
    own = {**ONE, "source": "own", "models": ["package.models:decoder"], **more}
    assert (
        SUITE.plan(own)[0].id
        == f"torchbench/{name}[backend=inductor,mode=inference,precision=fp32]"
    )


@pytest.mark.parametrize(
    "model", ["package.module:make", "path:bench/my model.py,class:Model", "x" * 200 + ":y"]
)
def test_ids_of_own_models_are_sound(model):
    import re

    from ci_bench.records.documents import Kind, schema

    (case,) = SUITE.plan(
        {"source": "own", "models": [model], "mode": "inference", "name": "a-long-name-1234"}
    )
    forms = schema(Kind.RESULTS)["$defs"]
    assert re.search(forms["case_id"]["pattern"], case.id)
    assert re.search(forms["case"]["properties"]["name"]["pattern"], case.name)
    assert parse(case.params).model == model


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"batch_size": 7, "inductor": {"max_autotune": True}, "scope": "step", "precision": "tf32"},
    ],
)
def test_params_are_read_back_as_the_same_options(entry):
    (case, *_) = SUITE.plan({**ONE, **entry})
    again = parse(json.loads(json.dumps(case.params)))
    assert again.as_params() == case.params
    assert again.settings.batch_size == entry.get("batch_size")


@pytest.mark.parametrize(("measure", "kinds", "checks", "times"), [
    ("both", ["prepare", "alone", "verify", "alone", "alone", "time"], ("compiled", "accuracy", "refereed"), ("step_time",)),
    ("performance", ["prepare", "alone", "alone", "alone", "time"], ("compiled", "refereed"), ("step_time",)),
    ("accuracy", ["prepare", "alone", "verify"], ("compiled", "accuracy"), ()),
])  # fmt: skip
def test_stages_and_dues_follow_what_is_asked(measure, kinds, checks, times):
    (case,) = SUITE.plan({**ONE, "measure": measure})
    stages = SUITE.stages(case)
    assert [str(stage.kind) for stage in stages] == kinds
    assert (case.due.checks, case.due.times) == (checks, times)
    cold = [stage for stage in stages if stage.cache is Cache.COLD]
    assert [(stage.kind, stage.arms) for stage in cold] == [(StageKind.ALONE, ("inductor",))]


def test_parts_are_details_where_only_the_model_is_compiled():
    details = {
        (case.params["mode"], scope): case.details
        for scope in ("model", "step")
        for case in SUITE.plan({"models": ["mlp"], "scope": scope})
    }
    assert details.pop(("training", "model")) == ("forward_time", "backward_time", "optimizer_time")
    assert set(details.values()) == {()}


@pytest.mark.parametrize(
    ("source", "models"), [("own", ["m:a", "m:b", "m:c"]), ("timm", ["res_a", "res_b", "res_c"])]
)
def test_a_selection_holds_for_models_that_only_the_entry_names(source, models):
    def names(**more):
        given = {
            "source": source,
            "models": models,
            "mode": "inference",
            "backend": "eager",
            **more,
        }
        return [case.params["model"] for case in SUITE.plan(given)]

    assert names() == models
    assert names(filter=["a", "b"], exclude=["b"]) == [models[0]]
    assert names(exclude_exact=[models[0]]) == models[1:]
    shares = [names(partitions=2, partition=share) for share in (0, 1)]
    assert sorted(shares[0] + shares[1]) == models
    assert all(shares)


@pytest.mark.parametrize(("entry", "words"), [
    ({"backend": ["inductor", "inductor"]}, "names one arm twice"),
    ({"backend": ["eager", "dynamo-eager"]}, "names one arm twice"),
    ({"models": ["mpl"]}, "none of the 13 models is called 'mpl'; did you mean 'mlp'"),
    ({"source": "own"}, "source own needs models"),
    ({"source": "own", "models": ["m:a", "m:b"], "exclude": ["("]}, "is not a regular expression"),
    ({"source": "own", "models": ["m:a", "m:b"], "exclude_exact": ["m:c"]}, "none of the 2 models is called 'm:c'"),
    ({"source": "own", "models": ["m:a", "m:b"], "partitions": 2, "partition": 7}, "7 is not in 0..1"),
    ({"source": "own", "models": ["m:a", "m:b"], "filter": ["x"]}, "none of 2 models is chosen"),
    ({"source": "torchbench"}, "needs the folder of a TorchBench checkout"),
    ({"source": "torchbench", "path": "/nowhere"}, "no models under torchbenchmark/models"),
    ({"nopython": True, "scope": "step"}, "breaks the graph at backward"),
    ({"freezing": True}, "only inference can freeze"),
    ({"batch_invariance": True}, "applies to inference"),
    ({"quantization": "int8dynamic", "mode": "inference"}, "precision: bf16"),
    ({"quantization": "int8dynamic", "mode": "training", "quantized_arms": "candidate"}, "`precision: bf16` or `precision: fp32`"),
    ({"quantized_arms": "candidate", "mode": "inference"}, "quantized_arms: requires `quantization`"),
    ({"quantization_limit": 0.1, "mode": "inference"}, "quantization_limit: requires `quantization`"),
    ({"quantization": "int8dynamic", "mode": "inference", "precision": "bf16", "quantization_limit": 0.1}, "quantized_arms: candidate"),
    ({"inductor": {"mode": "max-autotune"}},
     "inductor.mode: an argument of .*; this mode stands for max_autotune: true, triton.cudagraphs: true, coordinate_descent"),
    ({"inductor": {"mode": "quick"}}, "inductor.mode: an argument of torch.compile, not an option of inductor; write it under `compile`"),
    ({"inductor": {"dynamic": True}}, "not an option of inductor; write it under `compile`"),
    ({"inductor": {"fullgraph": True}}, "`fullgraph: true` under `compile`"),
    ({"tables": ["/nowhere.yml"]}, "cannot be read: No such file"),
])  # fmt: skip
def test_contradictions_are_refused(entry, words):
    with pytest.raises(BadConfig, match=words):
        SUITE.plan(entry)


def test_nothing_is_downloaded():
    (case,) = SUITE.plan(ONE)
    assert SUITE.needs_network(case) is False


@pytest.mark.parametrize(
    ("precision", "epsilon"),
    [("fp32", 2**-24), ("tf32", 2**-11), ("fp16", 2**-11), ("bf16", 2**-8), ("amp_bf16", 2**-8)],
)
def test_one_rounding_of_the_narrowest_format(precision, epsilon):
    assert TorchbenchPrecision(precision).epsilon == epsilon


def test_planning_needs_no_torch():
    assert find_suite("torchbench") is SUITE
    script = "import sys, ci_bench.suites.torchbench.plan as p; p.SUITE.plan({}); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_several_batch_sizes_are_a_case_each():
    cases = SUITE.plan({"models": ["mlp"], "mode": "inference", "batch_size": [4, 16]})
    assert [case.params["settings"]["batch_size"] for case in cases] == [4, 16]
    assert [case.id.rpartition(",")[2] for case in cases] == ["batch=4]", "batch=16]"]
    (alone,) = SUITE.plan({"models": ["mlp"], "mode": "inference", "batch_size": 4})
    assert "batch=" not in alone.id


def test_the_largest_batch_is_a_case_whose_id_never_changes_and_whose_first_stage_finds_it():
    (case,) = SUITE.plan(
        {**ONE, "batch_size": "largest", "largest_batch": {"most": 64, "memory_bytes": 5_000_000}}
    )
    assert case.id == "torchbench/mlp[backend=inductor,mode=inference,precision=fp32,batch=largest]"
    settings = parse(json.loads(json.dumps(case.params))).settings
    assert (settings.batch_size, settings.largest) == (
        None,
        SizeLimits(most=64, memory_bytes=5_000_000),
    )
    stages = SUITE.stages(case)
    assert [str(stage.kind) for stage in stages] == [
        "prepare",
        "size",
        "alone",
        "verify",
        "alone",
        "alone",
        "time",
    ]
    assert (stages[1].arms, stages[1].exclusive, stages[1].limits) == (
        ("eager",),
        True,
        settings.largest,
    )
    given, found = SUITE.plan({**ONE, "batch_size": [8, "largest"]})
    assert (given.id[-9:], found.id[-15:]) == (",batch=8]", ",batch=largest]")
    assert "largest" not in given.params["settings"]


@pytest.mark.parametrize(("entry", "words"), [
    ({"batch_size": "largest", "dynamic": True}, "largest is one size, and `dynamic: true` has several"),
    ({"batch_size": 8, "largest_batch": {"most": 64}}, "no batch size is searched for"),
])  # fmt: skip
def test_a_search_that_contradicts_something_is_refused(entry, words):
    with pytest.raises(BadConfig, match=words):
        SUITE.plan({**ONE, **entry})


def test_models_of_one_short_name_are_refused():
    long = "a_package.with_a_very_long_name.and_more_of_it.in_the_middle:model"
    entry = {"source": "own", "models": [f"one.{long}", f"other.{long}"]}
    with pytest.raises(BadConfig, match=r"models: 'other\..* and 'one\..* are both .*last 60"):
        SUITE.plan(entry)
    with pytest.raises(BadConfig, match=r"'a\.b:c_d' and 'a\.b_c:d' are both 'a\.b_c_d'"):
        SUITE.plan({"source": "own", "models": ["a.b_c:d", "a.b:c_d"]})


def test_prefix_and_name_fill_a_cases_name():
    cases = SUITE.plan(
        {"source": "own", "models": [f"a:{letter * 90}" for letter in "bd"], "name": "c" * 19}
    )
    assert {len(case.name) for case in cases} == {80}
