"""Runs leases on real clusters on this machine while nodes or the coordinator are killed.

Counts the launches that are lost, or twice, or overlap.

``python -m benchmarks.fleet_engines ray --kill node --runs 20 --json fleet_ray.json``
``python -m benchmarks.fleet_engines slurm --kill coordinator``

Ray: three nodes of two made-up GPUs each (the extra `ray`). Slurm: two nodes (`tools/slurm.sh`:
Debian's packages, root; the extra `slurm`). A lease sleeps as long as its cases last (`SECONDS`, by
seed) and writes down for each side which node and device it had, from when to when; its documents
are that. The coordinator, engine and journal are those of a gate, in a process of their own, which
is what `--kill coordinator` ends by SIGKILL and resumes; `--kill node` ends a node by SIGKILL with
all that it runs, while it measures, and starts it again for the next run. A launch of a case is
lost that no delivered lease has, and counts twice where two have it; an overlap is two leases at a
time on a device of a node, by what they wrote down.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.tables import publish, render
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.fleet import open_engine
from ci_bench.fleet.coordinator import Coordinator, Refused
from ci_bench.fleet.journal import FileJournal
from ci_bench.fleet.protocol import EndedLease, LeaseOrder
from ci_bench.records.results import Run, RunState

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "slurm.sh"
CANNOT = 77
SECONDS = (0.05, 0.5)
LIMIT_S = 600.0
STUB = """
import json, os, pathlib, sys, time
from ci_bench.processes.descendants import ending_with
folder, records, name, seconds = map(str, sys.argv[1:])
above = dict(part.split("=", 1) for part in \
pathlib.Path(f"/proc/{os.getppid()}/environ").read_text().split("\\0") if "=" in part)
node = above.get("SLURMD_NODENAME") or \
pathlib.Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
with ending_with(os.environ["CI_BENCH_LEASE_STARTER"]):
    for side, place in (("base", "base/results.json"), ("head", "results.json")):
        said = {"node": node, "device": os.environ.get("CUDA_VISIBLE_DEVICES", "0"), \
"began_s": time.monotonic()}
        record = pathlib.Path(records, f"{name}-{side}")
        with record.open("x") as stream:
            stream.write(json.dumps(said))
        time.sleep(float(seconds) / 2)
        said["ended_s"] = time.monotonic()
        record.with_suffix(".part").write_text(json.dumps(said))
        record.with_suffix(".part").rename(record)
        (pathlib.Path(folder) / place).parent.mkdir(exist_ok=True)
        (pathlib.Path(folder) / place).write_text(json.dumps({"lease": name, **said}))
"""
"""A lease. On Ray a node is known by the process that started the worker; a record that is there
already fails the lease.
"""


class CannotStart(Exception):  # noqa: N818 - a reason, by which a test is skipped
    """This machine can't start such a cluster, for this reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Work of a run: so many launches of each case, all of which are due.

    The seed draws the seconds of each case.
    """

    cases: int
    launches: int
    seed: int

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds of a launch of each case, both sides."""
        rng = random.Random(self.seed)  # noqa: S311 - a simulation
        return {f"suite/case_{number}": rng.uniform(*SECONDS) for number in range(self.cases)}

    @property
    def looks(self) -> Sequence[int]:
        """Number of launches before each look: a look follows every launch."""
        return range(1, self.launches + 1)


class Cluster(Protocol):
    """A cluster that is up.

    `word` is what `--fleet` takes, `environ` what a coordinator needs to find it.
    """

    word: str
    environ: Mapping[str, str]

    def kill(self, node: str) -> None:
        """Kill a node by SIGKILL, with all that it runs; leases write down its name."""

    def repair(self) -> None:
        """Start what was killed."""


