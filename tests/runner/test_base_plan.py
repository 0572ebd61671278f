"""Base's own tree plans base: what is new, what is gone, what cannot be planned, and by which configuration."""

import os
import textwrap
from dataclasses import replace

import pytest

from ci_bench.configuration.plugins import caller_tree, finder, functions_of, open_suites
from ci_bench.judge.owed import reductions
from ci_bench.records.config import Config, Plugin, SuiteEntry
from ci_bench.records.results import Status
from ci_bench.runner.base_plan import plan_base
from ci_bench.runner.planning import plan

ONE = """
import ci_bench

@ci_bench.benchmark(n=[8{more}])
def {name}(n):
    return lambda: n
"""
SUITE = """
from ci_bench.records.results import Case, Due
from ci_bench.suites.contract import Stage, StageKind, Suite

class Mine(Suite):
    name, worker, preload = "mine", "mine.worker", ()

    def plan(self, options):
        return (Case(id="mine/a", suite="mine", name="a", params={{}}, arms={arms}, reference="torch", due=Due(times=("step_time",))),)

    def stages(self, case):
        return tuple(Stage(kind=kind, arms=case.arms, launches=None) for kind in ({stages}))

SUITE = Mine()
"""
FUNCTIONS = SuiteEntry(suite="functions", options={"path": ["bench"]})
MINE = Config(
    entries=(SuiteEntry(suite="mine", options={}),), plugins={"mine": Plugin(target="mine:SUITE")}
)


@pytest.fixture
def both(tmp_path):
    """Plan two trees of these files; returns base's rows by id."""

    def planned(base, head, config=Config(entries=(FUNCTIONS,)), *, own=None, filters=()):  # noqa: B008 - frozen
        folders = [tmp_path / name for name in ("base", "head")]
        for folder, files in zip(folders, (base, head), strict=True):
            for name, text in {"bench/.keep": "", **files}.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(textwrap.dedent(text))
        trees = [caller_tree(folder, os.environ) for folder in folders]
        targets = {name: plugin.target for name, plugin in config.plugins.items()}
        suites = open_suites(targets, folders[1], os.environ)
        ours = plan(
            config,
            filters,
            finder(
                {
                    **suites,
                    "functions": functions_of(
                        folders[1], lambda: caller_tree(folders[1], os.environ)
                    ),
                }
            ),
        )
        found = plan_base(
            trees[0], own or config, ours, filters=filters, reproduce=lambda case: case.id
        )
        return {row.case.id: row for row in found.rows}, {case.id: case for _, case in ours}

    return planned


def one(name="one", more=""):
    return ONE.format(name=name, more=more)


def test_a_deleted_benchmark_stays_in_bases_rows(both):
    rows, _ = both({"bench/a.py": one(), "bench/b.py": one("two")}, {"bench/a.py": one()})
    assert {name: row.status for name, row in rows.items()} == {
        "functions/one[n=8]": Status.NOT_RUN,
        "functions/two[n=8]": Status.SKIPPED,
    }
    assert rows["functions/two[n=8]"].failure.reason == "only base plans it, so it was not measured"


def test_a_new_benchmark_has_no_row(both):
    rows, ours = both({"bench/a.py": one()}, {"bench/a.py": one(), "bench/b.py": one("two")})
    assert (rows.keys(), len(ours)) == ({"functions/one[n=8]"}, 2)


def test_first_benchmarks_are_all_new(both):
    assert both({}, {"bench/a.py": one()})[0] == {}


def test_a_file_that_base_lacks_hides_no_other(both):
    config = Config(
        entries=(SuiteEntry(suite="functions", options={"path": ["bench/a.py", "bench/b.py"]}),)
    )
    rows, _ = both({"bench/a.py": one()}, {"bench/a.py": one(), "bench/b.py": one("two")}, config)
    assert rows.keys() == {"functions/one[n=8]"}


def test_a_moved_benchmark_is_the_same(both):
    rows, ours = both({"bench/a.py": one()}, {"bench/sub/b.py": one()})
    ((name, row),) = rows.items()
    assert (row.status, row.case.params["file"]) == (Status.NOT_RUN, "bench/a.py")
    assert reductions(row, ours[name]) == ()


def test_a_name_in_two_files_is_the_same(both):
    rows, ours = both({"bench/a.py": one()}, {"bench/a.py": one(), "bench/b.py": one()})
    assert ours.keys() == {"functions/a.one[n=8]", "functions/b.one[n=8]"}
    assert {name: row.status for name, row in rows.items()} == {
        "functions/a.one[n=8]": Status.NOT_RUN
    }


def test_fewer_points_are_missed(both):
    rows, _ = both({"bench/a.py": one(more=", 16")}, {"bench/a.py": one()})
    assert rows["functions/one[n=16]"].status is Status.SKIPPED


def test_a_filter_is_no_removal(both):
    files = {"bench/a.py": one(), "bench/b.py": one("two")}
    assert both(files, files, filters=("one",))[0].keys() == {"functions/one[n=8]"}


def test_bases_own_configuration_plans_base(both):
    files = {"bench/a.py": one(), "more/b.py": one("two")}
    own = Config(entries=(replace(FUNCTIONS, options={"path": ["bench", "more"]}),))
    rows, _ = both(files, files, own=own)
    assert rows["functions/two[n=8]"].status is Status.SKIPPED


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        (
            "import ci_bench\nraise ValueError('broken here')\n" + one(more=", *range(1)"),
            Status.FAILED,
            "broken here",
        ),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n" + one(more=", *range(1)"),
            Status.CRASHED,
            "was killed",
        ),
    ],
)
def test_a_base_that_cannot_be_planned(both, text, status, reason):
    rows, _ = both({"bench/a.py": text}, {"bench/a.py": one()})
    (row,) = rows.values()
    assert (row.status, row.failure.stage) == (status, "plan")
    assert reason in row.failure.reason


def suite(arms='("torch", "kernel")', stages="StageKind.VERIFY, StageKind.TIME"):
    return {"mine.py": SUITE.format(arms=arms, stages=stages)}


def test_a_plugins_plan_is_each_sides_own(both):
    rows, ours = both(suite(), suite(arms='("torch",)', stages="StageKind.TIME,"), MINE)
    assert rows["mine/a"].case.arms == ("torch", "kernel")
    assert reductions(rows["mine/a"], ours["mine/a"]) == (
        "arm 'kernel' is gone",
        "stage 'verify' is no longer planned",
    )


def test_a_plugin_that_base_lacks_is_new(both):
    assert both({}, suite(), MINE)[0] == {}


def test_a_plugin_that_base_breaks_is_said(both):
    rows, _ = both({"mine.py": "import no_such_module\n"}, suite(), MINE)
    assert (rows["mine/a"].status, rows["mine/a"].failure.stage) == (Status.FAILED, "plan")
    assert "no_such_module" in rows["mine/a"].failure.reason
