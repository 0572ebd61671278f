"""The suite on a real GPU: parity, timing, memory and failures there.

Skipped where there is none.
"""

import json

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

QUICK = {"num_samples": 320, "epochs": 1, "evaluation_rows": 160}


def gate(tmp_path, *, device="cuda:0", **options):
    from ci_bench.cli import main

    config = tmp_path / "ci-bench.yml"
    entry = json.dumps({**QUICK, **options})
    config.write_text(
        f"schema_version: 1\nrun: {{device: '{device}', launches: 2, blocks: 3}}\nsuites: {{training_loss: [{entry}]}}\n"
        "policy: {severities: {baseline_missing: note}}\n"
    )
    code = main(["gate", "--config", str(config), "--output", str(tmp_path / "out")])
    return code, json.loads((tmp_path / "out" / "results.json").read_text())


def metric(results, name, arm):
    (found,) = [m for m in results["cases"][0]["metrics"] if (m["name"], m["arm"]) == (name, arm)]
    return [value for launch in found["launches"] for value in launch["values"]]


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "amp_bf16", "amp_fp16"])
def test_inductor_holds_parity_in_every_precision(tmp_path, precision):
    code, results = gate(tmp_path, precision=precision)

    assert code == 0
    assert results["environment"]["identity"]["device"] == "cuda"


def test_peaks_are_the_allocators_and_repeat_exactly(tmp_path):
    _, results = gate(tmp_path, backend="aot_eager")

    allocated = metric(results, "peak_allocated", "eager")
    assert len(allocated) == 2
    assert allocated[0] == allocated[1] > 0
    assert metric(results, "peak_reserved", "eager")[0] >= allocated[0]


def test_identity_names_gpu_and_driver(tmp_path):
    _, results = gate(tmp_path, backend="eager")

    identity = results["environment"]["identity"]
    assert identity["gpu"] == torch.cuda.get_device_name(0)
    assert identity["driver"]


def test_out_of_gpu_memory_is_a_status_of_its_own(tmp_path, monkeypatch):
    """A backend that asks for more than any GPU has, in the candidate's first step."""
    (tmp_path / "greedy.py").write_text(
        "import torch\n\ndef backend(graph, inputs):\n    torch.empty(1 << 50, dtype=torch.uint8, device='cuda')\n    return graph\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, results = gate(tmp_path, backend="greedy:backend")

    assert results["cases"][0]["status"] == "out_of_memory"
    assert code != 0


def test_a_missing_gpu_is_refused_before_measuring(tmp_path, capsys):
    from ci_bench.cli import main

    assert (
        main(["run", "--config", "quickstart", "--device", "cuda:99", "--output", str(tmp_path)])
        == 3
    )
    assert "cuda:99" in capsys.readouterr().err
