"""What a run writes down of how it was asked for, so that another half can derive the same: digest, flags, the workflow's run."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from ci_bench.command_line.settings import Measuring
from ci_bench.commands.inputs import asked, workflow_run
from ci_bench.commands.trusted.expecting import plan_here
from ci_bench.configuration.config import Overrides, load_config
from ci_bench.judge.policy.binding import Commits, Expected, differences
from ci_bench.records.config import Machine, Plugin
from ci_bench.records.results import CaseResult, Environment, Results, Source, Status, WorkflowRun
from ci_bench.runner import planning

ROOT = Path(__file__).parents[2]
CONFIG = "schema_version: 1\nrun: {launches: 4}\nbase: origin/main\nsuites:\n  command:\n    - {name: one, command: 'true'}\n"
WORKFLOW = WorkflowRun(repository="octo-org/octo-repo", run=4711, attempt=2)
EXAMPLES = sorted(path for path in ROOT.glob("examples/**/*.yml") if "suites:" in path.read_text())


settings = partial(Measuring, environ={}, here=Path())


@pytest.fixture
def load(tmp_path):
    def make(text=CONFIG, **overrides):
        path = tmp_path / "ci-bench.yml"
        path.write_text(text)
        return load_config(path, Overrides(**overrides))

    return make


SAME = {
    "a policy": f"{CONFIG}policy: {{severities: {{regressed: note}}}}\n",
    "machines": f"{CONFIG}machines: {{h200: {{gpu: H200}}, any: }}\n",
    "a default that is written out": CONFIG.replace("launches: 4", "launches: 4, blocks: 10"),
}
OTHERS = {
    "an option of a suite": CONFIG.replace("'true'", "'false'"),
    "how it is measured": CONFIG.replace("launches: 4", "launches: 5"),
    "the base": CONFIG.replace("origin/main", "origin/stable"),
    "the set-up": f"{CONFIG}setup: {{commands: [make]}}\n",
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_what_measures_nothing_changes_no_digest(load, text):
    assert planning.digest(load(text)) == planning.digest(load())


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_what_measures_otherwise_has_another_digest(load, text):
    assert planning.digest(load(text)) != planning.digest(load())


def test_flags_are_asked_for_and_change_no_digest(load):
    config = load(launches=2, device="cpu")
    assert planning.digest(config) == planning.digest(load())
    flags = settings(filter=("one", "two"), base="HEAD~3")
    found = asked(flags, config)
    assert found == {
        "launches": ("2",),
        "device": ("cpu",),
        "base": ("HEAD~3",),
        "filter": ("one", "two"),
    }
    started = planning.start(config, workflow=WORKFLOW, flags=found)
    assert (started.asked, started.workflow) == (found, WORKFLOW)


def test_a_flag_that_says_what_the_file_says_asks_for_nothing(load):
    assert asked(settings(base="origin/main", baseline="paired"), load(launches=4)) == {}
    said = load(f"{CONFIG}baseline: paired\n")
    assert asked(settings(baseline="none"), said) == {"baseline": ("none",)}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        (
            {
                "GITHUB_REPOSITORY": "octo-org/octo-repo",
                "GITHUB_RUN_ID": "4711",
                "GITHUB_RUN_ATTEMPT": "2",
            },
            WORKFLOW,
        ),
        (
            {"GITHUB_REPOSITORY": "octo-org/octo-repo", "GITHUB_RUN_ID": "4711"},
            replace(WORKFLOW, attempt=1),
        ),
        ({"GITHUB_REPOSITORY": "octo-org/octo-repo", "GITHUB_RUN_ID": "x"}, None),
        ({}, None),
    ],
)
def test_the_workflows_run(environ, found):
    assert workflow_run(environ) == found


def test_plugins_and_machines_may_be_declared(load):
    text = "plugins: {a: 'm:A', b: {target: 'm:B', cases: [b/x]}, c: {cases: 3}}\nmachines: {l4: {gpu: L4}, any: }\n"
    config = load(f"{CONFIG}{text}")
    assert config.plugins == {
        "a": Plugin(target="m:A"),
        "b": Plugin(target="m:B", cases=("b/x",)),
        "c": Plugin(cases=3),
    }
    assert config.machines == {"l4": Machine(gpu="L4"), "any": Machine()}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_plan_is_the_same_on_both_sides_of_a_document(path):
    """What one half plans and writes as JSON is what the other plans: for the suites of every example."""
    foreign = {name: {"type": "object"} for name in ("row_softmax", "mine")}
    config = load_config(path, more_suites=foreign)
    cases, foreign = plan_here(config)
    assert cases or foreign, "what needs the tree to be planned holds nothing up"
    rows = tuple(CaseResult(case=case, status=Status.NOT_RUN, reproduce="") for case in cases)
    made = Results(
        tool_version="1",
        run=planning.start(config, workflow=WORKFLOW),
        source=Source(commit="a" * 40, dirty=False),
        environment=Environment(identity={}, condition={}),
        cases=rows,
    )
    read = msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(made))), Results)
    expected = Expected(
        cases=cases,
        foreign=tuple(
            replace(declared, cases=None) for declared in foreign
        ),  # only the tree can plan those
        config_digest=planning.digest(config),
        device=config.run.device,
        workflow=WORKFLOW,
        head=Commits(accepted=("a" * 40,), words="head"),
        tool_version="1",
    )
    assert differences(read, None, expected) == ()
