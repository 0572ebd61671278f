"""Runs Apache Otava on the same series, with an interpreter that has it.

It is a contender of `history_quality`.

Otava pins its own numpy, and reports changes in most series of pure noise at its defaults
(docs/internals/adr/0005): it is not a dependency.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ci_bench.errors import BadInput

TIMEOUT_S = 600.0
WORKER = Path(__file__).with_name("otava_worker.py")


def otavas_places(series: Sequence[tuple[Sequence[float], float]], python: Path) -> list[list[int]]:
    """Return the places of Otava's changes in each series of values.

    Next to each series is the smallest relative change to report.

    Raises:
        BadInput: the interpreter cannot be started or has no Otava, or its answer is invalid.
    """
    request = json.dumps([[list(values), least] for values, least in series])
    advice = (
        f"give an interpreter that has it: {python.name} -m pip install apache-otava, in an"
        " environment of its own"
    )
    try:
        done = subprocess.run(
            [str(python), "-I", str(WORKER)],
            input=request,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        if done.returncode:
            raise BadInput(
                f"--otava {python}:"
                f" {(done.stderr.strip().splitlines() or ['no reason'])[-1][:200]}; {advice}"
            )
        places = [[int(place) for place in group] for group in json.loads(done.stdout)]
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError) as error:
        raise BadInput(f"--otava {python}: {error}; {advice}") from error
    if len(places) != len(series) or any(
        not 0 < place < len(values)
        for group, (values, _) in zip(places, series, strict=True)
        for place in group
    ):
        raise BadInput(f"--otava {python}: its answer does not fit what it was asked; {advice}")
    return places
