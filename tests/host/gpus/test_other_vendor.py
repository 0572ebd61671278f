"""Another vendor is a module and a line in the table: with both in place, all that asks for GPUs serves its GPUs, unchanged."""

import os
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from fake_nvml import UUID as NVIDIAS_UUID
from fake_nvml import FakeNvml
from gpu_subjects import absent
from other_vendor import UUID, Acme, AcmeSmi

from ci_bench.diagnostics import doctor
from ci_bench.host import devices
from ci_bench.host.gpus import vendors
from ci_bench.host.gpus.nvidia import Nvidia
from ci_bench.host.gpus.protocol import Card, Cards, GpuUnreachable
from ci_bench.host.lock import cpu_key, device_key, gpu_key
from ci_bench.host.monitor import Host, open_monitor
from ci_bench.records.results import Environment
from ci_bench.worker import context, probe

OURS, STRANGER = 4000, 9999


@pytest.fixture
def smi(monkeypatch, tmp_path) -> AcmeSmi:
    """A machine with one GPU of Acme's and nothing of NVIDIA's."""
    smi = AcmeSmi()
    table = (Nvidia(load=absent, dev=tmp_path), Acme(load=lambda: smi))
    monkeypatch.setattr(vendors, "VENDORS", table)
    return smi


@pytest.fixture
def torch(monkeypatch) -> ModuleType:
    """A torch that was built for Acme's toolkit; to torch, every GPU is `cuda`."""
    properties = SimpleNamespace(
        name="Acme A100",
        total_memory=64 << 30,
        multi_processor_count=104,
        major=9,
        minor=4,
        uuid=UUID,
    )
    torch = ModuleType("torch")
    torch.__version__, torch.version = (
        "2.13.0+acme6",
        SimpleNamespace(git_version="abc", cuda=None, acme="6.4.1"),
    )
    torch.get_num_threads, torch.are_deterministic_algorithms_enabled = lambda: 4, lambda: False
    torch.cuda = SimpleNamespace(
        get_device_properties=lambda _: properties, get_device_name=lambda: "Acme A100"
    )
    torch.backends = SimpleNamespace(cudnn=SimpleNamespace(version=lambda: None))
    torch.ones = lambda *_, **__: SimpleNamespace(add_=lambda _: SimpleNamespace(item=lambda: 2.0))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def settled(smi, tmp_path):
    """A monitor whose launch has one process on the GPU."""
    monitor = open_monitor("cuda:0", UUID, host=Host(tmp_path))
    smi.processes = []
    monitor.vacate()
    smi.processes = [{"pid": OURS, "vram": 5}]
    monitor.settle()
    return monitor


def test_the_monitor_reads_it_in_its_own_words_and_units(smi, tmp_path):
    monitor = settled(smi, tmp_path)
    smi.violations |= {"ppt_pwr": "ACTIVE"}
    reading = monitor.read()
    assert monitor.facts(reading) == {
        "gpu_sm_mhz": 2100, "gpu_memory_mhz": 1300, "gpu_power_w": 550.0, "gpu_temperature_c": 71, "gpu_held_back_by": "ppt_pwr",
        "gpu_processes": 1,
    }  # fmt: skip
    monitor.close()
    assert (monitor.notes, smi.opened) == ((), 0)


@pytest.mark.parametrize(
    ("word", "taint"),
    [
        ("prochot", "the GPU was slowed down (prochot)"),
        ("hbm_thrm", "the GPU was slowed down (hbm_thrm)"),
        ("ppt_pwr", None),
        ("idle", None),
        ("never heard of", None),
    ],
)
def test_its_words_taint_by_their_cause(smi, tmp_path, word, taint):
    monitor = settled(smi, tmp_path)
    before = monitor.read()
    smi.violations[word] = "ACTIVE"
    assert monitor.taint(before, monitor.read()) == taint


