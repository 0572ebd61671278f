"""Every precision trains on the CPU and is found to agree with itself; what the device lacks is skipped with a reason."""

import pytest
import torch
from training_loss_builders import context, make_bench, write_model

from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.records.comparison import Parity
from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Unsupported, no_mark
from ci_bench.suites.training_loss import run
from ci_bench.suites.training_loss.network import build_model
from ci_bench.suites.training_loss.options import TrainingPrecision
from ci_bench.suites.training_loss.plan import SUITE
from ci_bench.suites.training_loss.run import open_workload

pytestmark = pytest.mark.engine

ON_CPU = [precision for precision in TrainingPrecision if precision is not TrainingPrecision.TF32]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("precisions")
    path = write_model(folder / "tiny", num_hidden_layers=1, hidden_size=16, intermediate_size=32)
    return make_bench(folder), path


def opened(tiny, precision):
    bench, path = tiny
    model = {"path": path, "pretrained": False}
    (case,) = SUITE.plan(
        bench.params(backend="aot_eager", precision=precision, epochs=2, model=model)
    )
    return case, open_workload(case, context(bench.folder))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ON_CPU)
def test_a_precision_agrees_with_itself(precision, tiny):
    torch.compiler.reset()
    case, workload = opened(tiny, precision)
    evidence = workload.verify(case.arms).parity
    (finding,) = parity_findings(evidence)
    assert finding.verdict in {Parity.BITWISE, Parity.NUMERIC_PARITY}
    assert finding.steps == 16
    assert (evidence.precision, evidence.epsilon) == (precision, precision.perturbation)


@pytest.mark.parametrize("precision", ON_CPU)
def test_a_precision_moves_the_weights(precision, tiny):
    _, workload = opened(tiny, precision)
    program = workload.open("eager")
    for _ in range(3):
        program.step(no_mark)
    assert {check.outcome for check in program.finish()} == {Outcome.PASS}


def test_bf16_keeps_its_weights_in_bf16(tiny):
    _, workload = opened(tiny, TrainingPrecision.BF16)
    assert {value.dtype for value in workload.open("eager")._trainee.model.parameters()} == {
        torch.bfloat16
    }


@pytest.mark.parametrize(
    "precision", [TrainingPrecision.FP32, TrainingPrecision.AMP_BF16, TrainingPrecision.BF16]
)
def test_fp32_buffers_that_bf16_rounds_are_a_fact(precision, tiny, monkeypatch):
    def with_angles(options, *, seed):
        model = build_model(options, seed=seed)
        model.register_buffer("inv_freq", 1e4 ** -(torch.arange(8) / 8), persistent=False)
        return model

    _, workload = opened(tiny, precision)
    assert workload._rounded() == {}
    monkeypatch.setattr(run, "build_model", with_angles)
    assert set(workload._rounded()) == (
        {"rounded_buffers"} if precision is TrainingPrecision.BF16 else set()
    )


def test_tf32_is_skipped_on_the_cpu_with_the_reason(tiny):
    with pytest.raises(Unsupported, match=r"tf32 needs an NVIDIA GPU of compute capability 8\.0"):
        opened(tiny, TrainingPrecision.TF32)


def test_a_precision_other_than_tf32_turns_tf32_off(tiny, monkeypatch):
    torch.set_float32_matmul_precision("high")
    opened(tiny, TrainingPrecision.FP32)
    assert torch.get_float32_matmul_precision() == "highest"
