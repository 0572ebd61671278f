"""Chooses what `make test` leaves to `make test-all`, by how long each test took: prints tests/thorough.txt.

Run as ``python tools/choose_tests.py DURATIONS.xml… > tests/thorough.txt``, on what ``make test-all
PYTEST_ARGS=--junitxml=DURATIONS.xml`` wrote, or `test` and `test-rest` each. A test function is left out, with all parameters,
where one takes long on average, or all together do. Of a file that would be left out as a whole the quickest test stays, unless
that takes long, too.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
LONG_S, LONG_TOGETHER_S, LONG_ALONE_S = 1.5, 15.0, 15.0
HEAD = """\
# What `make test` leaves to `make test-all`: test functions with the seconds that all their parameters took, and single tests to
# keep all the same. Chosen by tools/choose_tests.py from measured durations; tests/test_thorough.py says what is stale.
"""


def main(paths: Sequence[str]) -> int:
    """Print the list."""
    cases = [case for path in paths for case in ET.parse(path).iter("testcase")]  # noqa: S314 - our own test runs wrote them
    sys.stdout.write(HEAD + "".join(f"{line}\n" for line in chosen({_name(case): float(case.get("time", 0)) for case in cases})))
    return 0


def _name(case: ET.Element) -> str:
    """The node id of a test; pytest writes a class behind its module, with a dot."""
    module, _, own = str(case.get("classname")).rpartition(".")
    inside = f"{own}::" if own[:1].isupper() else ""
    return f"{(module if inside else f'{module}.{own}').replace('.', '/')}.py::{inside}{case.get('name')}"


def chosen(took: Mapping[str, float]) -> Iterator[str]:
    """The lines for tests that took so many seconds, by node id."""
    functions: dict[str, list[float]] = defaultdict(list)
    for test, seconds in took.items():
        functions[test.partition("[")[0]].append(seconds)
    left = {name for name, each in functions.items() if sum(each) > min(LONG_TOGETHER_S, LONG_S * len(each))}
    for name in sorted(left):
        yield f"{sum(functions[name]):.0f} {name}"
    with_quick_ones = {name.partition("::")[0] for name in functions.keys() - left}
    for file in sorted({name.partition("::")[0] for name in left} - with_quick_ones):
        quickest = min((test for test in took if test.startswith(f"{file}::")), key=took.__getitem__)
        if took[quickest] <= LONG_ALONE_S:
            yield f"keep {quickest}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
