"""The device of a run: held before anything touches it, checked, and watched."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci_bench.host.devices import configured_key, keys_of_ranks, refusal
from ci_bench.host.gpus.protocol import Cards
from ci_bench.host.lock import DEFAULT_FOLDER, cpu_key, device_key, device_lock
from ci_bench.host.monitor import Monitor, open_monitor
from ci_bench.records.config import RunOptions
from ci_bench.records.results import Environment
from ci_bench.runner.noise_floor import NoiseFolder


@dataclass(kw_only=True, slots=True)
class Device:
    """Device of one run: held from before anything touches it, checked, and watched."""

    options: RunOptions
    """Options of the run, the configured device among them."""
    on_gpu: bool
    """True if the plan computes with torch."""
    environ: Mapping[str, str]
    """Environment of the caller."""
    gpus: tuple[Cards, ...]
    """GPUs of this machine, by vendor."""
    say: Callable[[str], None]
    """Prints a message about waiting."""
    calibrations: NoiseFolder | None = None
    """Learned noise of machines, checked before measuring; `None` if it is not needed."""
    processes: int = 1
    """Largest number of processes of a case, each of which takes one GPU."""
    held: frozenset[str] = frozenset()
    """Keys of the locks that are held."""

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the configured device and those of all ranks, as far as the parent can know them.

        Raises:
            DeviceBusy: another run measures on it, for longer than `run.lock_timeout_s`.
        """
        key = configured_key(self.options.device, self.gpus, self.environ, on_gpu=self.on_gpu)
        shared = (
            ()
            if key == cpu_key()
            else keys_of_ranks(self.gpus, self.environ, processes=self.processes)
        )
        with ExitStack() as stack:
            # Sorted: without a common order, two runs could wait for each other.
            for lock_key in sorted({*shared, *([key] if key else [])}):
                stack.enter_context(self._lock(lock_key))
                self.held |= {lock_key}
            yield

    def refuse(self, environment: Environment) -> str:
        """Explain why the machine seen by a worker is not the requested one.

        Raises:
            BadDocument: its calibration cannot be read, which would only show after measuring.
        """
        if self.calibrations is not None:
            self.calibrations.find(environment.identity)
        required = self.environ.get("CI_BENCH_REQUIRE_DEVICE", "")
        return refusal(
            environment, self.gpus, self.environ, device=self.options.device, required=required
        )

    def watch(self, environment: Environment) -> Monitor:
        """Return a monitor of the machine that a worker has seen, and hold its device.

        It replaces any earlier device.

        Raises:
            DeviceBusy: another run measures on it, for longer than `run.lock_timeout_s`.
        """
        with ExitStack() as stack:
            key = device_key(environment, self.gpus)
            if key not in self.held:
                stack.enter_context(self._lock(key))
            uuid = environment.condition.get("gpu_uuid")
            monitor = open_monitor(
                str(environment.identity.get("device")), uuid if isinstance(uuid, str) else None
            )
            return monitor.holding(stack.pop_all())

    def _lock(self, key: str) -> AbstractContextManager[None]:
        folder = Path(self.environ.get("CI_BENCH_LOCKS") or DEFAULT_FOLDER)
        return device_lock(
            key, folder=folder, limit_s=self.options.lock_timeout_s, run=self._name(), say=self.say
        )

    def _name(self) -> str:
        """Return this run's name for processes that wait for it.

        A process id would not do: it differs in a container.
        """
        repository, number = (
            self.environ.get("GITHUB_REPOSITORY"),
            self.environ.get("GITHUB_RUN_ID"),
        )
        return self.environ.get("CI_BENCH_RUN") or (
            f"{repository} run {number}" if repository and number else ""
        )