def test_its_heat_and_strangers_taint_and_idle_clocks_do_not_count(smi, tmp_path):
    monitor = settled(smi, tmp_path)
    before = replace(monitor.read(), at_s=0.0)
    smi.metrics["thermal_ms"] = 500
    smi.processes.append({"pid": STRANGER, "vram": "N/A"})
    assert monitor.taint(before, replace(monitor.read(), at_s=10.0)) == (
        "heat kept the GPU's clocks down for 5% of the time; 1 process (9999) of others started using the GPU"
    )
    busy = monitor.glance()
    smi.metrics["gfx_mhz"] = 500
    assert "SM clock" in monitor.uneven({("base", 0): [busy], ("head", 0): [monitor.glance()]})
    smi.violations["idle"] = "ACTIVE"
    assert monitor.uneven({("base", 0): [busy], ("head", 0): [monitor.glance()]}) is None


def test_where_nobody_reaches_the_gpu_each_library_says_why(smi, tmp_path):
    smi.broken = True
    (note,) = open_monitor("cuda:0", UUID, host=Host(tmp_path)).notes
    assert note == (
        "NVML cannot be used (ModuleNotFoundError: No module named 'the library'); "
        "Acme SMI cannot be used (AcmeError: ACME_STATUS_DRIVER_NOT_LOADED): "
        "throttling and other processes on the GPU will not be noticed"
    )


@pytest.mark.usefixtures("smi", "torch")
def test_the_probe_records_it_under_the_names_that_documents_have():
    told = probe.probe_environment("cuda:0")
    assert (
        told["identity"].items()
        >= {
            "device": "cuda",
            "gpu": "Acme A100",
            "driver": "6.12.12",
            "cuda": None,
            "acme": "6.4.1",
            "gpu_power_limit_w": 750.0,
            "gpu_ecc": True,
            "gpu_persistence": True,
        }.items()
    )
    assert told["condition"].items() >= {
        "gpu_uuid": UUID, "gpu_temperature_c": 71, "gpu_power_w": 550.0, "gpu_sm_mhz": 2100,
        "gpu_memory_mhz": 1300, "gpu_held_back_by": "nothing", "gpu_processes": 1,
    }.items()  # fmt: skip


@pytest.mark.usefixtures("smi", "torch")
def test_what_keeps_torch_from_it_is_recorded():
    sys.modules["torch"].cuda.init = lambda: (_ for _ in ()).throw(
        RuntimeError("the firmware is too old")
    )
    assert probe.probe_environment("cpu")["condition"]["cuda_trouble"] == "the firmware is too old"


@pytest.mark.usefixtures("smi")
def test_its_lock_is_known_ahead_and_is_the_one_that_the_worker_finds():
    key = devices.configured_key("auto", vendors.look(), {}, on_gpu=True)
    worker = Environment(
        identity={"device": "cuda", "gpu": "Acme A100"}, condition={"gpu_uuid": UUID}
    )
    assert key == gpu_key(UUID) == device_key(worker)
    assert devices.configured_key("auto", vendors.look(), {}, on_gpu=False) == cpu_key()
    nvidia = Cards(vendor=Nvidia(), cards=(Card(uuid="GPU-1"),))
    assert devices.configured_key("auto", (*vendors.look(), nvidia), {}, on_gpu=True) is None, (
        "only torch knows which of both"
    )


NVIDIA_HERE = Cards(vendor=Nvidia(), cards=(Card(uuid="GPU-1", name="NVIDIA T4"),), driver="580.1")


@pytest.mark.parametrize(
    ("build", "trouble", "beside", "words"),
    [
        ({}, None, (), "torch 2.13.0 is a build for the CPU: install a build for AcmeKit"),
        (
            {"cuda": "13.0"},
            None,
            (),
            "torch 2.13.0 is a build for CUDA: install a build for AcmeKit",
        ),
        ({"acme": "6.4.1"}, "the firmware is too old", (), "update it"),
        (
            {"acme": "6.4.1"},
            "permission denied",
            (),
            "it may not open /dev/acme* (permission denied)",
        ),
        (
            {"acme": "6.4.1"},
            None,
            (),
            "torch 2.13.0 for AcmeKit 6.4.1 says: it sees no AcmeKit device",
        ),
        (
            {"acme": "6.4.1"},
            None,
            (NVIDIA_HERE,),
            "this machine has 1 GPU (Acme A100; driver 6.12.12), but",
        ),
        (
            {"cuda": "13.0"},
            None,
            (NVIDIA_HERE,),
            "this machine has 1 GPU (NVIDIA T4; driver 580.1), but",
        ),
    ],
)
@pytest.mark.usefixtures("smi")
def test_the_cpu_is_not_measured_in_its_place(build, trouble, beside, words):
    identity = {"device": "cpu", "threads": 4, "torch": "2.13.0", "cuda": None, **build}
    seen = Environment(identity=identity, condition={"cuda_trouble": trouble} if trouble else {})
    gpus = (*beside, *vendors.look())
    assert words in devices.refusal(seen, gpus, {}, device="auto")
    if not beside:
        assert devices.refusal(seen, gpus, {"ACME_VISIBLE_DEVICES": ""}, device="auto") == ""


