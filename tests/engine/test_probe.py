"""What is found out about the machine, and what is unknown where it can't be."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from ci_bench.engine import probe
from ci_bench.engine.device import NoSuchDevice, select_device, synchronizer


class NVMLError(Exception):
    pass


def _refuse(*_: object) -> None:
    raise NVMLError


def _pynvml(**changed: object) -> ModuleType:
    module = ModuleType("pynvml")
    functions = {
        "NVMLError": NVMLError,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlSystemGetDriverVersion": lambda: b"580.65.06",
        "nvmlDeviceGetTemperature": lambda *_: 41,
        "nvmlDeviceGetPowerUsage": lambda _: 75_500,
        "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
        "nvmlDeviceGetClockInfo": lambda _, clock: 1000 * clock,
        "nvmlDeviceGetEccMode": lambda _: [1, 1],
        "nvmlDeviceGetComputeRunningProcesses": lambda _: ["this one"],
    }
    for name, value in {**functions, **changed}.items():
        setattr(module, name, value)
    return module


def test_nvml_tells_driver_and_condition(monkeypatch) -> None:
    asked = []
    monkeypatch.setitem(sys.modules, "pynvml", _pynvml(nvmlDeviceGetHandleByUUID=asked.append))
    identity, condition = probe._nvml("1234")
    assert identity == {"driver": "580.65.06"}
    assert condition == {
        "gpu_temperature_c": 41, "gpu_power_w": 75.5, "gpu_power_limit_w": 700.0, "gpu_sm_mhz": 1000, "gpu_memory_mhz": 2000,
        "gpu_ecc": True, "gpu_processes": 1,
    }  # fmt: skip
    assert asked == ["GPU-1234"]


def test_what_a_gpu_does_not_support_is_unknown_and_the_rest_is_told(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _pynvml(nvmlDeviceGetEccMode=_refuse, nvmlDeviceGetPowerUsage=_refuse))
    _, condition = probe._nvml("GPU-1234")
    assert (condition["gpu_ecc"], condition["gpu_power_w"], condition["gpu_temperature_c"]) == (None, None, 41)


@pytest.mark.parametrize("lacking", ["module", "driver", "gpu"])
def test_without_nvml_the_driver_is_unknown(monkeypatch, lacking: str) -> None:
    module = {"module": None, "driver": _pynvml(nvmlInit=_refuse), "gpu": _pynvml(nvmlDeviceGetHandleByUUID=_refuse)}[lacking]
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert probe._nvml("GPU-1234") == ({"driver": None}, {})


def test_a_gpu_and_its_software_make_up_the_identity(monkeypatch) -> None:
    properties = SimpleNamespace(
        name="NVIDIA H200", total_memory=150_000_000_000, multi_processor_count=132, major=9, minor=0, uuid="1234"
    )
    torch = ModuleType("torch")
    torch.__version__ = "2.13.0+cu130"
    torch.version = SimpleNamespace(git_version="abc", cuda="13.0")
    torch.get_num_threads = lambda: 4
    torch.are_deterministic_algorithms_enabled = lambda: False
    torch.cuda = SimpleNamespace(get_device_properties=lambda index: properties)
    torch.backends = SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 91002))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "pynvml", _pynvml())
    told = probe.probe_environment("cuda:1")
    expected = {
        "device": "cuda", "gpu": "NVIDIA H200", "gpu_memory_bytes": 150_000_000_000, "gpu_capability": "9.0", "cudnn": 91002,
        "cuda": "13.0", "torch": "2.13.0+cu130", "driver": "580.65.06", "threads": 4, "deterministic": False,
    }  # fmt: skip
    assert told["identity"].items() >= expected.items()
    assert told["condition"]["gpu_processes"] == 1


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
            is_available=lambda: gpus > 0, device_count=lambda: gpus, set_device=self._set, synchronize=self.waited.append
        )

    def set_num_threads(self, threads: int) -> None:
        self.threads = threads

    def _set(self, index: int) -> None:
        self.current = index


@pytest.mark.parametrize(
    ("wanted", "gpus", "chosen"),
    [("auto", 0, "cpu"), ("auto", 2, "cuda:0"), ("cpu", 2, "cpu"), ("cuda", 1, "cuda:0"), ("cuda:1", 2, "cuda:1")],
)
def test_the_device_is_chosen_made_current_and_given_its_threads(monkeypatch, wanted: str, gpus: int, chosen: str) -> None:
    torch = FakeCuda(gpus)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert select_device(wanted, threads=3) == chosen
    assert (torch.threads, torch.current) == (3, None if chosen == "cpu" else int(chosen[-1]))
    synchronizer(chosen)()
    assert torch.waited == ([] if chosen == "cpu" else [chosen])


@pytest.mark.parametrize(("wanted", "gpus"), [("cuda:7", 2), ("cuda", 0), ("cuda:1", 1)])
def test_a_device_that_is_not_there_is_named(monkeypatch, wanted: str, gpus: int) -> None:
    monkeypatch.setitem(sys.modules, "torch", FakeCuda(gpus))
    with pytest.raises(NoSuchDevice, match=rf"'{wanted}' was asked for, but torch 2.13.0 sees {gpus} CUDA"):
        select_device(wanted, threads=None)


@pytest.mark.engine
def test_the_real_torch_has_no_eighth_gpu_here() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() > 7:
        pytest.skip("this machine has eight GPUs")
    with pytest.raises(NoSuchDevice):
        select_device("cuda:7", threads=None)
