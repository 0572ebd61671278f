"""Leases as Slurm jobs: exclusive on a node, never requeued, refused at once where no node can take one, lost with Slurm's word."""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from fake_slurm import TAKEN, FakeSlurm
from scripted_fleet import Notes

from ci_bench.checkouts.bundled import Sources
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.fleet import open_engine
from ci_bench.errors import BadInput, CannotPlace
from ci_bench.fleet.coordinator import Coordinator
from ci_bench.fleet.journal import FileJournal
from ci_bench.fleet.protocol import FleetLease, LeaseOrder
from ci_bench.fleet.slurm import SlurmEngine, WantedNodes, read_nodes, read_wanted
from ci_bench.records.results import Run, RunState

THREE = {
    "n1": "gpu*|idle|h100|gpu:1",
    "n2": "gpu*|idle|h100|gpu:1",
    "n3": "gpu*|idle|h100,big|gpu:1",
}
RUN = Run(
    id="whole",
    started_at="2026-02-01T00:00:00Z",
    state=RunState.PARTIAL,
    config_digest="c",
    device="cpu",
)
MEASURES = "import sys, pathlib as p; f = p.Path(sys.argv[1]); (f/'base').mkdir(); (f/'results.json').touch(); (f/'base/results.json').touch()"


def order(slot="n1", number=7):
    return LeaseOrder(
        lease=FleetLease(number=number, cases=("s/a",), first=0, launches=1, expected_s=1.0),
        attempt=1,
        slot=slot,
    )


@pytest.fixture
def make(tmp_path, monkeypatch):
    def made(nodes=THREE, script=MEASURES, environ=None, **wanted):
        cluster = FakeSlurm(nodes=dict(nodes))
        monkeypatch.setitem(sys.modules, "submitit", cluster.module())
        engine = SlurmEngine(
            wanted=WantedNodes(**wanted),
            command=lambda _, folder: [sys.executable, "-c", script, str(folder)],
            folder=lambda of: tmp_path / f"{of.lease.number}-{of.attempt}",
            environ=environ or {"PATH": "/bin", "LANG": "C"},
            here=tmp_path,
            jobs=tmp_path / "slurm",
            ask=cluster.ask,
            pause_s=0.0,
            patience_s=0.0,
        )
        engine.open()
        return engine, cluster

    return made


