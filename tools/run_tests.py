"""Runs pytest, and then the failed tests a second time by themselves.

This separates failures of the code from failures of the machine.

Run as ``python tools/run_tests.py ARGUMENTS…``, with pytest's own arguments. A test that only fails
next to others is named at the end, as a race or a time limit to fix, and does not fail the run. A
test that fails twice does, and so does everything else: a worker that died, tests that were not
collected, more failures than a busy machine explains.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TESTS_FAILED = 1
"""The exit code of pytest if all tests ran and some failed."""
MOST_AGAIN = 5
"""More failures than this are no coincidence."""
FAILURES = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: Sequence[str]) -> int:
    """Run the tests; return the exit code."""
    code = _pytest("--cache-clear", *arguments)
    if code != TESTS_FAILED:
        return code
    failed = sorted(json.loads(FAILURES.read_text())) if FAILURES.exists() else []
    if not 0 < len(failed) <= MOST_AGAIN:
        return code
    sys.stdout.write(f"\n{len(failed)} failed beside others: once more, alone\n")
    sys.stdout.flush()
    code = _pytest(*failed)
    if not code:
        for test in failed:
            sys.stdout.write(
                f"fails beside others, passes alone (a race or a bound of time, to mend): {test}\n"
            )
    return code


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
