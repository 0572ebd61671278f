"""Measures how often a gate over three devices that differ by 2 % is right.

It is `ci-bench gate --fleet local:…`, on simulated cards.

Run as ``python -m benchmarks.fleet_gates [--gates N] [--at-most N] [--json FILE [--resume]]
[--folder DIR]``. Every second gate is of one commit against an equal one, the others of one with a
kernel more in each chain of twenty (+5 %). Repository, configuration, noise and calibration are
those of `card_quality`, kept in DIR for the next call; the gate is the product's from the command
line on, with its leases, its bundle of sources and the default policy. Each slot has a card of its
own, whose kernels take as long as `SPEEDS` says, for base and head alike, with time of its own that
is made up: what else the machine does changes no sample. Leases run side by side.

A gate of unchanged code gives a false alarm where any time of any case is `regressed` or
`suspected`, or the job fails. *apart* is what base took on each slot, against the first, by the
gates' own documents, over cases that both had.
"""

import argparse
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

from benchmarks import card_quality as single
from benchmarks.tables import publish, render
from ci_bench.fleet import local
from ci_bench.fleet.protocol import LeaseOrder
from ci_bench.records import documents
from ci_bench.records.results import Results

SPEEDS = (1.0, 1.02, 0.98)
"""The time of a kernel on each slot, relative to the first."""
FLEET = "local:" + ",".join(f"cuda:{slot}" for slot in range(len(SPEEDS)))
LIMIT_S = 1500.0


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the gates that are left, write each immediately, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=int, default=20, help="unchanged and slower in turns")
    parser.add_argument("--cases", type=int, default=2, help="cases of a gate")
    parser.add_argument(
        "--at-most", type=int, help="measure no more than so many gates in this call"
    )
    parser.add_argument(
        "--until", type=float, default=float("inf"), help="begin no gate after so many seconds"
    )
    parser.add_argument("--json", type=Path, help="write the figures here, after every gate")
    parser.add_argument("--resume", action="store_true", help="count the gates that --json has")
    parser.add_argument("--folder", type=Path, help="keep cards, repository and calibration here")
    parser.add_argument("--commands", type=Path, help=argparse.SUPPRESS)
    flags, words = parser.parse_known_args(argv)
    if flags.commands is not None:
        return as_command(flags.commands, words)
    gates: list[dict[str, Any]] = []
    if flags.resume and flags.json and flags.json.exists():
        gates = json.loads(flags.json.read_text(encoding="utf-8"))["gates"]
    most = min(flags.gates, len(gates) + (flags.gates if flags.at_most is None else flags.at_most))
    if len(gates) < most:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (flags.folder or Path(temporary)).absolute()
            if not (folder / "calibrated").exists():
                _make_machine(folder, flags.cases)
            until_s = time.monotonic() + flags.until
            while len(gates) < most and time.monotonic() < until_s:
                line = gate(folder, planted=is_next_planted(gates), cases=flags.cases)
                gates.append(line)
                sys.stderr.write(f"{line}\n")
                if flags.json:
                    flags.json.write_text(
                        json.dumps({"gates": gates}, indent=1) + "\n", encoding="utf-8"
                    )
    publish(table(gates), {"gates": gates}, flags.json)
    return 0


def table(gates: Sequence[Mapping[str, Any]]) -> str:
    """Render the verdicts as on one card, and the fleet's figures."""
    rows = [dict(row) for row in single.rows(gates)]
    for row, planted in zip(rows, sorted({gate["planted"] for gate in gates}), strict=True):
        matching = [gate for gate in gates if gate["planted"] == planted]
        row["leases"] = str(sum(sum(gate["leases"].values()) for gate in matching))
        row["lost"] = str(sum(gate["losses"] for gate in matching))
        row["apart"] = ", ".join(
            _mean([gate["apart"][slot] for gate in matching]) for slot in range(len(SPEEDS) - 1)
        )
    return render("Gates over three simulated cards", rows)


def _mean(ratios: Sequence[float | None]) -> str:
    values = [each for each in ratios if each is not None]
    return f"{statistics.fmean(values):+.1%}" if values else "unknown"


