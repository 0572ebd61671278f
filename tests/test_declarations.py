"""What a configuration declares of cases that the measured tree alone can plan: which entries those are, and that a plan is held to it."""

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from judge_builders import result, results

from ci_bench import cli
from ci_bench.commands.trusted.expecting import plan_here
from ci_bench.configuration.config import load_config, parse
from ci_bench.errors import BadConfig, ExitCode
from ci_bench.records import documents
from ci_bench.records.config import SuiteEntry
from ci_bench.records.declarations import Declaration
from ci_bench.runner import planning
from ci_bench.suites.registry import plans_from_tree
from ci_bench.suites.torchbench.plan import TorchBench

MODELS = ("alpha", "beta", "gamma")
CHECKOUT = {"source": "torchbench", "path": "zoo", "mode": "inference"}
IDS = [f"torchbench/{name}[backend=inductor,mode=inference,precision=fp32]" for name in MODELS]
TABLE = {"schema_version": 1, "rules": [{"models": ["mlp"], "batch_size": 4}]}
PLUGIN = """
    from ci_bench.records.results import Case
    from ci_bench.suites.contract import Stage, StageKind, Suite

    class Mine(Suite):
        name, worker, preload = "mine", "mine.worker", ()

        def plan(self, options):
            names = [f"{options['name']}{number}" for number in range(options["cases"])]
            return tuple(Case(id=f"mine/{n}", suite="mine", name=n, params={}, arms=("x",), reference="x") for n in names)

        def stages(self, case):
            return (Stage(kind=StageKind.TIME, arms=case.arms, launches=None),)

    SUITE = Mine()
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with a checkout of three models, tables, a model of transformers, and a suite of its own."""
    for name in MODELS:
        package = tmp_path / "zoo" / "torchbenchmark" / "models" / name
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text('{"model_type": "bert", "vocab_size": 10}')
    (tmp_path / "table.yml").write_text(yaml.safe_dump(TABLE))
    (tmp_path / "expected.csv").write_text("name,accuracy\nmlp,pass\n")
    (tmp_path / "mine.py").write_text(textwrap.dedent(PLUGIN))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(folder: Path, suites: dict[str, Any], **more: Any) -> Path:
    path = folder / "ci-bench.yml"
    path.write_text(json.dumps({"schema_version": 1, "suites": suites, **more}))
    return path


ENTRIES: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "a checkout": ("torchbench", CHECKOUT, {"zoo"}),
    "named models of a checkout": ("torchbench", {**CHECKOUT, "models": ["beta"]}, {"zoo"}),
    "a table": ("torchbench", {"tables": ["table.yml"]}, {"table.yml"}),
    "expected results": (
        "torchbench",
        {"tables": ["table.yml", "expected.csv"]},
        {"table.yml", "expected.csv"},
    ),
    "a table of your own models": (
        "torchbench",
        {"source": "own", "models": ["mine:Model"], "tables": ["table.yml"]},
        {"table.yml"},
    ),
    "a table of a checkout": (
        "torchbench",
        {**CHECKOUT, "tables": ["table.yml"]},
        {"zoo", "table.yml"},
    ),
    "durations of shares": (
        "torchbench",
        {"partitions": 2, "durations": "results.json"},
        {"results.json"},
    ),
    "durations of one share": ("torchbench", {"durations": "results.json"}, set()),
    "shares": ("torchbench", {"partitions": 2}, set()),
    "the zoo": ("torchbench", {}, set()),
    "a model in a file": (
        "torchbench",
        {"source": "own", "models": ["path:mine.py,class:Model"]},
        set(),
    ),
    "models of transformers by torchbench": ("torchbench", {"source": "huggingface"}, set()),
    "timm": ("torchbench", {"source": "timm", "models": ["anything"]}, set()),
    "a folder": ("transformers", {"model": "./tiny"}, {"tiny"}),
    "a folder in a mapping": (
        "transformers",
        {"model": ["bert", {"path": "./tiny", "name": "t"}]},
        {"tiny"},
    ),
    "presets": ("transformers", {}, set()),
    "a hub id": ("transformers", {"model": "owner/name"}, set()),
    "a configuration that says all": (
        "transformers",
        {"model": {"config": {"model_type": "bert"}}},
        set(),
    ),
    "a training of a folder": (
        "training_loss",
        {"model": {"path": "./tiny"}, "dataset": {"files": {"train": "t.csv"}}},
        set(),
    ),
    "a training of your own": (
        "training_loss",
        {"dataset": {"factory": "mine:rows"}, "backend": "mine:compile"},
        set(),
    ),
    "a command": (
        "command",
        {"name": "c", "command": "make", "cwd": "zoo", "format": "auto", "output": "table.yml"},
        set(),
    ),
    "networks": ("fastrnns", {}, set()),
}
WATCH = """
    import json, sys
    from pathlib import Path
    from ci_bench.suites.registry import find_suite

    read, tree = [], Path.cwd()
    def watch(event, arguments):
        if event in {"open", "os.scandir", "os.listdir"} and isinstance(arguments[0], str):
            place = tree / arguments[0]
            if place.is_relative_to(tree):
                read.append(place.relative_to(tree).parts[0])
    entries = json.loads(sys.argv[1])
    suites = {name: find_suite(name) for name, _ in entries.values()}
    sys.addaudithook(watch)
    found = {}
    for label, (name, options) in entries.items():
        read.clear()
        suites[name].plan(options)
        found[label] = sorted({*read})
    print(json.dumps(found))
"""


