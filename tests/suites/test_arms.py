"""Compile modes and backends as arms of one case: one spelling in all suites, read and refused without torch."""

import json
import subprocess
import sys

import pytest

from ci_bench.configuration.config import load_config
from ci_bench.errors import BadConfig
from ci_bench.suites.contract import Cache, StageKind
from ci_bench.suites.registry import find_suite
from ci_bench.suites.shared.planning.arms import MODES, CompiledArm, read_arm, without_cuda_graphs
from ci_bench.suites.shared.planning.inductor import MODE_OPTIONS, option_types
from ci_bench.suites.shared.worker.compiling import allow_compilations, compile_arguments

ENTRIES = {
    "fastrnns": {"variants": ["compile"]},
    "torchbench": {"models": ["mlp"], "mode": "inference"},
    "training_loss": {},
    "transformers": {"model": "bert"},
}
IDS = {
    "fastrnns": "fastrnns/compile[batch=64,hidden=512,input=512,layers=1,seq=100]",
    "torchbench": "torchbench/mlp[mode=inference,precision=fp32]",
    "training_loss": "training_loss/reviews[precision=fp32]",
    "transformers": "transformers/bert[mode=inference,batch=8,seq=128,precision=fp32,attention=auto]",
}
INSTEAD = {
    "fastrnns": "compile_modes",
    "torchbench": "backend",
    "training_loss": "backend",
    "transformers": "candidate",
}
LISTED = [
    "default",
    {"mode": "max-autotune-no-cudagraphs"},
    "reduce-overhead",
    "aot_eager",
    {"backend": "mine:compile"},
]
NAMES = (
    "inductor",
    "inductor+max-autotune-no-cudagraphs",
    "inductor+reduce-overhead",
    "aot_eager",
    "mine:compile",
)

each_suite = pytest.mark.parametrize("suite", sorted(ENTRIES))


def plan(suite, **more):
    return find_suite(suite).plan({**ENTRIES[suite], **more})


@each_suite
def test_all_arms_are_in_one_case_beside_one_reference(suite):
    (case,) = plan(suite, arms=LISTED)
    assert case.id == IDS[suite]
    reference = "aten" if suite == "fastrnns" else "eager"
    assert (case.reference, case.arms) == (reference, (reference, *NAMES))
    assert json.loads(json.dumps(case.params)) == case.params
    assert len(case.params["arms"]) == len(NAMES)
    assert not case.params.keys() & {INSTEAD[suite], "compile_mode", "listed"}


@each_suite
def test_all_arms_are_timed_in_turns_in_every_launch_and_each_is_verified_and_compiled_from_cold(
    suite,
):
    (case,) = plan(suite, arms=LISTED)
    stages = find_suite(suite).stages(case)
    (timed,) = (stage for stage in stages if stage.kind is StageKind.TIME)
    assert (timed.arms, timed.launches) == (case.arms, None)
    assert case.arms in {stage.arms for stage in stages if stage.kind is StageKind.VERIFY}
    assert [stage.arms for stage in stages if stage.cache is Cache.COLD] == [
        (name,) for name in NAMES
    ]
    alone = {
        stage.arms
        for stage in stages
        if stage.kind is StageKind.ALONE and stage.cache is not Cache.COLD
    }
    assert alone == {(name,) for name in case.arms}
    assert "compiled" in case.due.checks


@each_suite
def test_without_arms_cases_stay_what_they_are(suite):
    for case in plan(suite):
        assert "arms" not in case.params
        assert len(case.arms) == 2


@each_suite
@pytest.mark.parametrize(
    ("arms", "fault"),
    [
        (["inductor", "default"], "inductor is listed twice; remove one of them"),
        ([{"mode": "max-autotune"}, "max-autotune"], r"inductor\+max-autotune is listed twice"),
        (["eager", "dynamo-eager"], "dynamo-eager is listed twice"),
        (
            [{"backend": "aot_eager", "mode": "max-autotune"}],
            "max-autotune is a mode of inductor, and backend aot_eager has none",
        ),
        (
            ["max-autotun"],
            r"'max-autotun' is not a known mode of torch.compile; did you mean 'max-autotune'\?",
        ),
        (
            ["reduce_overhead"],
            r"'reduce_overhead' is not a known mode of torch.compile; did you mean 'reduce-overhead'\?",
        ),
    ],
)
def test_arms_that_clash_or_cannot_be_are_refused(suite, arms, fault):
    with pytest.raises(BadConfig, match=rf"suites\.{suite}(\.reviews)?\.arms: {fault}"):
        plan(suite, arms=arms)


@each_suite
def test_arms_stand_in_place_of_what_makes_a_case_of_each(suite):
    option = INSTEAD[suite]
    with pytest.raises(BadConfig, match=f"arms: replaces `{option}`; remove one of them"):
        plan(suite, arms=["default"], **{option: ["default"]})


