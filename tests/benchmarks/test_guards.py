"""Guards are taken out where they are, however the code is formatted; one whose test stays green, or has moved, fails the run."""

import ast
import json
from pathlib import Path

import pytest
from benchmarks.guards import KILLED, NOT_SHOWN, SURVIVED, TABLES, main, read
from benchmarks.planting import Argued, NotFound, Replaced, Returned

ROOT = Path(__file__).resolve().parents[2]
GUARDS = read(TABLES)
SOURCE = '''"""A module."""
LIMIT = 3


class Box:
    size: int = field(repr=False)

    @cached
    def fits(self, value, limit=10):
        """Two

        lines.
        """
        if value > limit:  # why
            return False
        elif (value in
              self.known) and self.is_open:
            send(value, twice=True)
        try:
            return check(f"{value!r} of {limit}")
        except ValueError:
            pass
        for one in self.inner[1:]:
            one.close()
        return value is None


def fits(value):
    return value > LIMIT
'''


def within(text, name):
    """What a function of the module means, without its place."""
    for part in name.split("."):
        text = next(
            one
            for one in ast.walk(text if isinstance(text, ast.AST) else ast.parse(text))
            if getattr(one, "name", "") == part
        )
    return ast.unparse(text)


@pytest.mark.parametrize(
    ("change", "gone", "there"),
    [
        (
            Replaced(within="Box.fits", sound="value > limit", broken="False"),
            "value > limit",
            "if False",
        ),
        (
            Replaced(within="Box.fits", sound="value in self.known", broken="True"),
            "self.known",
            "elif True and self.is_open",
        ),
        (Replaced(within="Box.fits", sound="send(value, twice=True)", broken=""), "send", "pass"),
        (
            Replaced(within="Box.fits", sound="for one in self.inner[1:]:", broken=""),
            "one.close()",
            "return value is None",
        ),
        (
            Replaced(
                within="Box.fits", sound="for one in self.inner[1:]:", broken="for one in ():"
            ),
            "self.inner",
            "one.close()",
        ),
        (
            Replaced(within="Box.fits", sound="ValueError", broken="KeyError"),
            "ValueError",
            "except KeyError",
        ),
        (
            Replaced(within="Box.fits", sound="return value is None", broken="a = 1\nreturn a"),
            "is None",
            "a = 1",
        ),
        (Replaced(within="Box.fits", sound="10", broken="11"), "limit=10", "limit=11"),
        (
            Argued(within="Box.fits", sound="twice=True", broken="once=True, loud=1"),
            "twice",
            "once=True, loud=1",
        ),
        (Argued(within="Box.fits", sound="twice=True", broken=""), "twice", "send(value)"),
        (Returned(within="Box.fits", value="True"), "limit:", "return True"),
    ],
    ids=str,
)
def test_one_place_of_a_function_changes_and_nothing_else(change, gone, there):
    changed = change.apply(SOURCE)
    assert (gone in within(SOURCE, "Box.fits"), gone in within(changed, "Box.fits")) == (
        True,
        False,
    )
    assert there in within(changed, "Box.fits")
    assert changed.partition("    @cached")[0] == SOURCE.partition("    @cached")[0]
    assert changed.rpartition("\n\n\ndef")[2] == SOURCE.rpartition("\n\n\ndef")[2]
    assert '"""Two\n\n        lines.\n        """' in changed, "texts stay as they are"


def test_a_place_may_be_a_class_or_the_module():
    assert "size: int\n" in Replaced(
        within="Box", sound="size: int = field(repr=False)", broken="size: int"
    ).apply(SOURCE)
    assert "LIMIT = 4\n" in Replaced(within="", sound="LIMIT = 3", broken="LIMIT = 4").apply(SOURCE)


@pytest.mark.parametrize(
    "change",
    [
        Replaced(within="Box.fits", sound="value > most", broken="False"),
        Replaced(within="Box.fits", sound="value", broken="None"),
        Replaced(within="Box.empty", sound="value > limit", broken="False"),
        Replaced(within="", sound="value > LIMIT", broken="False"),
        Replaced(within="fits", sound="value > LIMIT", broken="value > LIMIT"),
        Argued(within="Box.fits", sound="twice=False", broken=""),
        Returned(within="Box", value="True"),
        Returned(within="fits", value="value > LIMIT"),
    ],
    ids=str,
)
def test_what_is_not_there_or_is_there_twice_is_said(change):
    with pytest.raises(NotFound):
        change.apply(SOURCE)