def test_an_entry_says_which_files_of_the_tree_its_plan_reads(tree) -> None:
    """Held against what is opened: one that does not say so would be planned of whatever lies where results are judged."""
    assert planned_there(tree) == {label: sorted(files) for label, (_, _, files) in ENTRIES.items()}
    for label, (suite, options, files) in ENTRIES.items():
        assert plans_from_tree(suite, options) is bool(files), label


def planned_there(tree: Path) -> dict[str, list[str]]:
    """What plans open, by entry, in a process of their own: an audit hook stays for good."""
    documents.write(results(result(id="torchbench/mlp")), tree / "results.json")
    entries = {label: (suite, options) for label, (suite, options, _) in ENTRIES.items()}
    command = [sys.executable, "-c", textwrap.dedent(WATCH), json.dumps(entries)]
    done = subprocess.run(
        command, cwd=tree, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_a_suite_that_reads_and_does_not_say_so_is_seen(tree, monkeypatch) -> None:
    monkeypatch.setattr(TorchBench, "reads", lambda *_: ())
    assert not plans_from_tree("torchbench", CHECKOUT)
    assert planned_there(tree)["a checkout"] == ["zoo"]


def test_what_reads_the_tree_is_not_planned_here_whatever_lies_here(tree) -> None:
    """The folder that results are judged in may be anybody's: its files say nothing about the base branch's."""
    suites = {
        "torchbench": [{"models": ["mlp"]}, {**CHECKOUT, "name": "c", "cases": IDS}],
        "transformers": [{"model": "./tiny"}],
    }
    cases, foreign = plan_here(load_config(configure(tree, suites)))
    assert {case.suite for case in cases} == {"torchbench"}
    assert {case.name for case in cases} == {"mlp"}
    assert foreign == (
        Declaration(suite="torchbench", field="suites.torchbench[1].cases", cases=tuple(IDS)),
        Declaration(suite="transformers", field="suites.transformers[0].cases", cases=None),
    )


def test_what_needs_no_tree_is_planned_here_whatever_it_declares(tree) -> None:
    cases, foreign = plan_here(
        load_config(configure(tree, {"torchbench": [{"models": ["mlp"], "cases": 1}]}))
    )
    assert ({case.name for case in cases}, len(cases), foreign) == ({"mlp"}, 2, ())


def test_a_contradiction_is_told_and_not_taken_for_the_trees(tree) -> None:
    config = load_config(configure(tree, {"torchbench": [{"freezing": True, "mode": "training"}]}))
    with pytest.raises(BadConfig, match="only inference can freeze"):
        plan_here(config)


# A plan is held to what is declared


def entry(cases: object, **more: object) -> dict[str, Any]:
    return {"torchbench": [{"models": ["mlp"]}, {**CHECKOUT, "cases": cases, **more}]}


def plugin(cases: object, *sizes: int) -> dict[str, Any]:
    plugins = {"mine": {"target": "mine:SUITE", "cases": cases}}
    return {
        "plugins": plugins,
        "suites": {"mine": [{"name": chr(97 + n), "cases": size} for n, size in enumerate(sizes)]},
    }


RIGHT = {
    "a number": {"suites": entry(3)},
    "ids": {"suites": entry(IDS)},
    "ids in another order": {"suites": entry(IDS[::-1])},
    "named models, and more in the tree": {
        "suites": {"torchbench": [{**CHECKOUT, "models": ["alpha"], "cases": 1}]}
    },
    "nothing": {"suites": {"torchbench": [CHECKOUT]}},
    "an entry that needs no tree": {"suites": {"torchbench": [{"models": ["mlp"], "cases": 2}]}},
    "a plugin's number": plugin(3, 1, 2),
    "a plugin's ids": plugin(["mine/a0", "mine/b0", "mine/b1"], 1, 2),
}
FIELD = "suites.torchbench[1].cases"
WRONG = {
    "too few": (
        {"suites": entry(2)},
        f"{FIELD}: 2 declared, and 3 planned ('torchbench/alpha[",
        "write `cases: 3`",
    ),
    "too many": (
        {"suites": entry(4)},
        f"{FIELD}: 4 declared, and 3 planned ('torchbench/alpha[",
        "write `cases: 3`",
    ),
    "one more": (
        {"suites": entry(IDS[:2])},
        f"{FIELD}: other cases are declared than planned ('torchbench/gamma[",
        "`ci-bench list --declare` prints what to write",
    ),
    "one less": (
        {"suites": entry([*IDS, "torchbench/delta"])},
        f"{FIELD}: other cases are declared than planned ('torchbench/delta' not planned, take out)",
        "`ci-bench list --declare` prints what to write",
    ),
    "an entry that needs no tree": (
        {"suites": {"torchbench": [{"models": ["mlp"], "cases": 1}]}},
        "suites.torchbench[0].cases: 1 declared, and 2 planned (",
        "write `cases: 2`",
    ),
    "a plugin's number": (
        plugin(2, 1, 2),
        "plugins.mine.cases: 2 declared, and 3 planned ('mine/a0'",
        "write `cases: 3`",
    ),
    "a plugin's ids": (
        plugin(["mine/a0", "mine/c"], 1, 1),
        "plugins.mine.cases: other cases are declared than planned ('mine/c' not planned, take out; 'mine/b0' planned, add)",
        "`ci-bench list --declare` prints what to write",
    ),
}


@pytest.mark.parametrize("written", RIGHT.values(), ids=RIGHT)
def test_a_plan_of_the_declared_cases_goes_on(tree, written) -> None:
    configure(tree, **written)
    assert cli.main(["list"]) == ExitCode.OK
    assert cli.main(["list", "--filter", "a"]) == ExitCode.OK, (
        "a filter takes nothing from what is declared"
    )


@pytest.mark.parametrize("command", ["list", "run"])
@pytest.mark.parametrize(("written", "said", "advice"), WRONG.values(), ids=WRONG)
def test_a_plan_of_other_cases_is_refused_before_anything_is_measured(  # noqa: PLR0917 - by name
    tree, capsys, command, written, said, advice
) -> None:
    configure(tree, **written)
    assert cli.main([command]) == ExitCode.BAD_INPUT
    told = capsys.readouterr().err
    assert told.startswith(f"ci-bench: {said}")
    assert told.rstrip().endswith(advice)


def test_every_wrong_declaration_is_told_at_once(tree, capsys) -> None:
    configure(
        tree,
        {
            "torchbench": [{**CHECKOUT, "cases": 1}],
            "transformers": [{"model": "./tiny", "cases": 2}],
        },
    )
    assert cli.main(["list"]) == ExitCode.BAD_INPUT
    told = capsys.readouterr().err
    assert ("suites.torchbench[0].cases" in told, "suites.transformers[0].cases" in told) == (
        True,
        True,
    )


def test_declaring_changes_no_digest(tree) -> None:
    """As with plugins: what was measured by the configuration before may still be judged."""
    plain = planning.digest(load_config(configure(tree, {"torchbench": [CHECKOUT]})))
    assert (
        planning.digest(load_config(configure(tree, {"torchbench": [{**CHECKOUT, "cases": 3}]})))
        == plain
    )


def test_a_plugins_own_option_of_that_name_stays_its_own(tree) -> None:
    assert load_config(configure(tree, **plugin(3, 3))).entries == (
        SuiteEntry(suite="mine", options={"name": "a", "cases": 3}),
    )


@pytest.mark.parametrize("cases", [-1, 1.5, "three", True, [1], ["a", "a"], None])
def test_what_declares_nothing_is_refused(tree, cases) -> None:
    with pytest.raises(BadConfig, match=r"suites\.torchbench\[1\]\.cases"):
        load_config(configure(tree, entry(cases)))


# How to write it down


def declared(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert cli.main(["list", "--declare"]) == ExitCode.OK
    return yaml.safe_load(capsys.readouterr().out)


def test_what_is_printed_declares_all_once_it_is_pasted(tree, capsys) -> None:
    awkward = {
        "model_options": {
            "one": "5e-4",
            "two": "no",
            "three": "a: b",
            "four": 5e-4,
            "five": None,
            "six": "#é",
        }
    }
    suites = {
        "torchbench": [{"name": "z", **awkward}, CHECKOUT],
        "transformers": [{"model": ["bert", {"path": "./tiny"}]}],
        "fastrnns": [{}],
        "mine": [{"name": "a", "cases": 2}],
    }
    path = configure(tree, suites, plugins={"mine": "mine:SUITE", "other": {"cases": 5}})
    before = load_config(path)
    assert cli.main(["list", "--declare"]) == ExitCode.OK
    parts = parse(capsys.readouterr().out)
    assert parts.faults == ()
    assert [*parts.value["suites"]] == ["torchbench", "transformers"], (
        "other suites have nothing to declare"
    )
    assert parts.value["suites"]["torchbench"][1] == {**CHECKOUT, "cases": IDS}
    assert parts.value["plugins"] == {
        "mine": {"target": "mine:SUITE", "cases": ["mine/a0", "mine/a1"]},
        "other": {"cases": 5},
    }
    after = load_config(
        configure(tree, {**suites, **parts.value["suites"]}, plugins=parts.value["plugins"])
    )
    assert [replace(one, cases=None) for one in after.entries] == [*before.entries]
    assert all(one.cases is not None for one in plan_here(after)[1])
    assert cli.main(["list"]) == ExitCode.OK


def test_a_wrong_number_is_printed_as_the_right_number(tree, capsys) -> None:
    configure(tree, entry(7))
    assert declared(tree, capsys)["suites"]["torchbench"] == [
        {"models": ["mlp"]},
        {**CHECKOUT, "cases": 3},
    ]


def test_more_ids_than_may_be_written_are_a_number(tree, capsys) -> None:
    configure(tree, {"mine": [{"name": "a", "cases": 1001}]}, plugins={"mine": "mine:SUITE"})
    assert declared(tree, capsys)["plugins"]["mine"]["cases"] == 1001


def test_where_nothing_has_to_be_declared_nothing_is_printed(tree, capsys) -> None:
    configure(tree, {"fastrnns": [{}]})
    assert cli.main(["list", "--declare"]) == ExitCode.OK
    told = capsys.readouterr()
    assert told.out == ""
    assert "nothing has to be declared" in told.err


def test_a_part_of_the_cases_is_not_declared(tree, capsys) -> None:
    configure(tree, entry(3))
    assert cli.main(["list", "--declare", "--filter", "alpha"]) == ExitCode.BAD_INPUT
    assert "--declare covers all cases" in capsys.readouterr().err