@each_suite
@pytest.mark.parametrize(
    ("arms", "fault"),
    [
        ("[{mode: max-autotun}]", r"arms\[0\]\.mode: 'max-autotun' .* did you mean 'max-autotune'"),
        ("[default, {mod: default}]", r"arms\[1\]\.mod: unknown field; did you mean 'mode'"),
        ("[]", "arms"),
        ("[default, default]", "arms"),
    ],
)
def test_an_unknown_mode_or_key_names_the_nearest(suite, arms, fault, tmp_path):
    path = tmp_path / "ci-bench.yml"
    path.write_text(f"schema_version: 1\nsuites: {{{suite}: [{{arms: {arms}}}]}}\n")
    with pytest.raises(BadConfig, match=fault):
        load_config(path)


def test_a_backend_whose_name_is_near_to_a_mode_is_written_as_a_mapping():
    (case,) = plan("torchbench", arms=[{"backend": "max-autotun"}])
    assert case.arms == ("eager", "max-autotun")


def test_an_arm_may_not_be_called_as_a_reference_of_fastrnns():
    with pytest.raises(BadConfig, match="arms: aten is the name of a reference arm"):
        plan("fastrnns", arms=["aten"])


def test_the_eager_arm_alone_stays_a_candidate():
    with pytest.raises(
        BadConfig, match="arms: none means only the eager arm; write it as `candidate`"
    ):
        plan("transformers", arms=["default", "none"])


COMPILE = {
    "mode": "max-autotune-no-cudagraphs",
    "fullgraph": True,
    "dynamic": False,
    "options": {"freezing": False},
}
SPELT = "inductor+max-autotune-no-cudagraphs+fullgraph+static-shapes+freezing:false"


@each_suite
def test_arguments_of_compile_hold_for_the_arms_of_an_entry_and_an_arms_own_win(suite):
    (case,) = plan(
        suite,
        compile=COMPILE,
        arms=["inductor", {"mode": "default", "dynamic": True, "options": {"max_autotune": True}}],
    )
    assert case.arms[1] == SPELT
    assert case.arms[2].startswith(
        "inductor+fullgraph+dynamic-shapes+freezing:false+max_autotune:true"
    )
    assert json.loads(json.dumps(case.params)) == case.params
    first, second = (
        read_arm({name: value for name, value in arm.items() if name not in {"way", "whole"}})
        for arm in case.params["arms"]
    )
    assert (first.name, second.name, second.dynamic) == (*case.arms[1:], True)
    assert second.options == {"freezing": False, "max_autotune": True}


@each_suite
def test_arguments_of_compile_hold_where_no_arms_are_listed(suite):
    (case,) = plan(suite, compile=COMPILE)
    assert case.arms == (case.reference, SPELT)


def test_a_case_of_each_backend_tells_how_it_is_compiled():
    (case,) = plan("torchbench", backend=["inductor"], compile={"fullgraph": True})
    assert case.id == "torchbench/mlp[backend=inductor+fullgraph,mode=inference,precision=fp32]"


@each_suite
@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            {"max_autotun": True},
            r"options\.max_autotun: inductor has no such option; did you mean 'max_autotune'\?",
        ),
        ({"triton.cudagraph": True}, "did you mean 'triton.cudagraphs'"),
        ({"max_autotune": 1}, "options.max_autotune: 1 is not true or false"),
        ({"cpp.threads": "two"}, "options.cpp.threads: 'two' is not a whole number"),
        (
            {"mode": "max-autotune"},
            "options.mode: an argument of torch.compile, not an option of inductor; this mode stands for",
        ),
    ],
)
def test_an_option_that_inductor_lacks_is_refused_while_planning(suite, options, fault):
    with pytest.raises(BadConfig, match=rf"suites\.{suite}(\.reviews)?\.arms: .*{fault}"):
        plan(suite, arms=[{"options": options}])
    with pytest.raises(BadConfig, match=rf"suites\.{suite}(\.reviews)?\..*{fault}"):
        plan(suite, compile={"options": options})


@each_suite
@pytest.mark.parametrize(
    ("arm", "fault"),
    [
        (
            {"backend": "aot_eager", "options": {"max_autotune": True}},
            "options are inductor's, and backend aot_eager has none",
        ),
        ("exports", r"'exports' is not a known experiment; did you mean 'export'\?"),
        ({"backend": "export", "fullgraph": True}, "fullgraph: export is one graph, or nothing"),
        ({"backend": "torchscript", "mode": "max-autotune"}, "max-autotune is a mode of inductor"),
    ],
)
def test_arguments_that_an_arm_has_no_use_for_are_refused(suite, arm, fault):
    with pytest.raises(BadConfig, match=fault):
        plan(suite, arms=[arm])