def is_next_planted(gates: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the next gate has a plant: in turns, but the kind that lags comes first."""
    planted = sum(bool(gate["planted"]) for gate in gates)
    return planted < len(gates) - planted


def _make_machine(folder: Path, cases: int) -> None:
    """Make cards, an empty repository, and the machine's noise."""
    folder.mkdir(exist_ok=True)
    uuid = f"GPU-51a1a7ed-0000-4000-8000-{secrets.token_hex(6)}"
    for slot, speed in enumerate(SPEEDS):
        card = single.CARD | {
            "least_kernel_s": single.CARD["least_kernel_s"] * speed,
            "uuid": uuid,
            "cards": len(SPEEDS),
        }
        card_of(folder, slot).write_text(json.dumps(card), encoding="utf-8")
    shutil.copy(card_of(folder, 0), folder / "card.json")
    repository = single.start(folder)
    single.commit(repository, single.KERNELS, cases)
    for _ in range(single.CALIBRATIONS):
        done = single.ci_bench(
            folder,
            "calibrate",
            "--launches",
            str(single.CALIBRATION_LAUNCHES),
            "--output",
            str(folder / "calibrated"),
        )
        if done.returncode:
            raise RuntimeError(done.stderr)


def card_of(folder: Path, slot: int) -> Path:
    """Return the script of a slot's card."""
    return folder / f"card-{slot}.json"


def gate(folder: Path, *, planted: bool, cases: int) -> dict[str, Any]:
    """Run one gate; return the worst verdict of each case's times, and the leases of each slot."""
    single.commit(folder / "repository", single.KERNELS, cases)
    single.commit(folder / "repository", single.KERNELS + planted, cases)
    began, out = time.monotonic(), folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    words = (
        "gate",
        "--baseline",
        "paired",
        "--base",
        "HEAD~1",
        "--output",
        str(out),
        "--fleet",
        FLEET,
    )
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(single.FIXTURE), str(single.FIXTURE.parents[2])]),
        "CI_BENCH_NOISE": str(folder / "noise"),
        "CI_BENCH_SOURCES": str(folder / "node"),
    }
    command = [sys.executable, "-m", "benchmarks.fleet_gates", "--commands", str(folder), *words]
    done = subprocess.run(
        command,
        cwd=folder / "repository",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if not (out / "comparison.json").exists():
        raise RuntimeError(done.stderr)
    head, base = (
        documents.read_results(out / place) for place in ("results.json", "base/results.json")
    )
    return {
        "planted": planted,
        "cases": cases,
        "exit_code": done.returncode,
        "verdicts": single.verdicts(documents.read_comparison(out / "comparison.json")),
        "launches": sum(
            len(metric.launches)
            for row in head.cases
            for metric in row.metrics
            if metric.name == "step_time"
        ),
        "leases": dict(Counter(part.slot[-1] for part in head.parts)),
        "losses": len(head.losses),
        "failed": [
            f"{row.case.id}: {row.failure.reason}"
            for side in (base, head)
            for row in side.cases
            if row.failure is not None
        ],
        "apart": apart(base),
        "seconds": round(time.monotonic() - began, 1),
    }


def apart(base: Results) -> list[float | None]:
    """Return how much longer base's steps took on each slot than on the first.

    Over cases that both had; in the order of their UUIDs.
    """
    logs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in base.cases if base.parts else ():
        slots = {origin.launch: base.parts[origin.part].slot for origin in row.origins}
        for metric in (metric for metric in row.metrics if metric.name == "step_time"):
            for launch in metric.launches:
                logs[slots[launch.launch]][row.case.id].append(
                    log(statistics.median(launch.values))
                )
    first, *others = (
        next((logs[slot] for slot in logs if slot[-1] == str(1 + index)), {})
        for index in range(len(SPEEDS))
    )
    shared = [(other, sorted(other.keys() & first.keys())) for other in others]
    return [
        (
            statistics.fmean(
                statistics.fmean(other[case]) - statistics.fmean(first[case]) for case in cases
            )
            if cases
            else None
        )
        for other, cases in shared
    ]


def as_command(folder: Path, words: Sequence[str]) -> int:
    """Run `ci-bench` in a process whose leases find the card of their slot."""
    submit = local.LocalEngine.submit

    def on_its_card(self: local.LocalEngine, order: LeaseOrder) -> None:
        slot = int(order.slot.rpartition(":")[2])
        self.environ = {**self.environ, "SIMULATED_CARD": str(card_of(folder, slot))}
        submit(self, order)

    local.LocalEngine.submit = on_its_card  # type: ignore[method-assign]
    from ci_bench import cli

    return cli.main(words)


if __name__ == "__main__":
    sys.exit(main())
