"""The engine of a Ray cluster: a task for each lease, bound to one GPU (or CPU) of one node.

Needs the extra `ray`. Ray places leases, and reports lost nodes. It never runs a lease twice, since
a loss has to be evidence. A label that no node has would wait for ever in Ray, so the coordinator
looks first. Exclusivity is Ray's book-keeping: the lock on the device (`host.lock`) holds besides.
Documents come back as bytes, so nodes need no shared folder for them, and are read as a stranger's.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci_bench.errors import CannotPlace, CannotWrite
from ci_bench.fleet.local import DOCUMENTS, LOG, Command, run_logged, tail
from ci_bench.fleet.protocol import EndedLease, LeaseOrder, Slot

MAX_BYTES = 25_000_000
MISSING = "Ray is not installed here: pip install 'ci-bench[ray]'"
_SHORT = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Brought:
    """The result of a lease from its node: documents by name, or the reason for their absence."""

    documents: Mapping[str, bytes]
    reason: str = ""


def measure_here(
    command: Sequence[str],
    environ: Mapping[str, str],
    here: str,
    cargo: Mapping[str, bytes] | None = None,
) -> Brought:
    """Run the command on the node, with its own folder that is removed.

    ``{folder}`` in it is that folder. The files in `cargo`, by name, are put in there, and then the
    command starts there, too.
    """
    import os

    gpus = {name: value for name, value in os.environ.items() if name.endswith("VISIBLE_DEVICES")}
    with tempfile.TemporaryDirectory(prefix="ci-bench-lease-") as folder:
        words = [word.replace("{folder}", folder) for word in command]
        for name, content in (cargo or {}).items():
            (Path(folder) / name).write_bytes(content)
        start = Path(folder if cargo else here)
        code = run_logged(words, environ={**environ, **gpus}, here=start, log=Path(folder) / LOG)
        paths = {name: Path(folder) / name for name in DOCUMENTS}
        there = {
            name: path.read_bytes()
            for name, path in paths.items()
            if path.exists() and path.stat().st_size <= MAX_BYTES
        }
        return Brought(
            documents=there if len(there) == len(DOCUMENTS) else {},
            reason=(
                ""
                if len(there) == len(DOCUMENTS)
                else f"exit code {code}: {tail(Path(folder) / LOG)}"
            ),
        )


@dataclass(kw_only=True, slots=True)
class RayEngine:
    """The engine of a Ray cluster.

    Each node has a slot for each of its GPUs, or, with the device `cpu`, one slot.
    """

    address: str
    """Address of a cluster (``ray://…``, ``host:6379``); empty for one on this machine."""
    device: str
    """Device of the slots: ``cpu``, or GPUs for any other word."""
    command: Command
    """Returns the command of an attempt."""
    folder: Any
    """Returns the local folder of an attempt's documents."""
    environ: Mapping[str, str]
    """Environment of the leases."""
    here: Path
    """Folder of the tree, at the same path on each node unless there is a `cargo`."""
    cargo: Path | None = None
    """File that nodes get once each; `None` if they have the tree and the prepared sides."""
    _ray: Any = None
    """Module `ray`; `None` before `open`."""
    _cargo: Any = None
    """Ray's reference to the cargo; `None` without one."""
    _out: dict[Any, tuple[LeaseOrder, float]] = field(default_factory=dict)
    """Attempts in progress and their start (s), by Ray's reference."""
    _seen_at_s: float = -1e9
    """Time of the last look at the nodes (s)."""
    _slots: list[Slot] = field(default_factory=list)
    """Slots at the last look."""
    _dead: set[str] = field(default_factory=set)
    """Ids of nodes that died."""

    def open(self) -> None:
        """Join the cluster, or start one here. Raises `CannotPlace`."""
        try:
            import ray
        except ImportError as error:
            raise CannotPlace(MISSING) from error
        self._ray = ray
        try:
            ray.init(
                address=self.address or None,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise CannotPlace(
                f"the Ray cluster at {self.address or 'this machine'} can't be joined: {error}"
            ) from error
        if self.cargo is not None:
            self._cargo = ray.put({self.cargo.name: self.cargo.read_bytes()})

    def slots(self) -> Sequence[Slot]:
        """Return the GPUs of the living nodes, looked up once a second at most."""
        now = time.monotonic()
        if now - self._seen_at_s > 1.0:
            self._seen_at_s = now
            alive = [
                node
                for node in self._ray.nodes()
                if node["Alive"] and node["NodeID"] not in self._dead
            ]
            self._slots = [slot for node in alive for slot in self._of_node(node)]
        return self._slots

    def _of_node(self, node: Mapping[str, Any]) -> Sequence[Slot]:
        labels = {str(name): str(value) for name, value in node.get("Labels", {}).items()}
        labels["node"] = str(node.get("NodeName") or node["NodeManagerAddress"])
        count = 1 if self.device == "cpu" else int(node["Resources"].get("GPU", 0))
        return [Slot(name=f"{node['NodeID']}/{number}", labels=labels) for number in range(count)]

    def submit(self, order: LeaseOrder) -> None:
        """Submit a task that can only run on the slot's node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = order.slot.partition("/")[0]
        wants = {"num_cpus": 1} if self.device == "cpu" else {"num_gpus": 1, "num_cpus": 0}
        task = self._ray.remote(measure_here).options(
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
            **wants,
        )
        words = self.command(order, Path("{folder}"))
        reference = task.remote([*words], dict(self.environ), str(self.here), self._cargo)
        self._out[reference] = order, time.monotonic()

    def finished(self, timeout_s: float) -> Sequence[EndedLease]:
        """Return attempts whose task is done, or lost with its node."""
        if not self._out:
            time.sleep(timeout_s)
            return []
        ready, _ = self._ray.wait([*self._out], num_returns=1, timeout=timeout_s)
        return [self._ended(reference) for reference in ready]

    def _ended(self, reference: Any) -> EndedLease:
        order, began_s = self._out.pop(reference)
        try:
            brought: Brought = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
            if isinstance(
                error,
                (self._ray.exceptions.NodeDiedError, self._ray.exceptions.TaskUnschedulableError),
            ):
                self._bury(order.slot.partition("/")[0])
            return EndedLease(order=order, began_s=began_s, ended_s=time.monotonic(), reason=reason)
        folder = self.folder(order)
        try:
            for name in DOCUMENTS if brought.documents else ():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(brought.documents[name])
        except OSError as error:  # it is the disk of this machine, and no slot's
            raise CannotWrite(
                f"{folder}: cannot be written: {error.strerror or error}; continue with --resume"
            ) from error
        return EndedLease(
            order=order,
            began_s=began_s,
            ended_s=time.monotonic(),
            folder=folder if brought.documents else None,
            reason=brought.reason,
        )

    def _bury(self, node: str) -> None:
        """Mark a node as dead.

        Ray lists a dead one as alive for a while, and every lease is lost there immediately. A node
        that comes back has a new id.
        """
        self._dead.add(node)
        self._seen_at_s = -1e9

    def close(self) -> None:
        """Cancel all tasks, and leave the cluster."""
        for reference in self._out:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
        self._ray.shutdown()
