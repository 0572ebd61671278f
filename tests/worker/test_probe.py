"""What is found out about the machine, and what is unknown where it can't be."""

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from fake_nvml import UUID, FakeNvml

from ci_bench.history.lines import HARDWARE
from ci_bench.judge.compare import find_mismatches
from ci_bench.records.config import RunOptions
from ci_bench.records.results import Environment
from ci_bench.worker import probe
from ci_bench.worker.fence import (
    CONTRACT,
    BlockingLaunches,
    NoSuchDevice,
    refuse_blocking_launches,
    select_device,
    synchronizer,
)
from ci_bench.worker.probe import _switches, probe_environment


@pytest.fixture
def nvml(monkeypatch) -> FakeNvml:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


def test_nvml_tells_driver_and_condition(nvml) -> None:
    nvml.reasons = 0x4
    identity, condition = probe._gpu_facts(UUID.removeprefix("GPU-"))
    assert identity == {
        "driver": "580.65.06",
        "gpu_power_limit_w": 700.0,
        "gpu_ecc": True,
        "gpu_persistence": True,
    }
    assert condition == {
        "gpu_temperature_c": 61, "gpu_power_w": 412.345, "gpu_sm_mhz": 1980, "gpu_memory_mhz": 2619,
        "gpu_held_back_by": "sw_power_cap", "gpu_processes": 1,
    }  # fmt: skip
    assert nvml.opened == 0


@pytest.mark.parametrize(
    ("setting", "value", "field"),
    [
        ("milliwatts_at_most", 500_000, "gpu_power_limit_w"),
        ("ecc", 0, "gpu_ecc"),
        ("persistent", 0, "gpu_persistence"),
        ("chosen_mhz", 1410, "gpu_chosen_mhz"),
    ],
)
def test_cards_with_other_settings_are_not_compared(nvml, setting, value, field) -> None:
    def seen():
        return Environment(identity=probe._gpu_facts(UUID)[0], condition={})

    usual = seen()
    assert find_mismatches(usual, seen()) == ()
    setattr(nvml, setting, value)
    assert [mismatch.field for mismatch in find_mismatches(usual, seen())] == [field]


@pytest.mark.parametrize("error", [FakeNvml.NVMLError, FakeNvml.NVMLLibraryMismatchError])
def test_what_a_gpu_does_not_support_is_unknown_and_the_rest_is_told(
    nvml, error: type[Exception]
) -> None:
    nvml.failing, nvml.error = (
        {"nvmlDeviceGetEccMode", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses"},
        error,
    )
    identity, condition = probe._gpu_facts(UUID)
    assert "gpu_ecc" not in identity
    assert (condition["gpu_power_w"], condition["gpu_processes"]) == (None, None)
    assert condition["gpu_temperature_c"] == 61


@pytest.mark.parametrize("lacking", ["module", "driver", "gpu"])
def test_without_nvml_the_driver_is_unknown(monkeypatch, lacking: str) -> None:
    module = {
        "module": None,
        "driver": FakeNvml(failing={"nvmlInit"}),
        "gpu": FakeNvml(uuid="GPU-other"),
    }[lacking]
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert probe._gpu_facts(UUID) == ({"driver": None}, {})


@pytest.mark.parametrize(("version", "facts"), [("6.4.1", {"hip": "6.4.1"}), (None, {})])
def test_two_versions_of_rocm_are_two_machines_and_a_build_for_cuda_has_none(
    version, facts
) -> None:
    assert probe._rocm(SimpleNamespace(cuda=None, hip=version)) == facts
    assert probe._rocm(SimpleNamespace(cuda="13.0")) == {}


@pytest.fixture
def gpu_machine(monkeypatch) -> None:
    properties = SimpleNamespace(
        name="NVIDIA H200",
        total_memory=150_000_000_000,
        multi_processor_count=132,
        major=9,
        minor=0,
        uuid=UUID.removeprefix("GPU-"),
    )
    torch = ModuleType("torch")
    torch.__version__ = "2.13.0+cu130"
    torch.version = SimpleNamespace(git_version="abc", cuda="13.0")
    torch.get_num_threads = lambda: 4
    torch.are_deterministic_algorithms_enabled = lambda: False
    torch.cuda = SimpleNamespace(get_device_properties=lambda index: properties)
    torch.backends = SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 91002))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())


