"""Entries of the configuration to cases; contradictions are refused with the field's name."""

from pathlib import Path

import pytest

from ci_bench.configuration.config import load_config
from ci_bench.errors import BadConfig
from ci_bench.formats import catalogue
from ci_bench.records.documents import Kind, schema
from ci_bench.records.results import Better
from ci_bench.suites.command.options import CommandOptions, SelectionRule, parse
from ci_bench.suites.command.plan import SUITE
from ci_bench.suites.command.run import open_workload
from ci_bench.suites.contract import Context, StageKind


def plan(**entry):
    (case,) = SUITE.plan({"name": "kernels", **entry})
    return case


def load(tmp_path: Path, *lines: str):
    path = tmp_path / "ci-bench.yml"
    path.write_text(
        "schema_version: 1\nsuites:\n  command:\n    - name: kernels\n"
        + "".join(f"      {line}\n" for line in lines)
    )
    return load_config(path).entries[0].options


def test_a_command_is_timed_and_its_memory_is_measured_where_nothing_is_read() -> None:
    case = plan(command=["make", "bench"])
    assert (case.id, case.arms, case.reference, case.due.times) == (
        "command/kernels",
        ("command",),
        "command",
        ("step_time",),
    )
    assert [(stage.kind, stage.launches) for stage in SUITE.stages(case)] == [
        (StageKind.RUN, (0, 1)), (StageKind.TIME, None),
    ]  # fmt: skip
    assert not SUITE.needs_network(case)


def test_a_command_that_is_read_runs_once_in_every_launch() -> None:
    case = plan(command="make bench", format="auto")
    assert [(stage.kind, stage.arms, stage.launches) for stage in SUITE.stages(case)] == [
        (StageKind.RUN, ("command",), None)
    ]
    assert case.due.times == (), "what it owes is told by the rules and by the baseline"


def test_arms_run_in_one_case_and_the_reference_comes_first() -> None:
    case = plan(arms={"fused": ["./bench", "fused"], "eager": "./bench eager"}, reference="eager")
    assert (case.arms, case.reference) == (("eager", "fused"), "eager")
    assert plan(arms={"fused": "a", "eager": "b"}).reference == "fused"
    assert len([stage for stage in SUITE.stages(case) if stage.kind is StageKind.RUN]) == 2, (
        "one process at a time tells memory"
    )


def test_parameters_are_the_entry_so_that_another_command_is_another_measurement() -> None:
    assert plan(command=["a"]).params == {"name": "kernels", "command": ["a"]}
    assert parse(plan(command=["a"]).params) == CommandOptions(
        name="kernels", arms={"command": ("a",)}, reference="command"
    )


def test_rules_are_values() -> None:
    options = parse(
        {
            "name": "a",
            "command": "b",
            "format": "auto",
            "metrics": [{"match": "*", "better": "higher"}],
        }
    )
    assert options.metrics == (SelectionRule(match="*", better=Better.HIGHER),)


WRONG = [
    (
        {"command": "a", "arms": {"x": "b"}},
        "suites.command.kernels.command: the entry has arms, too",
    ),
    (
        {"arms": {"x": "b"}, "reference": "y"},
        "suites.command.kernels.reference: 'y' is not one of the arms (x)",
    ),
    (
        {"command": "a", "output": "stdout"},
        "suites.command.kernels.output: nothing is read without a format",
    ),
    (
        {"command": "a", "metrics": [{"match": "*"}]},
        "suites.command.kernels.metrics: nothing is read without a format",
    ),
    ({"command": "a", "loop": "a:b"}, "suites.command.kernels.command: the entry has a `loop`"),
    ({"loop": "a:b", "format": "auto"}, "suites.command.kernels.format: the entry has a `loop`"),
    ({"loop": "a:b", "output": "x"}, "suites.command.kernels.output: the entry has a `loop`"),
    (
        {"loop": "a:b", "losses": {"loss": "x"}},
        "suites.command.kernels.losses.loss: the entry has a `loop`",
    ),
    ({"loop": "a:b", "arms": {"x": "b"}}, "suites.command.kernels.arms: the entry has a `loop`"),
    (
        {"loop": "a:b", "arguments": {"x": {}}, "reference": "y"},
        "suites.command.kernels.reference: 'y' is not one of the arms (x)",
    ),
    (
        {"command": "a", "arguments": {"x": {}}},
        "suites.command.kernels.arguments: only a `loop` has arguments",
    ),
    (
        {"command": "a", "processes": 2},
        "suites.command.kernels.processes: a command starts its own",
    ),
    (
        {"command": "a", "losses": {"steps": 5}},
        "suites.command.kernels.losses.steps: only a `loop` can be ended",
    ),
]


@pytest.mark.parametrize(("entry", "complaint"), WRONG, ids=[complaint for _, complaint in WRONG])
def test_options_that_contradict_each_other_are_refused(entry, complaint) -> None:
    with pytest.raises(BadConfig) as error:
        plan(**entry)
    assert complaint in str(error.value)