@pytest.mark.parametrize("suite", ["fastrnns", "training_loss"])
@pytest.mark.parametrize("word", ["export", "aot-inductor", "torchscript"])
def test_what_captures_a_model_is_refused_where_something_else_is_compiled(suite, word):
    with pytest.raises(
        BadConfig,
        match=f"arms: this suite does not have the experiment {word}; suite torchbench does",
    ):
        plan(suite, arms=[word])


@pytest.mark.engine
def test_the_table_of_options_is_that_of_torch():
    from torch._inductor import config

    ours, theirs = option_types(), config.get_config_copy()
    assert sorted(ours) == sorted(theirs)
    kinds = {name: type(value).__name__ for name, value in theirs.items()}
    assert [
        name
        for name in ours
        if kinds[name] in {"bool", "int", "float", "str"} and ours[name] not in {"any", kinds[name]}
    ] == []


@pytest.mark.engine
def test_what_a_mode_stands_for_is_what_torch_says():
    import torch

    assert {
        mode: dict(torch._inductor.list_mode_options(mode)) for mode in MODES if mode != "default"
    } == {mode: options for mode, options in MODE_OPTIONS.items() if mode != "default"}


@pytest.mark.engine
def test_a_mode_and_options_reach_the_compiler_together():
    import torch

    arm = read_arm(
        {
            "mode": "max-autotune-no-cudagraphs",
            "options": {"bucket_all_gathers_fx": "all", "cpu_gpu_bw": 9},
        }
    )
    arguments = compile_arguments(arm)
    assert arguments["options"]["coordinate_descent_tuning"] is True
    assert "mode" not in arguments
    torch.compile(lambda value: value + 1, **arguments)


def test_arguments_of_transformers_are_in_the_names():
    (case,) = plan(
        "transformers", arms=["default", {"mode": "default", "dynamic": True}, {"fullgraph": True}]
    )
    assert case.arms == ("eager", "inductor", "inductor+dynamic-shapes", "inductor+fullgraph")


def test_every_compiled_structure_of_fastrnns_has_the_arms():
    cases = plan("fastrnns", variants=["py", "py_premul"], arms=["default", "max-autotune"])
    assert [case.arms for case in cases if case.params["variant"].startswith("compile")] == [
        ("aten", "inductor", "inductor+max-autotune")
    ] * 2


def test_the_arm_that_alone_is_quantised_says_so():
    (case,) = plan(
        "torchbench",
        arms=["default", "max-autotune"],
        precision="bf16",
        quantization="int8dynamic",
        quantized_arms="candidate",
    )
    assert case.arms == ("eager", "inductor-int8dynamic", "inductor+max-autotune-int8dynamic")


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_a_rule_of_a_table_about_a_backend_is_about_a_case_that_has_it_among_its_arms(
    backend, tmp_path
):
    path = tmp_path / "table.yml"
    path.write_text(
        "schema_version: 1\nrules: [{models: [mlp], when: {backend: aot_eager}, skip: too slow}]\n"
    )
    (case,) = plan(
        "torchbench",
        arms=["default", backend + ("" if backend == "aot_eager" else "+x")],
        tables=[str(path)],
    )
    assert bool(case.params["rules"]) is (backend == "aot_eager")


@pytest.mark.parametrize("mode", MODES)
def test_an_arm_is_read_back_as_it_was(mode):
    arm = read_arm({"mode": mode})
    assert read_arm(arm.as_params()) == arm == read_arm(mode)
    assert arm.name == ("inductor" if mode == "default" else f"inductor+{mode}")


@pytest.mark.parametrize(
    ("modes", "device", "told"),
    [
        (
            {"inductor": None, "inductor+max-autotune-no-cudagraphs": "max-autotune-no-cudagraphs"},
            "cpu",
            None,
        ),
        ({"inductor+reduce-overhead": "reduce-overhead"}, "cuda:0", None),
        (
            {
                "inductor+reduce-overhead": "reduce-overhead",
                "inductor+max-autotune": "max-autotune",
                "inductor": None,
            },
            "cpu",
            "inductor+reduce-overhead, inductor+max-autotune: the device cpu has no CUDA graphs, so inductor runs without them",
        ),
    ],
)
def test_a_mode_that_asks_for_cuda_graphs_on_a_cpu_is_told(modes, device, told):
    assert without_cuda_graphs(modes, device) == ({} if told is None else {"no_cuda_graphs": told})


def test_planning_arms_needs_no_torch():
    script = (
        "import sys; from ci_bench.suites.registry import find_suite\n"
        f"for name, entry in {ENTRIES!r}.items(): find_suite(name).plan({{**entry, 'arms': {LISTED!r}}})\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.engine
def test_every_program_has_its_own_share_of_dynamos_limit():
    from torch._dynamo import config

    with config.patch(recompile_limit=8):
        allow_compilations(5)
        allow_compilations(1)
        assert config.recompile_limit == 40


def test_the_names_of_arms_are_those_of_backends():
    assert [CompiledArm(backend=name).name for name in ("eager", "inductor")] == [
        "dynamo-eager",
        "inductor",
    ]
