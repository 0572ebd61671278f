"""Benchmarks measured by the commands that users give: in worker processes, in turns, gated against the commit before."""

import json
import subprocess

import pytest

pytest.importorskip("torch")

from functions_builders import QUICK, RUN, ci_bench, commit, write

from ci_bench.records import documents
from ci_bench.records.comparison import Verdict
from ci_bench.records.results import Outcome, Status

pytestmark = pytest.mark.engine


def measured(tree, source, *flags, launches="1", **run):
    write(tree, source, file="benchmarks/bench.py")
    config = {
        "schema_version": 1,
        "run": RUN | run,
        "suites": {"command": [{"name": "other", "command": "false"}]},
    }
    (tree / "ci-bench.yml").write_text(json.dumps(config))
    done = ci_bench(tree, "run", "benchmarks", "-o", "out", *QUICK, "--launches", launches, *flags)
    rows = documents.read_results(tree / "out" / "results.json").cases
    return done, {row.case.id: row for row in rows}


PAIR = """
    import os
    CALLS = []

    def slow(x):
        CALLS.append(1)
        return x.exp()

    def mine(x, kept={{}}):
        {mine}

    @ci_bench.benchmark(n=[4096], work={{"bytes": 32768}})
    def exp(n):
        (x,) = ci_bench.inputs(1, (n,))
        with open("events", "a") as stream:
            stream.write(f"up {{os.getpid()}}\\n")
        yield lambda: mine(x)
        with open("events", "a") as stream:
            stream.write(f"down {{os.getpid()}}\\n")

    @exp.provider("torch", reference=True)
    def _(n):
        (x,) = ci_bench.inputs(1, (n,))
        return lambda: x.exp()
"""


def test_a_benchmark_is_measured_verified_and_refereed_and_taken_down_as_often_as_it_was_set_up(
    tree,
) -> None:
    done, rows = measured(tree, PAIR.format(mine="return x.exp()"))
    assert done.returncode == 0, done.stderr
    (row,) = rows.values()
    assert (row.case.id, row.status) == ("functions/exp[n=4096]", Status.OK)
    outcomes = {(check.name, check.arm): check.outcome for check in row.checks}
    assert (
        outcomes["agrees", "exp"]
        is outcomes["agrees", "torch"]
        is outcomes["refereed", "exp"]
        is Outcome.PASS
    )
    assert {(metric.name, metric.arm) for metric in row.metrics} >= {
        (name, arm) for name in ("step_time", "peak_anonymous") for arm in ("exp", "torch")
    }
    assert row.facts["bytes_per_step"] == 32768
    events = (tree / "events").read_text().splitlines()
    up, down = (
        sorted(line.split()[1] for line in events if line.startswith(word))
        for word in ("up", "down")
    )
    assert up == down
    assert len({*up}) == 3  # verified, alone, timed


REPLACES_THE_RULE = """
    from ci_bench.records.results import Outcome
    from ci_bench.suites.shared.worker import numerics
    from ci_bench.suites.functions import verify

    def agree(*_, **__):
        return numerics.Agreement(outcome=Outcome.PASS, detail="it agrees", worst="", score=0.0)

    verify.agree = agree
"""


def test_a_replaced_rule_decides_nothing(tree) -> None:
    """The worker's own answer passes.

    A process without the tree's code compares again, and the worker's code is compared.
    """
    _, rows = measured(tree, REPLACES_THE_RULE + PAIR.format(mine="return 1.01 * x.exp()"))
    (row,) = rows.values()
    found = {(check.name, check.arm): check for check in row.checks}
    assert found["agrees", "exp"].outcome is Outcome.FAIL
    assert found["agrees", "exp"].detail.startswith(
        "compared by a process without code of the tree: "
    )
    assert found["agrees", "torch"].outcome is Outcome.PASS
    assert "ci_bench.suites.functions.verify.agree" in found["untouched", "torch"].detail


def test_a_provider_that_begins_to_replay_once_it_is_timed_is_refereed(tree) -> None:
    """It has 12 calls of its own process to be honest in: those before warm-up."""
    replays = (
        "CALLS.append(1); kept['y'] = x.exp() if len(CALLS) < 12 else kept['y']; return kept['y']"
    )
    _, rows = measured(tree, PAIR.format(mine=replays))
    (row,) = rows.values()
    outcomes = {(check.name, check.arm): check.outcome for check in row.checks}
    assert (outcomes["agrees", "exp"], outcomes["refereed", "exp"]) == (Outcome.PASS, Outcome.FAIL)


def test_memory_taken_by_importing_counts(tree) -> None:
    _, rows = measured(
        tree, "    TABLE = bytearray(b'x' * (40 << 20))\n" + PAIR.format(mine="return x.exp()")
    )
    (row,) = rows.values()
    peaks = {
        metric.arm: metric.launches[0].values[0]
        for metric in row.metrics
        if metric.name == "peak_anonymous"
    }
    assert {arm: 40 << 20 <= peak < 60 << 20 for arm, peak in peaks.items()} == {
        "exp": True,
        "torch": True,
    }, peaks


