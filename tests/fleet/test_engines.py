"""What leases are given, and what a local engine does with processes that fail, hang or leave nothing."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ci_bench.checkouts.bundled import Sources
from ci_bench.cli import main
from ci_bench.command_line.settings import Measuring
from ci_bench.commands import lease
from ci_bench.commands.fleet import _limits, lease_command, open_engine
from ci_bench.commands.fleet_hook import check_budgets
from ci_bench.commands.lease import read_lease
from ci_bench.commands.setup import setup
from ci_bench.errors import BadInput, CannotWrite, ExitCode, NotPrepared
from ci_bench.fleet.coordinator import Limits
from ci_bench.fleet.journal import FileJournal
from ci_bench.fleet.local import DOCUMENTS, STARTER, LocalEngine
from ci_bench.fleet.protocol import FleetLease, LeaseOrder
from ci_bench.fleet.ray_core import Brought, RayEngine, measure_here
from ci_bench.fleet.slurm import SlurmEngine
from ci_bench.records.results import Run, RunState

RUN = Run(
    id="whole",
    started_at="2026-02-01T00:00:00Z",
    state=RunState.PARTIAL,
    config_digest="c",
    device="cpu",
)
PR_SET_PDEATHSIG, PR_GET_PDEATHSIG = 1, 2
"""From linux/prctl.h."""
LEASE = FleetLease(number=7, cases=("s/a", "s/b"), first=0, launches=1, expected_s=1.0)


def settings(fleet, environ=None):
    return Measuring(environ=environ or {}, here=Path.cwd(), fleet=fleet, prepared=Path("/sides"))


def order(slot="cpu", number=7):
    return LeaseOrder(
        lease=FleetLease(number=number, cases=("s/a",), first=0, launches=1, expected_s=1.0),
        attempt=2,
        slot=slot,
    )


def engine_of(tmp_path, script):
    def command(_order, folder):
        return [sys.executable, "-c", script, str(folder)]

    return LocalEngine(
        devices=["cpu"],
        command=command,
        folder=lambda one: tmp_path / str(one.lease.number),
        environ={},
        here=tmp_path,
    )


def wait(engine):
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        if ended := engine.finished(0.5):
            return ended[0]
    raise AssertionError("it never ended")


def test_a_lease_sees_no_secret_and_nothing_of_ray(tmp_path):
    journal = FileJournal(file=tmp_path / "j", leases=tmp_path)
    environ = {"GITHUB_TOKEN": "t", "RAY_ADDRESS": "a:1", "PATH": "/bin"}
    engine = open_engine(settings("local", environ), RUN, journal)
    assert engine.environ["PATH"] == "/bin"
    assert {"GITHUB_TOKEN", "RAY_ADDRESS"}.isdisjoint(engine.environ)


def test_a_fleet_that_is_misspelt_is_said(tmp_path):
    with pytest.raises(BadInput, match="--fleet lokal: choose from local, "):
        open_engine(settings("lokal"), RUN, FileJournal(file=tmp_path / "j", leases=tmp_path))


def test_devices_are_slots_and_the_command_names_what_is_leased(tmp_path):
    made = settings("local:cuda:0, cuda:1")
    engine = open_engine(made, RUN, FileJournal(file=tmp_path / "j", leases=tmp_path))
    assert [slot.name for slot in engine.slots()] == ["cuda:0", "cuda:1"]
    words = lease_command(made, RUN)(LeaseOrder(lease=LEASE, attempt=2, slot="cuda:1"), tmp_path)
    assert words[words.index("--lease") + 1] == "whole/7/2"
    assert words[words.index("--device") + 1] == "cuda:1"
    assert [words[at + 1] for at, word in enumerate(words) if word == "--filter"] == ["s/a", "s/b"]
    assert read_lease("whole/7/2").attempt == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gpu_seconds": 60.0, "fleet": None}, "--gpu-seconds limits the leases of a fleet"),
        ({"gpu_seconds": 0.0}, "--gpu-seconds 0: an amount above 0"),
        ({"gpu_seconds": float("nan")}, "--gpu-seconds nan: an amount above 0"),
    ],
)
def test_a_budget_that_could_not_be_kept_is_refused(given, words):
    with pytest.raises(BadInput, match=words):
        check_budgets(replace(settings("local"), **given))


def test_budgets_are_limits_of_the_whole():
    made = replace(settings("local"), gpu_seconds=60.0)
    check_budgets(made)
    bench = SimpleNamespace(config=SimpleNamespace(run=SimpleNamespace(budget_s=9.0)))
    assert _limits(made, bench) == Limits(device_s=60.0, wall_s=9.0)


@pytest.mark.parametrize(
    "text", ["whole", "whole/7", "whole/7/0", "whole/-1/1", "a b/1/1", "whole/7/1/1"]
)
def test_a_lease_that_is_none_is_refused(text):
    with pytest.raises(BadInput, match="--lease"):
        read_lease(text)


def test_a_process_that_leaves_nothing_is_a_loss_with_the_end_of_its_log(tmp_path):
    engine = engine_of(tmp_path, "import sys; print('No space left on device'); sys.exit(9)")
    engine.submit(order())
    ended = wait(engine)
    assert ended.folder is None
    assert ended.reason == "exit code 9: No space left on device"
    assert ended.began_s <= ended.ended_s


def test_documents_are_handed_on_whatever_the_exit_code_says(tmp_path):
    engine = engine_of(
        tmp_path,
        "import sys, pathlib; pathlib.Path(sys.argv[1], 'results.json').touch(); sys.exit(3)",
    )
    engine.submit(order())
    assert wait(engine).folder == tmp_path / "7"


def test_what_runs_is_ended_when_the_engine_is(tmp_path):
    engine = engine_of(tmp_path, "import time; time.sleep(600)")
    engine.submit(order())
    process = engine._running["cpu"].process
    engine.close()
    assert process.poll() is not None


def test_a_command_that_is_not_there_is_a_loss(tmp_path):
    engine = LocalEngine(
        devices=["cpu"],
        command=lambda *_: ["/no/such/program"],
        folder=lambda _: tmp_path / "x",
        environ={},
        here=tmp_path,
    )
    engine.submit(order())
    assert wait(engine).reason == "No such file or directory"


@pytest.mark.parametrize(
    ("script", "names", "reason"),
    [
        (
            "(f/'base').mkdir(); (f/'results.json').touch(); (f/'base/results.json').touch()",
            {*DOCUMENTS},
            "",
        ),
        (
            "(f/'results.json').touch(); print('out of memory'); sys.exit(4)",
            set(),
            "exit code 4: out of memory",
        ),
    ],
)
def test_what_a_lease_leaves_on_a_node_of_ray_comes_back_or_why_it_does_not(
    script, names, reason, tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    seen = "assert os.environ['CUDA_VISIBLE_DEVICES'] == '3'"
    text = f"import sys, os, pathlib; f = pathlib.Path(sys.argv[1]); {seen}; {script}"
    brought = measure_here(
        [sys.executable, "-c", text, "{folder}"], {"CUDA_VISIBLE_DEVICES": "0"}, str(tmp_path)
    )
    assert brought.documents.keys() == names
    assert brought.reason == reason


def test_a_disk_of_this_machine_that_takes_no_documents_ends_the_run_and_is_no_slots_loss(tmp_path):
    brought = Brought(documents=dict.fromkeys(DOCUMENTS, b"{}"))
    ray = SimpleNamespace(
        get=lambda _: brought,
        wait=lambda out, **_: (out, []),
        exceptions=SimpleNamespace(RayError=OSError),
    )
    (tmp_path / "full").touch()
    engine = RayEngine(
        address="",
        device="cpu",
        command=None,
        folder=lambda _: tmp_path / "full" / "7-2",
        environ={},
        here=tmp_path,
        _ray=ray,
    )
    engine._out["task"] = order("4f0c/0"), 0.0
    with pytest.raises(
        CannotWrite, match=r"full/7-2: cannot be written: Not a directory; continue with --resume"
    ):
        engine.finished(0)
    engine.folder = lambda _: tmp_path / "7-2"
    engine._out["task"] = order("4f0c/0"), 0.0
    (ended,) = engine.finished(0)
    assert [(ended.folder / name).read_bytes() for name in DOCUMENTS] == [b"{}", b"{}"]


SOURCES = Sources(file=Path("/shared/out/fleet/sources.bundle"), sha256="a" * 64, commit="b" * 40)


@pytest.mark.parametrize(
    ("fleet", "place"),
    [("local:cpu", SOURCES.file), ("slurm", SOURCES.file), ("ray", "{folder}/sources.bundle")],
)
def test_a_lease_of_sources_names_their_digest_and_no_file_of_this_checkout(fleet, place):
    made = replace(settings(fleet), prepared=None, base="main", config=Path("ci-bench.yml"))
    words = lease_command(made, RUN, SOURCES)(
        LeaseOrder(lease=LEASE, attempt=2, slot="cpu"), Path("{folder}")
    )
    given = {flag: words[words.index(flag) + 1] for flag in ("--sources", "--sha256", "--commit")}
    assert given == {"--sources": str(place), "--sha256": "a" * 64, "--commit": "b" * 40}
    assert {"--prepared", "--base", "--config"}.isdisjoint(words)


def test_a_job_of_slurm_starts_where_its_sources_are(tmp_path, monkeypatch):
    monkeypatch.setattr(SlurmEngine, "open", lambda _: None)
    journal = FileJournal(file=tmp_path / "j", leases=tmp_path)
    assert open_engine(settings("slurm"), RUN, journal, SOURCES).here == SOURCES.file.parent
    assert open_engine(settings("slurm"), RUN, journal).here == Path.cwd()


def test_what_goes_to_a_node_of_ray_lies_in_the_leases_folder_where_its_command_starts(tmp_path):
    text = "import sys, pathlib; f = pathlib.Path(sys.argv[1]); print(f.parent == pathlib.Path.cwd(), f.read_bytes())"
    words = [sys.executable, "-c", text, "{folder}/sources.bundle"]
    brought = measure_here(words, {}, "/not/on/this/node", {"sources.bundle": b"# v2 git bundle"})
    assert brought.reason == "exit code 0: True b'# v2 git bundle'"


@pytest.mark.parametrize(
    ("more", "words"),
    [((), "pass both sides"), (("--sources", "f", "--commit", "main"), "a full commit id")],
)
def test_a_lease_without_sides_or_of_a_name_is_refused(more, words, capsys):
    code = main(["fleet", "lease", "--lease", "whole/1/1", *more])
    assert code in {ExitCode.BAD_INPUT, ExitCode.MEASURING_FAILED}
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("on_term", "code"), [("sys.exit(7)", 7), ("None", -9)])
def test_what_a_lease_started_is_asked_to_end_and_then_killed(on_term, code, monkeypatch, tmp_path):
    monkeypatch.setattr(lease, "GRACE_S", 0.3)
    ready = tmp_path / "ready"
    text = f"import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: {on_term})"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"{text}; pathlib.Path({str(ready)!r}).touch(); time.sleep(60); time.sleep(60)",
        ]
    )
    while not ready.exists():
        time.sleep(0.005)
    lease._end(process)
    assert process.returncode == code


@pytest.fixture
def own_end():
    """What ends this process is what did before."""
    yield
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0)


@pytest.mark.parametrize("is_started", [False, True], ids=["by nobody", "by a lease"])
def test_a_set_up_ends_with_the_lease_that_started_it_and_otherwise_with_nobody(
    is_started, monkeypatch, tmp_path, own_end
):
    starter = str(os.getpid()) if is_started else ""

    def prepare_sides(*_, **__):
        found = ctypes.c_int(-1)
        ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(found))
        raise NotPrepared(f"by signal {found.value}")

    monkeypatch.setattr("ci_bench.commands.setup.prepare_sides", prepare_sides)
    monkeypatch.chdir(tmp_path)
    made = Measuring(
        environ={STARTER: starter} if starter else {}, here=tmp_path, prepared=tmp_path
    )
    with pytest.raises(NotPrepared, match=f"by signal {int(signal.SIGTERM) if starter else 0}"):
        setup(made)


class TestDraining:
    @pytest.fixture
    def gate(self, tmp_path):
        """The folder of a gate that has a lease out on a slot of Ray's."""
        journal = FileJournal(
            file=tmp_path / "out" / "fleet" / "journal.jsonl",
            leases=tmp_path / "out" / "fleet" / "leases",
        )
        journal.start("whole", "2026-02-01T00:00:00Z")
        journal.begun(order("4f0c/1"))
        return journal

    @pytest.mark.parametrize(
        ("words", "left"), [((), {"*"}), (("4f0c",), {"4f0c"}), (("4f0c/1",), {"4f0c/1"})]
    )
    def test_the_coordinator_reads_what_the_command_writes_until_it_begins_anew(
        self, gate, tmp_path, words, left, capsys
    ):
        assert gate.drained() == frozenset()
        assert main(["fleet", "drain", *words, "-o", str(tmp_path / "out")]) == ExitCode.OK
        assert "no further lease on " in capsys.readouterr().out
        assert gate.drained() == left
        gate.take_up()
        assert gate.drained() == frozenset()

    def test_what_is_no_slot_or_no_gate_is_said(self, gate, tmp_path, capsys):
        assert main(["fleet", "drain", "n2", "-o", str(tmp_path / "out")]) == ExitCode.BAD_INPUT
        assert (
            "n2: this gate had no lease on that slot; its leases were on 4f0c/1"
            in capsys.readouterr().err
        )
        assert main(["fleet", "drain", "-o", str(tmp_path / "other")]) == ExitCode.BAD_INPUT
        assert "pass the --output folder of a fleet gate" in capsys.readouterr().err
        assert gate.drained() == frozenset()
