"""Chooses what `make test` leaves to `make test-all`: prints tests/thorough.txt.

Run as ``python tools/choose_tests.py DURATIONS.xml… > tests/thorough.txt``, on what ``make test-all
PYTEST_ARGS=--junitxml=DURATIONS.xml`` wrote, or `test` and `test-rest` each. A test function is
left out, with all parameters, if one takes long on average, or all together do. If that would leave
out an entire file, its quickest test stays, unless that takes long, too.

With ``--ci`` it prints tests/in_ci.txt instead: those of them that CI runs anyway. They are the
quickest of each file, up to ten seconds, and the lines of the present list that begin with
``keep``, which are chosen by hand.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
LONG_S, LONG_TOGETHER_S, LONG_ALONE_S = 1.5, 15.0, 15.0
CI_FILE_S, CI_LONGEST_S = 10.0, 30.0
"""Seconds that the tests of one file may take in CI, of those that `make test` leaves out, and that
its only one may.
"""
CI_LIST = ROOT / "tests" / "in_ci.txt"
CI_HEAD = """\
# Of what `make test` leaves out, the tests that CI runs all the same (`make test-rest`): the \
quickest of each file, with its
# seconds, chosen by tools/choose_tests.py from measured durations, and tests chosen by hand \
(`keep`). The rest, and
# all that needs the image, runs every night.
"""
HEAD = """\
# What `make test` leaves to `make test-all`: test functions with the seconds that all their \
parameters took, and single tests to
# keep all the same. Chosen by tools/choose_tests.py from measured durations; \
tests/test_thorough.py says what is stale.
"""


def main(paths: Sequence[str]) -> int:
    """Print the list."""
    for_ci = "--ci" in paths
    cases = [case for path in paths if path != "--ci" for case in ET.parse(path).iter("testcase")]  # noqa: S314 - our own wrote them
    took = {_name(case): float(case.get("time", 0)) for case in cases}
    lines = (
        [CI_HEAD.rstrip(), *of_ci(took, _read_kept())] if for_ci else [HEAD.rstrip(), *chosen(took)]
    )
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _read_kept() -> tuple[str, ...]:
    lines = CI_LIST.read_text(encoding="utf-8").splitlines() if CI_LIST.exists() else []
    return tuple(line.removeprefix("keep ") for line in lines if line.startswith("keep "))


def _name(case: ET.Element) -> str:
    """Return the node id of a test; pytest writes a class behind its module, with a dot."""
    module, _, last_part = str(case.get("classname")).rpartition(".")
    inside = f"{last_part}::" if last_part[:1].isupper() else ""
    path = (module if inside else f"{module}.{last_part}").replace(".", "/")
    return f"{path}.py::{inside}{case.get('name')}"


def chosen(took: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines for tests that took so many seconds, by node id."""
    functions: dict[str, list[float]] = defaultdict(list)
    for test, seconds in took.items():
        functions[test.partition("[")[0]].append(seconds)
    slow = {
        name
        for name, each in functions.items()
        if sum(each) > min(LONG_TOGETHER_S, LONG_S * len(each))
    }
    for name in sorted(slow):
        yield f"{sum(functions[name]):.0f} {name}"
    with_quick_ones = {name.partition("::")[0] for name in functions.keys() - slow}
    for file in sorted({name.partition("::")[0] for name in slow} - with_quick_ones):
        quickest = min(
            (test for test in took if test.startswith(f"{file}::")), key=took.__getitem__
        )
        if took[quickest] <= LONG_ALONE_S:
            yield f"keep {quickest}"


def of_ci(took: Mapping[str, float], by_hand: Sequence[str]) -> Iterator[str]:
    """Yield the lines for tests that `make test` leaves out, of their seconds by node id.

    `by_hand` are the tests that are chosen by hand.
    """
    words = [line.split(" ", 1) for line in chosen(took)]
    omitted, quick = (
        {name for word, name in words if word != "keep"},
        {name for word, name in words if word == "keep"},
    )
    files: dict[str, list[str]] = defaultdict(list)
    for test in took:
        if test.partition("[")[0] in omitted and test not in quick and not _wants_the_image(test):
            files[test.partition("::")[0]].append(test)
    for _, tests in sorted(files.items()):
        left_s = CI_FILE_S
        for place, test in enumerate(sorted(tests, key=took.__getitem__)):
            left_s -= took[test]
            if left_s < 0 and (place or took[test] > CI_LONGEST_S):
                break
            yield f"{took[test]:.0f} {test}"
    yield from (f"keep {test}" for test in sorted(by_hand))


def _wants_the_image(test: str) -> bool:
    path = ROOT / test.partition("::")[0]
    return path.exists() and "mark.container" in path.read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
