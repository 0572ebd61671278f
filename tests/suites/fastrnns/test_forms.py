"""Scripting, tracing and compiling; what is missing is a reason to skip, and a knob that is turned is turned."""

import subprocess
import sys
import warnings

import pytest
import torch
from fastrnns_builders import SMALL, make_case, make_job, open_case, verified

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Unsupported
from ci_bench.suites.fastrnns import networks, run
from ci_bench.suites.fastrnns.networks import Lazy, require_torchscript, translated
from ci_bench.suites.fastrnns.options import CompileMode, Executor, Fuser
from ci_bench.suites.fastrnns.plan import SUITE
from ci_bench.suites.fastrnns.run import EXECUTORS, FUSERS, apply_knobs, settings
from ci_bench.suites.fastrnns.variants import VARIANTS, Form

pytestmark = pytest.mark.engine


def add(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_eager_is_the_function_itself():
    assert translated(add, Form.EAGER) is add


@pytest.mark.parametrize("form", [Form.SCRIPT, Form.TRACE])
def test_torchscripts_forms_translate_once_and_say_nothing(form):
    function = translated(add, form)
    assert isinstance(function, Lazy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(function(torch.zeros(2)), torch.ones(2))
    first = function._translated
    function(torch.zeros(2))
    assert function._translated is first


def test_other_warnings_are_let_through():
    def talkative(x):
        warnings.warn("something else is deprecated", DeprecationWarning, stacklevel=1)
        return x

    with pytest.warns(DeprecationWarning, match="something else"):
        translated(talkative, Form.TRACE)(torch.zeros(2))


@pytest.mark.parametrize("name", ["script", "trace"])
def test_a_torch_without_torchscript_skips_its_forms_alone(monkeypatch, name):
    monkeypatch.delattr(torch.jit, name)
    with pytest.raises(Unsupported, match=rf"has no torch\.jit\.{name}; use the compiled form"):
        open_case(make_case("jit"))
    open_case(make_case("py"))
    open_case(make_case("compile"))


def test_torchscript_that_is_switched_off_is_no_eager_loop_by_another_name():
    script = (
        "from ci_bench.suites.fastrnns.networks import require_torchscript\n"
        "from ci_bench.suites.contract import Unsupported\n"
        "try:\n    require_torchscript()\nexcept Unsupported as reason:\n    print(reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTORCH_JIT": "0", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PYTORCH_JIT=0" in done.stdout
    require_torchscript()


def state_of_knobs():
    executor = torch._C._jit_set_profiling_executor(True)
    torch._C._jit_set_profiling_executor(executor)
    mode = torch._C._jit_set_profiling_mode(True)
    torch._C._jit_set_profiling_mode(mode)
    return executor, mode, torch._C._jit_texpr_fuser_enabled()


@pytest.mark.parametrize(
    ("fuser", "executor", "expected"),
    [
        ("te", "default", (True, True, True)),
        ("old", "default", (False, False, False)),
        ("none", "default", (False, False, False)),
        ("te", "legacy", (False, False, True)),
        ("old", "profiling", (True, True, False)),
        ("none", "simple", (True, False, False)),
    ],
)
def test_fuser_and_executor_are_set_and_a_named_executor_wins(fuser, executor, expected):
    apply_knobs(make_job("jit", fuser=fuser, executor=executor).options)
    assert state_of_knobs() == expected


@pytest.mark.parametrize(("fuser", "on_gpu"), [("te", True), ("old", True), ("none", False)])
def test_fusion_on_a_gpu_follows_the_fuser(fuser, on_gpu):
    """A torch built without CUDA cannot be asked whether it took effect."""
    assert (
        dict(settings(make_job("jit", fuser=fuser).options))["_jit_override_can_fuse_on_gpu"]
        is on_gpu
    )


def test_default_leaves_torchs_own_choice():
    before = state_of_knobs()
    apply_knobs(make_job("jit", fuser="default").options)
    assert state_of_knobs() == before


def test_pointwise_knobs_are_set_only_where_given():
    given = dict(settings(make_job("jit", fuser="default", cuda_pointwise_block_size=128).options))
    assert given == {"_jit_set_te_cuda_pointwise_block_size": 128}
    before = torch._C._jit_get_te_cuda_pointwise_block_count()
    apply_knobs(make_job("jit", cuda_pointwise_block_count=7).options)
    try:
        assert torch._C._jit_get_te_cuda_pointwise_block_count() == 7
    finally:
        torch._C._jit_set_te_cuda_pointwise_block_count(before)


def test_every_fuser_and_executor_has_its_settings():
    assert {*FUSERS} == {*Fuser}
    assert {*EXECUTORS} == {*Executor}


def test_a_torch_without_a_knob_skips(monkeypatch):
    monkeypatch.setitem(run.FUSERS, Fuser.TE, (("_jit_no_such_knob", True),))
    with pytest.raises(Unsupported, match="lacks _jit_no_such_knob, which fuser te"):
        open_case(make_case("jit"))
    open_case(make_case("py"))


@pytest.mark.parametrize("fuser", [*Fuser])
def test_every_fuser_agrees(fuser):
    for arm, check in verified("jit_premul", fuser=str(fuser)).items():
        assert check.outcome is Outcome.PASS, (arm, check.detail)


@pytest.mark.parametrize("executor", [*Executor])
def test_every_executor_agrees(executor):
    for arm, check in verified("jit", executor=str(executor)).items():
        assert check.outcome is Outcome.PASS, (arm, check.detail)


def test_a_torch_without_the_operator_skips(monkeypatch):
    monkeypatch.setattr(
        networks, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name))
    )
    with pytest.raises(Unsupported, match="has no higher-order operator scan"):
        networks.scanned()


COMPILED = [
    name for name, one in VARIANTS.items() if one.form is Form.COMPILE and not one.is_convolutional
]


@pytest.fixture
def without_code_generation(monkeypatch):
    """Trace, take apart and differentiate as always, and run what comes of it without generating kernels."""
    real = torch.compile

    def compile_ours(function, *, mode=None, **more):
        """What has no mode is torch's own use, within `scan`."""
        return real(function, backend="aot_eager", **more) if mode else real(function, **more)

    monkeypatch.setattr(torch, "compile", compile_ours)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", COMPILED)
def test_every_compiled_form_agrees(name, without_code_generation):
    for arm, check in verified(name, seq_length=2).items():
        assert check.outcome is Outcome.PASS, (arm, check.detail)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compile_scan", "compile_while_loop"])
@pytest.mark.parametrize(
    "sizes",
    [{"seq_length": 1, "num_layers": 1, "batch_size": 1}, {"seq_length": 4, "num_layers": 3}],
)
def test_loops_of_the_graph_agree_at_the_corners(name, sizes, without_code_generation):
    assert verified(name, **sizes)[name].outcome is Outcome.PASS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compile_lstm", "compile_scan", "compile_while_loop"])
def test_what_inductor_needs_help_with_agrees(name, compiler_cache):
    """Two layers: with one, torch 2.13 gets the gradients right by itself."""
    torch._dynamo.reset()
    for arm, check in verified(name, seq_length=2).items():
        assert check.outcome is Outcome.PASS, (arm, check.detail)


def test_modes_reach_the_compiler(monkeypatch):
    seen = []
    monkeypatch.setattr(
        torch, "compile", lambda function, **more: seen.append(more["mode"]) or function
    )
    for case in SUITE.plan(
        {
            "variants": ["compile", "vl_compile", "compile_lstm"],
            "compile_modes": [*CompileMode],
            **SMALL,
        }
    ):
        open_case(case).open(case.params["variant"])
    assert seen == [
        None if mode is CompileMode.DEFAULT else str(mode) for _ in range(3) for mode in CompileMode
    ]
