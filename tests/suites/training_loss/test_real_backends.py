"""The whole workload, as the engine drives it, with backends that are right, wrong, foreign and unknown."""

from dataclasses import replace

import pytest
import torch
import transformers.activations
from training_loss_builders import context, write_model

from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.records.comparison import Parity
from ci_bench.records.results import Masks, Outcome, Role
from ci_bench.suites.contract import no_mark
from ci_bench.suites.shared.worker.compiling import RECOMPILES
from ci_bench.suites.training_loss.plan import SUITE
from ci_bench.suites.training_loss.run import open_workload

pytestmark = pytest.mark.engine

FOREIGN = """
def compile(graph, inputs):
    calls.append(len(inputs))
    return graph.forward


calls = []
"""


class TorchRelu(torch.nn.Module):
    """The test-only backends look for `torch.relu`, while `nn.ReLU` is traced as `functional.relu`."""

    def forward(self, values):
        return torch.relu(values)


@pytest.fixture(autouse=True)
def fresh_compiler(compiler_cache):
    torch.compiler.reset()


def opened(bench, backend, **changes):
    (case,) = SUITE.plan(bench.params(backend=backend, **{"epochs": 2, **changes}))
    return case, open_workload(case, context(bench.folder))


def verified(bench, backend, **changes):
    """The evidence, and the finding of every candidate by its arm."""
    case, workload = opened(bench, backend, **changes)
    evidence = workload.verify(case.arms).parity
    return evidence, {finding.arm: finding for finding in parity_findings(evidence)}


def assert_alike(evidence, finding):
    assert finding.verdict in {Parity.BITWISE, Parity.NUMERIC_PARITY}
    assert finding.masks is Masks.ALIGNED
    assert finding.steps == 16
    assert finding.accuracy.holds
    trained_whole = [
        trace for trace in evidence.traces if trace.role not in {Role.PERTURBED, Role.CONTROL}
    ]
    assert {trace.accuracy is not None for trace in trained_whole} == {True}
    assert {trace.disagreements for trace in evidence.traces if trace.role is Role.CANDIDATE} == {
        (0, 0)
    }


@pytest.mark.slow
def test_dynamo_and_autograd_backends_learn_the_same(bench):
    evidence, findings = verified(bench, ["eager", "aot_eager"], evaluation=True)
    assert set(findings) == {"dynamo-eager", "aot_eager"}
    for finding in findings.values():
        assert_alike(evidence, finding)
    assert evidence.evaluation_rows == 30
    assert evidence.steps_per_epoch == 8
    assert [trace.role for trace in evidence.traces] == [
        Role.REFERENCE,
        *2 * [Role.CANDIDATE],
        *3
        * [
            Role.PERTURBED
        ],  # after all others: they end as soon as no further step of theirs could change a verdict
        Role.CONTROL,
    ]


@pytest.mark.slow
def test_inductor_learns_the_same(bench):
    evidence, findings = verified(bench, "inductor", evaluation=True)
    assert_alike(evidence, findings["inductor"])


@pytest.mark.parametrize("arm", ["eager", "dynamo-eager"])
def test_a_timed_program_updates_weights(arm, bench):
    _, workload = opened(bench, "eager")
    program = workload.open(arm)
    for _ in range(2):
        program.step(no_mark)
    checks = {check.name: check for check in program.finish()}
    assert {name: check.outcome for name, check in checks.items()} == {
        "finite_loss": Outcome.PASS,
        "updates_weights": Outcome.PASS,
    }
    assert {check.arm for check in checks.values()} == {arm}


def test_a_program_that_never_stepped_fails_its_checks(bench):
    _, workload = opened(bench, "eager")
    assert {check.outcome for check in workload.open("eager").finish()} == {Outcome.FAIL}


@pytest.fixture
def relu_bench(bench, tmp_path, monkeypatch):
    monkeypatch.setitem(transformers.activations.ACT2FN, "relu", TorchRelu)
    path = write_model(tmp_path / "relu", hidden_act="relu", num_hidden_layers=1)
    return replace(
        bench, options=replace(bench.options, model=replace(bench.options.model, path=path))
    )


def test_a_wrong_backend_breaks_parity(relu_bench):
    _, findings = verified(relu_bench, "relu_accuracy_error_TESTING_ONLY")
    finding = findings["relu_accuracy_error_TESTING_ONLY"]
    assert (finding.verdict, finding.first_step) == (Parity.DIFFERENT_MATH, 0)


@pytest.mark.parametrize(
    ("backend", "word"),
    [
        ("relu_compile_error_TESTING_ONLY", "ReluCompileError"),
        ("relu_runtime_error_TESTING_ONLY", "ReluRuntimeError"),
    ],
)
def test_a_backend_that_raises_is_not_taken_for_eager(backend, word, relu_bench):
    case, workload = opened(relu_bench, backend)
    with pytest.raises(Exception, match=word):
        workload.verify(case.arms)


def test_a_backend_by_import_path_is_used(bench, tmp_path, monkeypatch):
    (tmp_path / "foreign_backend.py").write_text(FOREIGN)
    monkeypatch.syspath_prepend(str(tmp_path))
    _, findings = verified(bench, "foreign_backend:compile")
    import foreign_backend

    assert foreign_backend.calls
    assert findings["foreign_backend:compile"].verdict in {Parity.BITWISE, Parity.NUMERIC_PARITY}


@pytest.mark.parametrize("stage", ["prepare", "open", "verify"])
def test_an_unknown_backend_is_refused_with_those_that_are_registered(stage, bench):
    case, workload = opened(bench, "inductr")
    calls = {
        "prepare": workload.prepare,
        "open": lambda: workload.open("inductr"),
        "verify": lambda: workload.verify(case.arms),
    }
    with pytest.raises(
        LookupError, match=r"'inductr' is not a backend of torch .*aot_eager.*inductor"
    ):
        calls[stage]()


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        ("no_such_module:compile", "backend: 'no_such_module:compile' cannot be imported"),
        ("torch:no_such_function", "backend: torch has no 'no_such_function'"),
    ],
)
def test_a_backend_that_cannot_be_imported_is_refused(backend, why, bench):
    _, workload = opened(bench, backend)
    with pytest.raises(LookupError, match=why):
        workload.prepare()


def test_trainings_beyond_dynamos_limit_are_still_compiled(bench):
    """Without a reset, the second training of this test would run eagerly, and be found equal in every bit."""
    from torch._dynamo import config

    from ci_bench.suites.training_loss.recipes import TrainingRecipe

    verifier = bench.verifier(replace(bench.options, backends=("eager",)))
    with config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True):
        for seed in (0, 1):
            verifier._run(
                TrainingRecipe(arm="dynamo-eager", role=Role.CANDIDATE, seed=seed, steps=2)
            )


def test_every_program_has_its_own_share_of_dynamos_limit(bench):
    from torch._dynamo import config

    with config.patch(recompile_limit=RECOMPILES):
        case, workload = opened(bench, ["eager", "aot_eager"])
        for arm in (*case.arms, *case.arms):  # two copies of each, as `run.rotate` opens them
            workload.open(arm)
        assert config.recompile_limit == 2 * len(case.arms) * RECOMPILES
