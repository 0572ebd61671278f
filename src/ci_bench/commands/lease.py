"""One lease of a fleet, on its node: of prepared sides, or of a bundle that is prepared here.

Unpacking a bundle and set-up happen once on a node for all leases of the same sources
(`checkouts.depot`). Code of the tree always runs in a separate process, in the checkout from the
bundle.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ci_bench
from ci_bench.checkouts.bundled import ID, Sources, Unbundled, opened, unbundle
from ci_bench.checkouts.depot import depot_folder, place_of
from ci_bench.checkouts.paired import are_ready
from ci_bench.command_line.settings import Leasing
from ci_bench.commands.inputs import asked
from ci_bench.commands.loading import benchmark_paths
from ci_bench.commands.measuring import Measurement
from ci_bench.commands.own_suites import load_with_suites
from ci_bench.commands.preparing import open_sides, plan_base_of, planning_sealed
from ci_bench.errors import BadInput, BadSources, ExitCode
from ci_bench.fleet.caging import RESULTS, Cage, gpus_of, take_documents
from ci_bench.fleet.local import STARTER, started_by_us
from ci_bench.host.lock import DEFAULT_FOLDER
from ci_bench.processes.descendants import ending_with
from ci_bench.records.config import Sampling
from ci_bench.records.results import Lease, Status
from ci_bench.runner import planning

PREPARED = "prepared"
GRACE_S = 10.0
MADE = {int(ExitCode.OK), int(ExitCode.MEASURING_FAILED)}
"""Exit codes of a set-up that left sides, or the reason for their failure."""


def lease(settings: Leasing) -> int:
    """Measure one launch of the named cases on both sides, and write the documents.

    It ends with its parent: no one would read its results, and the next lease of its device would
    wait.
    """
    read_lease(settings.lease)
    if settings.prepared is None and settings.sources is None:
        raise BadInput(
            "lease: pass both sides, as --prepared DIR or as --sources FILE with --sha256 and"
            " --commit"
        )
    with ending_with(settings.environ.get(STARTER)):
        return (
            _measure(settings)
            if settings.sources is None
            else _make_and_measure(settings, settings.sources)
        )


def _measure(settings: Leasing) -> int:
    """Measure on prepared sides."""
    with planning_sealed(settings):
        config, find = load_with_suites(settings)
        plan = planning.plan(config, settings.filter, find)
    once = replace(config, run=replace(config.run, sampling=Sampling.FIXED, launches=1))
    bench = Measurement(
        config=once,
        plan=plan,
        output=settings.output,
        reproduce=("ci-bench", "run"),
        environ=settings.environ,
        asked=asked(settings, config),
        lease=read_lease(settings.lease),
    )
    with open_sides(config, settings, [case for _, case in plan]) as pair:
        bench = replace(bench, base_plan=plan_base_of(bench, settings, pair.sides))
        results = bench.measure(pair.sides, seal=pair.seal)
    complete = all(
        row.status in {Status.OK, Status.SKIPPED} for side in results.values() for row in side.cases
    )
    return int(ExitCode.OK if complete else ExitCode.MEASURING_FAILED)


def read_lease(text: str) -> Lease:
    """Parse ``RUN/NUMBER/ATTEMPT``. Raises `BadInput`."""
    match = re.fullmatch(r"([A-Za-z0-9_.:+-]{1,100})/([0-9]{1,8})/([1-9][0-9]{0,2})", text)
    if match is None:
        raise BadInput(
            f"--lease {text}: a run's id, the lease's number and the attempt, as 4f0c/12/1"
        )
    return Lease(run=match[1], number=int(match[2]), attempt=int(match[3]))


def _make_and_measure(settings: Leasing, file: Path) -> int:
    """Measure on sides of a bundle, which this or another lease of this node prepares.

    Raises `BadSources`.
    """
    sources = Sources(file=file, sha256=settings.sha256, commit=settings.commit)
    if not ID.fullmatch(sources.commit):
        raise BadSources(
            f"--commit {sources.commit}: a full commit id, as `gate --fleet` hands out"
        )
    maker = _SidesMaker(settings=settings, sources=sources)
    with place_of(
        _key(sources, settings.image), depot_folder(settings.environ), maker.make
    ) as place:
        checkout = opened(sources, place, settings.environ)
        words = (
            "fleet",
            "lease",
            *benchmark_paths(settings),
            *maker.sides(place, checkout),
            *maker.own(),
        )
        code = maker.start(*words, place=place, here=checkout.here)
    maker.take()
    return code


def _key(sources: Sources, image: str | None) -> str:
    """Return the key of prepared sources.

    It contains the engine, which an environment of a side links to.
    """
    engine = (
        image or f"{ci_bench.__version__}\n{Path(ci_bench.__file__).resolve()}\n{sys.executable}"
    )
    return f"{sources.commit}-{hashlib.sha256(engine.encode()).hexdigest()[:12]}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process, and kill it only after a grace period: it has workers to end."""
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass(frozen=True, kw_only=True, slots=True)
class _SidesMaker:
    """Runs our commands on the sources of a lease: as processes of this user, or caged."""

    settings: Leasing
    sources: Sources

    def make(self, place: Path) -> bool:
        """Unpack the sources and prepare both sides; return whether both are ready.

        The next lease tries again if set-up failed.
        """
        checkout = unbundle(self.sources, place, self.settings.environ)
        (place / PREPARED).mkdir()
        code = self.start(
            "setup",
            *self.sides(place, checkout),
            "--output",
            self.output,
            place=place,
            here=checkout.here,
        )
        if code not in MADE:
            raise BadSources(
                f"{self.sources.file}: set-up of its sources ended with exit code {code}; see above"
            )
        return are_ready(place / PREPARED)

    def sides(self, place: Path, checkout: Unbundled) -> Sequence[str]:
        """Return the flags that name both sides. Base is named by its commit."""
        config = ("--config", str(checkout.config)) if checkout.config is not None else ()
        return ("--prepared", str(place / PREPARED), "--base", checkout.base, *config)

    @property
    def output(self) -> str:
        """The lease's folder for documents, as the started process sees it."""
        return RESULTS if self.settings.image else str(self.settings.output.resolve())

    def own(self) -> list[str]:
        """Return the flags of this lease. A container has only its lease's GPU."""
        device = self.settings.device
        options = {
            "--output": self.output,
            "--lease": self.settings.lease,
            "--device": device.partition(":")[0] if device and self.settings.image else device,
        }
        flags = [
            part
            for flag, value in options.items()
            if value is not None
            for part in (flag, str(value))
        ]
        return [*flags, *(part for text in self.settings.filter for part in ("--filter", text))]

    def start(self, *words: str, place: Path, here: Path) -> int:
        """Run a ci-bench command in the checkout, and end it with this process.

        The checkout's own modules are not imported.
        """
        if self.settings.image:
            return self._cage(self.settings.image, place).run(words, here=here)
        command = [sys.executable, "-P", "-m", "ci_bench.cli", *words]
        environ = started_by_us(self.settings.environ)
        process = subprocess.Popen(command, cwd=here, env=environ, stdin=subprocess.DEVNULL)
        try:
            code = process.wait()
        finally:
            if process.poll() is None:
                _end(process)
        return code if code >= 0 else 128 - code

    def take(self) -> None:
        """Copy the documents out of the folder that the container could write to.

        The lease's own log isn't in there.
        """
        if self.settings.image:
            take_documents(self._results(), self.settings.output.resolve())

    def _results(self) -> Path:
        folder = self.settings.output.resolve() / "caged"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _cage(self, image: str, place: Path) -> Cage:
        environ = self.settings.environ
        locks = Path(environ.get("CI_BENCH_LOCKS") or DEFAULT_FOLDER)
        if not locks.is_dir():
            locks.mkdir(parents=True)
            locks.chmod(0o1777)  # sticky: no user can remove another's
        return Cage(
            image=image,
            place=place,
            prepared=place / PREPARED,
            results=self._results(),
            locks=locks,
            gpus=gpus_of(self.settings.device, environ),
            name=f"ci-bench-{re.sub('[^A-Za-z0-9_.-]', '-', self.settings.lease)}",
            environ=environ,
        )
