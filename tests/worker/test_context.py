"""Opening a CUDA context before anything is measured: what works is named, and what is in the way is said in words."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from fake_nvml import FakeNvml

from ci_bench.worker import context


@pytest.fixture
def machine(monkeypatch):
    """A machine with a GPU and an old driver, and a torch whose first tensor there does what a test says."""
    nvml, torch = FakeNvml(), ModuleType("torch")
    nvml.driver = b"535.104.05"
    torch.__version__, torch.version = "2.13.0", SimpleNamespace(cuda="13.0")
    torch.cuda = SimpleNamespace(get_device_name=lambda: "NVIDIA H200")
    torch.ones = lambda *_, **__: SimpleNamespace(add_=lambda _: SimpleNamespace(item=lambda: 2.0))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(context, "os", SimpleNamespace(environ={}))
    return torch


def fails(machine, error):
    def ones(*_, **__):
        raise error

    machine.ones = ones


def test_a_gpu_that_computes_is_named(machine, capsys):
    assert context.main() == 0
    assert capsys.readouterr().out == "NVIDIA H200, driver 535.104.05, CUDA 13.0\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            RuntimeError("The NVIDIA driver on your system is too old (found version 12020)."),
            "needs driver 580 or newer",
        ),
        (
            RuntimeError(
                "Error 803: system has unsupported display driver / cuda driver combination"
            ),
            "reboot the machine",
        ),
        (
            RuntimeError("CUDA error: no kernel image is available for execution on the device"),
            "no code for this GPU",
        ),
    ],
)
def test_what_is_in_the_way_is_said(machine, capsys, error, words):
    fails(machine, error)
    assert context.main() == 3
    assert words in capsys.readouterr().err


def test_a_build_for_the_cpu_is_named_as_such(machine, capsys):
    fails(machine, AssertionError("Torch not compiled with CUDA enabled"))
    machine.version.cuda = None
    assert context.main() == 3
    assert (
        "torch 2.13.0 is a build for the CPU: install a build for CUDA" in capsys.readouterr().err
    )


def test_no_torch_at_all_is_said(machine, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert context.main() == 3
    told = capsys.readouterr().err
    assert (
        "1 GPU (NVIDIA H200; driver 535.104.05), but torch cannot use it: torch cannot be imported"
        in told
    )
