"""Each experiment: what it captures is verified as any arm is, what it cannot capture is skipped with the reason, what it spoils is red.

State: models of the zoo and of `planted_models`, one thread, CPU, one process except where a
process is what is tested.
"""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict

import pytest
import torch
from planted_models import ROWS, WIDTH, Formed
from torch._inductor import compile_fx
from torchbench_builders import HERE, accuracy, checks_of, context, own, verified, word

from ci_bench.errors import BadConfig
from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Unsupported, no_mark
from ci_bench.suites.shared.planning.arms import Experiment, read_arm
from ci_bench.suites.shared.worker import experiments
from ci_bench.suites.shared.worker.experiments import CapturedProgram, symbols, varying
from ci_bench.suites.torchbench import program
from ci_bench.suites.torchbench.plan import SUITE
from ci_bench.suites.torchbench.run import open_workload

pytestmark = pytest.mark.engine

QUICKLY = ["export", "export-strict", "torchscript", "overhead", "coverage"]
MAKERS = sorted(map(str, experiments.KEPT))
MADE = [*((arm, "inference") for arm in MAKERS), ("caching-precompile", "training")]
INFERENCE = {"mode": "inference", "perturbations": 1}

each_maker = pytest.mark.parametrize("arm", MAKERS)
each_made = pytest.mark.parametrize(("arm", "mode"), MADE)


def formed(defect="none", name="Formed", **entry):
    options = {"model_options": {"defect": defect}} if name == "Formed" else {}
    return own(name, **{**INFERENCE, **options, **entry})


@pytest.mark.parametrize("backend", QUICKLY)
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_what_is_captured_right_passes(backend, mode):
    check = accuracy(models=["mlp"], backend=backend, mode=mode, perturbations=1)
    assert (check.outcome, word(check)) == (Outcome.PASS, "pass"), check.detail


@pytest.mark.parametrize("backend", QUICKLY)
def test_what_is_captured_wrong_fails(backend):
    check = accuracy(**formed("wrong", backend=backend))
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy"), check.detail