class TestWhatIsAskedFor:
    def test_a_lease_is_one_exclusive_job_on_its_node_that_is_never_requeued(self, make):
        engine, cluster = make(partition="gpu", constraint="h100", account="ml", time=30)
        engine.submit(order())
        (job,) = cluster.jobs
        assert job.parameters.keys() <= TAKEN
        asked = {
            name: job.parameters.get(name)
            for name in ("partition", "constraint", "account", "time", "nodelist", "exclusive")
        }
        assert list(asked.values()) == ["gpu", "h100", "ml", 30, "n1", True]
        assert "gres" not in job.parameters
        assert job.parameters["additional_parameters"] == {
            "no_requeue": True,
            "export": "PATH,LANG",
        }

    def test_the_word_of_the_fleet_says_it(self):
        assert read_wanted("") == WantedNodes()
        assert read_wanted(
            "partition=gpu, constraint=h100&big,gres=gpu:h100:1,time=90"
        ) == WantedNodes(partition="gpu", constraint="h100&big", gres="gpu:h100:1", time=90)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("partitoin=gpu", "unknown option 'partitoin'.* is partition meant"),
            ("gpu", "unknown option 'gpu'"),
            ("time=1:00:00", "minutes"),
            ("time=0", "minutes"),
            ("constraint=[a*2&b*4]", "constraint"),
            ("constraint=a&b|c", "features joined"),
            ("partition=a,partition=b", "once"),
            ("account=a\nb", "account"),
        ],
    )
    def test_what_is_misspelt_is_said(self, text, words):
        with pytest.raises(BadInput, match=words):
            read_wanted(text)

    def test_the_lease_sees_no_secret_and_nothing_of_slurm(self, tmp_path, monkeypatch):
        cluster = FakeSlurm(nodes=THREE)
        monkeypatch.setitem(sys.modules, "submitit", cluster.module())
        monkeypatch.setattr(
            "ci_bench.fleet.slurm.subprocess.run", lambda words, **_: Answer(cluster.ask(words))
        )
        environ = {"GITHUB_TOKEN": "t", "SLURM_JOB_ID": "1", "SBATCH_ACCOUNT": "x", "PATH": "/bin"}
        settings = Measuring(
            environ=environ, here=tmp_path, fleet="slurm:partition=gpu", prepared=tmp_path
        )
        engine = open_engine(
            settings, RUN, FileJournal(file=tmp_path / "j", leases=tmp_path / "leases")
        )
        assert {"GITHUB_TOKEN", "SLURM_JOB_ID", "SBATCH_ACCOUNT"}.isdisjoint(engine.environ)
        engine.submit(order())
        assert cluster.jobs[0].parameters["additional_parameters"]["export"] == "PATH"
        assert cluster.folder == tmp_path / "slurm"

    def test_a_lease_of_a_bundle_needs_the_folder_that_submitit_needs_and_nothing_of_the_checkout(
        self, tmp_path, monkeypatch
    ):
        cluster = FakeSlurm(nodes=THREE)
        monkeypatch.setitem(sys.modules, "submitit", cluster.module())
        monkeypatch.setattr(
            "ci_bench.fleet.slurm.subprocess.run", lambda words, **_: Answer(cluster.ask(words))
        )
        checkout, shared = tmp_path / "checkout", tmp_path / "out" / "fleet"
        sources = Sources(file=shared / "sources.bundle", sha256="5" * 64, commit="6" * 40)
        settings = Measuring(
            environ={"PATH": "/bin"},
            here=checkout,
            fleet="slurm:partition=gpu",
            config=checkout / "ci-bench.yml",
        )
        engine = open_engine(
            settings, RUN, FileJournal(file=shared / "j", leases=shared / "leases"), sources
        )
        engine.submit(order())
        _, (words, _, here, log) = cluster.jobs[0].work
        told = {
            flag: words[words.index(flag) + 1]
            for flag in ("--sources", "--sha256", "--commit", "--output")
        }
        folder = shared / "leases" / "7-1"
        assert list(told.values()) == [str(sources.file), "5" * 64, "6" * 40, str(folder)]
        assert (here, Path(log).parent) == (str(shared), folder)
        assert not [word for word in words if str(checkout) in word]


class Answer:
    returncode = 0

    def __init__(self, stdout):
        self.stdout = stdout


