"""Raw figures of a GPU that the design of ci-bench relies on.

Run as ``python -m benchmarks.gpu.figures FILE [--until SECONDS] [SECTION ...]``. Each section runs
in a separate process, so one that fails loses only its own figures. A section appends one line of
JSON to FILE; the last line of the output is the summary.
"""

import argparse
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu import (
    clock_figures,
    compiler_figures,
    driver_figures,
    process_figures,
    suite_figures,
    training_figures,
)
from benchmarks.gpu.measuring import Finding, Trial, this_trial

LEAST_S = 8.0
"""A section that has less time left is not started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One group of figures, and the seconds that it may take."""

    measure: Callable[[Trial], Finding]
    limit_s: float = 40.0


SECTIONS: Mapping[str, Section] = {
    "asking": Section(measure=driver_figures.measure_questions),
    "fence": Section(measure=clock_figures.measure_fence),
    "hand_over": Section(measure=process_figures.measure_hand_over, limit_s=60.0),
    "start": Section(measure=process_figures.measure_start, limit_s=60.0),
    "fastrnns": Section(measure=suite_figures.measure_fastrnns, limit_s=90.0),
    "bert": Section(measure=suite_figures.measure_bert, limit_s=60.0),
    "energy": Section(measure=driver_figures.measure_energy),
    "clocks_by_arm": Section(measure=driver_figures.measure_clocks_by_arm),
    "ramp": Section(measure=driver_figures.measure_ramp),
    "capture": Section(measure=clock_figures.measure_capture),
    "trainings": Section(measure=training_figures.measure_trainings),
    "optimizers": Section(measure=training_figures.measure_optimizers, limit_s=50.0),
    "graph_peaks": Section(measure=training_figures.measure_graph_peaks, limit_s=60.0),
    "autotune": Section(measure=compiler_figures.measure_autotune, limit_s=150.0),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sections, or with ``--here`` one of them in this process."""
    arguments = parse_arguments(argv)
    if arguments.here:
        return write_section(arguments.here, arguments.file, this_trial())
    return _run_all(arguments.sections or tuple(SECTIONS), arguments.file, arguments.until)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; unknown sections end the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds for all")
    parser.add_argument("--here", metavar="SECTION", help="run this section in this process")
    arguments = parser.parse_intermixed_args(argv)
    if unknown := [name for name in arguments.sections if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]}; choose from {', '.join(SECTIONS)}")
    return arguments


def write_section(name: str, file: Path, trial: Trial) -> int:
    """Run one section, append its figures to the file, and return the exit code."""
    begun = time.perf_counter()
    try:
        finding = SECTIONS[name].measure(trial)
    except Exception as error:  # noqa: BLE001 - the next section runs anyway
        traceback.print_exc()
        finding = Finding(
            values={"error": repr(error)[:800]}, summary=f"{error!r:.200}", failed=True
        )
    seconds = round(time.perf_counter() - begun, 1)
    summary = f"FAILED {finding.summary}" if finding.failed else finding.summary
    row = {"section": name, "seconds": seconds, "summary": summary, "figures": finding.values}
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row, default=str) + "\n")
    _say(f"{name} ({seconds} s): {summary}")
    return int(finding.failed)


def _run_all(names: Sequence[str], file: Path, until_s: float) -> int:
    begun, patience = time.monotonic(), this_trial().patience
    failed, skipped = [], []
    for name in names:
        room_s = until_s - (time.monotonic() - begun)
        if room_s < LEAST_S:
            skipped.append(name)
            continue
        limit_s = min(room_s, patience * SECTIONS[name].limit_s)
        command = [sys.executable, "-m", "benchmarks.gpu.figures", str(file), "--here", name]
        try:
            done = subprocess.run(command, timeout=limit_s, check=False)
            failed += [name] if done.returncode else []
        except subprocess.TimeoutExpired:
            failed.append(f"{name} (time)")
            _say(f"{name}: stopped after {limit_s:.0f} s")
    right = len(names) - len(failed) - len(skipped)
    words = f"failed: {', '.join(failed) or 'none'}; no time: {', '.join(skipped) or 'none'}"
    _say(f"FIGURE: {right} of {len(names)} sections; {words}")
    return int(bool(failed))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
