"""Digests of the files that a command names, and of a suite's modules."""

import pytest

from ci_bench.suites.command.plan import SUITE
from ci_bench.suites.shared.planning.own_code import of_commands, of_modules

COMMANDS = [
    ["python", "bench/run.py", "--fast"],
    "python bench/run.py > /dev/null",
    ["python", "-m", "bench.run"],
    ["pytest", "bench/run.py::test_sort"],
    ["pytest", "bench"],
    ["python", "-m", "ci_bench.suites.command.looping", "bench.run:train"],
]


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "run.py").write_text("x = 1\n")
    (tmp_path / "lib.py").write_text("y = 1\n")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_an_edited_file_changes_the_digest(tree, command) -> None:
    before = of_commands([command], tree)
    (tree / "lib.py").write_text("y = 2\n")
    assert of_commands([command], tree) == before != ""
    (tree / "bench" / "run.py").write_text("x = 2\n")
    assert of_commands([command], tree) not in {before, ""}


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("make -s bench", "Makefile"), (["npm", "run", "bench"], "package.json"), ("cargo bench", "benches/sort.rs"),
        (["go", "test", "-bench=.", "./kernels/..."], "kernels/sort_test.go"), (["just", "bench"], "justfile"),
        ("cd kernels && ./run.sh", "kernels/run.sh"), (["/usr/bin/make", "bench"], "Makefile"), ("make -C kernels", "kernels/x.cu"),
    ],
)  # fmt: skip
def test_files_of_other_languages_are_its_code(tree, command, file) -> None:
    (tree / file).parent.mkdir(exist_ok=True)
    bodies = set()
    for text in "ab":
        (tree / file).write_text(text)
        bodies.add(of_commands([command], tree))
    assert len(bodies - {""}) == 2


def test_data_in_a_folder_is_not_its_code(tree) -> None:
    before = of_commands(["pytest bench"], tree)
    (tree / "bench" / "rows.csv").write_text("1,2")
    assert of_commands(["pytest bench"], tree) == before


@pytest.mark.parametrize(
    "command",
    [
        "true",
        ["pytest", "."],
        "python -c 'x' \"",
        ["cat", "/etc/hostname"],
        ["cat", "../lib.py"],
        [""],
    ],
)
def test_a_command_without_files_of_the_tree_has_no_digest(tree, command) -> None:
    assert of_commands([command], tree / "bench" if "../lib.py" in command else tree) == ""


def test_a_planned_command_has_the_digest_of_its_tree(tree, monkeypatch) -> None:
    monkeypatch.chdir(tree)
    entries = (
        {"name": "x", "command": ["python", "run.py"], "cwd": "bench"},
        {"name": "x", "loop": "bench.run:train"},
    )
    bodies = [SUITE.plan(entry)[0].body for entry in entries]
    assert "" not in bodies
    (tree / "bench" / "run.py").write_text("x = 2\n")
    assert all(
        SUITE.plan(entry)[0].body not in {body, ""}
        for entry, body in zip(entries, bodies, strict=True)
    )


def test_a_suites_modules_are_its_code(tree) -> None:
    before = of_modules(["bench.run", "json"], tree)
    assert before != ""
    assert of_modules(["json", "bench/run"], tree) == ""
    (tree / "bench" / "run.py").write_text("x = 2\n")
    assert of_modules(["bench.run"], tree) != before
    (tree / "src").mkdir()
    (tree / "src" / "mine.py").write_text("SUITE = 1\n")
    assert of_modules(["mine"], tree) != ""


@pytest.mark.parametrize(
    "word", ["x" * 300, "a\0b", "print(1)\n" * 2000], ids=["long", "zero byte", "a program"]
)
def test_a_word_that_can_be_no_file_is_none(tmp_path, word):
    (tmp_path / "run.py").write_text("1")
    assert of_commands([["python", "-c", word]], tmp_path) == ""
    assert of_commands([["python", "run.py", word]], tmp_path) == of_commands(
        [["python", "run.py"]], tmp_path
    )


def test_a_folder_of_data_is_looked_at_within_limits(tmp_path, monkeypatch):
    from ci_bench.suites.shared.planning import own_code

    for number in range(30):
        (tmp_path / "data" / f"{number:02}").mkdir(parents=True)
        (tmp_path / "data" / f"{number:02}" / "part.py").write_text(str(number))
    seen = []
    walk = own_code.os.walk
    monkeypatch.setattr(
        own_code.os,
        "walk",
        lambda folder: (seen.append(found[0]) or found for found in walk(folder)),
    )
    monkeypatch.setattr(own_code, "MOST_FOLDERS", 10)
    whole = of_commands(["python train.py data"], tmp_path)
    assert (len(seen), len(whole)) == (10, own_code.LENGTH)

    (tmp_path / "data" / "05" / "part.py").write_text("other")
    assert of_commands(["python train.py data"], tmp_path) != whole