class TestNodes:
    def test_states_are_read_with_their_flags(self):
        lines = ("idle", "idle~", "idle*", "mix", "down*", "maint$", "idle$", "drain", "alloc-")
        nodes = read_nodes(
            "".join(f"n{number}|p*|{state}|(null)|(null)\n" for number, state in enumerate(lines))
            + "garbage\n"
        )
        assert [node.state for node in nodes] == [
            "idle",
            "idle",
            "down",
            "mix",
            "down",
            "down",
            "down",
            "drain",
            "alloc",
        ]
        assert (nodes[0].features, nodes[0].gres, nodes[0].default) == ((), "", True)

    def test_slots_are_idle_nodes_of_the_partition_with_the_features(self, make):
        nodes = THREE | {
            "n4": "gpu*|drain|h100|gpu:1",
            "n5": "cpu|idle|h100|(null)",
            "n6": "gpu*|alloc|h100|gpu:1",
        }
        engine, _ = make(nodes)
        assert [slot.name for slot in engine.slots()] == ["n1", "n2", "n3"]
        assert engine.slots()[2].labels == {
            "node": "n3",
            "partition": "gpu",
            "features": "h100,big",
            "gres": "gpu:1",
        }
        assert [slot.name for slot in make(nodes, constraint="big|tall")[0].slots()] == ["n3"]
        assert [slot.name for slot in make(nodes, partition="cpu")[0].slots()] == ["n5"]

    def test_where_all_are_in_use_leases_wait_in_their_queues(self, make):
        engine, _ = make({name: line.replace("idle", "alloc") for name, line in THREE.items()})
        assert len(engine.slots()) == 3

    @pytest.mark.parametrize(
        "wanted",
        [
            {"constraint": "b200"},
            {"constraint": "h100&b200"},
            {"partition": "gpux"},
            {"constraint": "old"},
        ],
    )
    def test_what_no_node_can_take_is_refused_at_once_with_what_there_is(self, make, wanted):
        with pytest.raises(
            CannotPlace,
            match=r"no node .* with .*=.*time=60; it has n1 \(idle; partition gpu; features h100\)",
        ):
            make(THREE | {"n9": "gpu*|down*|old|gpu:1"}, **wanted)

    def test_where_submitit_or_slurm_is_missing_that_is_said(self, make, monkeypatch, tmp_path):
        engine, _ = make()
        monkeypatch.setitem(sys.modules, "submitit", None)
        with pytest.raises(CannotPlace, match=r"pip install 'ci-bench\[slurm\]'"):
            engine.open()
        monkeypatch.undo()
        monkeypatch.setitem(sys.modules, "submitit", FakeSlurm(nodes={}).module())
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(engine, "ask", SlurmEngine.__dataclass_fields__["ask"].default)
        with pytest.raises(CannotPlace, match=r"sinfo: .* submits to a Slurm cluster"):
            engine.open()

    def test_the_first_job_that_is_refused_ends_the_run_and_a_later_one_is_a_loss(self, make):
        engine, cluster = make()
        cluster.refuses = "sbatch: error: Invalid account"
        with pytest.raises(CannotPlace, match=r"Invalid account \(asked for time=60 on n1\)"):
            engine.submit(order())
        cluster.refuses = ""
        engine.submit(order())
        cluster.refuses = "sbatch: error: Job violates accounting policy"
        engine.submit(order("n2", 8))
        (ended,) = engine.finished(0)
        assert (ended.folder, ended.reason) == (
            None,
            "Slurm refused the job: sbatch: error: Job violates accounting policy",
        )


