"""What the doctor finds, and what it says to do."""

import io
import math
import os
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from ci_bench.diagnostics import doctor
from ci_bench.diagnostics.doctor import MachineFinding
from ci_bench.errors import EngineMissing, LauncherFailed
from ci_bench.host.gpus.nvidia import Nvidia
from ci_bench.host.gpus.protocol import Card, Cards
from ci_bench.processes.addresses import ADDR_NO_RANDOMIZE
from ci_bench.records.results import (
    Better,
    Case,
    CaseResult,
    Environment,
    Lane,
    Launch,
    Metric,
    Results,
    Run,
    RunState,
    Source,
    Status,
    Unit,
)

GOOD = {
    "torch": "2.13.0+cu130",
    "transformers": "5.1.0",
    "datasets": "4.0.0",
    "evaluate": "0.4.6",
    "safetensors": "0.5.0",
}
CPU = {"device": "cpu", "torch": "2.13.0", "threads": 2, "cuda": None}
GPU = {
    "device": "cuda", "torch": "2.13.0", "threads": 8, "cuda": "13.0", "gpu": "NVIDIA H200", "gpu_memory_bytes": 150 << 30, "driver": "580",
}  # fmt: skip


def _versions(monkeypatch, **changed: str | None) -> None:
    monkeypatch.setattr(doctor, "_version", {**GOOD, **changed}.get)


@pytest.mark.parametrize(
    ("package", "found", "usable", "advice"),
    [
        ("torch", "2.11.0", True, ""),
        ("torch", "2.13.0a0+gitabc", True, ""),
        ("torch", "3.0.0", True, ""),
        ("torch", "2.9.1", False, "needs 2.11 or newer: pip install 'ci-bench[engine]' --upgrade"),
        ("transformers", "4.57.0", False, "needs 5.0 or newer"),
        ("transformers", "5.0.0rc1", True, ""),
        ("evaluate", "0.3.9", False, "needs 0.4 or newer"),
        ("datasets", None, False, "pip install 'ci-bench[engine]'"),
    ],
)
def test_packages(monkeypatch, package, found, usable, advice) -> None:
    _versions(monkeypatch, **{package: found})
    findings = {finding.name: finding for finding in doctor._packages()}
    assert set(findings) == {"python", *GOOD}
    assert (findings[package].usable, findings[package].found) == (usable, found or "not installed")
    assert findings[package].advice.startswith(advice)
    assert bool(findings[package].advice) is not usable


@pytest.mark.parametrize(
    ("load", "cores", "memory", "free", "advised"),
    [
        (0.1, 4, 64 << 30, 50 << 30, set()),
        (2.1, 4, 64 << 30, 50 << 30, {"cpu"}),
        (0.1, 4, 3 << 30, 50 << 30, {"memory"}),
        (0.1, 4, 64 << 30, 4 << 30, {"scratch"}),
        (2.1, 2, 1 << 30, 1 << 30, {"cpu", "memory", "scratch"}),
    ],
)
def test_a_busy_or_small_machine_is_advised_but_usable(  # noqa: PLR0917 - by name
    monkeypatch, load, cores, memory, free, advised
) -> None:
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (load, 0, 0))
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(
        doctor.os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else memory // 4096
    )
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr(doctor, "started_alike", lambda: nullcontext(0))
    findings = list(doctor._machine())
    assert {finding.name for finding in findings if finding.advice} == advised
    assert all(finding.usable for finding in findings)


@pytest.mark.parametrize(
    ("usual", "advised"), [(0, False), (ADDR_NO_RANDOMIZE, False), (None, True)]
)
def test_it_is_said_whether_both_sides_lie_at_the_same_addresses(
    monkeypatch, usual, advised
) -> None:
    monkeypatch.setattr(doctor, "started_alike", lambda: nullcontext(usual))
    finding = next(finding for finding in doctor._machine() if finding.name == "addresses")
    assert (bool(finding.advice), finding.usable) == (advised, True)
    assert ("seccomp" in finding.found) is advised


@pytest.mark.parametrize(
    ("environ", "installed", "found"),
    [
        ({"CXX": "/opt/c++"}, {}, "/opt/c++"),
        ({}, {"clang++": "/bin/clang++"}, "/bin/clang++"),
        ({}, {}, "none"),
    ],
)
def test_compilers(monkeypatch, tmp_path, environ, installed, found) -> None:
    monkeypatch.setattr(doctor.shutil, "which", installed.get)
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda _: str(tmp_path))
    compiler, headers = doctor._compilers(environ)
    assert (compiler.found, "apt-get install g++" in compiler.advice) == (found, found == "none")
    assert "apt-get install python3-dev" in headers.advice
    (tmp_path / "Python.h").touch()
    assert list(doctor._compilers(environ))[1].advice == ""