def test_the_schema_takes_a_script_a_list_and_arms(tmp_path) -> None:
    assert load(tmp_path, "command: make bench")["command"] == "make bench"
    assert load(tmp_path, 'command: [python, bench.py, "{output}"]')["command"] == [
        "python",
        "bench.py",
        "{output}",
    ]
    assert load(tmp_path, "arms: {eager: ./a, fused: [./b, -f]}")["arms"] == {
        "eager": "./a",
        "fused": ["./b", "-f"],
    }
    assert load(tmp_path, "loop: a.b:c", "arguments: {x: {}, y: {z: 1, w: a}}")["arguments"] == {
        "x": {},
        "y": {"z": 1, "w": "a"},
    }


def test_a_loop_is_run_by_python_or_by_torchrun_with_the_arguments_of_each_arm() -> None:
    runner = ("-m", "ci_bench.suites.command.looping", "package.train:train")
    options = parse({"name": "a", "loop": "package.train:train"})
    assert options.arms == {"loop": ("python", *runner)}
    assert options.losses is not None
    options = parse(
        {
            "name": "a",
            "loop": "package.train:train",
            "processes": 2,
            "losses": {"steps": 60, "warmup_steps": 5, "target": 2.5},
        }
        | {"arguments": {"eager": {}, "compiled": {"compile": True, "rate": 0.1}}}
    )
    start = ("torchrun", "--nproc-per-node=2", *runner, "--steps", "60")
    assert options.arms == {
        "eager": start,
        "compiled": (*start, "--arguments", '{"compile": true, "rate": 0.1}'),
    }
    losses = options.losses
    assert (options.reference, losses.warmup_steps, losses.target, losses.names) == (
        "eager",
        5,
        2.5,
        {},
    )
    case = plan(loop="package.train:train")
    assert (case.due.times, case.due.parity) == (("step_time",), True)
    assert [stage.kind for stage in SUITE.stages(case)] == [StageKind.VERIFY, StageKind.RUN]


REFUSED = [
    (["loop: train.py"], "'train.py' does not have the form"),
    (["loop: a:b", "arguments: {x: {a: [1]}}"], "a list is not text or a number"),
    (["loop: a:b", "processes: 0"], "0 is less than 1"),
    (["arms: {x: []}"], "0 of at least 1 items"),
    (["format: auto"], "command: missing"),
    (["command: []"], "0 of at least 1 items"),
    (["command: [1]"], "1 is not text"),
    (["command: x", "format: pyprf"], "'pyprf' is not one of auto, measurements, pytest-benchmark"),
    (["command: x", "format: pyprf"], "did you mean 'pyperf'?"),
    (["command: x", "timeout_s: 0"], "0 is not more than 0"),
    (["command: x", "env: {A: 1}"], "1 is not text"),
    (["command: x", "env: {'A B': x}"], "the name 'A B' does not have the form"),
    (
        ["command: x", "metrics: [{match: a, better: faster}]"],
        "'faster' is not one of lower, higher",
    ),
    (["command: x", "metrics: [{name: a}]"], "match: missing"),
    (["command: x", "metrics: [{match: a, name: A-B}]"], "'A-B' does not have the form"),
    (["command: x", "exit_codes: []"], "0 of at least 1 items"),
    (["comand: x"], "unknown field; did you mean 'command'?"),
]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    REFUSED,
    ids=[f"{lines[-1]}: {complaint}" for lines, complaint in REFUSED],
)
def test_the_schema_refuses(tmp_path, lines, complaint) -> None:
    with pytest.raises(BadConfig) as error:
        load(tmp_path, *lines)
    assert complaint in str(error.value)


def test_the_schema_names_the_formats_that_can_be_read_and_the_defaults_of_the_options() -> None:
    defs = schema(Kind.CONFIG)["$defs"]
    assert defs["command_format"]["enum"] == [catalogue.AUTO, *catalogue.READABLE]
    described = defs["command"]["properties"]
    fields = CommandOptions(name="x", arms={}, reference="x")
    assert {*described} - {"command"} == {*CommandOptions.__dataclass_fields__}
    for name, node in described.items():
        if "default" in node:
            value = getattr(fields, name)
            assert node["default"] == (list(value) if isinstance(value, tuple) else value), name
    rule = defs["command_metric"]["properties"]
    assert {*rule} == {*SelectionRule.__dataclass_fields__}
    assert rule["better"]["enum"] == [*Better]


@pytest.mark.parametrize(
    ("threads", "env", "found"),
    [(None, {}, "7"), (2, {}, "2"), (2, {"OMP_NUM_THREADS": "3"}, "3")],
    ids=str,
)
def test_commands_obey_threads(tmp_path, monkeypatch, threads, env, found) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.chdir(tmp_path)
    context = Context(device="cpu", scratch=tmp_path, progress=lambda *_: None, threads=threads)
    program = open_workload(
        plan(command="printf $OMP_NUM_THREADS > threads", env=env), context
    ).open("command")
    program.step(lambda: None)
    assert (tmp_path / "threads").read_text() == found
