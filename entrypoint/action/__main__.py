"""One step of an action: ``python3 entrypoint/action STEP``. Standard library only, on the runner's own Python, 3.9 or newer."""

import sys

if sys.version_info < (3, 9):  # noqa: UP036 - a runner may have any
    sys.stdout.write("::error title=ci-bench::the runner's python3 is too old: this action needs Python 3.9 or newer\n")
    sys.exit(3)

from faults import Fault
from hosted import hosted
from phases import STEPS
from workflow import annotate


def main(name: str) -> int:
    """Run one step; a fault is told as an annotation, and ends the job."""
    try:
        return {**STEPS, "hosted": hosted}[name]()
    except Fault as fault:
        annotate("error", str(fault))
        return fault.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
