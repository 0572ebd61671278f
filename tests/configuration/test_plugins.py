"""Suites that the measured tree brings along: planned in a process of their own, checked, and never imported by this one."""

import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from ci_bench import cli
from ci_bench.configuration import plugins
from ci_bench.configuration.config import load_config, named_plugins
from ci_bench.configuration.plugins import finder, open_suites
from ci_bench.errors import BadConfig, ExitCode, UnknownSuite
from ci_bench.records.config import Plugin
from ci_bench.suites.contract import StageKind

SUITE = """
    import os
    from pathlib import Path
    from ci_bench.errors import BadConfig
    from ci_bench.records.results import Case
    from ci_bench.suites.contract import Stage, StageKind, Suite
    Path("imported-by").write_text(str(os.getpid()))
    Path("seen").write_text("\\n".join(f"{name}={value}" for name, value in os.environ.items()))

    class Mine(Suite):
        name = "mine"
        worker = "mine.worker"
        preload = ("json",)
        options_schema = {"type": "object", "additionalProperties": False, "properties": {"size": {"type": "integer"}}}

        def plan(self, options):
            print("suites may print")
            if options.get("size") == 13:
                raise BadConfig("suites.mine.size: 13 brings bad luck")
            return (Case(id="mine/a", suite="mine", name="a", params=dict(options), arms=("x",), reference="x"),)

        def stages(self, case):
            return (Stage(kind=StageKind.TIME, arms=case.arms, launches=None),)

    SUITE = Mine()
    NOT_A_SUITE = 3
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with a suite in ``src/mine``, and a configuration that names it."""
    package = tmp_path / "my tree" / "src" / "mine"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "suite.py").write_text(textwrap.dedent(SUITE))
    folder = package.parent.parent
    configure(folder)
    monkeypatch.chdir(folder)
    return folder


def configure(
    folder: Path, *, target: str = "mine.suite:SUITE", name: str = "mine", **options: object
) -> Path:
    path = folder / "ci-bench.yml"
    path.write_text(
        yaml.safe_dump(
            {"schema_version": 1, "plugins": {name: target}, "suites": {name: [options]}}
        )
    )
    return path


def test_it_is_planned_in_another_process_that_sees_no_secret(tree, monkeypatch, capsys) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "a-token")
    monkeypatch.setenv("MY_API_KEY", "a-key")
    configure(tree, size=4)
    assert cli.main(["list"]) == ExitCode.OK
    assert (
        "mine/a\n    a plugin's case\n1 case on device auto. A gate takes about 1 min"
        in capsys.readouterr().out
    )
    assert (tree / "imported-by").read_text() != str(__import__("os").getpid())
    assert "mine.suite" not in sys.modules
    seen = (tree / "seen").read_text()
    assert "PATH=" in seen
    assert "a-token" not in seen
    assert "a-key" not in seen


def test_what_it_planned_is_what_the_engine_gets(tree) -> None:
    suites = open_suites({"mine": "mine.suite:SUITE"}, tree, {"PATH": "/usr/bin:/bin"})
    suite = finder(suites)("mine")
    (case,) = suite.plan({"size": 4})
    assert (case.params, suite.worker, suite.preload) == ({"size": 4}, "mine.worker", ("json",))
    assert [stage.kind for stage in suite.stages(case)] == [StageKind.TIME]
    assert suite.stages(case)[0].launches is None
    assert suite.needs_network(case) is False
    assert finder(suites)("command").name == "command"


def test_its_options_are_checked_by_its_own_form(tree, capsys) -> None:
    configure(tree, sise=4)
    assert cli.main(["list"]) == ExitCode.BAD_INPUT
    assert "suites.mine[0].sise: unknown field; did you mean 'size'?" in capsys.readouterr().err


