"""Leases on a real Slurm and a real Ray on this machine: exclusive, both sides on one node, a node and the coordinator killed."""

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pytest
from benchmarks.fleet_engines import CannotStart, Work, attempt

from benchmarks import fleet_engines
from ci_bench.fleet.protocol import FleetLease, LeaseOrder
from ci_bench.fleet.ray_core import RayEngine

KILLED = ("", "node", "coordinator")
SMALL = {"slurm": Work(cases=4, launches=1, seed=3), "ray": Work(cases=36, launches=2, seed=3)}
"""A lease on Slurm takes five seconds, on Ray a tenth; a look of so many cases makes 4 leases
there, and 36 here.
"""


@pytest.fixture(
    scope="module",
    params=[pytest.param("ray", marks=pytest.mark.filterwarnings("ignore")), "slurm"],
)
def cluster(request):
    try:
        context = fleet_engines.ENGINES[request.param]()
        made = context.__enter__()
    except CannotStart as reason:
        pytest.skip(f"no {request.param}: {reason}")
    yield request.param, made
    context.__exit__(None, None, None)


@pytest.mark.parametrize("kill", KILLED)
def test_nothing_is_lost_nothing_counts_twice_and_no_two_leases_share_a_device(
    cluster, kill, tmp_path
):
    name, made = cluster
    made.repair()
    found = attempt(made, tmp_path / "run", SMALL[name], kill=kill)
    assert found.sound, found
    assert found.leases >= SMALL[name].cases * SMALL[name].launches / 2
    assert bool(found.losses) is bool(kill), found


@pytest.mark.filterwarnings("ignore")
def test_a_node_of_ray_gets_the_file_that_goes_along_and_needs_no_folder_of_ours(tmp_path):
    pytest.importorskip("ray")
    file = tmp_path / "sources.bundle"
    file.write_bytes(os.urandom(3_000_000))
    text = "import hashlib, pathlib, sys; f = pathlib.Path(sys.argv[1]); (f / 'base').mkdir(); d = (f / 'sources.bundle').read_bytes()"
    text += "; [(f / name).write_text(hashlib.sha256(d).hexdigest()) for name in ('results.json', 'base/results.json')]"
    engine = RayEngine(
        address="",
        device="cpu",
        command=lambda _, folder: [sys.executable, "-c", text, str(folder)],
        folder=lambda _: tmp_path / "out",
        environ={},
        here=Path("/not/on/this/node"),
        cargo=file,
    )
    engine.open()
    try:
        lease = FleetLease(number=0, cases=("s/a",), first=0, launches=1, expected_s=1.0)
        engine.submit(LeaseOrder(lease=lease, attempt=1, slot=engine.slots()[0].name))
        ended = engine.finished(60.0)[0]
    finally:
        engine.close()
    assert ended.reason == ""
    assert (tmp_path / "out" / "results.json").read_text() == hashlib.sha256(
        file.read_bytes()
    ).hexdigest()


class TestTheCheckItself:
    """What is planted in a run's records is found."""

    @pytest.fixture
    def run(self, tmp_path):
        from ci_bench.fleet.journal import FileJournal
        from ci_bench.fleet.protocol import EndedLease

        work = Work(cases=2, launches=1, seed=1)
        journal = FileJournal(file=tmp_path / "journal.jsonl", leases=tmp_path / "leases")
        journal.start("trial", "2026-01-01T00:00:00Z")
        (tmp_path / "records").mkdir()

        def deliver(number, case, began_s=None, nodes=("n1", "n1"), attempt=1):
            lease = FleetLease(
                number=number, cases=(f"suite/case_{case}",), first=0, launches=1, expected_s=1.0
            )
            order = LeaseOrder(lease=lease, attempt=attempt, slot=nodes[0])
            began_s = number * 10.0 if began_s is None else began_s
            journal.begun(order)
            journal.delivered(
                EndedLease(order=order, began_s=began_s, ended_s=began_s + 2, folder=tmp_path)
            )
            for place, side in enumerate(("base", "head")):
                said = f'{{"node": "{nodes[place]}", "device": "0", "began_s": {began_s + place}, "ended_s": {began_s + place + 1}}}'
                (tmp_path / "records" / f"{number}-{attempt}-{side}").write_text(said)

        def figures():
            return fleet_engines._figures(tmp_path, work, {}, kills=0, seconds=1.0)

        return deliver, figures

    def test_a_sound_run_is_sound(self, run):
        deliver, figures = run
        deliver(0, 0)
        deliver(1, 1)
        assert figures().sound

    @pytest.mark.parametrize(
        ("second", "what"),
        [
            ({"case": 0}, "lost"),
            ({"case": 1, "began_s": 1.5}, "overlaps"),
            ({"case": 1, "nodes": ("n1", "n2")}, "apart"),
        ],
    )
    def test_each_fault_is_found(self, run, second, what):
        deliver, figures = run
        deliver(0, 0)
        deliver(1, **second)
        found = figures()
        assert getattr(found, what) == 1
        assert not found.sound
        assert found.twice == (what == "lost")


def test_a_node_that_ray_still_lists_is_no_slot_once_it_lost_a_lease(tmp_path):
    """A dead node loses at once what it is given, for as long as Ray lists it."""
    from types import SimpleNamespace

    from ci_bench.fleet.ray_core import RayEngine

    class RayError(Exception):
        pass

    class NodeDiedError(RayError):
        pass

    class WorkerCrashedError(RayError):
        pass

    fate = {"dead": NodeDiedError("node"), "alive": WorkerCrashedError("worker")}

    def get(reference):
        raise fate[reference]

    nodes = [
        {"NodeID": name, "Alive": True, "NodeName": name, "Resources": {"GPU": 2}} for name in fate
    ]
    errors = SimpleNamespace(
        RayError=RayError,
        NodeDiedError=NodeDiedError,
        TaskUnschedulableError=type("T", (RayError,), {}),
    )
    ray = SimpleNamespace(
        nodes=lambda: nodes, get=get, wait=lambda out, **_: (out[:1], out[1:]), exceptions=errors
    )
    engine = RayEngine(
        address="", device="auto", command=None, folder=None, environ={}, here=tmp_path
    )
    engine._ray = ray
    assert [slot.name for slot in engine.slots()] == ["dead/0", "dead/1", "alive/0", "alive/1"]
    for name, error in fate.items():
        lease = FleetLease(number=0, cases=("a",), first=0, launches=1, expected_s=1.0)
        engine._out[name] = LeaseOrder(lease=lease, attempt=1, slot=f"{name}/0"), 0.0
        assert engine.finished(0.1)[0].reason.startswith(type(error).__name__)
    assert [slot.name for slot in engine.slots()] == ["alive/0", "alive/1"]


@pytest.mark.parametrize("missing", ["slurm", "ray"])
def test_a_machine_that_cannot_says_why(missing, monkeypatch):
    import sys

    monkeypatch.setitem(
        sys.modules, {"slurm": "submitit", "ray": "ray.cluster_utils"}[missing], None
    )
    with (
        pytest.raises(CannotStart, match=rf"pip install 'ci-bench\[{missing}\]'"),
        fleet_engines.ENGINES[missing](),
    ):
        pass


def test_slurm_says_why_it_cannot_be_started(tmp_path):
    """Nothing of Slurm is on this path, nor what could install it."""
    import subprocess

    for name in ("bash", "mkdir", "id", "grep", "env"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = subprocess.run(
        [fleet_engines.SCRIPT, "up", tmp_path / "x"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == fleet_engines.CANNOT
    assert done.stderr.startswith(("slurm: there is no Slurm here", "slurm: only root"))
