"""The suite `fastrnns` on a real GPU: what cuDNN does there, TorchScript's fusers, CUDA graphs, the device's clock."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from ci_bench.records.results import Outcome  # noqa: E402 - after torch was found
from ci_bench.suites.contract import Context  # noqa: E402
from ci_bench.suites.fastrnns.plan import SUITE  # noqa: E402
from ci_bench.suites.fastrnns.variants import GROUPS, VARIANTS, Form  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

SMALL = {"seq_length": 6, "num_layers": 2, "input_size": 16, "hidden_size": 32, "batch_size": 4}
IMAGES = {"cnn_batch_size": 4, "image_size": 64}
LAST = f"cuda:{torch.cuda.device_count() - 1}"
"""Another GPU than the first, where there is one."""


def verified(name, *, device="cuda:0", **options):
    from ci_bench.suites.fastrnns.run import open_workload

    sizes = IMAGES if VARIANTS[name].is_convolutional else SMALL
    (case,) = SUITE.plan({"variants": [name], **sizes, **options})
    workload = open_workload(
        case, Context(device=device, scratch=Path(), progress=lambda arm, done, total: None)
    )
    return {check.arm: check for check in workload.verify(case.arms).checks}


def assert_agree(checks):
    for arm, check in checks.items():
        assert check.outcome is Outcome.PASS, (arm, check.detail)


@pytest.mark.parametrize(
    "name", [name for name, one in VARIANTS.items() if one.form is Form.LIBRARY]
)
def test_what_cudnn_computes_agrees(name):
    assert_agree(verified(name))


@pytest.mark.parametrize(
    "name", [name for name, one in VARIANTS.items() if one.form not in {Form.LIBRARY, Form.COMPILE}]
)
def test_everything_that_is_not_compiled_agrees_on_the_gpu(name):
    assert_agree(verified(name))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["cudnn", "py", "jit_premul_bias"])
def test_every_number_format_agrees(name, dtype):
    assert_agree(verified(name, dtype=dtype))


@pytest.mark.parametrize("name", ["cudnn", "py"])
def test_tf32_agrees_within_its_own_rounding(name):
    if torch.cuda.get_device_capability()[0] < 8:
        pytest.skip("this GPU has no TF32")
    assert_agree(verified(name, allow_tf32=True))


@pytest.mark.parametrize("fuser", ["te", "old", "none", "default"])
def test_every_fuser_agrees(fuser):
    assert_agree(verified("jit", fuser=fuser))


def test_pointwise_knobs_agree():
    knobs = {
        "cuda_pointwise_loop_level": 2,
        "cuda_pointwise_block_count": 32,
        "cuda_pointwise_block_size": 128,
    }
    assert_agree(verified("jit", **knobs))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize(
    "name",
    [
        "compile",
        "compile_premul",
        "compile_lstm",
        "compile_scan",
        "compile_while_loop",
        "vl_compile",
    ],
)
def test_compiled_forms_agree(name, mode):
    torch._dynamo.reset()
    assert_agree(verified(name, compile_modes=[mode], seq_length=3))


def test_the_last_gpu_does_as_well_as_the_first():
    assert_agree(verified("cudnn", device=LAST))
    assert_agree(verified("jit", device=LAST))


def test_aten_runs_without_cudnn_and_its_neighbour_with_it():
    """The original's pytest form measured `aten` with cuDNN on."""
    from ci_bench.suites.fastrnns.initial_state import draw
    from ci_bench.suites.fastrnns.networks import build_network
    from ci_bench.suites.fastrnns.options import FastrnnsJob, FastrnnsOptions

    kernels = {}
    for name in ("aten", "cudnn", "aten"):
        job = FastrnnsJob(variant=VARIANTS[name], mode=None, options=FastrnnsOptions(**SMALL))
        given = draw(job)
        network = build_network(job, given.to(given.gradient.dtype, "cuda:0"))
        network.forward()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            network.forward()
        kernels[name] = {event.key for event in profile.key_averages()}
    assert "aten::_cudnn_rnn" in kernels["cudnn"]
    assert "aten::_cudnn_rnn" not in kernels["aten"]
    assert torch.backends.cudnn.enabled


def measured(tmp_path, *, device="cuda:0", **entry):
    from ci_bench.cli import main

    config = tmp_path / "ci-bench.yml"
    config.write_text(
        f"schema_version: 1\nrun: {{device: '{device}', launches: 2, blocks: 3}}\nsuites: {{fastrnns: [{json.dumps(entry)}]}}\n"
        "policy: {severities: {baseline_missing: note}}\n"
    )
    code = main(["gate", "--config", str(config), "--output", str(tmp_path / "out")])
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["cases"]
    return code, {row["case"]["params"]["variant"]: row for row in rows}


@pytest.mark.parametrize("device", sorted({"cuda:0", LAST}))
def test_parts_are_timed_by_the_devices_clock_and_memory_is_the_allocators(tmp_path, device):
    code, rows = measured(tmp_path, device=device, variants=["cudnn", "jit_premul"], **SMALL)

    assert code == 0
    for name, row in rows.items():
        metrics = {(one["name"], one["arm"]): one for one in row["metrics"]}
        assert (
            metrics["forward_time", name]["lane"]
            == metrics["backward_time", name]["lane"]
            == "device"
        )
        for part in ("forward_time", "backward_time"):
            assert all(
                0 < value < 1
                for launch in metrics[part, name]["launches"]
                for value in launch["values"]
            ), "seconds"
        assert ("peak_allocated", name) in metrics


def test_the_whole_of_the_originals_groups_runs(tmp_path):
    _, rows = measured(tmp_path, groups=["rnns", "vl_lstm", "layernorm", "dropout"], **SMALL)
    assert {*rows} == {
        name for group in ("rnns", "vl_lstm", "layernorm", "dropout") for name in GROUPS[group]
    }
    assert {row["status"] for row in rows.values()} == {"ok"}