class TestHowJobsEnd:
    def test_documents_in_the_shared_folder_count(self, make, tmp_path):
        engine, cluster = make()
        engine.submit(order())
        assert engine.finished(0) == []
        cluster.run(cluster.jobs[0])
        (ended,) = engine.finished(0)
        assert (ended.folder, ended.reason) == (tmp_path / "7-1", "")
        assert engine.finished(0) == []

    def test_time_in_the_queue_is_no_time_of_the_node(self, make, monkeypatch):
        engine, cluster = make()
        now = [1000.0]
        monkeypatch.setattr("ci_bench.fleet.slurm.time.monotonic", lambda: now[0])
        engine.submit(order())
        now[0] += 500
        assert engine.finished(0) == []
        cluster.start(cluster.jobs[0])
        cluster.jobs[0].work[0](*cluster.jobs[0].work[1])
        assert engine.finished(0) == []
        now[0] += 60
        cluster.end(cluster.jobs[0], "COMPLETED")
        (ended,) = engine.finished(0)
        assert ended.ended_s - ended.began_s == 60

    @pytest.mark.parametrize(
        "state",
        ["NODE_FAIL", "TIMEOUT", "PREEMPTED", "OUT_OF_MEMORY", "FAILED", "CANCELLED", "REQUEUED"],
    )
    def test_what_slurm_ended_is_a_loss_with_its_word(self, make, state):
        engine, cluster = make()
        engine.submit(order())
        cluster.start(cluster.jobs[0])
        cluster.end(cluster.jobs[0], state, "Because")
        (ended,) = engine.finished(0)
        assert ended.folder is None
        assert ended.reason == f"Slurm says of job 100 on n1: {state} (Because); it left no log"

    def test_without_accounting_a_job_that_slurm_forgot_is_over(self, make):
        engine, cluster = make(script="print('No space left on device')")
        engine.submit(order())
        cluster.run(cluster.jobs[0])
        cluster.purged.add("100")
        (ended,) = engine.finished(0)
        assert (
            ended.reason
            == "Slurm says of job 100 on n1: not known any more; No space left on device"
        )

    def test_documents_that_a_shared_folder_shows_late_are_waited_for(self, make):
        engine, cluster = make()
        engine.patience_s = 1000.0
        engine.submit(order())
        cluster.run(cluster.jobs[0], act=lambda: None)
        assert engine.finished(0) == []
        cluster.jobs[0].work[0](*cluster.jobs[0].work[1])
        assert engine.finished(0)[0].reason == ""

    def test_a_job_that_never_starts_is_cancelled_and_said(self, make):
        engine, cluster = make()
        engine.submit(order())
        cluster.jobs[0].why = "Resources"
        assert engine.finished(0) == []
        cluster.jobs[0].why = "PartitionTimeLimit"
        (ended,) = engine.finished(0)
        assert ended.reason == "Slurm never starts job 100 on n1: PartitionTimeLimit"
        assert cluster.jobs[0].cancelled

    def test_a_controller_that_restarts_loses_nothing(self, make):
        engine, cluster = make()
        engine.submit(order())
        cluster.start(cluster.jobs[0])
        cluster.silent = True
        assert engine.finished(0) == []
        assert len(engine.slots()) == 3
        cluster.silent = False
        cluster.run(cluster.jobs[0])
        assert engine.finished(0)[0].reason == ""

    def test_a_node_that_drains_ends_what_it_measures_and_one_that_is_down_does_not(self, make):
        engine, cluster = make()
        engine.submit(order("n1", 1))
        engine.submit(order("n2", 2))
        cluster.set_state("n1", "drng")
        cluster.set_state("n2", "down*")
        assert [slot.name for slot in engine.slots()] == ["n1", "n3"]
        assert [job.cancelled for job in cluster.jobs] == [False, True]
        cluster.run(cluster.jobs[0])
        cluster.set_state("n1", "drain")
        assert [ended.order.slot for ended in engine.finished(0)] == ["n1"]
        assert [slot.name for slot in engine.slots()] == ["n3"]

    def test_a_node_that_was_gone_for_a_moment_has_lost_its_lease(self, make):
        """Nobody may have looked in that moment, and its job is cancelled: it would be waited for until its time is over."""
        engine, cluster = make()
        engine.submit(order("n1"))
        cluster.set_state("n1", "down*")
        engine.slots()
        cluster.set_state("n1", "idle")
        assert [slot.name for slot in engine.slots()] == ["n1", "n2", "n3"]
        (ended,) = engine.finished(0)
        assert (ended.order.slot, ended.folder, ended.reason) == ("n1", None, "slot n1 is gone")
        assert cluster.jobs[0].cancelled
        assert engine.finished(0) == []

    def test_what_runs_is_cancelled_when_the_engine_is_closed(self, make):
        engine, cluster = make()
        engine.submit(order())
        engine.close()
        assert cluster.jobs[0].cancelled


