"""What Apache Otava makes of the same series, run by an interpreter that has it: a contender of `history_quality`.

Otava pins its own numpy, and reports changes in most series of pure noise at its defaults
(docs/internals/adr/0016): it is no dependency.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ci_bench.errors import BadInput

TIMEOUT_S = 600.0
WORKER = Path(__file__).with_name("otava_worker.py")


def otavas_places(series: Sequence[tuple[Sequence[float], float]], python: Path) -> list[list[int]]:
    """The places of Otava's changes in each series of values; beside each the smallest relative change to report.

    Raises:
        BadInput: the interpreter cannot be started or has no Otava, or its answer is none.
    """
    asked = json.dumps([[list(values), least] for values, least in series])
    advice = (
        f"give an interpreter that has it: {python.name} -m pip install apache-otava, in an"
        " environment of its own"
    )
    try:
        done = subprocess.run(
            [str(python), "-I", str(WORKER)],
            input=asked,
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
        places = [[int(place) for place in found] for found in json.loads(done.stdout)]
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError) as error:
        raise BadInput(f"--otava {python}: {error}; {advice}") from error
    if len(places) != len(series) or any(
        not 0 < place < len(values)
        for found, (values, _) in zip(places, series, strict=True)
        for place in found
    ):
        raise BadInput(f"--otava {python}: its answer does not fit what it was asked; {advice}")
    return places