def test_a_wrong_provider_fails_and_says_by_how_much(tree) -> None:
    done, rows = measured(tree, PAIR.format(mine="y = x.exp(); y[7] *= 1.01; return y"))
    assert "agrees fails for exp: with the reference in fp64: output: off by" in done.stderr
    (row,) = rows.values()
    (check,) = [check for check in row.checks if (check.name, check.arm) == ("agrees", "exp")]
    assert check.outcome is Outcome.FAIL
    assert "output: off by" in check.detail


ALONE = """
    import time

    @ci_bench.benchmark(size=[{size}], threshold={threshold})
    def work(size):
        (x,) = ci_bench.inputs(1, (64, 64))
        return lambda: paced(x, {pace_s}){more}

    def paced(x, pace_s):
        time.sleep(pace_s)
        return x.softmax(-1)
"""


@pytest.mark.alone
@pytest.mark.slow
def test_a_slower_head_is_red_the_same_commit_is_not_and_another_result_is_named(tree) -> None:
    """30 % more time (asleep, which a busy machine changes little), then the same, then another result in the same time.

    Five launches decide where no noise is known.
    """
    config = {
        "run": {**RUN, "blocks": 2, "sample_s": 0.005, "warmup_s": 0.2},
        "suites": {"functions": [{"path": "x"}]},
    }
    (tree / "ci-bench.yml").write_text(json.dumps({"schema_version": 1, **config}))
    subprocess.run(["git", "init", "--quiet"], cwd=tree, check=True)
    (tree / ".gitignore").write_text("out*\n.noise\n.locks\n__pycache__\n")
    usual = {"size": 1, "threshold": 0.02, "pace_s": 0.004, "more": ""}

    def gate(name, launches=5, **changed):
        write(tree, ALONE.format(**{**usual, **changed}), file="benchmarks/bench.py")
        commit(tree, name)
        flags = (
            "--baseline",
            "paired",
            "--base",
            base,
            *QUICK,
            "--launches",
            str(launches),
            "-o",
            f"out-{name}",
        )
        done = ci_bench(tree, "gate", "benchmarks/", *flags)
        comparison = documents.read_comparison(tree / f"out-{name}" / "comparison.json")
        (case,) = comparison.cases
        (time,) = [pair for pair in case.pairs if pair.metric == "step_time"]
        return done, time, {finding.rule for finding in comparison.judgement.findings}

    write(tree, ALONE.format(**usual), file="benchmarks/bench.py")
    commit(tree, "base")
    base = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tree, capture_output=True, text=True, check=True
    ).stdout.strip()

    done, time, rules = gate("slower", pace_s=0.0052)
    assert (done.returncode, time.verdict) == (1, Verdict.REGRESSED), done.stdout
    assert 0.65 < time.speedup < 0.9
    assert "regressed" in rules

    done, time, rules = gate("same", more="  # the same")
    assert (done.returncode, time.verdict != Verdict.REGRESSED) == (0, True), done.stdout
    assert not rules & {"regressed", "outputs_changed"}

    done, _, rules = gate("other", launches=1, more=" * 1.001")
    assert (done.returncode, "outputs_changed" in rules) == (1, True), done.stdout


SMALL_WHEN_TIMED = """
    import sys

    def timing():
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != "serve_turns":
            frame = frame.f_back
        return frame is not None

    @ci_bench.benchmark(n=[64])
    def exp(n):
        (x,) = ci_bench.inputs(1, ({size}, 8))
        return lambda: {mine}

    @exp.provider("torch", reference=True)
    def _(n):
        (x,) = ci_bench.inputs(1, ({size}, 8))
        return lambda: {mine}
"""


@pytest.mark.parametrize(
    ("size", "mine", "said"),
    [
        ("n // 2 if timing() else n", "x.exp()", "inputs float32[32, 8] instead of float32[64, 8]"),
        (
            "n",
            "x[:8].exp() if timing() else x.exp()",
            "outputs float32[8, 8] instead of float32[64, 8]",
        ),
        ("n", "x.abs() if timing() else x.exp()", "values of the outputs off by"),
        ("n", "x[x[:, 0] > 0]", ""),
        ("n", "x[torch.rand(n) > 0.5]", ""),
    ],
)
def test_what_is_timed_is_what_was_verified(tree, size, mine, said) -> None:
    _, rows = measured(tree, SMALL_WHEN_TIMED.format(size=size, mine=mine))
    (row,) = rows.values()
    assert row.status is Status.OK, row.failure
    found = {check.arm: check.detail for check in row.checks if check.name == "as_verified"}
    assert found.keys() == ({"exp", "torch"} if said else set()), found
    assert all(said in detail for detail in found.values()), found
