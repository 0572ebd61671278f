"""Commands of a fleet: measure a gate in leases, list slots, release them.

`leasing` runs one lease.
"""

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ci_bench.checkouts.bundled import NAME, Sources, make_bundle
from ci_bench.checkouts.sides import Side
from ci_bench.checkouts.worktrees import WantedTrees
from ci_bench.command_line.settings import Looking, Measuring
from ci_bench.commands.config_files import config_path
from ci_bench.commands.inputs import asked
from ci_bench.commands.loading import benchmark_paths
from ci_bench.commands.measuring import Measurement
from ci_bench.commands.merge import read_pair
from ci_bench.commands.output import say, tell
from ci_bench.commands.own_suites import load_with_suites
from ci_bench.commands.preparing import planning_sealed, plans_by_the_tree
from ci_bench.configuration.config import QUICKSTART, embedded_file
from ci_bench.errors import BadDocument, BadInput, CannotPlace, ExitCode
from ci_bench.fleet.caging import BY_DIGEST, DIGEST
from ci_bench.fleet.coordinator import Coordinator, EarlierLeases, Limits, Standing
from ci_bench.fleet.journal import FileJournal
from ci_bench.fleet.local import LocalEngine
from ci_bench.fleet.protocol import EVERY, Engine, LeaseOrder, Slot
from ci_bench.fleet.ray_core import RayEngine
from ci_bench.fleet.session import Session, launches_s
from ci_bench.fleet.slurm import SlurmEngine, read_wanted
from ci_bench.fleet.trial import try_slots
from ci_bench.judge.times.sequential import rule_of
from ci_bench.processes.environ import worker_environment
from ci_bench.records import documents
from ci_bench.records.config import Config
from ci_bench.records.documents import RESULTS, place
from ci_bench.records.results import CaseResult, Results, Run, RunState, SideName
from ci_bench.runner import planning
from ci_bench.runner.ledger import Ledger
from ci_bench.runner.noise_floor import NoiseFolder

FOLDER, TRIAL = "fleet", "fleet-trial"
TEST_S = 3600.0
"""Seconds that `fleet test` waits for its leases."""
OF_ENGINES = ("RAY_", "SLURM_", "SBATCH_", "SUBMITIT_")
"""Variables that lead to an engine, or describe the job that hands leases out."""
START_S = 20.0
"""Assumed overhead of a lease (s): processes start, torch is imported."""


def fleet(settings: Looking) -> int:
    """List the slots, measure a case on each of them, or drain some."""
    if settings.action == "drain":
        return _drain(settings)
    home = settings.output.resolve() / TRIAL
    journal = FileJournal(file=home / "journal.jsonl", leases=home / "leases")
    if settings.action == "status":
        return _status(settings, journal)
    with alone(settings):
        return _test(settings, journal)


def _drain(settings: Looking) -> int:
    """Drain these slots: running leases finish and count, new ones do not start."""
    journal = _journal(settings.output)
    if not journal.file.exists():
        raise BadInput(f"{journal.file} not found; pass the --output folder of a fleet gate")
    names = journal.slots() if settings.slot else ()
    slots = {*names, *(name.partition("/")[0] for name in names)}
    if unknown := [slot for slot in settings.slot if slot not in slots]:
        there = ", ".join(sorted(names)) or "none so far"
        raise BadInput(
            f"{unknown[0]}: this gate had no lease on that slot; its leases were on {there}"
        )
    journal.drain(settings.slot or [EVERY])
    which = ", ".join(settings.slot) if settings.slot else "all slots"
    say(
        f"no further lease on {which}; running leases"
        f" finish{'' if settings.slot else ', and --resume continues'}\n"
    )
    return int(ExitCode.OK)


def _journal(output: Path) -> FileJournal:
    home = output.resolve() / FOLDER
    return FileJournal(file=home / "journal.jsonl", leases=home / "leases")


