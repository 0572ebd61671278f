"""Runs pytest, and the tests that failed once more, alone: whether a failure is the code's or the machine's.

Run as ``python tools/run_tests.py ARGUMENTS…``, with pytest's own arguments. A test that fails
beside others and passes alone is named at the end, as a race or a bound of time to mend, and fails
nothing. One that fails twice does, and so does all else: a worker that died, tests that were not
collected, more failures than a busy machine explains.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TESTS_FAILED = 1
"""How pytest ends where all tests ran and some failed."""
MOST_AGAIN = 5
"""More failures than this are no coincidence."""
FAILURES = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: Sequence[str]) -> int:
    """The exit code of the tests."""
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
