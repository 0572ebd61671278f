"""Paths of benchmarks on the command line and in a configuration; code of the tree is imported in a process of its own, or not at all."""

import os
import subprocess
import sys

import pytest
import yaml
from functions_builders import write

from ci_bench import cli
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.inputs import command_again
from ci_bench.configuration.config import function_entries, load_config
from ci_bench.errors import ExitCode

LITERAL = """
    from pathlib import Path
    Path("imported").touch()

    @ci_bench.benchmark(n=[1, 2])
    def f(n):
        return lambda: None
"""
COMPUTED = """
    import os
    from pathlib import Path
    Path("imported").write_text("\\n".join(f"{name}={value}" for name, value in os.environ.items()))
    print("benchmarks may print")

    @ci_bench.benchmark(n=[2**k for k in range(2)])
    def f(n):
        return lambda: None
"""
HEAD = "import ci_bench\n"


def listed(capsys) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("functions/")]


def test_a_folder_is_listed_with_no_configuration_and_nothing_imported(tree, capsys) -> None:
    write(tree, LITERAL, file="benchmarks/one.py", head=HEAD)
    assert cli.main(["list", "benchmarks/"]) == ExitCode.OK
    assert listed(capsys) == ["functions/f[n=1]", "functions/f[n=2]"]
    assert not (tree / "imported").exists()


def test_what_has_to_be_imported_is_in_a_process_that_sees_no_secret(
    tree, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "a-token")
    write(tree, COMPUTED, file="benchmarks/one.py", head=HEAD)
    assert cli.main(["list", "benchmarks/one.py", "./benchmarks"]) == ExitCode.OK
    assert listed(capsys) == ["functions/f[n=1]", "functions/f[n=2]"]
    assert not [name for name in sys.modules if name.startswith("ci_bench_own_benchmarks")]
    seen = (tree / "imported").read_text()
    assert "PATH=" in seen
    assert "a-token" not in seen


def test_what_is_wrong_in_an_imported_file_is_told_by_its_line(tree, capsys) -> None:
    write(tree, "@ci_bench.benchmark(m=[2**3])\ndef f(n):\n    return lambda: None\n", head=HEAD)
    assert cli.main(["list", "bench.py"]) == ExitCode.BAD_INPUT
    assert (
        capsys.readouterr().err
        == "ci-bench: bench.py:2: f: m: no parameter of this name (there are: n)\n"
    )
    write(
        tree,
        "import no_such_thing\n@ci_bench.benchmark(n=[2**3])\ndef f(n):\n    return lambda: None\n",
        head=HEAD,
    )
    assert cli.main(["list", "bench.py"]) == ExitCode.BAD_INPUT
    assert (
        "bench.py:2: cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'"
        in capsys.readouterr().err
    )


def test_paths_take_the_place_of_the_files_suites_and_its_run_and_policy_count(tree) -> None:
    path = tree / "ci-bench.yml"
    path.write_text(
        "schema_version: 1\n"
        "plugins: {mine: mine.suite:SUITE}\n"
        "run: {launches: 7}\n"
        "suites: {mine: [{}], command: [{name: x, command: y}]}\n"
        "policy: {default_threshold: 3%, suites: {command: {thresholds: {step_time: 1%}}, functions: {thresholds: {step_time: 2%}}}}\n"
    )
    config = load_config(path, benchmarks=("benchmarks",))
    assert [(entry.suite, entry.options) for entry in config.entries] == [
        ("functions", {"path": ["benchmarks"]})
    ]
    assert (config.run.launches, config.policy.default_threshold, {*config.policy.suites}) == (
        7,
        0.03,
        {"functions"},
    )
    assert function_entries(path, ("benchmarks",)) == ({"path": ["benchmarks"]},)
    assert function_entries(path, ()) == ()


def test_a_configuration_names_files_and_declares_their_cases(tree, capsys) -> None:
    write(tree, LITERAL, file="benchmarks/one.py", head=HEAD)
    config = {
        "schema_version": 1,
        "suites": {"functions": [{"path": "benchmarks", "match": ["f"], "cases": 3}]},
    }
    (tree / "ci-bench.yml").write_text(yaml.safe_dump(config))
    assert cli.main(["list"]) == ExitCode.BAD_INPUT
    assert (
        "suites.functions[0].cases: 3 declared, and 2 planned ('functions/f[n=1]', 'functions/f[n=2]')"
        in capsys.readouterr().err
    )
    assert cli.main(["list", "--declare"]) == ExitCode.OK
    assert "cases: 2" in capsys.readouterr().out
    (tree / "ci-bench.yml").write_text(yaml.safe_dump(config).replace("path", "paht"))
    assert cli.main(["list"]) == ExitCode.BAD_INPUT
    assert (
        "suites.functions[0].paht: unknown field; did you mean 'path'?" in capsys.readouterr().err
    )


def test_a_path_outside_of_the_tree_is_refused(tree, capsys) -> None:
    assert cli.main(["list", str(tree.parent)]) == ExitCode.BAD_INPUT
    assert f"{tree.parent}: not inside {tree}" in capsys.readouterr().err
    assert cli.main(["list", "nowhere"]) == ExitCode.BAD_INPUT
    assert "nowhere: no Python file found" in capsys.readouterr().err


def test_the_command_that_measures_again_names_the_paths(tmp_path) -> None:
    settings = Measuring(environ={}, here=tmp_path, paths=(tmp_path / "b",), launches=2)
    assert command_again("run", settings) == (
        "ci-bench",
        "run",
        str(tmp_path / "b"),
        "--launches",
        "2",
    )


def test_the_package_is_imported_without_what_benchmarks_are_written_with() -> None:
    code = "import ci_bench, sys; print(len([m for m in sys.modules if m.startswith('ci_bench')]), 'torch' in sys.modules); "
    code += "from ci_bench import benchmark, inputs, record; print('torch' in sys.modules, 'yaml' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ}, check=True
    )
    assert done.stdout.splitlines() == ["1 False", "False False"]


def test_the_package_has_nothing_else() -> None:
    import ci_bench

    with pytest.raises(AttributeError, match="has no attribute 'benchmrk'"):
        _ = ci_bench.benchmrk