def _status(settings: Looking, journal: FileJournal) -> int:
    nothing = Run(
        id="status",
        started_at="",
        state=RunState.PARTIAL,
        config_digest="",
        device=settings.device or "auto",
    )
    engine = open_engine(settings, nothing, journal)
    try:
        slots = engine.slots()
    finally:
        engine.close()
    if not slots:
        raise CannotPlace(f"--fleet {settings.fleet}: the fleet has no slot")
    for slot in slots:
        say(f"{_line(slot)}\n")
    say(f"{len(slots)} slot(s)\n")
    return int(ExitCode.OK)


def _line(slot: Slot) -> str:
    labels = ", ".join(f"{name}={value}" for name, value in sorted(slot.labels.items()))
    return f"{slot.name} ({labels})" if labels else slot.name


def _test(settings: Looking, journal: FileJournal) -> int:
    """Measure the first planned case in one lease on each slot."""
    import shutil

    with planning_sealed(settings):
        config, find = load_with_suites(settings)
        plan = planning.plan(config, settings.filter, find)
    shutil.rmtree(journal.leases, ignore_errors=True)
    check_cage(settings, config)
    run = planning.start(config, flags=asked(settings, config))
    sources = bundle_sides(config, settings)[1] if settings.prepared is None else None
    engine = open_engine(settings, run, journal, sources)
    case = plan[0][1].id
    tell(f"measuring {case} on every slot")
    try:
        tried = try_slots(
            engine, case, run=run.id, read=read_pair, clock=time.monotonic, limit_s=TEST_S
        )
    finally:
        engine.close()
    for each in tried:
        say(
            f"{_line(each.slot)}:"
            f" {each.trouble or f'can measure; its lease took {each.took_s:.0f} s'}\n"
        )
    sound = [each for each in tried if not each.trouble]
    say(f"{len(sound)} of {len(tried)} slot(s) can measure one gate\n")
    for name, value in sorted(sound[0].identity.items()) if sound else ():
        say(f"  {name}: {value}\n")
    return int(ExitCode.OK if len(sound) == len(tried) else ExitCode.MEASURING_FAILED)


@contextmanager
def alone(settings: Measuring) -> Iterator[None]:
    """Hold the output folder of a gate on a fleet; without a fleet nothing is held.

    The bundle that is sent to nodes is in that folder.

    Raises:
        BadInput: another gate measures with it.
        CannotWrite: it cannot be written.
    """
    with _journal(settings.output).held() if settings.fleet is not None else nullcontext():
        yield


def bundle_sides(config: Config, settings: Measuring) -> tuple[Sequence[Side], Sources]:
    """Return both sides by their commits, and the git bundle for nodes, in the output folder.

    Raises:
        BadCheckout: the checkout is missing, or cannot be sent in its present state.
        NoBase: the base cannot be determined, or is not in this clone.
    """
    base, output = settings.base or config.base, settings.output
    request = WantedTrees(
        repository=settings.here,
        base=base,
        setup=config.setup,
        environ=settings.environ,
        leave_out=(output,),
    )
    path = config_path(settings)
    config_file = embedded_file() if path == QUICKSTART else path
    sources, sides = make_bundle(request, output.resolve() / FOLDER / NAME, config=config_file)
    tell(f"base is {sides[SideName.BASE].chosen_by}, commit {sides[SideName.BASE].commit}")
    tell(
        f"nodes get {sources.file.stat().st_size / 1e6:,.1f} MB of sources, SHA-256"
        f" {sources.sha256}"
    )
    return [Side(name=name, environ={}, source=source) for name, source in sides.items()], sources


