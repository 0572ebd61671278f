"""The commands of a fleet: measuring a gate in leases, and one lease by itself."""

import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.commands.bench import Bench
from ci_bench.commands.inputs import asked, load_with_suites
from ci_bench.commands.merging import read_pair
from ci_bench.commands.output import say, tell
from ci_bench.errors import BadInput, ExitCode
from ci_bench.settings import Leasing, Looking, Measuring

if TYPE_CHECKING:
    from ci_bench.engine.trees.sides import Side
    from ci_bench.fleet.coordinator import Earlier, Limits, Standing
    from ci_bench.fleet.journal import FileJournal
    from ci_bench.fleet.protocol import Engine, Order, Slot
    from ci_bench.noise_floor import NoiseFolder
    from ci_bench.records.results import CaseResult, Lease, Results, Run, SideName

FOLDER, TRIAL = "fleet", "fleet-trial"
TEST_S = 3600.0
"""How long `fleet test` waits for its leases."""
OF_ENGINES = ("RAY_", "SLURM_", "SBATCH_", "SUBMITIT_")
"""Variables that lead to an engine, or describe the job that hands leases out."""
START_S = 20.0
"""What a lease is taken to last besides its cases: processes start, torch is imported."""


def lease(settings: Leasing) -> int:
    """Measure one launch of the cases that are named, on both prepared sides, and write the documents.

    It ends with whoever started it: nobody would read what it measures, and the next lease of its device would wait.
    """
    from ci_bench import planning
    from ci_bench.commands.preparing import open_sides, planning_sealed
    from ci_bench.engine.process.descendants import ending_with
    from ci_bench.fleet.local import STARTER
    from ci_bench.records.config import Sampling
    from ci_bench.records.results import Status

    ours = read_lease(settings.lease)
    with planning_sealed(settings):
        config, find = load_with_suites(settings)
        plan = planning.plan(config, settings.filter, find)
    once = replace(config, run=replace(config.run, sampling=Sampling.FIXED, launches=1))
    bench = Bench(
        config=once,
        plan=plan,
        output=settings.output,
        reproduce=("ci-bench", "run"),
        environ=settings.environ,
        asked=asked(settings, config),
        lease=ours,
    )
    with ending_with(settings.environ.get(STARTER)), open_sides(config, settings, [case for _, case in plan]) as pair:
        results = bench.measure(pair.sides, seal=pair.seal)
    whole = all(row.status in {Status.OK, Status.SKIPPED} for side in results.values() for row in side.cases)
    return int(ExitCode.OK if whole else ExitCode.MEASURING_FAILED)


def fleet(settings: Looking) -> int:
    """Say which slots there are, have each of them measure a case, or have a gate leave some."""
    from ci_bench.fleet.journal import FileJournal

    if settings.action == "drain":
        return _drain(settings)
    home = settings.output.resolve() / TRIAL
    journal = FileJournal(file=home / "journal.jsonl", leases=home / "leases")
    return (_test if settings.action == "test" else _status)(settings, journal)


def _drain(settings: Looking) -> int:
    """What measures goes to its end, and counts; nothing begins on these slots any more."""
    from ci_bench.fleet.protocol import EVERY

    journal = _journal(settings.output)
    if not journal.file.exists():
        raise BadInput(f"{journal.file}: is not there: --output DIR is the folder of a gate that measures on a fleet")
    names = journal.slots() if settings.slot else ()
    known = {*names, *(name.partition("/")[0] for name in names)}
    if unknown := [slot for slot in settings.slot if slot not in known]:
        there = ", ".join(sorted(names)) or "none so far"
        raise BadInput(f"{unknown[0]}: no lease of this gate was on such a slot; there were leases on {there}")
    journal.drain(settings.slot or [EVERY])
    which = ", ".join(settings.slot) if settings.slot else "all slots"
    say(f"no further lease on {which}; what is out goes to its end{'' if settings.slot else ', and --resume goes on'}\n")
    return int(ExitCode.OK)


def _journal(output: Path) -> "FileJournal":
    from ci_bench.fleet.journal import FileJournal

    home = output.resolve() / FOLDER
    return FileJournal(file=home / "journal.jsonl", leases=home / "leases")


def _status(settings: Looking, journal: "FileJournal") -> int:
    from ci_bench.errors import CannotPlace
    from ci_bench.records.results import Run, RunState

    nothing = Run(id="status", started_at="", state=RunState.PARTIAL, config_digest="", device=settings.device or "auto")
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


def _line(slot: "Slot") -> str:
    labels = ", ".join(f"{name}={value}" for name, value in sorted(slot.labels.items()))
    return f"{slot.name} ({labels})" if labels else slot.name


