"""The mutation benchmark sees what tests notice, what they miss, what hangs and what nobody reaches, in a small package of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.mutants import compiled, mutants

from benchmarks import mutation

ROOT = Path(__file__).resolve().parents[2]
SMALL = '''"""A module."""

LIMIT = 3


def below(value, limit=10):
    return value < limit and value < LIMIT


def unseen(value):
    return value + 1


def slowly(value):
    while value > 0:
        value = value - 1
    return value


class Box:
    @property
    def size(self):
        return 2 * 2


def twice(value):
    return value * 2
'''
TESTS = """import pytest
from small.part.inner import Box, below, slowly, twice

def test_below():
    assert below(2) and not below(3) and not below(2, 2)

def test_slowly():
    assert slowly(3) == 0

def test_size():
    assert Box().size

@pytest.mark.thorough
def test_a_twice_with_care():
    assert twice(2) == 4 and twice(3) == 6

def test_twice_at_a_glance():
    assert twice(2) == 4
"""


def test_places_are_numbered_and_those_that_run_at_import_have_no_owner():
    found = mutants("small.inner", SMALL)

    assert [(one.owner, one.change) for one in found] == [
        ("", "3 to 4"),
        ("", "10 to 11"),
        ("below", "And to Or"),
        ("below", "Lt to LtE"),
        ("below", "Lt to LtE"),
        ("unseen", "Add to Sub"),
        ("unseen", "1 to 2"),
        ("slowly", "Gt to GtE"),
        ("slowly", "0 to 1"),
        ("slowly", "Sub to Add"),
        ("slowly", "1 to 2"),
        ("Box.size", "Mult to Div"),
        ("Box.size", "2 to 3"),
        ("Box.size", "2 to 3"),
        ("twice", "Mult to Div"),
        ("twice", "2 to 3"),
    ]
    assert found[0].names == ("LIMIT",)
    assert found[1].names == ("below",)


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("x = not a", "x = not not a"),
        ("x = ~a & b", "x = ~~a & b"),
        ("x = 1 < a < 3", "x = 1 < a <= 3"),
        ("x = True", "x = False"),
        (
            "match a:\n    case 1 if a > 2:\n        x = 1",
            "match a:\n    case 1 if a >= 2:\n        x = 1",
        ),
        ("@f(1)\ndef g(a: 2, b=3):\n    pass", "@f(1)\ndef g(a: 2, b=4):\n    pass"),
    ],
)
def test_one_place_changes_and_nothing_else(source, changed):
    made = [meaning(compiled(source, one.place, "x")) for one in mutants("m", source)]

    assert meaning(compiled(changed, None, "x")) in made
    assert meaning(compiled(source, None, "x")) not in made


def meaning(code):
    """What a module's code does and with which constants; the code objects of its functions left out."""
    return code.co_code, tuple(const for const in code.co_consts if not hasattr(const, "co_code"))


def test_another_function_changes_no_key():
    before = {one.key for one in mutants("m", SMALL) if one.owner != "unseen"}
    after = {
        one.key
        for one in mutants("m", SMALL.replace("value + 1", "value * 1"))
        if one.owner != "unseen"
    }

    assert before == after


def test_each_mutant_ends_as_its_tests_say(tmp_path):
    fates = small(tmp_path)

    ended = {
        (row["text"], row["change"]): (row["ended"], row["by"].rpartition("::")[2]) for row in fates
    }
    assert ended == {
        ("LIMIT = 3", "3 to 4"): ("killed", "test_below"),
        ("def below(value, limit=10):", "10 to 11"): ("survived", ""),
        ("return value < limit and value < LIMIT", "And to Or"): ("killed", "test_below"),
        ("return value < limit and value < LIMIT", "Lt to LtE"): ("killed", "test_below"),
        ("return value + 1", "Add to Sub"): ("not covered", ""),
        ("return value + 1", "1 to 2"): ("not covered", ""),
        ("while value > 0:", "Gt to GtE"): ("killed", "test_slowly"),
        ("while value > 0:", "0 to 1"): ("killed", "test_slowly"),
        ("value = value - 1", "Sub to Add"): ("killed", "ended by SIGPROF"),
        ("value = value - 1", "1 to 2"): ("killed", "test_slowly"),
        ("return 2 * 2", "Mult to Div"): ("survived", ""),
        ("return 2 * 2", "2 to 3"): ("survived", ""),
        ("return value * 2", "Mult to Div"): ("killed", "test_twice_at_a_glance"),
        ("return value * 2", "2 to 3"): ("killed", "test_twice_at_a_glance"),
    }
    assert not any(row["thorough"] for row in fates)


def test_what_only_a_test_of_test_all_notices_is_counted_apart(tmp_path):
    fates = small(tmp_path, TESTS.replace("assert twice(2) == 4\n", "assert twice(0) == 0\n"))

    late = {(row["change"], row["by"].rpartition("::")[2]) for row in fates if row["thorough"]}
    assert late == {("Mult to Div", "test_a_twice_with_care"), ("2 to 3", "test_a_twice_with_care")}
    (row,) = [row for row in mutation.scores(fates, {}) if row["module"] == "all"]
    assert (row["mutants"], row["killed"], row["by test-all alone"]) == ("16", "10", "2")


def small(folder, tests=TESTS):
    """The fates of the small package before such tests, in the order in which they were tried."""
    for name, text in {
        "src/small/__init__.py": "",
        "src/small/part/__init__.py": "",
        "src/small/part/inner.py": SMALL,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_inner.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = thorough\n")
    start = (
        "import sys; from pathlib import Path; from benchmarks import mutation, mutation_trial;"
        "mutation_trial.LEAST_S = 0.5; mutation.ROOT = Path.cwd(); mutation.JUDGE = Path('src/small').resolve();"
        "mutation.main(sys.argv[1:])"
    )
    environ = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{folder / 'src'}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    subprocess.run(
        [sys.executable, "-c", start, "--fates", str(folder / "fates.jsonl"), "--tests", "tests"],
        cwd=folder,
        env=environ,
        check=True,
        timeout=120,
        capture_output=True,
    )
    return [json.loads(line) for line in (folder / "fates.jsonl").read_text().splitlines()]


def test_the_score_leaves_out_what_changes_nothing():
    fate = {"module": "ci_bench.judge.times.noise", "text": "x = 1"}
    fates = [
        {**fate, "change": "1 to 2", "ended": "killed"},
        {**fate, "change": "a", "ended": "survived"},
        {**fate, "change": "b", "ended": "survived"},
    ]
    rows = mutation.scores(fates, {("ci_bench.judge.times.noise", "x = 1", "b"): "why"})

    assert [
        (row["module"], row["killed"], row["survived"], row["equivalent"], row["score"])
        for row in rows
    ] == [
        ("noise", "1", "1", "1", "50.0%"),
        ("all", "1", "1", "1", "50.0%"),
    ]


def test_what_is_called_equivalent_is_still_in_the_judge():
    there = {
        (one.module, one.text, one.change)
        for module, path in mutation.sources().items()
        for one in mutants(module, path.read_text())
    }

    assert set(mutation.equivalents()) <= there