def test_what_it_says_of_its_options_is_told_in_its_own_words(tree, capsys) -> None:
    configure(tree, size=13)
    assert cli.main(["list"]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == "ci-bench: suites.mine.size: 13 brings bad luck\n"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("mine.nothing:SUITE", "No module named 'mine.nothing'"),
        ("mine.suite:OTHER", "has no attribute 'OTHER'"),
        (
            "mine.suite:NOT_A_SUITE",
            "mine.suite:NOT_A_SUITE is not a Suite; let its class inherit from",
        ),
    ],
)
def test_what_is_no_suite_is_told_with_its_last_words(tree, capsys, target, said) -> None:
    configure(tree, target=target)
    assert cli.main(["list"]) == ExitCode.BAD_INPUT
    told = capsys.readouterr().err
    assert told.startswith(
        f"ci-bench: plugins.mine: {target} cannot be imported and asked for a plan, from {tree}"
    )
    assert said in told


def test_a_suite_that_hangs_is_ended(tree, monkeypatch) -> None:
    (tree / "src" / "mine" / "suite.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(plugins, "TIMEOUT_S", 1.0)
    with pytest.raises(UnknownSuite, match="did not plan within 1 s"):
        open_suites({"mine": "mine.suite:SUITE"}, tree, {"PATH": "/usr/bin:/bin"})


@pytest.mark.parametrize("planted", ["{}", "null", '{"worker": 3}', "[" * 100_000, "not json"])
def test_an_answer_that_is_none_is_refused(tree, planted) -> None:
    code = f"import os, sys; open(sys.argv[2], 'w').write({planted!r}); os._exit(0)"
    (tree / "src" / "mine" / "suite.py").write_text(code)
    with pytest.raises(UnknownSuite, match=r"is not a suite as described in docs/plugins\.md"):
        open_suites({"mine": "mine.suite:SUITE"}, tree, {"PATH": "/usr/bin:/bin"})


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"$ref": "http://example.org/form.json"}, "outside of itself"),
        ({"type": 3}, "is not valid"),
        ({"pattern": "("}, "'\\('"),
    ],
)
def test_a_form_that_is_none_or_lies_elsewhere_is_refused(tree, form, said) -> None:
    code = f"from ci_bench.suites.contract import Suite\nclass Mine(Suite):\n    worker, options_schema = 'mine.worker', {form!r}\n    plan = stages = None\nSUITE = Mine()"
    (tree / "src" / "mine" / "suite.py").write_text(code)
    with pytest.raises(UnknownSuite, match=said):
        open_suites({"mine": "mine.suite:SUITE"}, tree, {"PATH": "/usr/bin:/bin"})


def test_a_case_of_another_suite_is_refused(tree) -> None:
    suites = open_suites({"other": "mine.suite:SUITE"}, tree, {"PATH": "/usr/bin:/bin"})
    with pytest.raises(UnknownSuite, match="says that its suite is 'mine'"):
        suites["other"].plan({})


def test_what_only_reads_runs_none_of_its_code(tree) -> None:
    """`compare`, `validate` and the trusted half of a gate: any mapping is an entry there."""
    path = configure(tree, anything="goes")
    assert load_config(path).plugins == {"mine": Plugin(target="mine.suite:SUITE")}
    assert cli.main(["validate", str(path)]) == ExitCode.OK
    assert not (tree / "imported-by").exists()


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        (
            "command",
            "mine.suite:SUITE",
            "plugins.command: a suite of this name ships with ci-bench",
        ),
        ("mine", "mine.suite", "plugins.mine:"),
        ("mine", "../mine:SUITE", "plugins.mine:"),
        ("Mine", "mine.suite:SUITE", "plugins: the name 'Mine' does"),
    ],
)
def test_names_and_paths_that_are_none_are_refused(tree, name, target, said) -> None:
    path = configure(tree, target=target, name=name)
    assert named_plugins(path) == {}
    with pytest.raises(BadConfig) as told:
        load_config(path)
    assert said in str(told.value)