@pytest.mark.parametrize("victim", ["n1", "n2", "n3"])
def test_a_run_over_the_cluster_loses_nothing_with_a_node(make, victim):
    """Each time that Slurm is asked for jobs, those that wait run to their end; the second job of a node dies with it."""
    engine, cluster = make()
    seen, counted, overlapping = Counter(), Counter(), []

    def ask(words):
        if words[0] == "squeue":
            waiting = [job for job in cluster.jobs if job.state == "PENDING"]
            overlapping.extend(
                name
                for name, count in Counter(job.parameters["nodelist"] for job in waiting).items()
                if count > 1
            )
            for job in waiting:
                node = job.parameters["nodelist"]
                seen[node] += 1
                if node == victim and seen[node] == 2:
                    cluster.start(job)
                    cluster.set_state(node, "down*")
                elif "down" not in cluster.nodes[node]:
                    cluster.run(job, act=lambda job=job: leave(job))
        return cluster.ask(words)

    def leave(job):
        folder = engine_folder(job)
        (folder / "base").mkdir()
        for name in ("results.json", "base/results.json"):
            (folder / name).touch()

    def engine_folder(job):
        from pathlib import Path

        return Path(job.work[1][3]).parent

    engine.ask = ask
    cases = tuple(f"s/c{number}" for number in range(6))
    outcome = Coordinator(
        engine=engine,
        looks=(1, 2, 3),
        still_open=lambda look: cases if look < 3 else (),
        accept=lambda ended: counted.update(
            (name, ended.order.lease.first) for name in ended.order.lease.cases
        ),
        journal=Notes(),
        clock=lambda: 0.0,
    ).run(cases)
    assert counted == {(name, launch): 1 for name in cases for launch in range(3)}
    assert [(loss.slot, loss.reason) for loss in outcome.losses] == [
        (victim, f"slot {victim} is gone")
    ]
    assert overlapping == []


def test_submitit_itself_takes_the_parameters(make, tmp_path, monkeypatch):
    engine, _ = make(partition="gpu", constraint="h100", account="ml", qos="high", gres="gpu:1")
    monkeypatch.undo()
    slurm = pytest.importorskip(
        "submitit.slurm.slurm",
        reason="the extra `slurm` is not installed: pip install 'ci-bench[slurm]'",
    )
    text = slurm._make_sbatch_string(
        command="measure", folder=tmp_path, **engine._parameters(order())
    )
    lines = {line for line in text.splitlines() if line.startswith("#SBATCH")}
    wanted = {
        "--exclusive",
        "--no-requeue",
        "--nodelist=n1",
        "--partition=gpu",
        "--time=60",
        "--gres=gpu:1",
        "--export=PATH,LANG",
    }
    assert {f"#SBATCH {word}" for word in wanted} <= lines
    assert "srun" not in text


SBATCH = """#!/bin/sh
# Runs the batch file, as slurmd does on the first node of a job, and says its number at once.
export SLURM_JOB_ID=12 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NNODES=1 SLURM_NTASKS=1 SLURM_NODEID=0 SLURM_JOB_NODELIST=n1
export CUDA_VISIBLE_DEVICES=3
cp "$1" "$0.job"
sh "$0.job" >"$0.said" 2>&1 &
echo "Submitted batch job 12"
"""


def test_a_lease_goes_through_submitit_itself(make, tmp_path, monkeypatch):
    """The batch file that it writes starts the lease's command, with the GPU that the job has and without the caller's secret."""
    script = (
        MEASURES
        + "; import os; (f / 'saw').write_text(str(sorted(os.environ)) + os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    engine, _ = make(script=script, environ={"LANG": "C", "CUDA_VISIBLE_DEVICES": "0"})
    monkeypatch.undo()
    pytest.importorskip(
        "submitit", reason="the extra `slurm` is not installed: pip install 'ci-bench[slurm]'"
    )
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", "#!/bin/sh\nexit 9\n")):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    engine.open()
    engine.pause_s, engine.patience_s = 0.05, 20.0
    engine.submit(order())
    (ended,) = engine.finished(30.0)
    assert (ended.folder, ended.reason) == (tmp_path / "7-1", ""), (
        commands / "sbatch.said"
    ).read_text()
    assert (ended.folder / "saw").read_text().endswith("3")
    assert "GITHUB_TOKEN" not in (ended.folder / "saw").read_text()