def _test(settings: Looking, journal: "FileJournal") -> int:
    """One lease on each slot, of the first case that is planned."""
    import shutil

    from ci_bench import planning
    from ci_bench.commands.preparing import planning_sealed
    from ci_bench.fleet.trial import try_slots

    with planning_sealed(settings):
        config, find = load_with_suites(settings)
        plan = planning.plan(config, settings.filter, find)
    shutil.rmtree(journal.leases, ignore_errors=True)
    run = planning.start(config, asked=asked(settings, config))
    engine = open_engine(settings, run, journal)
    case = plan[0][1].id
    tell(f"measuring {case} on every slot")
    try:
        tried = try_slots(engine, case, run=run.id, read=read_pair, clock=time.monotonic, limit_s=TEST_S)
    finally:
        engine.close()
    for each in tried:
        say(f"{_line(each.slot)}: {each.trouble or f'can measure; its lease took {each.took_s:.0f} s'}\n")
    sound = [each for each in tried if not each.trouble]
    say(f"{len(sound)} of {len(tried)} slot(s) can measure one gate\n")
    for name, value in sorted(sound[0].identity.items()) if sound else ():
        say(f"  {name}: {value}\n")
    return int(ExitCode.OK if len(sound) == len(tried) else ExitCode.MEASURING_FAILED)


def read_lease(text: str) -> "Lease":
    """``RUN/NUMBER/ATTEMPT``. Raises `BadInput`."""
    from ci_bench.records.results import Lease

    found = re.fullmatch(r"([A-Za-z0-9_.:+-]{1,100})/([0-9]{1,8})/([1-9][0-9]{0,2})", text)
    if found is None:
        raise BadInput(f"--lease {text}: a run's id, the lease's number and the attempt, as 4f0c/12/1")
    return Lease(run=found[1], number=int(found[2]), attempt=int(found[3]))