def test_where_one_was_provided_and_none_is_here_all_libraries_are_named(smi):
    smi.broken = True
    seen = Environment(
        identity={"device": "cpu", "threads": 4, "torch": "2.13.0", "acme": "6.4.1"}, condition={}
    )
    told = devices.refusal(seen, vendors.look(), {}, device="auto", required="cuda")
    assert (
        "neither NVML nor Acme SMI nor /dev shows one here, but torch cannot use it: torch 2.13.0 for AcmeKit 6.4.1"
        in told
    )


@pytest.mark.usefixtures("smi", "torch")
def test_its_context_is_opened(capsys):
    assert context.main() == 0
    assert capsys.readouterr().out == "Acme A100, driver 6.12.12, AcmeKit 6.4.1\n"


@pytest.mark.parametrize(
    ("identity", "found", "advice"),
    [
        (
            {
                "device": "cuda",
                "gpu": "Acme A100",
                "gpu_memory_bytes": 64 << 30,
                "driver": "6.12.12",
                "acme": "6.4.1",
            },
            "Acme A100, 64 GiB, driver 6.12.12, AcmeKit 6.4.1",
            "",
        ),
        (
            {"device": "cpu", "cuda": None},
            "none; measuring runs on the CPU",
            "this torch is a CPU build: install a build of torch for AcmeKit",
        ),
        (
            {"device": "cpu", "cuda": "13.0"},
            "none; measuring runs on the CPU",
            "this torch is a CUDA build: install a build of torch for",
        ),
        (
            {"device": "cpu", "acme": "6.4.1"},
            "none; measuring runs on the CPU",
            "is `--device /dev/acme0` missing",
        ),
    ],
)
@pytest.mark.usefixtures("smi")
def test_the_doctor_names_it(monkeypatch, identity, found, advice):
    monkeypatch.setattr(doctor, "_version", lambda _: "2.13.0")
    monkeypatch.setattr(doctor, "_probe", lambda *_: identity)
    monkeypatch.setattr(
        doctor.shutil, "which", lambda name: "/bin/x" if name == "acme-smi" else None
    )
    _, gpu = doctor._torch({})
    assert gpu.found == found
    assert advice in gpu.advice
    assert bool(gpu.advice) is bool(advice)


@pytest.mark.engine
def test_a_suite_finds_what_its_process_holds(smi, monkeypatch):
    torch = pytest.importorskip("torch")
    from ci_bench.suites.transformers.process_memory import process_vram

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid=UUID))
    smi.processes = [{"pid": STRANGER, "vram": 7}, {"pid": os.getpid(), "vram": 5}]
    assert process_vram("cuda:0") == (5, "by its pid")
    smi.mute = True
    assert process_vram("cuda:0") == (None, "the driver does not list the processes on this GPU")


def test_each_gpu_is_opened_by_the_vendor_that_knows_it(smi, monkeypatch, tmp_path):
    monkeypatch.setattr(
        vendors, "VENDORS", (Nvidia(load=FakeNvml, dev=tmp_path), Acme(load=lambda: smi))
    )
    assert [vendors.open_gpu(uuid).driver() for uuid in (NVIDIAS_UUID, UUID)] == [
        "580.65.06",
        "6.12.12",
    ]
    with pytest.raises(
        GpuUnreachable, match=r"^NVML knows no GPU another; Acme SMI has no GPU another$"
    ):
        vendors.open_gpu("another")
