"""Options to cases to stages, with no torch: every variant has a case, every contradiction a complaint."""

import json
import subprocess
import sys

import pytest

from ci_bench.errors import BadConfig
from ci_bench.suites.contract import Cache, StageKind
from ci_bench.suites.fastrnns.options import honoured, parse_job
from ci_bench.suites.fastrnns.plan import SUITE
from ci_bench.suites.fastrnns.variants import (
    GROUPS,
    REFERENCES,
    VARIANTS,
    FastrnnsTask,
    Form,
    compiled_form,
    reference_of,
)
from ci_bench.suites.registry import find_suite

ORIGINAL = [
    "cudnn",
    "aten",
    "cudnn_dropout",
    "cudnn_layernorm",
    "jit",
    "py",
    "jit_premul",
    "jit_premul_bias",
    "jit_simple",
    "jit_multilayer",
    "jit_layernorm",
    "jit_layernorm_decom",
    "jit_dropout",
    "vl_cudnn",
    "vl_py",
    "vl_jit",
    "resnet18",
    "resnet18_jit",
    "resnet50",
    "resnet50_jit",
]


def names(options):
    return [case.params["variant"] for case in SUITE.plan(options)]


def test_every_variant_of_the_original_is_here_and_its_cells_too():
    assert len(ORIGINAL) == 20
    assert {*ORIGINAL} <= {*VARIANTS}
    assert {"jit_milstm", "jit_gru", "jit_rnn_relu", "jit_rnn_tanh", "jit_bidirectional"} <= {
        *VARIANTS
    }


def test_the_groups_are_the_originals():
    assert GROUPS["cnns"] == ("resnet18", "resnet18_jit", "resnet50", "resnet50_jit")
    assert GROUPS["rnns"] == (
        "cudnn",
        "aten",
        "jit",
        "jit_premul",
        "jit_premul_bias",
        "jit_simple",
        "jit_multilayer",
        "py",
    )
    assert GROUPS["vl_lstm"] == ("vl_cudnn", "vl_jit", "vl_py")
    assert {name for group in GROUPS.values() for name in group} <= {*VARIANTS}


def test_every_structure_has_a_compiled_and_an_eager_or_library_form():
    for variant in VARIANTS.values():
        compiled = compiled_form(variant)
        assert (compiled.form, compiled.task) == (Form.COMPILE, variant.task)
    structures = {one.structure for one in VARIANTS.values()} - {
        "library",
        "library_layernorm",
        "scan",
        "while_loop",
    }
    for structure in structures:
        forms = {one.form for one in VARIANTS.values() if one.structure == structure}
        assert {Form.EAGER, Form.COMPILE} <= forms
        assert forms & {Form.SCRIPT, Form.TRACE}


def test_the_reference_of_every_task_runs_on_any_machine():
    assert {*REFERENCES} == {*FastrnnsTask}
    for task, name in REFERENCES.items():
        assert VARIANTS[name].task is task
        assert VARIANTS[name].form in {Form.ATEN, Form.EAGER}
        assert not VARIANTS[name].forward_only


def test_the_default_are_the_originals_two_groups_each_beside_its_reference():
    cases = SUITE.plan({})
    assert [case.params["variant"] for case in cases] == [*GROUPS["cnns"], *GROUPS["rnns"]]
    assert {case.arms for case in cases} >= {
        ("aten",),
        ("aten", "jit"),
        ("aten_simple", "jit_simple"),
        ("resnet50", "resnet50_jit"),
    }
    assert all(case.reference == case.arms[0] for case in cases)


def test_a_default_case_has_a_stable_id():
    case = next(case for case in SUITE.plan({}) if case.params["variant"] == "jit")
    assert case.id == "fastrnns/jit[batch=64,hidden=512,input=512,layers=1,seq=100]"
    assert (case.suite, case.name, case.reference) == ("fastrnns", "jit", "aten")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"variants": ["py"], "seq_length": 7},
            "fastrnns/py[batch=64,hidden=512,input=512,layers=1,seq=7]",
        ),
        (
            {"variants": ["py"], "name": "mine"},
            "fastrnns/mine.py[batch=64,hidden=512,input=512,layers=1,seq=100]",
        ),
        (
            {"variants": ["jit"], "fuser": "old", "dtype": "float64", "seed": 3},
            "fastrnns/jit[batch=64,hidden=512,input=512,layers=1,seq=100,dtype=float64,fuser=old]",
        ),
        (
            {"variants": ["compile"], "compile_modes": ["reduce-overhead"]},
            "fastrnns/compile[batch=64,hidden=512,input=512,layers=1,seq=100,mode=reduce-overhead]",
        ),
        ({"variants": ["resnet18"], "image_size": 64}, "fastrnns/resnet18[batch=32,size=64]"),
    ],
)
def test_ids_name_sizes_and_whatever_is_not_the_default(options, expected):
    assert [case.id for case in SUITE.plan(options)] == [expected]


def test_groups_and_variants_add_up_each_variant_once():
    assert names({"groups": ["vl_lstm"], "variants": ["vl_py", "py"]}) == [
        "vl_cudnn",
        "vl_jit",
        "vl_py",
        "py",
    ]
    assert names({"variants": ["py"]}) == ["py"]


def test_modes_add_the_compiled_form_of_each_structure():
    cases = SUITE.plan(
        {
            "variants": ["jit", "aten", "jit_premul", "vl_py"],
            "compile_modes": ["default", "max-autotune"],
        }
    )
    compiled = [
        (case.params["variant"], case.params["compile_mode"])
        for case in cases
        if "compile_mode" in case.params
    ]
    wanted = ["compile", "compile_lstm", "compile_premul", "vl_compile"]
    assert compiled == [(name, mode) for name in wanted for mode in ("default", "max-autotune")]