def measure_on_fleet(
    bench: Bench, settings: Measuring, sides: Sequence["Side"], noise: "NoiseFolder | None"
) -> Mapping["SideName", "Results"]:
    """Measure all cases of a gate in leases, and write both documents.

    Raises:
        BadInput: the fleet, or a label, is misspelt.
        CannotPlace: no slot can take a lease.
        CannotResume: the interrupted run is of something else.
    """
    from ci_bench import pipeline
    from ci_bench.fleet.coordinator import Coordinator
    from ci_bench.fleet.session import Session
    from ci_bench.records import documents

    journal = _journal(bench.output)
    run, earlier = _begin(bench, settings, journal)
    journal.take_up()
    session = Session(
        run=run,
        config=bench.config,
        rule=pipeline.rule_of(bench.config.run),
        rows=_rows(bench),
        sources={side.name: side.source for side in sides},
        read=read_pair,
        known=lambda identity: noise.find(identity) if noise else None,
    )
    for ended in earlier.delivered if earlier else ():
        session.accept(ended)
    engine = open_engine(settings, run, journal)
    coordinator = Coordinator(
        engine=engine,
        looks=session.rule.looks,
        still_open=session.still_open,
        accept=session.accept,
        journal=journal,
        clock=time.monotonic,
        limits=_limits(settings, bench),
        known_s=_known_s(bench),
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
        documents.write(document, pipeline.place(bench.output, name))
    return results


def _begin(bench: Bench, settings: Measuring, journal: "FileJournal") -> "tuple[Run, Earlier | None]":
    """The run that begins, or the interrupted one that is resumed, with what it has."""
    from ci_bench import planning

    run = planning.start(bench.config, workflow=bench.workflow, asked=bench.asked)
    if not settings.resume or not journal.file.exists():
        journal.start(run.id, run.started_at)
        return run, None
    number, started_at, earlier = journal.read()
    tell(f"resuming the run of {started_at}: {len(earlier.delivered)} lease(s) are measured already")
    return replace(run, id=number, started_at=started_at), earlier


def _rows(bench: Bench) -> "tuple[CaseResult, ...]":
    from ci_bench.engine.ledger import Ledger

    again = {case.id: shlex.join([*bench.reproduce, "--filter", case.id]) for _, case in bench.plan}
    return tuple(Ledger.open([case for _, case in bench.plan], reproduce=again).rows.values())


def _known_s(bench: Bench) -> dict[str, float]:
    """How long a launch of each case took in the run before, both sides (s)."""
    from contextlib import suppress

    from ci_bench import pipeline
    from ci_bench.errors import BadDocument
    from ci_bench.records import documents

    found: dict[str, float] = {}
    with suppress(BadDocument):
        for row in documents.read_results(bench.output / pipeline.RESULTS).cases:
            launches = max((len(metric.launches) for metric in row.metrics), default=0)
            if row.duration_s and launches:
                found[row.case.id] = 2 * row.duration_s / launches
    return found


def _limits(settings: Measuring, bench: Bench) -> "Limits":
    from ci_bench.fleet.coordinator import Limits

    needs = dict(text.partition("=")[::2] for text in settings.needs)
    if any(not name or not value for name, value in needs.items()):
        raise BadInput("--needs: a label is written NAME=VALUE")
    if settings.attempts < 1:
        raise BadInput("--attempts: at least 1")
    return Limits(
        attempts=settings.attempts,
        wall_s=bench.config.run.budget_s,
        device_s=settings.gpu_seconds,
        money=settings.max_cost,
        price_per_hour=settings.price or 0.0,
        needs=needs,
    )


def check_budgets(settings: Measuring) -> None:
    """Whether a budget of a fleet can be kept. Raises `BadInput`: one that is ignored would be worse than none."""
    amounts = {"--gpu-seconds": settings.gpu_seconds, "--max-cost": settings.max_cost, "--price": settings.price}
    given = [flag for flag, amount in amounts.items() if amount is not None]
    if given and settings.fleet is None:
        raise BadInput(f"{given[0]} is for the leases of a fleet: add --fleet ENGINE, or bound the time by --budget")
    for flag, amount in amounts.items():
        if amount is not None and not (0 < amount < float("inf")):
            raise BadInput(f"{flag} {amount:g}: an amount above 0")
    if (settings.max_cost is None) != (settings.price is None):
        raise BadInput("--max-cost AMOUNT and --price AMOUNT (of an hour of a slot) belong together")


def open_engine(settings: Measuring, run: "Run", journal: "FileJournal") -> "Engine":
    """The engine that `--fleet` names, whose leases see no secret and nothing of Ray or Slurm.

    Raises:
        BadInput: the fleet's word is misspelt.
        CannotPlace: the fleet can't be reached, or could never take a lease.
    """
    from ci_bench.engine.process.environ import worker_environment

    kind, _, rest = (settings.fleet or "").partition(":")
    command = lease_command(settings, run)
    visible = worker_environment(settings.environ)
    environ = {name: value for name, value in visible.items() if not name.startswith(OF_ENGINES)}
    if kind == "local":
        from ci_bench.fleet.local import LocalEngine

        devices = [name.strip() for name in rest.split(",") if name.strip()] or [settings.device or "auto"]
        return LocalEngine(devices=devices, command=command, folder=journal.folder, environ=environ, here=settings.here)
    if kind == "ray":
        from ci_bench.fleet.ray_core import RayEngine

        device = settings.device or "auto"
        cluster = RayEngine(
            address=rest, device=device, command=command, folder=journal.folder, environ=environ, here=settings.here
        )
        cluster.open()
        return cluster
    if kind == "slurm":
        from ci_bench.fleet.slurm import SlurmEngine, read_wanted

        jobs = SlurmEngine(
            wanted=read_wanted(rest),
            command=command,
            folder=journal.folder,
            environ=environ,
            here=settings.here,
            jobs=journal.leases.parent / "slurm",
        )
        jobs.open()
        return jobs
    raise BadInput(f"--fleet {settings.fleet}: there are local, local:DEVICE,…, ray, ray:ADDRESS, slurm and slurm:NAME=VALUE,…")


def lease_command(settings: Measuring, run: "Run") -> "Callable[[Order, Path], Sequence[str]]":
    """The words that measure an attempt: on this machine a slot's name is the device, elsewhere the slot shows one alone."""
    elsewhere = (settings.fleet or "").partition(":")[0] != "local"
    given = {
        "--config": settings.config and settings.config.resolve(),
        "--base": settings.base,
        "--prepared": settings.prepared and settings.prepared.resolve(),
        "--threads": settings.threads,
        "--stage-timeout": settings.stage_timeout_s,
    }
    flags = [part for flag, value in given.items() if value is not None for part in (flag, str(value))]

    def command(order: "Order", folder: Path) -> Sequence[str]:
        cases = [part for case in order.lease.cases for part in ("--filter", case)]
        which = f"{run.id}/{order.lease.number}/{order.attempt}"
        own = ["--output", str(folder), "--lease", which, "--device", (settings.device or "auto") if elsewhere else order.slot]
        return [sys.executable, "-m", "ci_bench.cli", "lease", *map(str, settings.paths), *flags, *own, *cases]

    return command


class _Display:
    """A line whenever leases have ended, not more often than every few seconds."""

    def __init__(self) -> None:
        self._last_s = 0.0

    def __call__(self, standing: "Standing") -> None:
        """Told after each lease."""
        now = time.monotonic()
        if now - self._last_s < 5.0:  # noqa: PLR2004 - seconds between two lines
            return
        self._last_s = now
        tell(
            f"fleet: {standing.slots} slot(s), {standing.done} lease(s) done, {standing.out} out, {standing.waiting} waiting, "
            f"{standing.lost} lost; {standing.open_cases} case(s) open; about {standing.left_s:.0f} s left of this round"
        )