def measure_on_fleet(
    bench: Measurement,
    settings: Measuring,
    sides: Sequence[Side],
    noise: NoiseFolder | None,
    *,
    sources: Sources | None = None,
) -> Mapping[SideName, Results]:
    """Measure all cases of a gate in leases, and write both documents.

    Without prepared sides nodes get the `sources`.

    Raises:
        BadInput: the fleet, or a label, is misspelt.
        CannotPlace: no slot can take a lease.
        CannotResume: the interrupted run is of something else.
        CannotWrite: the disk of the output folder is full.
    """
    journal = _journal(bench.output)
    run, earlier = _begin(bench, settings, journal)
    journal.take_up()
    session = Session(
        run=run,
        config=bench.config,
        rule=rule_of(bench.config.run),
        rows=_rows(bench),
        sources={side.name: side.source for side in sides},
        read=read_pair,
        known=lambda identity: noise.find(identity) if noise else None,
        base_rows=bench.base_plan.rows if bench.base_plan else None,
        launch_s=_known_s(bench),
    )
    earlier = session.take_up(earlier) if earlier else None
    engine = open_engine(settings, run, journal, sources)
    coordinator = Coordinator(
        engine=engine,
        looks=session.rule.looks,
        still_open=session.still_open,
        accept=session.accept,
        journal=journal,
        clock=time.monotonic,
        limits=_limits(settings, bench),
        known_s=session.launch_s,
        start_s=START_S,
        watch=session,
        observe=_Display(),
        drained=journal.drained,
    )
    try:
        outcome = coordinator.run([case.id for _, case in bench.plan], earlier=earlier)
    finally:
        engine.close()
    for slot, reason in outcome.aside.items():
        tell(f"{slot} gets no further lease: {reason}")
    for loss in outcome.losses:
        tell(f"lost: lease {loss.lease}, attempt {loss.attempt} on {loss.slot}: {loss.reason}")
    results = session.results(outcome, datetime.now(UTC).isoformat(timespec="seconds"))
    for name, document in results.items():
        documents.write(document, place(bench.output, name))
    return results


def _begin(
    bench: Measurement, settings: Measuring, journal: FileJournal
) -> tuple[Run, EarlierLeases | None]:
    """Return the new run, or the interrupted run that is resumed, with its leases."""
    run = planning.start(bench.config, workflow=bench.workflow, flags=bench.asked)
    if not settings.resume or not journal.file.exists():
        journal.start(run.id, run.started_at)
        return run, None
    number, started_at, earlier = journal.read()
    tell(
        f"resuming the run of {started_at}: {len(earlier.delivered)} lease(s) are measured already"
    )
    return replace(run, id=number, started_at=started_at), earlier


def _rows(bench: Measurement) -> tuple[CaseResult, ...]:
    again = {case.id: shlex.join([*bench.reproduce, "--filter", case.id]) for _, case in bench.plan}
    return tuple(Ledger.open([case for _, case in bench.plan], reproduce=again).rows.values())


def _known_s(bench: Measurement) -> dict[str, float]:
    """Return the seconds of a launch of each case in the previous run, both sides together."""
    from contextlib import suppress

    with suppress(BadDocument):
        return launches_s(documents.read_results(bench.output / RESULTS))
    return {}


def _limits(settings: Measuring, bench: Measurement) -> Limits:
    needs = dict(text.partition("=")[::2] for text in settings.needs)
    if any(not name or not value for name, value in needs.items()):
        raise BadInput("--needs: a label is written NAME=VALUE")
    return Limits(
        wall_s=bench.config.run.budget_s,
        device_s=settings.gpu_seconds,
        needs=needs,
    )


def check_cage(settings: Measuring, config: Config) -> None:
    """Check that leases can run in containers as requested.

    Raises `BadInput`: none of the tree's code may run outside the container.
    """
    if settings.image is None:
        return

    if not DIGEST.fullmatch(settings.image):
        raise BadInput(f"--image {settings.image}: {BY_DIGEST}")
    if settings.fleet is None:
        raise BadInput(
            "--image is for fleet leases: add --fleet ENGINE, or use the action, which has its own"
            " containers"
        )
    if settings.prepared is not None:
        raise BadInput("--image prepares both sides in containers, on each node: omit --prepared")
    if config.setup.network:
        remedy = "include in the image what set-up downloads, and set `setup.network: false`"
        raise BadInput(
            "--image: caged leases have no network, also during set-up, but `setup.network` is"
            f" true; {remedy}"
        )
    if plans_by_the_tree(settings):
        remedy = "omit --image for trusted code, or use only suites that come with ci-bench"
        raise BadInput(
            "--image: some cases are planned by code of the tree, which would run here, outside a"
            f" container; {remedy}"
        )


