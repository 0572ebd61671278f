"""The suite torchbench on a GPU: what the CPU cannot show. Skipped where there is none."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.engine,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"),
]

sys.path.insert(0, str(Path(__file__).parents[1] / "suites" / "torchbench"))


def verified(**entry):
    from ci_bench.suites.contract import Context
    from ci_bench.suites.torchbench.plan import SUITE
    from ci_bench.suites.torchbench.run import open_workload

    (case,) = SUITE.plan({"backend": "inductor", **entry})
    context = Context(device="cuda:0", scratch=Path(), progress=lambda arm, done, total: None)
    evidence = open_workload(case, context).verify(case.arms)
    return next(check for check in evidence.checks if check.name == "accuracy")


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "amp_bf16", "amp_fp16"])
@pytest.mark.parametrize("model", ["mlp", "resnet", "encoder", "decoder", "gnn"])
def test_inductor_computes_rightly_in_every_precision(model, precision):
    check = verified(models=[model], mode="training", precision=precision)
    assert check.outcome == "pass", check.detail


@pytest.mark.parametrize(
    "entry",
    [
        {"cudagraphs": True},
        {"scope": "step", "cudagraphs": True},
        {"channels_last": True},
        {"deterministic": True},
    ],
)
def test_settings_of_a_gpu_keep_results_right(entry):
    check = verified(models=["resnet"], mode="training", **entry)
    assert check.outcome == "pass", check.detail


@pytest.mark.parametrize("defect", ["zeroed", "flipped"])
def test_wrong_gradients_fail_on_a_gpu(defect):
    entry = {
        "source": "own",
        "models": ["planted_models:Plain"],
        "backend": "aot_eager",
        "mode": "training",
    }
    check = verified(**entry, model_options={"defect": defect, "scale": 1e-4})
    assert check.outcome == "fail"
