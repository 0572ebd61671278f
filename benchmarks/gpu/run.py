"""Run stages of checks and figures on a GPU host, within a number of seconds.

Run as ``python3 -m benchmarks.gpu.run SECONDS STAGE ...`` in the root of a checkout that
``benchmarks/gpu/prepare.sh`` has prepared. Each stage has its own limit, a stage that fails does
not stop the next one, and stages that no longer fit are skipped. After each stage, ``$OUT`` has the
summary and one archive with all logs, documents and raw figures. The exit code is 1 if a stage
failed. Needs only the standard library: stages run in the environment that it creates.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.reading import figure_of, marks_of, trouble_of
from benchmarks.gpu.setting_up import ROOT, make_environ, make_environment
from benchmarks.gpu.stages import STAGES, Place, Stage, Step

PACKING_S = 8
"""Seconds that stay free after a stage, for the summary and the archive."""
ENDING_S = 10.0
TIME_OVER = 124
NOT_FOUND = 127
TERMINATED = 143
KEPT = ("output.txt", "watch.json", "gates.jsonl")
KEPT_OF_OUT = ("comparison.json", "results.json", "report.md", "base/results.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One call: where things are, and when it ends."""

    python: Path
    """The Python that runs the stages."""
    environ: Mapping[str, str]
    """The environment of all stages."""
    work: Path
    """The folder of environments, repositories and logs on the host."""
    out: Path
    """The folder of the summary and the archive, which is brought back."""
    begun: float
    """The start of the call, by the monotonic clock (s)."""
    total_s: int
    """The seconds that the call may take."""

    @property
    def logs(self) -> Path:
        """The folder that is archived."""
        return self.work / "logs"

    @property
    def elapsed_s(self) -> int:
        """The seconds since the call began."""
        return int(time.monotonic() - self.begun)


def main(argv: Sequence[str] | None = None) -> int:
    """Set up, run the stages, print the summary."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # so that `_call` ends its stage
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=int)
    parser.add_argument("stages", nargs="+", metavar="STAGE", help=", ".join(STAGES))
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.stages if name not in STAGES]:
        parser.error(f"there is no stage {unknown[0]}; choose from {', '.join(STAGES)}")
    begun, environ = time.monotonic(), os.environ
    work = Path(environ.get("GPU_KIT_WORK", "/tmp/gpu-kit"))  # noqa: S108 - the host is the user's
    out = Path(environ.get("OUT", ROOT / ".ci-bench" / "gpu-trial")).absolute()
    for folder in (work / "logs", out):
        folder.mkdir(parents=True, exist_ok=True)
    interpreter = environ.get("GPU_KIT_PYTHON")
    python = Path(interpreter).absolute() if interpreter else make_environment(work / "env")
    run = Run(
        python=python,
        environ=make_environ(environ, python, work),
        work=work,
        out=out,
        begun=begun,
        total_s=arguments.seconds,
    )
    _say(f"set up in {run.elapsed_s} s: {python}")
    return run_stages(run, arguments.stages)


def run_stages(run: Run, names: Sequence[str]) -> int:
    """Run the stages in their order; return 1 if one failed or was skipped."""
    lines, wrong = [], 0
    for name in names:
        line, code = _run_stage(run, name, STAGES[name])
        lines.append(line)
        wrong += code != 0
        with (run.logs / "summary.txt").open("a", encoding="utf-8") as every:
            every.write(f"{line}\n")
        (run.out / "summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        pack(run)
    _say(f"\n=== summary, {run.elapsed_s} of {run.total_s} s ===")
    for line in lines:
        _say(line)
    figures = run.logs / "figures.jsonl"
    for text in figures.read_text(encoding="utf-8").splitlines() if figures.exists() else ():
        row = json.loads(text)
        _say(f"  {row['section']}: {row['summary'][:300]}")
    return int(wrong > 0)


def _run_stage(run: Run, name: str, stage: Stage) -> tuple[str, int]:
    """Run one stage; return its line of the summary, and its exit code."""
    remaining_s = run.total_s - run.elapsed_s - PACKING_S
    limit = min(remaining_s, stage.limit_s * int(run.environ.get("GPU_KIT_PATIENCE", "1")))
    skipped = _reason_to_skip(run, stage, limit)
    if skipped:
        line = f"-- {name}: skipped, {skipped}"
        _say(line)
        return line, 1
    begun, log = run.elapsed_s, run.logs / f"{name}.log"
    _say(f"== {name} (at {begun} s, {limit} s at most)")
    place = Place(
        work=run.work,
        logs=run.logs,
        seconds=limit,
        device=run.environ.get("GPU_KIT_DEVICE", "cuda:0"),
        simulated=bool(run.environ.get("GPU_KIT_SIMULATED")),
    )
    code = run_steps(run, stage.steps(place), log, limit)
    text = log.read_text(encoding="utf-8", errors="replace")
    ended = " (stopped at its limit)" if code == TIME_OVER else ""
    stayed = _processes(run)
    more = f", {stayed} processes stayed on the GPU" if stayed else ""
    line = f"{name}: rc {code}, {run.elapsed_s - begun} s{ended}{more}: {figure_of(text)}"
    _say(line)
    for shown in (*marks_of(text), *(trouble_of(text) if code else ())):
        _say(shown)
    return line, code


def _reason_to_skip(run: Run, stage: Stage, limit: int) -> str:
    if limit < stage.least_s:
        return f"{limit} s are left"
    if stage.forks and (run.logs / "no-worker").exists():
        return "a forked worker cannot use the GPU"
    return ""


def run_steps(run: Run, steps: Sequence[Step], log: Path, limit_s: float) -> int:
    """Run the commands of a stage into its log; return the first exit code that counts, or 0."""
    deadline, code = time.monotonic() + limit_s, 0
    with log.open("w", encoding="utf-8") as output:
        for step in steps:
            words = [*([str(run.python)] if step.python else []), *step.words]
            until = min(deadline, time.monotonic() + step.limit_s)
            step_code = _call(words, run.environ, output.fileno(), until)
            if not step.optional:
                code = code or step_code
    return code


def _call(words: Sequence[str], environ: Mapping[str, str], output: int, deadline: float) -> int:
    """Run a command until the deadline, and end all its processes."""
    try:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environ,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except FileNotFoundError:
        return NOT_FOUND
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return TIME_OVER
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Terminate the group of a process, and kill what is left of it after some seconds."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDING_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _processes(run: Run) -> int:
    """Return how many processes still use a GPU, by nvidia-smi; 0 if that is unknown."""
    program = shutil.which("nvidia-smi", path=run.environ.get("PATH"))
    if program is None:
        return 0
    words = [program, "--query-compute-apps=pid", "--format=csv,noheader"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return len(done.stdout.split())


def pack(run: Run) -> None:
    """Write the archive: logs, raw figures, and the documents of gates without repositories."""
    for folder in (run.work / "gates").glob("*"):
        target = run.logs / "gates" / folder.name
        target.mkdir(parents=True, exist_ok=True)
        sources = [folder / name for name in KEPT]
        sources += [folder / "out" / name for name in KEPT_OF_OUT]
        for source in sources:
            if source.exists():
                base = "base-" if source.parent.name == "base" else ""
                shutil.copyfile(source, target / f"{base}{source.name}")
    partial = run.out / "gpu-kit.tgz.part"
    with tarfile.open(partial, "w:gz") as archive:
        archive.add(run.logs, "logs")
    partial.replace(run.out / "gpu-kit.tgz")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