def test_ids_are_unique_over_all_variants_and_modes():
    options = {
        "groups": [*GROUPS],
        "variants": [*VARIANTS],
        "compile_modes": ["default", "reduce-overhead"],
        "num_layers": 2,
    }
    ids = [case.id for case in SUITE.plan(options)]
    assert len(set(ids)) == len(ids) > len(VARIANTS)


@pytest.mark.parametrize("name", VARIANTS)
def test_params_are_read_back_as_the_same_job(name):
    for case in SUITE.plan(
        {"variants": [name], "num_layers": 2}
        if not VARIANTS[name].is_convolutional
        else {"variants": [name]}
    ):
        job = parse_job(json.loads(json.dumps(case.params)))
        assert job.variant is VARIANTS[name]
        assert job.as_params() == case.params


def test_params_hold_what_matters_to_the_variant_and_nothing_else():
    (py,) = SUITE.plan({"variants": ["py"]})
    (jit,) = SUITE.plan({"variants": ["jit"]})
    (resnet,) = SUITE.plan({"variants": ["resnet18"]})
    assert "fuser" in jit.params
    assert "fuser" not in py.params
    assert "seq_length" in py.params
    assert "seq_length" not in resnet.params
    assert "image_size" in resnet.params


@pytest.mark.parametrize("name", VARIANTS)
def test_every_size_is_heeded(name):
    sizes = (
        {"cnn_batch_size", "image_size"}
        if VARIANTS[name].is_convolutional
        else {"seq_length", "num_layers", "input_size"}
    )
    assert sizes <= {*honoured(VARIANTS[name])}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"variants": ["jit_multilayer"], "dropout": 0.2},
            "dropout: jit_multilayer has no dropout between layers; use a variant",
        ),
        (
            {"variants": ["jit_dropout"]},
            "num_layers: with one layer jit_dropout has nothing to drop",
        ),
        ({"groups": ["dropout"]}, "num_layers: with one layer cudnn_dropout has nothing to drop"),
        (
            {"variants": ["jit_layernorm"], "hidden_size": 1},
            "hidden_size: a single feature leaves nothing to normalise",
        ),
        ({"variants": ["py"], "image_size": 64}, "image_size: none of the variants py uses it"),
        (
            {"variants": ["resnet18"], "seq_length": 3},
            "seq_length: none of the variants resnet18 uses it",
        ),
        (
            {"variants": ["py", "compile"], "fuser": "te"},
            "fuser: none of the variants py, compile uses it",
        ),
    ],
)
def test_what_no_variant_can_do_is_refused_by_name(options, complaint):
    with pytest.raises(BadConfig) as caught:
        SUITE.plan(options)
    assert complaint in str(caught.value)


def test_complaints_come_together():
    with pytest.raises(BadConfig) as caught:
        SUITE.plan(
            {
                "variants": ["cudnn_dropout", "jit_dropout"],
                "image_size": 3,
                "cnn_library": "torchvision",
            }
        )
    assert len(str(caught.value).splitlines()) == 4


def test_what_is_owed():
    due = {
        name: SUITE.plan({"variants": [name], "num_layers": 2})[0].due
        for name in ("jit", "compile", "cudnn_layernorm")
    }
    assert due["jit"].checks == ("agrees", "refereed")
    assert due["compile"].checks == ("agrees", "refereed", "compiled")
    assert due["jit"].times == ("forward_time", "backward_time")
    assert due["cudnn_layernorm"].times == ("forward_time",), "it has no backward worth the name"


def test_the_step_as_a_whole_is_a_detail():
    assert all(case.details == ("step_time", "device_time") for case in SUITE.plan({}))


def test_what_is_translated_is_translated_from_cold_before_all_else():
    (case,) = SUITE.plan({"variants": ["jit"]})
    stages = [(stage.kind, stage.arms, stage.cache, stage.launches) for stage in SUITE.stages(case)]
    assert stages == [
        (StageKind.ALONE, ("jit",), Cache.COLD, None),
        (StageKind.VERIFY, ("aten", "jit"), Cache.SHARED, (0,)),
        (StageKind.ALONE, ("aten",), Cache.SHARED, (0, 1)),
        (StageKind.ALONE, ("jit",), Cache.SHARED, (0, 1)),
        (StageKind.TIME, ("aten", "jit"), Cache.SHARED, None),
    ]


@pytest.mark.parametrize("name", ["aten", "py", "resnet18"])
def test_what_is_not_translated_has_no_cold_stage(name):
    (case,) = SUITE.plan({"variants": [name]})
    assert SUITE.stages(case)[0].kind is StageKind.VERIFY


def test_agreement_is_verified_before_anything_is_timed():
    for case in SUITE.plan({"variants": [*VARIANTS], "num_layers": 2}):
        kinds = [stage.kind for stage in SUITE.stages(case)]
        assert kinds.index(StageKind.VERIFY) < kinds.index(StageKind.TIME)


def test_nothing_needs_a_network():
    assert not any(SUITE.needs_network(case) for case in SUITE.plan({}))


def test_reference_and_candidate_do_the_same_task():
    assert all(reference_of(one).task is one.task for one in VARIANTS.values())


def test_planning_needs_no_torch():
    assert find_suite("fastrnns") is SUITE
    script = "import sys, ci_bench.suites.fastrnns.plan as p; p.SUITE.plan({}); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
