"""`gate --baseline paired`, where head writes to base's tree, and where both do in their own what honest benchmarks do."""

import json
import sys

import pytest
import yaml
from end_to_end_builders import git, outcome
from repositories import environ, topic_repository

from ci_bench.checkouts.paired import Place, prepare_sides
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.preparing import planning_sealed
from ci_bench.errors import ExitCode, OutOfReach
from ci_bench.records import documents
from ci_bench.records.config import Setup
from ci_bench.records.results import Status

pytestmark = pytest.mark.usefixtures("plugin")

SCRIPT = """import json, pathlib, helper
value = helper.VALUE
out = pathlib.Path("results/out.json")
out.write_text(json.dumps({"kind": "measurements", "schema_version": 1,
    "series": [{"name": "work", "unit": "count", "better": "lower", "value": value}]}))
pathlib.Path("log.txt").write_text("done")
"""
ATTACK = """import pathlib, shutil
here = pathlib.Path.cwd()
base = here.parents[1] / "base" / here.name
shutil.copyfile("helper.py", base / "helper.py")
"""


@pytest.fixture
def gated(repository, tmp_path, ci_bench):
    """Commits what is written, with a result that is committed and written over, and gates it against the commit before."""
    (repository / "results").mkdir()
    (repository / "results" / "out.json").write_text("{}")
    (repository / "measure.py").write_text(SCRIPT)
    (repository / "helper.py").write_text("VALUE = 10\n")
    entry = {
        "name": "own",
        "command": [sys.executable, "measure.py"],
        "output": "results/out.json",
        "format": "measurements",
    }
    run = {"device": "cpu", "sampling": "fixed", "launches": 2}
    config = {"schema_version": 1, "run": run, "suites": {"command": [entry]}}
    (repository / "ci-bench.yml").write_text(yaml.safe_dump(config))
    git(repository, "add", ".")
    git(repository, "commit", "-m", "base")

    def gate(helper):
        (repository / "helper.py").write_text(helper)
        git(repository, "commit", "-a", "-m", "head")
        return ci_bench(
            "gate", "--baseline", "paired", "--base", "HEAD~1", "--output", tmp_path / "out"
        )

    return gate


def test_head_that_writes_itself_over_base_fails_by_the_files_name(gated, tmp_path) -> None:
    """Without the seal, base would be as slow as head in the second launch."""
    code, _, said = gated(f"VALUE = 20\n{ATTACK}")
    assert code != ExitCode.OK, said
    for name in ("results.json", "base/results.json"):
        (row,) = documents.read_results(tmp_path / "out" / name).cases
        assert (row.status, row.failure.stage) == (Status.FAILED, "reach")
        assert (
            row.failure.reason
            == "while base and head were measured, base's tree was changed: helper.py was written"
        )
    assert (
        "helper.py was written"
        in json.dumps([found.message for found in outcome(tmp_path / "out").judgement.findings])
        + said
    )


def test_outputs_and_compiled_modules_in_its_own_tree_are_no_offence(gated, tmp_path) -> None:
    code, _, said = gated("VALUE = 10\n# another comment\n")
    assert code == ExitCode.OK, said
    assert {
        row.status for row in documents.read_results(tmp_path / "out" / "results.json").cases
    } == {Status.OK}


A_PLUGIN = {
    "ci-bench.yml": "schema_version: 1\nplugins: {mine: my_suite:SUITE}\nsuites: {mine: [{}]}\n"
}
A_FUNCTION = {
    "ci-bench.yml": "schema_version: 1\nsuites: {functions: [{path: bench.py}]}\n",
    "bench.py": "import ci_bench\n@ci_bench.benchmark(n=[2**3])\ndef f(n): ...\n",
}


@pytest.mark.parametrize(
    "files", [A_PLUGIN, A_FUNCTION], ids=["a plugin", "a function that has to be imported"]
)
@pytest.mark.parametrize(
    ("path", "said"),
    [("paired/base/r/mark.py", "base's tree was changed: mark.py was written"), (None, "")],
)
def test_planning_that_reaches_for_base_is_refused(
    tmp_path, monkeypatch, path, said, files
) -> None:
    """The tree's own suites are planned by head's code, when base may be prepared."""
    repository, _, _ = topic_repository(tmp_path / "r")
    repository.write(files)
    place = Place(
        repository=repository.top,
        scratch=tmp_path / "s",
        logs=tmp_path / "s" / "logs",
        environ=environ(),
    )
    prepare_sides(place, base=None, setup=Setup())
    monkeypatch.chdir(repository.top)
    settings = Measuring(environ=environ(), here=repository.top, prepared=tmp_path / "s")

    def plan():
        with planning_sealed(settings):
            for name in [path] if path else []:
                (tmp_path / "s" / name).write_text("1\n")

    if path:
        with pytest.raises(OutOfReach, match=f"while the tree's own suites were planned, {said}"):
            plan()
    else:
        plan()
