"""One step of an action: ``python3 entrypoint/action STEP``.

Standard library only, on the runner's own Python, 3.9 or newer.

The arguments of containers are shared with the package (`ci_bench.host.cage`), which is in the
action's repository, too.
"""

import sys
from pathlib import Path

if sys.version_info < (3, 9):  # noqa: UP036 - a runner may have any
    sys.stdout.write(
        "::error title=ci-bench::the runner's python3 is too old: this action needs Python 3.9 or"
        " newer\n"
    )
    sys.exit(3)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from faults import Fault
from hosted import hosted
from phases import STEPS
from workflow import annotate


def main(name: str) -> int:
    """Run one step; a fault is reported as an annotation, and ends the job."""
    try:
        return {**STEPS, "hosted": hosted}[name]()
    except Fault as fault:
        annotate("error", str(fault))
        return fault.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
