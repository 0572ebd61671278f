"""Cases that the measured tree alone can plan, from its files or its code: what is declared of them decides, from artifact to check."""

from dataclasses import replace

import pytest
import yaml
from bound_results import GIGABYTE, bound, leave, written
from fake_github_events import BASE, HEAD, workflow_run
from judge_builders import peak, result

from ci_bench.commands.trusted.publishing import publish
from ci_bench.configuration.config import load_config
from ci_bench.errors import ExitCode
from ci_bench.records.results import Due
from ci_bench.runner import planning

MODELS = ("alpha", "beta", "gamma")
CHECKOUT = {"source": "torchbench", "path": "zoo", "mode": "inference"}
IDS = [f"torchbench/{name}[backend=inductor,mode=inference,precision=fp32]" for name in MODELS]
OWN = ["mine/x", "mine/y", "mine/z"]


def configuration(cases=None, *, zoo=False, plugin=None):
    """A checkout's models, with what is declared of them; besides, where it is asked for, a model of ours or a suite of the tree."""
    entries = [
        *([{"models": ["mlp"], "mode": "inference"}] if zoo else []),
        {**CHECKOUT, **({"cases": cases} if cases else {})},
    ]
    plugins = {"plugins": {"mine": plugin}} if plugin else {}
    own = {"mine": [{}]} if plugin else {}
    return yaml.safe_dump(
        {"schema_version": 1, **plugins, "suites": {"torchbench": entries, **own}}
    )


@pytest.fixture
def tree(tmp_path):
    """What is measured: a tree with three models. The job that publishes does not have it."""
    folder = tmp_path / "tree"
    for name in MODELS:
        (folder / "zoo/torchbenchmark/models" / name).mkdir(parents=True)
        (folder / "zoo/torchbenchmark/models" / name / "__init__.py").touch()
    return folder


@pytest.fixture
def judged(fake, job, flags, tmp_path, tree, monkeypatch):  # noqa: PLR0917 - by name
    """Publish what a pull request from a fork has measured of these cases; returns the exit code, the check and the comment."""

    def publish_of(text, measured, *, there=None):
        job("workflow_run", workflow_run())
        fake.state.add_pull(7, HEAD, fork=True)
        fake.state.files["main", "ci-bench.yml"] = text.encode()
        fake.state.files[HEAD, "ci-bench.yml"] = text.encode()
        (tmp_path / "measured.yml").write_text(text)
        with monkeypatch.context() as measuring:
            measuring.chdir(tree)
            config = load_config(tmp_path / "measured.yml")
            ours = replace(
                config,
                entries=tuple(
                    replace(one, cases=None) for one in config.entries if one.suite == "torchbench"
                ),
            )
            planned = {case.id: case for _, case in planning.plan(ours, ())}
        rows = [row(name, planned.get(name)) for name in measured]
        digest = planning.digest(config)
        sides = [bound(*rows, config=None, commit=commit) for commit in (HEAD, BASE)]
        head, base = (
            written(replace(one, run=replace(one.run, config_digest=digest)), tmp_path)
            for one in sides
        )
        leave(fake, {"results.json": head, "base/results.json": base})
        if there is not None:
            monkeypatch.chdir(there)
        code = publish(flags())
        (check,) = fake.state.checks.values()
        (comment,) = fake.state.texts_of(7)
        return code, check["conclusion"], comment.replace("\\", "")

    return publish_of


def row(name, case):
    """What was measured of a case: every arm's peak of memory.

    Of what is planned here, how it owes more is another test's.
    """
    if case is None:
        return result(peak(GIGABYTE, GIGABYTE), id=name)
    peaks = [peak(GIGABYTE, GIGABYTE, arm=arm) for arm in case.arms]
    return replace(result(*peaks), case=replace(case, due=Due(), details=()))


WARNED = "cases of `suites.torchbench[0]` are planned only by head's tree"


