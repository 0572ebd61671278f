"""Keep the noise that a gate teaches, and its run as a baseline."""

from pathlib import Path

from ci_bench.command_line.settings import Measuring
from ci_bench.commands.inputs import results_path
from ci_bench.commands.output import tell
from ci_bench.errors import BadInput
from ci_bench.judge.times.calibration import collect_gate
from ci_bench.records import documents
from ci_bench.records.calibration import Calibration
from ci_bench.records.comparison import Comparison
from ci_bench.records.results import Results
from ci_bench.runner.beside import copy_saved
from ci_bench.runner.noise_floor import NoiseFolder

TRUSTED = ("", "push", "schedule", "workflow_dispatch", "repository_dispatch", "release")
"""Trusted events: the code was pushed with write access, or no event on a machine of yours."""


def keep_calibration(noise: NoiseFolder, head: Results, folder: Path) -> Calibration | None:
    """Keep this machine's learned noise with the documents, for judging them again."""
    calibration, file = noise.find(head.environment.identity), folder / "calibration.json"
    if calibration is not None:
        documents.write(calibration, file)
    else:
        file.unlink(missing_ok=True)
    return calibration


def require_teachable(settings: Measuring, noise: NoiseFolder | None) -> None:
    """Check that this run may teach noise; raise `BadInput` or `CannotWrite`.

    Its differences may not be noise, or the author of head could choose them.
    """
    if noise is None:
        message = "--learn needs --baseline paired: only base and head measured in turns show noise"
        raise BadInput(message)
    event = settings.environ.get("GITHUB_EVENT_NAME", "")
    if event not in TRUSTED:
        message = (
            f"--learn is not allowed on {event}: unmerged code could skew the calibration. Use it"
            " on push or schedule"
        )
        raise BadInput(message)
    noise.require_writable()


def learn(noise: NoiseFolder, base: Results, head: Results, comparison: Comparison) -> None:
    """Keep the noise of this gate's first launches.

    The gate itself was judged with earlier noise.
    """
    taught = collect_gate(base, head, comparison)
    if taught is None:
        tell(
            "nothing was learned about this machine's noise: no unchanged time of both sides is"
            " left"
        )
        return
    noise.keep(taught)
    tell(f"kept the first launches of {len(taught.series)} time(s) in {noise.path}")


def save_baseline(settings: Measuring, comparison: Comparison, path: Path) -> None:
    """Keep this run as the baseline at `path` if the policy is met."""
    file, source = results_path(path), settings.output / "results.json"
    if comparison.judgement.met:
        results = documents.read_results(source)
        documents.write(results, file)
        copy_saved(results, source, file)
        message = f"saved this run as the baseline: {file}"
    elif file.exists():
        message = (
            f"the policy is not met, so the baseline is unchanged: {file} (delete it to start over)"
        )
    else:
        message = f"the policy is not met, so no baseline was saved at {file}"
    tell(message)
