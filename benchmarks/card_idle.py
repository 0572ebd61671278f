"""Measures the idle time of a card while a gate has open cases: the gates of `card_quality`.

Run as ``python -m benchmarks.card_idle [--cases N] [--step-s S] [--usual] [--json FILE]``. One
paired gate of unchanged code, uncalibrated, by the command, on the simulated card of the tests.
Kernels take as long as they are set to; processes, imports and hand-overs take the time of this
machine, which has to be quiet. A thread looks at the card's queue every `LOOK_S`. Samples are the
short and few ones of `card_quality`, or with ``--usual`` the default ones of a gate.

The idle share is of the time from the first kernel that was queued to the end of the last one. Its
stretches are classed by length, which shows their cause: between samples the host queues and waits
(under 10 ms); turns are handed over, and the monitor looks (under 0.1 s); in seconds, processes
start, or a case is checked. The time of the command by phase is from its documents, of both sides
together.
"""

import argparse
import json
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.card_quality import CONFIG, FIXTURE, KERNELS, SHORT, ci_bench, commit, start
from benchmarks.tables import publish, render
from ci_bench.records import documents
from ci_bench.report.time_spent import time_spent

sys.path.append(str(FIXTURE))

STEP_S = 0.004
"""Seconds that a chain of `KERNELS` kernels is at work."""
LOOK_S = 0.002
BOUNDS = {
    "under 10 ms": 0.01,
    "10 to 100 ms": 0.1,
    "0.1 to 1 s": 1.0,
    "1 s and longer": float("inf"),
}
"""Classes of idle stretches, by what they are shorter than (s)."""


@dataclass
class Idle:
    """Observed queue of a card: its first and last kernel, seconds at work, idle stretches (s)."""

    first_s: float | None = None
    last_s: float = 0.0
    busy_s: float = 0.0
    stretches: list[float] = field(default_factory=list)

    def see(self, busy_until_s: float, busy_s: float) -> None:
        """Note the queue at some moment.

        `busy_until_s` is when it will be worked off, and `busy_s` for how long kernels will have
        run by then, in all.
        """
        if busy_s <= self.busy_s:
            return
        if self.first_s is None:
            self.first_s = busy_until_s - busy_s
        else:
            idle_s = (busy_until_s - self.last_s) - (busy_s - self.busy_s)
            self.stretches += [idle_s] if idle_s > 0 else []
        self.last_s, self.busy_s = busy_until_s, busy_s

    @property
    def wall_s(self) -> float:
        """Seconds from the first kernel to the end of the last."""
        return self.last_s - (self.first_s or 0.0)

    @property
    def share(self) -> float:
        """Share of that time in which the queue was empty."""
        return 1.0 - self.busy_s / self.wall_s if self.wall_s else 0.0

    def classes(self) -> dict[str, tuple[int, float]]:
        """Return the number of stretches of each class, and their seconds."""
        least, by_class = 0.0, {}
        for name, most in BOUNDS.items():
            inside = [stretch for stretch in self.stretches if least <= stretch < most]
            by_class[name], least = (len(inside), sum(inside)), most
        return by_class


def main(argv: Sequence[str] | None = None) -> int:
    """Watch one gate, and print where the card was idle and where the time went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3, help="cases of the gate")
    parser.add_argument(
        "--step-s", type=float, default=STEP_S, help="seconds of a step of every case"
    )
    parser.add_argument("--usual", action="store_true", help="sample as a gate does by default")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        config = CONFIG.replace(SHORT, "") if arguments.usual else CONFIG
        idle, gate = _watched(Path(folder), arguments.cases, step_s=arguments.step_s, config=config)
    rows = [
        {
            "idle for": name,
            "times": f"{count:,}",
            "s": f"{seconds:.1f}",
            "of the wall time": f"{seconds / idle.wall_s:.1%}",
        }
        for name, (count, seconds) in idle.classes().items()
    ]
    spent = [
        {"stage": stage, "phase": phase, "s of both sides": f"{sum(seconds):.1f}"}
        for stage, phase, seconds in gate["spent"][:12]
    ]
    summary = (
        f"idle {idle.share:.1%} of {idle.wall_s:.1f} s; the command took {gate['wall_s']:.1f} s"
    )
    title = (
        f"The card in a gate of {arguments.cases} cases, steps of {1e3 * arguments.step_s:g} ms:"
        f" {summary}"
    )
    text = "\n\n".join([render(title, rows), render("Where the time went", spent)])
    options = {"cases": arguments.cases, "step_s": arguments.step_s, "usual": arguments.usual}
    publish(text, {"idle": asdict(idle), "share": idle.share, **options, **gate}, arguments.json)
    return 0


def _watched(
    folder: Path, cases: int, *, step_s: float, config: str
) -> tuple[Idle, Mapping[str, Any]]:
    identity = {"uuid": f"GPU-51a1a7ed-0000-4000-8000-{secrets.token_hex(6)}"}
    (folder / "card.json").write_text(
        json.dumps({"least_kernel_s": step_s / KERNELS} | identity), encoding="utf-8"
    )
    start(folder)
    for _ in range(2):
        commit(folder / "repository", KERNELS, cases, config)
    card, idle, ended = (
        import_module("simulated_card").Card.open(folder / "card.json"),
        Idle(),
        threading.Event(),
    )

    def watch() -> None:
        while not ended.wait(LOOK_S):
            idle.see(card.busy_until, card.busy_s)

    watching = threading.Thread(target=watch)
    watching.start()
    begun = time.perf_counter()
    try:
        done = ci_bench(
            folder,
            "gate",
            "--baseline",
            "paired",
            "--base",
            "HEAD~1",
            "--output",
            str(folder / "out"),
        )
    finally:
        ended.set()
        watching.join()
    wall_s = time.perf_counter() - begun
    if done.returncode not in {0, 1}:
        raise SystemExit(done.stderr[-4000:])
    sides = [
        documents.read_results(folder / "out" / name)
        for name in ("base/results.json", "results.json")
    ]
    spent = time_spent(sides)
    return idle, {
        "wall_s": wall_s,
        "exit_code": done.returncode,
        "sampled_s": spent.sampled_s,
        "spent": spent.rows,
    }


if __name__ == "__main__":
    sys.exit(main())