# The tables


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_every_guard_is_where_its_table_says(table):
    lost = []
    for guard in read([table]):
        try:
            guard.planted(ROOT)
        except NotFound as error:
            lost.append(str(error))
    assert lost == []


def test_every_named_test_is_there():
    functions = {
        file: {
            node.name
            for node in ast.walk(ast.parse((ROOT / file).read_text()))
            if isinstance(node, ast.FunctionDef)
        }
        for file in {test.partition("::")[0] for guard in GUARDS for test in guard.tests}
    }
    named = [test.partition("[")[0].partition("::") for guard in GUARDS for test in guard.tests]
    assert [
        f"{file}::{name}"
        for file, _, name in named
        if name.rpartition("::")[2] not in functions[file]
    ] == []


def test_no_hole_is_listed_twice():
    holes = [(guard.subject, guard.hole) for guard in GUARDS]
    assert len({*holes}) == len(holes) > 170


# The run


TREE = {
    "src/small.py": "def is_open(value):\n    return value > 3 and value != 5\n",
    "tests/test_small.py": (
        "import pytest\nfrom small import is_open\n\n\n"
        "def test_three():\n    assert not is_open(3)\n\n\n"
        "@pytest.mark.parametrize('value', [4, 6])\ndef test_more(value):\n    assert is_open(value)\n\n\n"
        "def test_red():\n    assert is_open(5)\n\n\n"
        "@pytest.mark.skip\ndef test_elsewhere():\n    pass\n"
    ),
}
ROW = '[[part]]\nsubject = "Small"\nfile = "src/small.py"\ntests = "tests/test_small.py"\n'
KEPT = '[[part.guard]]\nhole = "three is open"\nin = "is_open"\nalways = "value > 3"\ntests = ["test_three"]\n'
MISSED = '[[part.guard]]\nhole = "five is open"\nin = "is_open"\nalways = "value != 5"\ntests = ["test_three", "test_more[4]"]\n'
RED = (
    '[[part.guard]]\nhole = "red before"\nin = "is_open"\nreturns = "False"\ntests = ["test_red"]\n'
)
SKIPPED = '[[part.guard]]\nhole = "not run"\nin = "is_open"\nreturns = "False"\ntests = ["test_elsewhere"]\n'
MOVED = (
    '[[part.guard]]\nhole = "moved"\nin = "is_shut"\nreturns = "False"\ntests = ["test_three"]\n'
)


@pytest.fixture
def tried(tmp_path):
    """Tries the guards of a made-up tree; the exit code, and how each ended."""
    for name, text in TREE.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)

    def run(*rows):
        (tmp_path / "table.toml").write_text(ROW + "".join(rows))
        fates = tmp_path / "fates.jsonl"
        code = main(
            [
                "--root",
                str(tmp_path / "tree"),
                "--tables",
                str(tmp_path / "table.toml"),
                "--fates",
                str(fates),
            ],
        )
        rows = map(json.loads, fates.read_text().splitlines()) if fates.exists() else []
        return code, {row["hole"]: (row["ended"], row["words"]) for row in rows}

    return run


def test_a_guard_whose_test_stays_green_fails_the_run(tried, tmp_path):
    code, fates = tried(KEPT, MISSED, RED, SKIPPED)
    assert code == 1
    assert fates == {
        "three is open": (KILLED, ""),
        "five is open": (
            SURVIVED,
            "tests/test_small.py::test_three, tests/test_small.py::test_more[4] stays green",
        ),
        "red before": (NOT_SHOWN, "tests/test_small.py::test_red failed with the guard in place"),
        "not run": (
            NOT_SHOWN,
            "tests/test_small.py::test_elsewhere skipped with the guard in place",
        ),
    }
    assert {path: (tmp_path / "tree" / path).read_text() for path in TREE} == TREE, (
        "the tree itself is not touched"
    )


def test_a_run_without_a_survivor_passes(tried, capsys):
    assert tried(KEPT) == (0, {"three is open": (KILLED, "")})
    assert "| Small     | 1      | 1      | 0        | 0         |" in capsys.readouterr().out


def test_a_guard_that_has_moved_fails_before_anything_is_run(tried, capsys):
    assert tried(KEPT, MOVED) == (2, {})
    assert (
        "guard not found: moved: src/small.py: is_shut has no places with `is_shut`"
        in capsys.readouterr().err
    )


def test_an_entry_says_one_change_and_a_test(tried, capsys):
    assert tried(KEPT.replace('"test_three"', "")) == (2, {})
    assert tried(KEPT + 'never = "value > 3"\n') == (2, {})
    assert "three is open: no test is named" in (said := capsys.readouterr().err)
    assert "it says never and always" in said
