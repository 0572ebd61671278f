"""What is written in two places says the same in both: schemas, code, metadata, help."""

import ast
import dataclasses
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from ci_bench.command_line import flags
from ci_bench.configuration.config import Overrides
from ci_bench.diagnostics import doctor
from ci_bench.errors import ExitCode
from ci_bench.records import metrics
from ci_bench.records.config import RunOptions
from ci_bench.records.documents import Kind, schema
from ci_bench.records.labels import DOING
from ci_bench.suites.contract import StageKind
from ci_bench.suites.registry import BUILT_IN, find_metrics, find_suite

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ci_bench"
WORKER = SOURCE / "worker"


def texts(module: str) -> set[str]:
    """Every text literal of a module of the worker."""
    tree = ast.parse((WORKER / module).read_text())
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_a_judgement_has_an_exit_code_that_judging_can_have() -> None:
    listed = schema(Kind.COMPARISON)["$defs"]["judgement"]["properties"]["exit_code"]["enum"]
    assert listed == [
        ExitCode.OK,
        ExitCode.POLICY_NOT_MET,
        ExitCode.MEASURING_FAILED,
        ExitCode.INCOMPARABLE,
    ]


def test_the_help_names_every_exit_code() -> None:
    epilog = flags.make_parser().epilog or ""
    named = {int(number) for number in re.findall(r"\b([0-9]+) ", epilog)}
    assert named == {code.value for code in ExitCode if code <= ExitCode.GITHUB}


def test_flags_override_fields_of_the_run() -> None:
    run = {field.name: field.type for field in dataclasses.fields(RunOptions)}
    assert {field.name for field in dataclasses.fields(Overrides)} <= run.keys()


def test_every_built_in_suite_can_be_configured_and_has_a_policy() -> None:
    config = schema(Kind.CONFIG)
    assert {*config["properties"]["suites"]["properties"]} == {*BUILT_IN}
    assert {*config["$defs"]["policy"]["properties"]["suites"]["properties"]} == {*BUILT_IN}


def test_every_stage_has_words_for_the_display() -> None:
    assert {*DOING} == {*StageKind}


def test_every_declared_metric_is_measured_by_engine_or_suites() -> None:
    """A threshold for a metric that nothing measures would be taken, and do nothing."""
    declared = {
        name for name, value in vars(metrics).items() if isinstance(value, metrics.MetricKind)
    }
    sources = [
        path.read_text()
        for part in ("host", "runner", "suites", "worker")
        for path in (SOURCE / part).rglob("*.py")
    ]
    assert {
        name for name in declared if not any(re.search(rf"\b{name}\b", text) for text in sources)
    } == set()
    phases = {
        kind.name.removeprefix(f"{metrics.COMPILE_COLD.name}_") for kind in metrics.COMPILE_PHASES
    }
    assert phases <= texts("compilation.py")


def test_no_suite_declares_a_metric_of_the_engine_and_no_two_the_same_one() -> None:
    packages = [import_module(target.partition(".plan")[0]) for target in BUILT_IN.values()]
    names = [kind.name for package in packages for kind in getattr(package, "METRICS", ())]
    assert len({*names}) == len(names)
    assert not {*names} & {*metrics.ENGINE}
    assert {*find_metrics()} == {*metrics.ENGINE, *names}


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_a_suite_owes_is_something(name) -> None:
    options = {"path": "examples/kernels/benchmarks"} if name == "functions" else {"name": "any"}
    for case in find_suite(name).plan(options):
        assert case.due.checks or case.due.times or case.due.parity


def test_the_doctor_asks_for_the_versions_that_the_package_declares() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]["engine"]
    declared = dict(requirement.split(">=") for requirement in extra)
    asked = {name: ".".join(map(str, version)) for name, version in doctor.PACKAGES.items()}
    assert [name for name, version in asked.items() if not declared[name].startswith(version)] == []


@pytest.mark.engine
def test_every_optimizer_of_the_schema_is_torchs() -> None:
    optim = pytest.importorskip("torch").optim
    names = schema(Kind.CONFIG)["$defs"]["training_loss"]["properties"]["optimizer"]["else"]["enum"]
    assert [name for name in names if not issubclass(getattr(optim, name), optim.Optimizer)] == []
