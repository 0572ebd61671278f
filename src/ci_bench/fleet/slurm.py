"""The engine of a Slurm cluster: a job for each lease, exclusive on one node.

Needs the extra `slurm` and a shared folder.

Slots are nodes, named by `sinfo`, so a slot can be set aside and measured launches know their
device. submitit writes the batch file, submits it and cancels it. `squeue` reports the state of a
job, because submitit asks `sacct`, which a cluster without accounting lacks. Slurm never requeues a
lease, since a loss has to be evidence. A job's pickled return value is never loaded: documents
count, and are read as a stranger's.
"""

import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ci_bench.errors import BadInput, CannotPlace
from ci_bench.fleet.local import DOCUMENTS, LOG, Command, run_logged, tail
from ci_bench.fleet.protocol import EndedLease, LeaseOrder, Slot

MISSING = "submitit is not installed here: pip install 'ci-bench[slurm]'"
Ask = Callable[[Sequence[str]], str]
"""Runs one of Slurm's commands and returns its output. Raises `CannotPlace` if it fails."""

FREE = {"idle"}
ABLE = FREE | {
    "alloc",
    "allocated",
    "comp",
    "completing",
    "mix",
    "mixed",
    "plnd",
    "planned",
    "resv",
    "reserved",
}
DRAINING = {"drng", "draining"}
"""A job that runs there continues; no other one starts."""
LIVING = {
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
}
NEVER = {
    *(
        "PartitionTimeLimit",
        "PartitionNodeLimit",
        "PartitionDown",
        "PartitionInactive",
        "BadConstraints",
        "JobHeldAdmin",
    ),
    *(
        "JobHeldUser",
        "AccountNotAllowed",
        "InvalidAccount",
        "InvalidQOS",
        "QOSNotAllowed",
        "DependencyNeverSatisfied",
    ),
}
"""Reasons for which a job waits until someone changes the cluster or the job."""
PASSED_ON = ("PATH", "HOME", "USER", "LANG", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables of the submitting environment that start Python on a node.

The lease's own environment travels with its command.
"""
ANSWER_S = 60.0
_SINFO = ("sinfo", "--noheader", "--Node", "--format=%N|%P|%t|%b|%G")
_SQUEUE = ("squeue", "--noheader", "--me", "--states=all", "--format=%i|%T|%r")


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedNodes:
    """A job's requirements to Slurm; an empty word is left to the cluster."""

    partition: str = ""
    """Partition of the nodes."""
    constraint: str = ""
    """Features of a node, joined by ``&`` or by ``|``."""
    account: str = ""
    """Account that pays for the job."""
    qos: str = ""
    """Quality of service."""
    gres: str = ""
    """Generic resources of a node, for example ``gpu:1``."""
    time: int = 60
    """Time limit of a job (minutes)."""


def read_wanted(text: str) -> WantedNodes:
    """Read ``partition=gpu,constraint=h100,time=60``, in any order.

    Empty for the cluster's defaults. Raises `BadInput`.
    """
    names = [each.name for each in fields(WantedNodes)]
    values: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = part.partition("=")
        if name not in names:
            near = "".join(f"; is {match} meant?" for match in get_close_matches(name, names, 1))
            raise BadInput(
                f"--fleet slurm: unknown option {name!r:.80}; known are {', '.join(names)}{near}"
            )
        if not re.fullmatch(r"[A-Za-z0-9_.:@|&*/+-]{1,200}", value) or name in values:
            raise BadInput(f"--fleet slurm: write {name} once, as {name}=VALUE, not {part!r:.80}")
        values[name] = _minutes(value) if name == "time" else value
    requirements = WantedNodes(**values)
    _features(requirements.constraint)
    return requirements


def _minutes(value: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,5}", value):
        raise BadInput(f"--fleet slurm: time is a number of minutes, not {value!r:.80}")
    return int(value)


def _features(constraint: str) -> tuple[Callable[[Sequence[bool]], bool], tuple[str, ...]]:
    """Return the rule for a node's features (all or any), and their names.

    Nodes are looked for before anything is submitted.

    Raises:
        BadInput: the constraint counts nodes, or is nested: a lease is one node.
    """
    sign = "|" if "|" in constraint else "&"
    names = tuple(filter(None, constraint.split(sign)))
    if any(re.search(r"[&|*:]", name) for name in names):
        raise BadInput(
            f"--fleet slurm: constraint is features joined by & or by |, not {constraint!r:.80}"
        )
    return (any if sign == "|" else all), names


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmNode:
    """A line of `sinfo`: a node in one of its partitions."""

    name: str
    """Name of the node."""
    partition: str
    """Partition of this line; a node has a line for each."""
    default: bool
    """True for the cluster's default partition."""
    state: str
    """State in lower case, without flags; ``down`` if the node doesn't respond."""
    features: tuple[str, ...]
    """Active features."""
    gres: str
    """Generic resources; empty if it has none."""

    def words(self) -> str:
        """Describe the node for a message."""
        return (
            f"{self.name} ({self.state}; partition {self.partition}; features"
            f" {','.join(self.features) or 'none'})"
        )


def read_nodes(text: str) -> list[SlurmNode]:
    """Parse the nodes that `sinfo` lists, once for each partition.

    One that doesn't respond, or is under maintenance, is ``down``.
    """
    rows = [
        line.split("|")
        for line in text.splitlines()
        if line.count("|") == len(fields(SlurmNode)) - 2
    ]
    return [
        SlurmNode(
            name=name.strip(),
            partition=partition.rstrip("*"),
            default=partition.endswith("*"),
            state=(
                "down" if state.endswith(("*", "$")) else state.strip().rstrip("~#!%@^-+").lower()
            ),
            features=tuple(each for each in features.split(",") if each != "(null)"),
            gres="" if gres.strip() == "(null)" else gres.strip(),
        )
        for name, partition, state, features, gres in rows
    ]


def fitting(nodes: Sequence[SlurmNode], requirements: WantedNodes) -> dict[str, SlurmNode]:
    """Return the nodes of the partition that have the features of the constraint, in any state.

    Without a partition, the default one counts.
    """
    which, names = _features(requirements.constraint)
    return {
        node.name: node
        for node in nodes
        if (node.partition == requirements.partition if requirements.partition else node.default)
        and (not names or which([name in node.features for name in names]))
    }


def measure_here(command: Sequence[str], environ: Mapping[str, str], here: str, log: str) -> int:
    """Run the command on the node, with the GPUs that Slurm shows this job.

    Returns its exit code.
    """
    import os

    gpus = {name: value for name, value in os.environ.items() if name.endswith("VISIBLE_DEVICES")}
    return run_logged(command, environ={**environ, **gpus}, here=Path(here), log=Path(log))


@dataclass(kw_only=True, slots=True)
class _Out:
    order: LeaseOrder
    """Attempt that the job runs."""
    job: Any
    """Job of submitit."""
    folder: Path
    """Folder of the attempt's documents."""
    began_s: float | None = None
    """Time when the job began to run (s); `None` while it waits."""
    missing_since_s: float | None = None
    """Time when the job had ended without documents (s); `None` before."""


def _ask(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotPlace(
            f"{words[0]}: {error}; is this a machine that submits to a Slurm cluster?"
        ) from error
    if done.returncode:
        raise CannotPlace(
            f"{words[0]}: exit code {done.returncode}: {' '.join(done.stderr.split())[:500]}"
        )
    return done.stdout


@dataclass(kw_only=True, slots=True)
class SlurmEngine:
    """The engine of a Slurm cluster.

    The tree (`here`), the prepared sides, `folder` and `jobs` are at the same paths on every node.
    """

    wanted: WantedNodes
    """Requirements to the nodes."""
    command: Command
    """Returns the command of an attempt."""
    folder: Callable[[LeaseOrder], Path]
    """Returns the folder of an attempt's documents."""
    environ: Mapping[str, str]
    """Environment of the leases."""
    here: Path
    """Working folder of the leases."""
    jobs: Path
    """Folder of submitit."""
    ask: Ask = _ask
    """Runs one of Slurm's commands."""
    pause_s: float = 2.0
    """Polling interval of Slurm (s)."""
    patience_s: float = 20.0
    """Time for an ended job's documents to appear in the shared folder (s)."""
    _executor: Any = None
    """Executor of submitit; `None` before `open`."""
    _submitted: int = 0
    """Jobs that Slurm accepted."""
    _nodes: dict[str, SlurmNode] = field(default_factory=dict)
    """Fitting nodes at the last look, by name."""
    _out: dict[str, _Out] = field(default_factory=dict)
    """Jobs in the queue or running, by node."""
    _ended: list[EndedLease] = field(default_factory=list)
    """Ended attempts that are not reported yet."""
    _gone: dict[str, EndedLease] = field(default_factory=dict)
    """Ends of attempts on missing nodes, by node; reported when the node is back."""
    _seen_at_s: float = float("-inf")
    """Time of the last look at the nodes (s)."""

    def open(self) -> None:
        """Check that some node could ever take a lease. Raises `CannotPlace`."""
        try:
            import submitit
        except ImportError as error:
            raise CannotPlace(MISSING) from error
        every = read_nodes(self.ask(_SINFO))
        self._nodes = fitting(every, self.wanted)
        if not any(node.state in ABLE for node in self._nodes.values()):
            there = "; ".join(sorted(node.words() for node in every)[:20]) or "none at all"
            raise CannotPlace(
                "no node of the Slurm cluster can take a lease with"
                f" {self._describe_request()}; it has {there}"
            )
        try:
            self.jobs.mkdir(parents=True, exist_ok=True)
            self._executor = submitit.SlurmExecutor(folder=self.jobs, max_num_timeout=0)
        except (OSError, RuntimeError) as error:
            raise CannotPlace(f"submitit cannot submit from here: {error}") from error

    def _describe_request(self) -> str:
        words = [f"{each.name}={getattr(self.wanted, each.name)}" for each in fields(WantedNodes)]
        return ", ".join(word for word in words if not word.endswith("="))

    def slots(self) -> Sequence[Slot]:
        """Return idle nodes, and those that measure for this run.

        Without either, busy nodes, for their queues.
        """
        self._look()
        mine = [
            name
            for name, node in self._nodes.items()
            if name in self._out and node.state in ABLE | DRAINING
        ]
        free = [
            name
            for name, node in self._nodes.items()
            if name not in self._out and node.state in FREE
        ]
        able = [name for name, node in self._nodes.items() if node.state in ABLE]
        return [_slot(self._nodes[name]) for name in sorted([*mine, *free] or able)]

    def _look(self) -> None:
        """Ask for nodes, and cancel jobs that wait for a missing one.

        The coordinator reassigns them. Its absence may remain unnoticed, though, until it is back:
        then `finished` reports it.
        """
        now = time.monotonic()
        if now - self._seen_at_s < self.pause_s:
            return
        self._seen_at_s = now
        with suppress(CannotPlace):  # a controller that restarts: assume no change until it answers
            self._nodes = fitting(read_nodes(self.ask(_SINFO)), self.wanted)
        there = {name for name, node in self._nodes.items() if node.state in ABLE | DRAINING}
        for name in self._out.keys() - there:
            self._out[name].job.cancel(check=False)
            self._gone[name] = self._end(name, f"slot {name} is gone")
        self._ended.extend(self._gone.pop(name) for name in self._gone.keys() & there)

    def submit(self, order: LeaseOrder) -> None:
        """Submit a job that can only run on the slot's node.

        Raises `CannotPlace` if Slurm refuses the very first.
        """
        folder = self.folder(order)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._executor.update_parameters(**self._parameters(order))
            words = [*self.command(order, folder)]
            job = self._executor.submit(
                measure_here, words, dict(self.environ), str(self.here), str(folder / LOG)
            )
        except (OSError, RuntimeError) as error:
            reason = f"Slurm refused the job: {' '.join(str(error).split())[:500]}"
            if not self._submitted:
                raise CannotPlace(
                    f"{reason} (asked for {self._describe_request()} on {order.slot})"
                ) from error
            now = time.monotonic()
            self._ended.append(EndedLease(order=order, began_s=now, ended_s=now, reason=reason))
            return
        self._submitted += 1
        self._out[order.slot] = _Out(order=order, job=job, folder=folder)

    def _parameters(self, order: LeaseOrder) -> dict[str, Any]:
        """Return parameters without `srun`: its step would be bound to one of the node's cores."""
        names = [name for name in PASSED_ON if name in self.environ]
        options = {each.name: getattr(self.wanted, each.name) for each in fields(WantedNodes)}
        return {
            **{name: value for name, value in options.items() if value},
            "job_name": f"ci-bench-{order.lease.number}-{order.attempt}",
            "nodes": 1,
            "nodelist": order.slot,
            "exclusive": True,
            "use_srun": False,
            "stderr_to_stdout": True,
            "additional_parameters": {"no_requeue": True, "export": ",".join(names) or "NONE"},
        }

    def finished(self, timeout_s: float) -> Sequence[EndedLease]:
        """Return attempts whose job Slurm doesn't list as living any more."""
        until = time.monotonic() + timeout_s
        while True:
            ended, self._ended = [*self._ended, *self._over()], []
            if ended or time.monotonic() >= until:
                return ended
            time.sleep(self.pause_s)

    def _over(self) -> list[EndedLease]:
        if not self._out:
            return []
        try:
            rows = [
                line.strip().split("|")
                for line in self.ask(_SQUEUE).splitlines()
                if line.count("|") == 2  # noqa: PLR2004
            ]
        except CannotPlace:  # unknown: asked again
            return []
        states = {number: (state, why) for number, state, why in rows}
        verdicts = [
            (name, self._verdict(out, *states.get(str(out.job.job_id), ("", ""))))
            for name, out in self._out.items()
        ]
        return [self._end(name, reason) for name, reason in verdicts if reason is not None]

    def _verdict(self, out: _Out, state: str, why: str) -> str | None:
        """Return the reason if a job failed, or an empty word if it did not.

        `None` if that isn't known yet.
        """
        now = time.monotonic()
        if out.began_s is None and (out.folder / LOG).exists():
            out.began_s = now
        if state == "PENDING" and why in NEVER:
            out.job.cancel(check=False)
            return f"Slurm never starts job {out.job.job_id} on {out.order.slot}: {why}"
        if state in LIVING:
            return None
        if all((out.folder / name).exists() for name in DOCUMENTS):
            return ""
        out.missing_since_s = out.missing_since_s or now
        if state in {"", "COMPLETED"} and now - out.missing_since_s < self.patience_s:
            return None
        status = f"{state} ({why})" if state else "not known any more"
        return (
            f"Slurm says of job {out.job.job_id} on {out.order.slot}: {status};"
            f" {tail(out.folder / LOG)}"
        )

    def _end(self, name: str, reason: str) -> EndedLease:
        """Return the end of a job; its time in Slurm's queue is not time of the node."""
        out, now = self._out.pop(name), time.monotonic()
        began_s = now if out.began_s is None else out.began_s
        return EndedLease(
            order=out.order,
            began_s=began_s,
            ended_s=now,
            folder=None if reason else out.folder,
            reason=reason,
        )

    def close(self) -> None:
        """Cancel all jobs."""
        for out in self._out.values():
            with suppress(OSError):
                out.job.cancel(check=False)
        self._out.clear()


def _slot(node: SlurmNode) -> Slot:
    labels = {
        "node": node.name,
        "partition": node.partition,
        "features": ",".join(node.features),
        "gres": node.gres,
    }
    return Slot(name=node.name, labels={name: value for name, value in labels.items() if value})