@pytest.mark.usefixtures("gpu_machine")
def test_a_gpu_and_its_software_make_up_the_identity() -> None:
    told = probe.probe_environment("cuda:1")
    expected = {
        "device": "cuda", "gpu": "NVIDIA H200", "gpu_memory_bytes": 150_000_000_000, "gpu_capability": "9.0", "cudnn": 91002,
        "cuda": "13.0", "torch": "2.13.0+cu130", "driver": "580.65.06", "threads": 4, "deterministic": False,
    }  # fmt: skip
    assert told["identity"].items() >= expected.items()
    assert told["condition"]["gpu_processes"] == 1
    assert told["condition"]["gpu_uuid"] == UUID.removeprefix("GPU-")
    assert UUID.removeprefix("GPU-") not in map(str, told["identity"].values())
    assert "memory_contract" not in told["identity"], (
        "a peak there is the allocator's, and always was"
    )


@pytest.mark.usefixtures("gpu_machine")
def test_cold_caches_and_replays_are_another_identity_on_a_gpu() -> None:
    plain = probe.probe_environment("cuda:1", RunOptions())["identity"]
    cold = probe.probe_environment("cuda:1", RunOptions(flush_l2=True))["identity"]
    replayed = probe.probe_environment("cuda:1", RunOptions(cuda_graph=True))["identity"]
    assert probe.probe_environment("cuda:1")["identity"] == plain
    assert (cold, replayed) == (plain | {"flush_l2": True}, plain | {"cuda_graph": True})


def test_on_the_cpu_these_options_do_nothing_and_are_no_identity() -> None:
    both = RunOptions(flush_l2=True, cuda_graph=True)
    assert (
        probe.probe_environment("cpu", both)["identity"]
        == probe.probe_environment("cpu")["identity"]
    )


def test_calls_that_go_round_copies_are_another_identity_on_any_device() -> None:
    plain = probe.probe_environment("cpu")["identity"]
    assert "rotate" not in plain
    assert probe.probe_environment("cpu", RunOptions(rotate=4))["identity"] == plain | {"rotate": 4}