@pytest.mark.parametrize(
    ("backend", "name", "reason"),
    [
        ("export", "Formed", "export: the model cannot be captured: "),
        ("export-strict", "Formed", "export-strict: the model cannot be captured: "),
        ("aot-inductor", "Formed", "aot-inductor: the model cannot be captured: "),
        ("aot-precompile", "Formed", "aot-precompile: the model cannot be captured: "),
        ("torchscript", "NoTrace", "torchscript: the model cannot be captured: "),
        ("torchscript-script", "NoScript", "torchscript-script: the model cannot be captured: "),
        (
            "aot-inductor",
            "CountingCalls",
            "a package keeps its buffers to itself, and this model changes calls",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch warns of itself
def test_what_cannot_be_captured_is_skipped_with_the_reason(backend, name, reason, tmp_path):
    (case,) = SUITE.plan(formed("impossible", name, backend=backend))
    with pytest.raises(Unsupported, match=reason):
        open_workload(case, context(tmp_path)).verify(case.arms)


def test_what_torch_compiles_and_cannot_keep_is_skipped_with_the_reason(tmp_path, monkeypatch):
    """No other process finds a class within a function; the quickest of compilers says so as well as inductor does."""
    monkeypatch.setattr(
        experiments,
        "compile_arguments",
        lambda arm, dynamic: {"backend": "eager", "dynamic": dynamic},
    )
    (case,) = SUITE.plan(formed(name="in_a_function", backend="caching-precompile"))
    with pytest.raises(
        Unsupported, match="caching-precompile: torch cannot keep what it compiles of this model: "
    ):
        open_workload(case, context(tmp_path)).verify(case.arms)


def test_what_torch_keeps_and_cannot_load_again_is_skipped_with_the_reason(tmp_path, monkeypatch):
    """A parameter that is not trained keeps its gradient, which torch writes among the guards and then cannot read."""
    monkeypatch.setattr(
        experiments,
        "compile_arguments",
        lambda arm, dynamic: {"backend": "eager", "dynamic": dynamic},
    )
    (case,) = SUITE.plan(formed(name="HalfFrozen", backend="caching-precompile", mode="training"))
    with pytest.raises(
        Unsupported,
        match=r"caching-precompile: torch cannot load what it keeps of this model: .*grad",
    ):
        open_workload(case, context(tmp_path)).verify(case.arms)
    assert not list(tmp_path.rglob("caching-precompile*"))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (
            {"backend": "aot-inductor", "mode": "training"},
            "aot-inductor keeps only a forward pass; use `mode: inference`",
        ),
        (
            {"backend": "aot-precompile", "mode": "training"},
            "aot-precompile keeps only a forward pass; use `mode: inference`",
        ),
        (
            {"backend": "export", "mode": "training", "scope": "step"},
            "export captures a model, not a step.*use `scope: model`",
        ),
    ],
)
def test_a_mode_that_an_experiment_has_not_is_skipped(entry, reason):
    with pytest.raises(Unsupported, match=reason):
        verified(**formed(**entry))


@pytest.mark.parametrize(
    ("name", "outcome"), [("FormedScript", Outcome.PASS), ("WrongScript", Outcome.FAIL)]
)
def test_scripted_models_are_verified(name, outcome):
    assert accuracy(**formed(name=name, backend="torchscript-script")).outcome is outcome


def test_an_arm_that_captured_nothing_is_told():
    class Nothing(torch.nn.Module):
        def forward(self, rows):
            return rows

    form = CapturedProgram(
        read_arm("export"), Nothing(), calls=[((torch.ones(2),), {})], folder=HERE
    )
    form(torch.ones(2))
    (check,) = form.checks("export")
    assert (check.name, check.outcome, check.detail) == (
        "compiled",
        Outcome.FAIL,
        "no graph was captured",
    )


def test_a_captured_program_says_how_many_operations_it_has():
    (case,) = SUITE.plan(formed(backend="export"))
    opened = open_workload(case, context()).open("export")
    opened.step(no_mark)
    assert "one graph of" in checks_of_program(opened)["compiled"].detail


def checks_of_program(opened):
    return {check.name: check for check in opened.finish()}


def test_sizes_that_vary_are_symbols_of_an_export():
    calls = [((torch.ones(rows, WIDTH),), {}) for rows in (4, 6)]
    assert varying([args[0] for args, _ in calls]) == (0,)
    assert set(symbols(Formed(), calls)) == {"rows"}
    assert symbols(Formed(), calls[:1]) is None
    form = CapturedProgram(read_arm("export"), Formed(), calls=calls, folder=HERE)
    assert [len(form(torch.ones(rows, WIDTH))) for rows in (4, 6, ROWS)] == [4, 6, ROWS]


@pytest.mark.parametrize("backend", ["export", "overhead"])
def test_every_size_of_an_export_with_dynamic_shapes_is_verified(backend):
    evidence = verified(**formed(backend=backend, dynamic=True))
    assert checks_of(evidence)["accuracy"].outcome is Outcome.PASS
    assert evidence.facts["verified_batches"] == 5


MAKE = """
import json, os, pathlib, sys
import torch
from test_experiments import formed, of_one_step
from ci_bench.suites.torchbench.plan import SUITE
torch.set_num_threads(1)
for one in sys.argv[2:]:
    arm, mode = one.split()
    (case,) = SUITE.plan(formed(backend=arm, mode=mode))
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{sys.argv[1]}/cold-{arm}-{mode}"
    folder = pathlib.Path(sys.argv[1]) / mode
    print(json.dumps([os.getpid(), sorted(name for name, check in of_one_step(case, folder).items())]))
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Files that another process has made and run: their folder, and by arm and mode what that process said of itself."""
    folder = tmp_path_factory.mktemp("kept")
    command = [sys.executable, "-c", MAKE, str(folder), *map(" ".join, MADE)]
    environ = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environ, check=False, timeout=240, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder, dict(zip(MADE, map(json.loads, done.stdout.splitlines()), strict=True))


def of_one_step(case, folder):
    opened = open_workload(case, context(folder)).open(case.arms[1])
    opened.step(no_mark)
    return checks_of_program(opened)


@each_made
def test_a_file_is_made_by_one_process_and_loaded_verified_and_measured_by_another(
    kept, arm, mode, monkeypatch
):
    (folder, made_by), (case,) = kept, SUITE.plan(formed(backend=arm, mode=mode))
    maker, made = made_by[arm, mode]
    own_checks = {"inference": {"finite_outputs"}, "training": {"finite_loss", "updates_weights"}}[
        mode
    ]
    assert set(made) == {"compiled", *own_checks}
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    monkeypatch.setattr(
        compile_fx,
        "fx_codegen_and_compile",
        lambda *_, **__: pytest.fail("what is loaded is not compiled"),
    )
    checks = of_one_step(case, folder / mode)
    assert checks["package"].outcome is Outcome.PASS
    assert f"made by process {maker}-" in checks["package"].detail
    assert f"loaded by process {os.getpid()}-" in checks["package"].detail
    evidence = open_workload(case, context(folder / mode)).verify(case.arms)
    assert checks_of(evidence)["accuracy"].outcome is Outcome.PASS
    (size,) = (
        metric.launches[0].values[0] for metric in evidence.metrics if metric.name == "package_size"
    )
    files = [
        path
        for path in (folder / mode / "packages").rglob("*")
        if path.is_file() and path.suffix != ".json"
    ]
    assert size == sum(path.stat().st_size for path in files if f"packages/{arm}." in str(path))


@each_made
def test_a_file_that_computes_something_else_fails(kept, arm, mode, monkeypatch):
    folder, _ = kept
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    load = {
        Experiment.AOT_INDUCTOR: "_load_package",
        Experiment.AOT_PRECOMPILE: "_load_precompiled",
    }.get(arm, "_load_cached")
    right = getattr(experiments, load)

    def spoilt(*arguments, **options):
        run = right(*arguments, **options)
        return lambda *args, **kwargs: SPOILT[mode](run(*args, **kwargs))

    monkeypatch.setattr(experiments, load, spoilt)
    (case,) = SUITE.plan(formed(backend=arm, mode=mode))
    check = checks_of(open_workload(case, context(folder / mode)).verify(case.arms))["accuracy"]
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy")


class GradientsApart(torch.autograd.Function):
    """The same forward, and a hundredth more backward."""

    @staticmethod
    def forward(_context, value):
        return value.view_as(value)

    @staticmethod
    def backward(_context, gradient):
        return 1.01 * gradient


SPOILT = {"inference": lambda value: 1.01 * value, "training": GradientsApart.apply}
"""What a file of either mode computes wrongly: of a training the backward pass alone."""


def test_a_guard_that_does_not_hold_is_told_of_a_file_that_should_compile_nothing(
    tmp_path, monkeypatch
):
    """As torch does silently where it loads a file and its guards fail: it compiles again."""
    kept = experiments.Package(size_bytes=1, maker="another process", operations=1)
    (tmp_path / "caching-precompile.json").write_text(json.dumps(asdict(kept)))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(
        experiments,
        "_load_cached",
        lambda arm, module, path, dynamic: torch.compile(module, backend="eager"),
    )
    form = CapturedProgram(
        read_arm("caching-precompile"), Doubled(), calls=[((torch.ones(2),), {})], folder=tmp_path
    )
    form(torch.ones(2))
    check = {check.name: check for check in form.checks("caching-precompile")}["package"]
    assert check.outcome is Outcome.FAIL
    assert check.detail.endswith("which captured 1 operations again")


class Doubled(torch.nn.Module):
    """Another model than the one whose graphs this process has loaded onto its code."""

    def forward(self, rows):
        return 2 * rows


def test_what_is_loaded_onto_a_models_code_has_a_case_of_its_own():
    arms = {"models": ["mlp"], "mode": "inference", "arms": ["caching-precompile", "default"]}
    with pytest.raises(
        BadConfig,
        match="loads its graphs onto the model's code, where every other arm of the case would run",
    ):
        SUITE.plan(arms)
    assert len(SUITE.plan({**arms, "arms": ["caching-precompile"]})) == 1
    assert (
        len(
            SUITE.plan(
                {
                    "models": ["mlp"],
                    "mode": "inference",
                    "backend": ["caching-precompile", "inductor"],
                }
            )
        )
        == 2
    )


@each_maker
def test_a_cold_cache_has_the_file_made_again(kept, arm, monkeypatch, tmp_path):
    folder, _ = kept
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "none"))
    form = CapturedProgram(
        read_arm(arm), Formed(), calls=(), folder=folder / "inference" / "packages"
    )
    assert form._loaded() is None
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    assert form._loaded() is not None