@pytest.mark.parametrize(
    ("identity", "driver", "found", "advice"),
    [
        (GPU, True, "NVIDIA H200, 150 GiB, driver 580, CUDA 13.0", ""),
        (CPU, False, "none; measuring runs on the CPU", ""),
        (CPU, True, "none; measuring runs on the CPU", "this torch is a CPU build"),
        (
            {**CPU, "cuda": "13.0"},
            True,
            "none; measuring runs on the CPU",
            "is `--gpus all` missing",
        ),
    ],
)
def test_what_torch_sees(monkeypatch, identity, driver, found, advice) -> None:
    _versions(monkeypatch)
    monkeypatch.setattr(doctor, "_probe", lambda *_: identity)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/bin/x" if driver else None)
    worker, gpu = doctor._torch({})
    assert worker.found == f"torch 2.13.0 starts, {identity['threads']} threads"
    assert (gpu.found, gpu.usable) == (found, True)
    assert advice in gpu.advice
    assert bool(gpu.advice) is bool(advice)


@pytest.mark.parametrize(
    ("exclusive", "advised"), [("", False), ("compute mode EXCLUSIVE_PROCESS", True)]
)
def test_a_gpu_that_takes_one_process_at_a_time_is_usable_and_advised_against(
    monkeypatch, exclusive, advised
) -> None:
    _versions(monkeypatch)
    monkeypatch.setattr(doctor, "_probe", lambda *_: GPU)
    cards = Cards(
        vendor=Nvidia(), cards=(Card(uuid="GPU-1", name="NVIDIA H200", exclusive=exclusive),)
    )
    monkeypatch.setattr(doctor.vendors, "look", lambda: (cards,))
    _, gpu = doctor._torch({})
    assert gpu.usable
    assert ("one after the other" in gpu.advice, "`nvidia-smi -c DEFAULT`" in gpu.advice) == (
        advised,
        advised,
    )