def open_engine(
    settings: Measuring, run: Run, journal: FileJournal, sources: Sources | None = None
) -> Engine:
    """Open the engine that `--fleet` names; its leases see no secret and nothing of Ray or Slurm.

    Raises:
        BadInput: the fleet's word is misspelt.
        CannotPlace: the fleet can't be reached, or could never take a lease.
    """
    kind, _, rest = (settings.fleet or "").partition(":")
    command = lease_command(settings, run, sources)
    visible = worker_environment(settings.environ)
    environ = {name: value for name, value in visible.items() if not name.startswith(OF_ENGINES)}
    if kind == "local":
        devices = [name.strip() for name in rest.split(",") if name.strip()] or [
            settings.device or "auto"
        ]
        return LocalEngine(
            devices=devices,
            command=command,
            folder=journal.folder,
            environ=environ,
            here=settings.here,
        )
    if kind == "ray":
        device = settings.device or "auto"
        cluster = RayEngine(
            address=rest,
            device=device,
            command=command,
            folder=journal.folder,
            environ=environ,
            here=settings.here,
            cargo=sources.file if sources is not None else None,
        )
        cluster.open()
        return cluster
    if kind == "slurm":
        jobs = SlurmEngine(
            wanted=read_wanted(rest),
            command=command,
            folder=journal.folder,
            environ=environ,
            here=settings.here if sources is None else sources.file.parent,
            jobs=journal.leases.parent / "slurm",
        )
        jobs.open()
        return jobs
    raise BadInput(
        f"--fleet {settings.fleet}: choose from local, local:DEVICE,…, ray, ray:ADDRESS, slurm and"
        " slurm:NAME=VALUE,…"
    )


def _config_of(settings: Measuring) -> Path | None:
    """Return the named configuration, for a process in another folder."""
    path = settings.config
    return path if path in {None, QUICKSTART} else path.resolve()


def lease_command(
    settings: Measuring, run: Run, sources: Sources | None = None
) -> Callable[[LeaseOrder, Path], Sequence[str]]:
    """Return the function that makes the command of an attempt.

    On this machine a slot's name is the device; elsewhere the slot shows only one device.

    With `sources`, the configuration and the name of base are in them. Ray puts the file into the
    lease's folder.
    """
    kind = (settings.fleet or "").partition(":")[0]
    elsewhere = kind != "local"
    options = {
        "--config": _config_of(settings) if sources is None else None,
        "--base": settings.base if sources is None else None,
        "--prepared": settings.prepared and settings.prepared.resolve(),
        "--sha256": sources and sources.sha256,
        "--commit": sources and sources.commit,
        "--image": settings.image,
    }
    flags = [
        part for flag, value in options.items() if value is not None for part in (flag, str(value))
    ]

    def command(order: LeaseOrder, folder: Path) -> Sequence[str]:
        cases = [part for case in order.lease.cases for part in ("--filter", case)]
        if sources is not None:
            cases += [
                "--sources",
                str(folder / sources.file.name if kind == "ray" else sources.file),
            ]
        which = f"{run.id}/{order.lease.number}/{order.attempt}"
        lease_flags = [
            "--output",
            str(folder),
            "--lease",
            which,
            "--device",
            (settings.device or "auto") if elsewhere else order.slot,
        ]
        return [
            sys.executable,
            "-P",
            "-m",
            "ci_bench.cli",
            "fleet",
            "lease",
            *benchmark_paths(settings),
            *flags,
            *lease_flags,
            *cases,
        ]

    return command


class _Display:
    """Prints a line after leases have ended, at most every few seconds."""

    def __init__(self) -> None:
        self._last_s = 0.0

    def __call__(self, standing: Standing) -> None:
        """Print the standing after a lease, unless a line was just printed."""
        now = time.monotonic()
        if now - self._last_s < 5.0:  # noqa: PLR2004 - seconds between two lines
            return
        self._last_s = now
        tell(
            f"fleet: {standing.slots} slot(s), {standing.done} lease(s) done, {standing.out} out,"
            f" {standing.waiting} waiting, {standing.lost} lost; {standing.open_cases} case(s)"
            f" open; about {standing.left_s:.0f} s left of this round"
        )
