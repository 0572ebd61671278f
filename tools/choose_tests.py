"""Chooses what `make test` leaves to `make test-all`, by how long each test took: prints tests/thorough.txt.

Run as ``python tools/choose_tests.py DURATIONS.xml… > tests/thorough.txt``, on what ``make test-all
PYTEST_ARGS=--junitxml=DURATIONS.xml`` wrote, or `test` and `test-rest` each. A test function is left out, with all parameters,
where one takes long on average, or all together do. Of a file that would be left out as a whole the quickest test stays, unless
that takes long, too.

With ``--nightly`` it prints lines for tests/nightly.txt: what `make test-rest` should leave to the night. Of a function whose
parameters take long together, CI runs the quickest ones. A single test that takes long is left to the night if its file has
another test that CI runs.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
LONG_S, LONG_TOGETHER_S, LONG_ALONE_S = 1.5, 15.0, 15.0
NIGHTLY_S = 30.0
"""What one function may take in CI, of those that `make test` leaves out."""
HEAD = """\
# What `make test` leaves to `make test-all`: test functions with the seconds that all their parameters took, and single tests to
# keep all the same. Chosen by tools/choose_tests.py from measured durations; tests/test_thorough.py says what is stale.
"""


def main(paths: Sequence[str]) -> int:
    """Print the list."""
    cases = [case for path in paths if path != "--nightly" for case in ET.parse(path).iter("testcase")]  # noqa: S314 - our own
    took = {_name(case): float(case.get("time", 0)) for case in cases}
    lines = late(took) if "--nightly" in paths else (HEAD.rstrip(), *chosen(took))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
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


def late(took: Mapping[str, float]) -> Iterator[str]:
    """Lines on tests that took so many seconds, by node id: what is left to the night, and the test that CI runs in its place."""
    functions: dict[str, dict[str, float]] = defaultdict(dict)
    for test, seconds in took.items():
        functions[test.partition("[")[0]][test] = seconds
    for name, tests in sorted(functions.items()):
        if sum(tests.values()) <= NIGHTLY_S:
            continue
        kept, left_s = list[str](), NIGHTLY_S
        for test in sorted(tests, key=tests.__getitem__):
            left_s -= tests[test]
            if left_s >= 0:
                kept.append(test)
        if kept:
            yield from (f"{name} | {test}" for test in kept)
        elif instead := _instead(name, took):
            yield f"{name} | {instead}"


def _instead(name: str, took: Mapping[str, float]) -> str:
    """The quickest other test of the file, unless that takes long as well."""
    file = f"{name.partition('::')[0]}::"
    others = [test for test in took if test.startswith(file) and test.partition("[")[0] != name]
    quickest = min(others, key=took.__getitem__, default="")
    return quickest if quickest and took[quickest] <= NIGHTLY_S else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