def test_a_worker_that_does_not_start_makes_the_machine_unusable(monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise LauncherFailed("its last words")

    _versions(monkeypatch)
    monkeypatch.setattr(doctor, "_probe", fail)
    assert list(doctor._torch({})) == [
        MachineFinding(name="worker", found="did not start", advice="its last words", usable=False)
    ]


def test_torch_is_not_asked_where_it_is_not_installed(monkeypatch) -> None:
    _versions(monkeypatch, torch=None)
    monkeypatch.setattr(doctor, "_probe", lambda *_: pytest.fail("there is nothing to ask"))
    assert list(doctor._torch({})) == []


def test_everything_missing_is_named_at_once(monkeypatch) -> None:
    _versions(monkeypatch, torch=None, evaluate=None)
    with pytest.raises(
        EngineMissing,
        match=r"needs torch, evaluate, which .* run: pip install 'ci-bench\[engine\]'",
    ):
        doctor.require_engine()
    _versions(monkeypatch)
    doctor.require_engine()


def test_findings_are_a_table_with_arrows_and_a_conclusion() -> None:
    findings = (
        MachineFinding(name="torch", found="2.13.0"),
        MachineFinding(name="cpu", found="2 cores", advice="stop the other work"),
        MachineFinding(
            name="evaluate",
            found="not [red]installed",
            advice="pip install 'ci-bench[engine]'",
            usable=False,
        ),
    )
    assert [line.rstrip() for line in _rendered(findings).splitlines()] == [
        "✓  torch     2.13.0",
        "!  cpu       2 cores",
        "             → stop the other work",
        "✗  evaluate  not [red]installed",
        "             → pip install 'ci-bench[engine]'",
        "This machine cannot measure yet; fix the items marked →.",
    ]
    assert _rendered(findings[:2]).endswith("This machine can measure.\n")


def _rendered(findings: tuple[MachineFinding, ...]) -> str:
    stream = io.StringIO()
    doctor.render(findings, Console(file=stream, width=80))
    return stream.getvalue()


@pytest.mark.engine
def test_this_machine_is_examined_as_a_whole() -> None:
    pytest.importorskip("torch")
    findings = {finding.name: finding for finding in doctor.examine(os.environ)}
    assert {
        "python",
        *GOOD,
        "cpu",
        "addresses",
        "memory",
        "scratch",
        "c++ compiler",
        "python headers",
        "worker",
        "gpu",
    } == set(findings)
    assert findings["worker"].usable


def _canaries(*, shift: float = 0.0) -> tuple[Results, Results]:
    """Both sides of a short run of unchanged code; head's launches are alternately slower and faster by `shift` (log)."""

    def side(sign: float) -> Results:
        rows = []
        for name in ("matmul", "dispatch", "copy"):
            launches = tuple(
                Launch(
                    launch=i,
                    values=(math.exp(sign * shift * (-1) ** i),) * 12,
                    blocks=tuple(b for b in range(6) for _ in "ab"),
                )
                for i in range(doctor.NOISE_LAUNCHES)
            )
            step = Metric(
                name="step_time",
                arm="eager",
                unit=Unit.SECONDS,
                better=Better.LOWER,
                lane=Lane.WALL,
                launches=launches,
            )
            case = Case(
                id=f"reference_kernels/{name}",
                suite="reference_kernels",
                name=name,
                params={},
                arms=("eager",),
                reference="eager",
            )
            rows.append(
                CaseResult(
                    case=case, status=Status.OK, reproduce="ci-bench doctor", metrics=(step,)
                )
            )
        run = Run(
            id="r",
            started_at="2030-01-31T12:00:00Z",
            state=RunState.COMPLETE,
            config_digest="0",
            device="cpu",
        )
        return Results(
            tool_version="1",
            run=run,
            source=Source(),
            environment=Environment(identity={"cpu": "x"}, condition={}),
            cases=tuple(rows),
        )

    return side(0.0), side(1.0)


@pytest.mark.parametrize(
    ("shift", "found", "advised"),
    [(0.002, "0.2 % between launches", False), (0.05, "5.1 % between", True)],
)
def test_the_noise_of_a_machine_is_told_and_too_much_of_it_is_advised_against(
    shift, found, advised
) -> None:
    finding = doctor.noise(*_canaries(shift=shift))
    assert finding.found.startswith(found)
    assert "a gate with 8 launches would detect changes of about" in finding.found
    assert (bool(finding.advice), finding.usable) == (advised, True)


def test_noise_that_could_not_be_measured_is_said() -> None:
    base, head = _canaries()
    finding = doctor.noise(base, replace(head, cases=()))
    assert (finding.found, finding.usable) == ("could not be measured", True)


def test_what_a_broken_removal_left_is_no_package(monkeypatch, tmp_path):
    (tmp_path / "ghost-1.0.dist-info").mkdir()
    (tmp_path / "ghost-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: ghost\nVersion: 1.0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert doctor._version("ghost") is None
    (tmp_path / "ghost.py").write_text("")
    assert doctor._version("ghost") == "1.0"


def test_a_driver_that_is_unloaded_between_processes_is_advised_against(monkeypatch):
    card = Card(uuid="GPU-1", name="NVIDIA H200", keep_loaded="nvidia-smi --persistence-mode=1")
    monkeypatch.setattr(doctor.vendors, "look", lambda: (Cards(vendor=Nvidia(), cards=(card,)),))
    identity = {
        "device": "cuda",
        "gpu": "NVIDIA H200",
        "driver": "580",
        "gpu_power_limit_w": 500.0,
        "gpu_ecc": False,
    }
    finding = doctor._gpu(identity)
    assert finding.usable
    assert "power limit 500 W, ECC off" in finding.found
    assert "not in persistence mode" in finding.advice
    assert "`nvidia-smi --persistence-mode=1`" in finding.advice


def test_settings_and_variables_of_a_gpu_are_reported(monkeypatch):
    _versions(monkeypatch)
    monkeypatch.setattr(doctor.vendors, "look", tuple)
    settings = {"gpu_persistence": False, "gpu_chosen_mhz": 1410, "env_NVIDIA_TF32_OVERRIDE": "1"}
    monkeypatch.setattr(doctor, "_probe", lambda *_: GPU | settings)
    _, gpu, variables = doctor._torch({})
    assert gpu.found.endswith("persistence mode off, SM clock set to 1410 MHz")
    assert (variables.found, variables.usable) == ("NVIDIA_TF32_OVERRIDE=1", True)
    assert "not comparable" in variables.advice