def forget_captures():
    """As in a process of its own."""
    torch.compiler.reset()
    torch._dynamo.compiled_autograd.reset()
    torch._dynamo.utils.counters.clear()


AUTOGRAD = {"backend": "aot_eager", "compiled_autograd": True}


@pytest.mark.parametrize("scope", ["model", "step"])
def test_compiled_autograd_captures_the_backward_pass_and_is_verified(scope):
    entry = {
        "models": ["mlp"],
        "arms": [AUTOGRAD],
        "mode": "training",
        "perturbations": 1,
        "scope": scope,
    }
    (case,) = SUITE.plan(entry)
    assert "compiled_autograd" in case.due.checks
    workload = open_workload(case, context())
    assert checks_of(workload.verify(case.arms))["accuracy"].outcome is Outcome.PASS
    forget_captures()
    opened = workload.open(case.arms[1])
    opened.step(no_mark)
    assert checks_of_program(opened)["compiled_autograd"].outcome is Outcome.PASS


def test_a_backward_pass_that_is_wrong_under_compiled_autograd_fails():
    (case,) = SUITE.plan(own("WrongBackward", arms=[AUTOGRAD], perturbations=1))
    check = checks_of(open_workload(case, context()).verify(case.arms))["accuracy"]
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy")
    plain = accuracy(**own("WrongBackward", backend="aot_eager", perturbations=1))
    assert plain.outcome is Outcome.PASS, plain.detail


def test_a_backward_pass_that_was_not_captured_fails(monkeypatch):
    forget_captures()
    monkeypatch.setattr(program, "_backward_of", lambda candidate: nullcontext)
    (case,) = SUITE.plan({"models": ["mlp"], "arms": [AUTOGRAD], "mode": "training"})
    opened = open_workload(case, context()).open(case.arms[1])
    opened.step(no_mark)
    assert checks_of_program(opened)["compiled_autograd"].outcome is Outcome.FAIL


def test_inference_has_no_backward_pass_to_compile():
    with pytest.raises(BadConfig, match="compiled_autograd: inference has no backward pass"):
        SUITE.plan({"models": ["mlp"], "arms": [AUTOGRAD], "mode": "inference"})