def test_undeclared_cases_of_head_alone_are_undecided(judged):
    code, check, comment = judged(configuration(), IDS[:2])
    assert (code, check) == (ExitCode.OK, "neutral")
    assert WARNED in comment
    assert (
        "as `suites.torchbench[0].cases`: `ci-bench list --declare` prints what to write" in comment
    )


@pytest.mark.parametrize("cases", [IDS, 3])
def test_all_declared_cases_pass_without_a_word(judged, cases):
    code, check, comment = judged(configuration(cases), IDS)
    assert (code, check) == (ExitCode.OK, "success")
    assert "planned only by head's tree" not in comment


PLACE = "`suites.torchbench[0].cases` of the base branch's configuration"
NOT_DECLARED = {
    "a dropped model, by its id": (
        IDS,
        IDS[:2],
        f"cases: of the suite torchbench are not those of {PLACE}: 'torchbench/gamma[",
    ),
    "a dropped model, by the number": (
        3,
        IDS[:2],
        f"cases: 2 of the suite torchbench, and {PLACE} says 3",
    ),
    "another model instead": (
        IDS,
        [*IDS[:2], "torchbench/delta"],
        "missing; 'torchbench/delta' too many",
    ),
    "one more model, by its id": (
        IDS[:2],
        IDS,
        f"cases: of the suite torchbench are not those of {PLACE}: 'torchbench/gamma[",
    ),
    "one more model, by the number": (
        2,
        IDS,
        f"cases: 3 of the suite torchbench, and {PLACE} says 2",
    ),
}


@pytest.mark.parametrize(("cases", "measured", "said"), NOT_DECLARED.values(), ids=NOT_DECLARED)
def test_other_cases_than_the_declared_ones_are_refused(judged, cases, measured, said):
    code, check, comment = judged(configuration(cases), measured)
    assert (code, check) == (ExitCode.BAD_INPUT, "failure")
    assert "these results are not the requested ones" in comment
    assert said in comment


def test_plugins_say_the_same_in_the_same_words(judged):
    plugin = {"target": "mine:SUITE", "cases": 3}
    assert judged(configuration(IDS, plugin=plugin), [*IDS, *OWN])[:2] == (ExitCode.OK, "success")


def test_a_plugins_dropped_case_is_refused_beside_declared_ones(judged):
    code, _, comment = judged(
        configuration(IDS, plugin={"target": "mine:SUITE", "cases": 3}), [*IDS, *OWN[:2]]
    )
    assert code == ExitCode.BAD_INPUT
    assert (
        "2 of the suite mine, and `plugins.mine.cases` of the base branch's configuration says 3"
        in comment
    )


def test_files_where_results_are_judged_declare_nothing(judged, tree):
    """Someone has checked the pull request out there, which has a model less: it is no plan of the base branch's."""
    (tree / "zoo/torchbenchmark/models/gamma/__init__.py").unlink()
    code, _, comment = judged(configuration(IDS), IDS[:2], there=tree)
    assert code == ExitCode.BAD_INPUT
    assert "missing" in comment


def test_without_a_declaration_those_files_are_no_word_either(judged, tree):
    (tree / "zoo/torchbenchmark/models/gamma/__init__.py").unlink()
    code, _, comment = judged(configuration(), IDS[:2], there=tree)
    assert code == ExitCode.OK
    assert WARNED in comment


MLP = "torchbench/mlp[backend=inductor,mode=inference,precision=fp32]"


def test_an_entry_that_needs_no_tree_is_planned_beside_one_that_does(judged):
    """Each is bound by its own: what is planned is no part of the declared number."""
    code, _, comment = judged(configuration(3, zoo=True), [*IDS, "torchbench/another"])
    assert code == ExitCode.BAD_INPUT
    assert f"1 case that the configuration plans: '{MLP[:60]}" in comment
    assert (
        "cases: 4 of the suite torchbench, and `suites.torchbench[1].cases` of the base branch's configuration says 3"
        in comment
    )