def test_a_plan_without_torch_is_probed_without_it(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    identity = probe.probe_environment("cpu")["identity"]
    assert identity["device"] == "cpu"
    assert {"threads", "cuda", "gpu"}.isdisjoint(identity)
    assert "torch" not in sys.modules


def test_a_machine_without_proc_or_compiler_is_unknown_in_these(monkeypatch) -> None:
    monkeypatch.setattr(probe, "Path", lambda path: Path("/no/such") / path.lstrip("/"))
    monkeypatch.setenv("CXX", "/no/such/compiler")
    told = probe.probe_environment("cpu")
    assert told["identity"]["cpp_compiler"] is None
    assert (told["condition"]["memory_total_bytes"], told["condition"]["cpu_mhz"]) == (None, None)


def test_the_image_is_part_of_the_identity(monkeypatch) -> None:
    monkeypatch.setenv("CI_BENCH_IMAGE_DIGEST", "sha256:12")
    assert probe.probe_environment("cpu")["identity"]["image_digest"] == "sha256:12"


@pytest.mark.parametrize("wanted", ["cpu", "auto"])
def test_without_torch_the_device_is_the_cpu(monkeypatch, wanted: str) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert select_device(wanted, threads=3) == "cpu"
    assert "torch" not in sys.modules


class FakeCuda(ModuleType):
    """As much of torch as choosing a device needs."""

    def __init__(self, gpus: int) -> None:
        super().__init__("torch")
        self.__version__, self.threads, self.current, self.waited = "2.13.0", None, None, []
        self.cuda = SimpleNamespace(
            is_available=lambda: gpus > 0,
            device_count=lambda: gpus,
            set_device=self._set,
            synchronize=self.waited.append,
        )

    def set_num_threads(self, threads: int) -> None:
        self.threads = threads

    def _set(self, index: int) -> None:
        self.current = index


@pytest.mark.parametrize(
    ("wanted", "gpus", "chosen"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda:0"),
        ("cpu", 2, "cpu"),
        ("cuda", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_the_device_is_chosen_made_current_and_given_its_threads(
    monkeypatch, wanted: str, gpus: int, chosen: str
) -> None:
    torch = FakeCuda(gpus)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert select_device(wanted, threads=3) == chosen
    assert (torch.threads, torch.current) == (3, None if chosen == "cpu" else int(chosen[-1]))
    synchronizer(chosen)()
    assert torch.waited == ([] if chosen == "cpu" else [chosen])


@pytest.mark.parametrize(("wanted", "gpus"), [("cuda:7", 2), ("cuda", 0), ("cuda:1", 1)])
def test_a_device_that_is_not_there_is_named(monkeypatch, wanted: str, gpus: int) -> None:
    monkeypatch.setitem(sys.modules, "torch", FakeCuda(gpus))
    with pytest.raises(
        NoSuchDevice, match=rf"'{wanted}' was asked for, but torch 2.13.0 sees {gpus} CUDA"
    ):
        select_device(wanted, threads=None)


@pytest.mark.engine
def test_the_real_torch_has_no_eighth_gpu_here() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() > 7:
        pytest.skip("this machine has eight GPUs")
    with pytest.raises(NoSuchDevice):
        select_device("cuda:7", threads=None)


def test_times_of_two_contracts_are_not_compared(monkeypatch) -> None:
    """The first is what results without a number are of; a second differs from them by name."""
    first = Environment(identity=probe.probe_environment("cpu")["identity"], condition={})
    assert "timing_contract" not in first.identity
    monkeypatch.setattr(probe, "CONTRACT", 2)
    second = Environment(identity=probe.probe_environment("cpu")["identity"], condition={})
    (mismatch,) = find_mismatches(first, second)
    assert (mismatch.field, mismatch.head) == ("timing_contract", 2)
    assert find_mismatches(second, second) == ()
    assert "timing_contract" in HARDWARE, "in a history it begins another line"


def test_peaks_of_two_contracts_are_not_compared() -> None:
    """Results without a number are of the first."""
    now = Environment(identity=probe.probe_environment("cpu")["identity"], condition={})
    before = Environment(
        identity={
            field: fact for field, fact in now.identity.items() if field != "memory_contract"
        },
        condition={},
    )
    (mismatch,) = find_mismatches(before, now)
    assert (mismatch.field, mismatch.head) == ("memory_contract", 3)
    assert find_mismatches(now, now) == ()
    assert "memory_contract" in HARDWARE, "in a history it begins another line"


def test_the_contract_that_is_written_down_is_the_one_that_is_timed_by() -> None:
    page = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text()
    assert {*re.findall(r"contract (\d+)", page)} == {str(CONTRACT)}


def test_variables_that_change_numbers_are_in_the_identity():
    environ = {
        "NVIDIA_TF32_OVERRIDE": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TRITON_ALWAYS_COMPILE": "1",
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TORCHINDUCTOR_CACHE_DIR": "/base", "TRITON_CACHE_DIR": "/base", "NCCL_ALGO": "Ring",
        "PATH": "/bin", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    assert _switches(environ) == {
        "env_NCCL_ALGO": "Ring",
        "env_NVIDIA_TF32_OVERRIDE": "1",
        "env_PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "env_TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "env_TRITON_ALWAYS_COMPILE": "1",
    }


@pytest.mark.engine
def test_the_environment_reaches_the_identity(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert probe_environment("cpu")["identity"]["env_NVIDIA_TF32_OVERRIDE"] == "0"


@pytest.mark.parametrize(
    ("device", "value", "refused"),
    [("cuda:0", "1", True), ("cuda:0", "0", False), ("cuda:0", "", False), ("cpu", "1", False)],
)
def test_blocking_launches_are_refused_on_a_gpu(device, value, refused):
    if refused:
        with pytest.raises(BlockingLaunches, match="unset it"):
            refuse_blocking_launches(device, {"CUDA_LAUNCH_BLOCKING": value})
    else:
        refuse_blocking_launches(device, {"CUDA_LAUNCH_BLOCKING": value})
    refuse_blocking_launches(device, {})