@dataclass(kw_only=True, slots=True)
class SlurmCluster:
    """`folder` is that of `tools/slurm.sh`."""

    folder: Path
    environ: Mapping[str, str]
    killed: list[str]
    word: str = "slurm:partition=gpu,constraint=h100"

    def kill(self, node: str) -> None:
        """Kill a node with the processes of its namespace."""
        self.killed.append(node)
        _call(SCRIPT, "kill", self.folder, node)

    def repair(self) -> None:
        """Wait until all nodes are idle again."""
        for node in self.killed:
            _call(SCRIPT, "start", self.folder, node)
        self.killed.clear()
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            states = _call("sinfo", "--noheader", "--Node", "--format=%t", environ=self.environ)
            if {*states.split()} == {"idle"}:
                return
            time.sleep(0.5)
        raise CannotStart("a node of Slurm doesn't come up again")


def _call(*words: object, environ: Mapping[str, str] | None = None) -> str:
    """Return the output of a command."""
    done = subprocess.run(
        [*map(str, words)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if done.returncode:
        complaint = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
        raise (CannotStart if done.returncode == CANNOT else RuntimeError)(complaint)
    return done.stdout


@contextmanager
def slurm(*, nodes: int = 2, private: Sequence[Path] = ()) -> Iterator[SlurmCluster]:
    """Start a Slurm cluster of so many nodes, or raise `CannotStart`.

    Each node has an empty folder of its own at the `private` paths.
    """
    try:
        import submitit  # noqa: F401 - whether it is there
    except ImportError as error:
        raise CannotStart(
            "the extra `slurm` is not installed: pip install 'ci-bench[slurm]'"
        ) from error
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    try:
        variables = dict(
            line.split("=", 1) for line in _call(SCRIPT, "up", folder, nodes, *private).splitlines()
        )
        yield SlurmCluster(folder=folder, environ={**os.environ, **variables}, killed=[])
    finally:
        _call(SCRIPT, "down", folder)


@dataclass(kw_only=True, slots=True)
class RayCluster:
    """`made` is Ray's own cluster of processes on one machine, `size` the GPUs of a node."""

    made: Any
    size: int
    environ: Mapping[str, str]
    workers: list[Any]

    @property
    def word(self) -> str:
        """Fleet of the cluster: the address of its head, which measures nothing."""
        return f"ray:{self.made.address}"

    def add(self) -> None:
        """Add a node."""
        self.workers.append(self.made.add_node(num_cpus=self.size, num_gpus=self.size))

    def kill(self, node: str) -> None:
        """Kill the process that leads the node.

        Ray's workers end with it, and leases with their workers.
        """
        (victim,) = (
            each
            for each in self.workers
            if str(each.all_processes["raylet"][0].process.pid) == node
        )
        self.workers.remove(victim)
        self.made.remove_node(victim, allow_graceful=False)

    def repair(self) -> None:
        """Add a node for each that was killed."""
        while len(self.workers) < NODES:
            self.add()


NODES = 3


@contextmanager
def ray(*, size: int = 2) -> Iterator[RayCluster]:
    """Start a Ray cluster of three nodes with made-up GPUs, or raise `CannotStart`.

    Each node has `size` GPUs.
    """
    settings = {
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "500",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    os.environ.update({**settings, "RAY_health_check_failure_threshold": "2"})
    try:
        from ray.cluster_utils import Cluster as Processes
    except ImportError as error:
        raise CannotStart(
            "the extra `ray` is not installed: pip install 'ci-bench[ray]'"
        ) from error
    processes = Processes(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        cluster = RayCluster(made=processes, size=size, environ=dict(os.environ), workers=[])
        cluster.repair()
        yield cluster
    finally:
        processes.shutdown()


ENGINES: Mapping[str, Callable[[], Any]] = {"ray": ray, "slurm": slurm}


def coordinate(word: str, home: Path, work: Work, *, resume: bool) -> None:
    """Be the coordinator of a run whose journal, leases and records are in `home`."""
    journal = FileJournal(file=home / "journal.jsonl", leases=home / "leases")
    run = Run(
        id="trial",
        started_at="2026-01-01T00:00:00Z",
        state=RunState.PARTIAL,
        config_digest="c",
        device="cpu",
    )
    earlier = journal.read()[2] if resume else None
    if not resume:
        journal.start(run.id, run.started_at)
    journal.take_up()
    engine: Any = open_engine(
        Measuring(environ=dict(os.environ), here=Path.cwd(), fleet=word, prepared=home),
        run,
        journal,
    )

    def command(order: LeaseOrder, folder: Path) -> Sequence[str]:
        seconds = sum(work.seconds[name] for name in order.lease.cases)
        return [
            sys.executable,
            "-c",
            STUB,
            str(folder),
            str(home / "records"),
            _name(order),
            str(seconds),
        ]

    engine.command = command
    coordinator = Coordinator(
        engine=engine,
        looks=work.looks,
        still_open=lambda _: work.seconds,
        accept=_accept,
        journal=journal,
        clock=time.monotonic,
        known_s=work.seconds,
    )
    try:
        coordinator.run([*work.seconds], earlier=earlier)
    finally:
        engine.close()


def _name(order: LeaseOrder) -> str:
    return f"{order.lease.number}-{order.attempt}"


def _accept(ended: EndedLease) -> None:
    """Check that both sides are of this lease, and of one device of one node."""
    assert ended.folder is not None  # noqa: S101 - an attempt without is lost already
    head, base = (
        json.loads((ended.folder / place).read_text())
        for place in ("results.json", "base/results.json")
    )
    if {head["lease"], base["lease"]} != {_name(ended.order)}:
        raise Refused("its documents are of another lease", at_fault=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Outcome of a run, in numbers."""

    leases: int
    """The number of delivered leases."""
    losses: int
    """The number of losses of leases that the journal notes."""
    lost: int
    """The number of launches of cases that no delivered lease has."""
    twice: int
    """The number of launches of cases that a second delivered lease has."""
    overlaps: int
    """The number of pairs of leases that were on one device at the same time."""
    apart: int
    """The number of leases whose sides were on two devices."""
    again: int
    """The number of leases that an engine started twice."""
    kills: int
    """The number of processes that were killed."""
    seconds: float
    """The wall time of the run (s)."""

    @property
    def sound(self) -> bool:
        """True if nothing is lost, twice, apart, or overlaps."""
        return not (self.lost or self.twice or self.overlaps or self.apart or self.again)


def attempt(cluster: Cluster, home: Path, work: Work, *, kill: str = "") -> Figures:
    """Run once, and return the figures.

    `kill` is `node` or `coordinator`, at a moment that the seed draws; empty if nothing is killed.
    """
    (home / "records").mkdir(parents=True)
    began_s = time.monotonic()
    process = _start(cluster, home, work)
    deaths: dict[str, float] = {}
    try:
        if kill:
            victim = _moment(home, process, after=random.Random(work.seed).randint(1, 6))  # noqa: S311 - a simulation
            if kill == "node":
                cluster.kill(victim)
                deaths[victim] = time.monotonic()
            else:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                process = _start(cluster, home, work, "--resume")
        code = process.wait(LIMIT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        raise RuntimeError(
            f"the coordinator ended with exit code {code}:"
            f" {(home / 'coordinator.log').read_text()[-2000:]}"
        )
    seconds = time.monotonic() - began_s
    time.sleep(max(SECONDS))  # what should have been ended may still write
    return _figures(home, work, deaths, kills=int(bool(kill)), seconds=seconds)


def _start(cluster: Cluster, home: Path, work: Work, *more: str) -> "subprocess.Popen[bytes]":
    words = [
        sys.executable,
        "-m",
        "benchmarks.fleet_engines",
        "coordinator",
        "--word",
        cluster.word,
        "--home",
        str(home),
    ]
    size = ["--cases", str(work.cases), "--launches", str(work.launches), "--seed", str(work.seed)]
    with (home / "coordinator.log").open("ab") as log:
        return subprocess.Popen(
            [*words, *size, *more],
            env=dict(cluster.environ),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _moment(home: Path, process: "subprocess.Popen[bytes]", *, after: int) -> str:
    """Wait until so many leases are delivered and another one measures; return its node."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until and process.poll() is None:
        journal = home / "journal.jsonl"
        if journal.exists() and journal.read_text().count('"delivered"') >= after:
            for record in _records(home).values():
                if "ended_s" not in record:
                    return str(record["node"])
        time.sleep(0.02)
    raise RuntimeError(f"nothing was measured: {(home / 'coordinator.log').read_text()[-2000:]}")


def _records(home: Path) -> dict[str, dict[str, Any]]:
    """Return the records that leases have written so far, by their names and sides."""
    records = {}
    for path in (home / "records").iterdir():
        if path.suffix != ".part" and (text := path.read_text()):
            records[path.name] = json.loads(text)
    return records


def _figures(
    home: Path, work: Work, deaths: Mapping[str, float], *, kills: int, seconds: float
) -> Figures:
    earlier = FileJournal(file=home / "journal.jsonl", leases=home / "leases").read()[2]
    planned = {(name, launch) for name in work.seconds for launch in range(work.launches)}
    counted = Counter(
        (name, ended.order.lease.first)
        for ended in earlier.delivered
        for name in ended.order.lease.cases
    )
    spans, places = (
        defaultdict[tuple[str, str], list[tuple[float, float]]](list),
        defaultdict[str, set[tuple[str, str]]](set),
    )
    for name, record in _records(home).items():
        place = str(record["node"]), str(record["device"])
        places[name.rpartition("-")[0]].add(place)
        spans[place].append(
            (record["began_s"], record.get("ended_s", deaths.get(place[0], record["began_s"])))
        )
    pairs = [
        (first, second)
        for every in spans.values()
        for first, second in zip(sorted(every), sorted(every)[1:], strict=False)
    ]
    return Figures(
        leases=len(earlier.delivered),
        losses=len(earlier.losses),
        lost=len(planned - counted.keys()),
        twice=sum(count - 1 for count in counted.values()),
        overlaps=sum(second[0] < first[1] for first, second in pairs),
        apart=sum(len(place) > 1 for place in places.values()),
        again=sum("FileExistsError" in loss.reason for loss in earlier.losses),
        kills=kills,
        seconds=seconds,
    )


COUNTED = ("leases", "losses", "lost", "twice", "overlaps", "apart", "again")


def total(figures: Sequence[Figures], engine: str, kill: str) -> dict[str, str]:
    """Return a row of the printed table: all runs together."""
    return {
        "engine": engine,
        "killed in each": kill or "nothing",
        "runs": str(len(figures)),
        **{
            name: str(sum(getattr(each, name) for each in figures))
            for name in ("leases", "losses", "lost", "twice", "overlaps", "apart", "again")
        },
        "seconds a run": f"{sum(each.seconds for each in figures) / max(1, len(figures)):.0f}",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet_engines", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("engine", choices=[*ENGINES, "coordinator"])
    parser.add_argument(
        "--kill", choices=["node", "coordinator"], default="", help="what is killed in each run"
    )
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--cases", type=int, default=36)
    parser.add_argument("--launches", type=int, default=2)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--word", help="of a coordinator: its fleet")
    parser.add_argument("--home", type=Path, help="of a coordinator: its folder")
    parser.add_argument("--resume", action="store_true", help="of a coordinator: go on with a run")
    options = parser.parse_args(arguments)
    if options.engine == "coordinator":
        work = Work(cases=options.cases, launches=options.launches, seed=options.seed)
        coordinate(options.word, options.home, work, resume=options.resume)
        return
    figures = []
    with ENGINES[options.engine]() as cluster:
        for number in range(options.runs):
            home = Path(tempfile.mkdtemp(prefix="fleet-engines-"))
            work = Work(cases=options.cases, launches=options.launches, seed=options.seed + number)
            figures.append(attempt(cluster, home / "run", work, kill=options.kill))
            sys.stderr.write(f"{number + 1}: {figures[-1]}\n")
            shutil.rmtree(home)
            cluster.repair()
    row = total(figures, options.engine, options.kill)
    document = {
        "benchmark": "fleet_engines",
        "engine": options.engine,
        "results": [asdict(each) for each in figures],
    }
    publish(render("Leases on a real cluster", [row]), document, options.json)


if __name__ == "__main__":
    main()
