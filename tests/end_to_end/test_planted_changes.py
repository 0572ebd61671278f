"""Paired gates of changes as users make them: the headline, the row of the comment's table, the finding and the exit code of each.

A model of the repository's own, with the same change as in `planted_changes` made on head: one gate
measures all cases, and the real `compare` judges each alone. What is not about times is judged by
thresholds that no busy machine comes near.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from end_to_end_builders import git, perturbed_runs
from planted_changes import CHANGES, MODEL, SPEEDS, Change

from ci_bench.records import documents
from ci_bench.records.comparison import Comparison, Parity, RunVerdict, Verdict
from ci_bench.records.config import Rule

pytestmark = pytest.mark.slow

RUN = {
    "device": "cpu",
    "threads": 1,
    "sampling": "fixed",
    "blocks": 2,
    "sample_s": 0.002,
    "warmup_s": 0.1,
    "explain": "never",
}
TIMES = dict.fromkeys(("step_time", "compile_cold", "compile_warm"), "100%")
LEARNING = {
    "thresholds": TIMES,
    "severities": dict.fromkeys(("undecided", "suspected", "possible", "regressed"), "note"),
}
"""Of what is learned: an interrupted moment of a busy machine says nothing about it."""


@dataclass(frozen=True)
class Told:
    """What a command said of one case: its exit code, the comparison, and the comment's headline and rows by arm."""

    code: int
    comparison: Comparison
    headline: str
    rows: Mapping[str, str]

    @property
    def findings(self) -> dict[Rule, str]:
        """The message of the first finding under each rule."""
        return {one.rule: one.message for one in reversed(self.comparison.judgement.findings)}

    def verdicts(self, arm: str) -> dict[str, Verdict]:
        """Of each metric of an arm."""
        return {
            pair.metric: pair.verdict for pair in self.comparison.cases[0].pairs if pair.arm == arm
        }


def ci_bench(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "CI_BENCH_NOISE": str(folder / ".noise")}
    command = [sys.executable, "-m", "ci_bench.cli", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=600, check=False
    )


def configure(
    folder: Path,
    suites: Mapping[str, Any],
    *,
    policy: Mapping[str, Any] | None = None,
    **run: object,
) -> Path:
    path = folder / "ci-bench.yml"
    config = {
        "schema_version": 1,
        "baseline": "paired",
        "run": {**RUN, **run},
        "suites": suites,
        "policy": policy or {},
    }
    path.write_text(yaml.safe_dump(config))
    return path


def told(done: subprocess.CompletedProcess[str], out: Path) -> Told:
    assert (out / "comparison.json").exists(), done.stderr
    lines = done.stdout.splitlines()
    folded = done.stdout.partition("<summary>All cases")[2].partition("</details>")[0]
    headers, _, *rows = [line for line in folded.splitlines() if line.startswith("|")]
    assert headers.startswith("| Verdict | Case | Step time |")
    comparison = documents.read_comparison(out / "comparison.json")
    by_arm = {row.split("|")[2].rpartition("(`")[2].rstrip("`) "): row for row in rows}
    return Told(
        code=done.returncode,
        comparison=comparison,
        headline=lines[0].replace("\\", ""),
        rows=by_arm,
    )


def repository(folder: Path, changes: Sequence[Change], **run: object) -> Path:
    """Two commits: the model as it is, once for each change, and each with its change."""
    folder.mkdir()
    configure(folder, {"training_loss": [change.entry() for change in changes]}, **run)
    for text in (lambda _: MODEL.read_text(encoding="utf-8"), Change.head):
        for change in changes:
            (folder / f"{change.module}.py").write_text(text(change))
        git(folder, "init", "--quiet")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", "a commit")
    done = ci_bench(folder, "gate", "--base", "HEAD~1", "--output", folder / "out")
    assert (folder / "out" / "base" / "results.json").exists(), done.stderr
    return folder


def judged(folder: Path, change: Change, policy: Mapping[str, Any] | None = None) -> Told:
    """One case of a gate, judged alone by a policy."""
    alone = folder / "alone" / change.name
    alone.mkdir(parents=True)
    for side in ("base/results.json", "results.json"):
        whole = documents.read_results(folder / "out" / side)
        (alone / side).parent.mkdir(exist_ok=True)
        cases = tuple(row for row in whole.cases if row.case.name == change.name)
        documents.write(replace(whole, cases=cases), alone / side)
    config = configure(alone, {"training_loss": [change.entry()]}, policy=policy, launches=1)
    sides = alone / "base" / "results.json", alone / "results.json"
    done = ci_bench(
        folder,
        "compare",
        *sides,
        "--config",
        config,
        "--format",
        "comment",
        "--output",
        alone / "told",
    )
    return told(done, alone / "told")


ONE_LAUNCH = ("nothing", "norm_eps", "dropout_lost", "init_too_large", "fused", "copies")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    return repository(
        tmp_path_factory.mktemp("planted") / "models",
        [CHANGES[name] for name in ONE_LAUNCH],
        launches=1,
    )


@pytest.mark.engine
def test_nothing_changed_passes_and_learns_the_same_in_every_bit(measured) -> None:
    found = judged(measured, CHANGES["nothing"], LEARNING)
    assert (found.code, found.comparison.judgement.verdict) == (0, RunVerdict.PASSED), (
        found.headline
    )
    assert "training matches base" in found.headline
    assert found.comparison.cases[0].learning.verdict is Parity.BITWISE
    assert perturbed_runs(measured / "alone" / "nothing") == [1, 1], "more could move nothing"
    assert "✅ bitwise" in found.rows["eager"]


@pytest.mark.engine
@pytest.mark.parametrize("name", ["norm_eps", "dropout_lost"])
def test_what_changes_the_mathematics_fails_by_its_losses(measured, name) -> None:
    found = judged(measured, CHANGES[name], LEARNING)
    assert found.code == 1
    assert re.fullmatch(
        rf"### ❌ Failed: {name}: .+ of the training .+ \(head against base\)\.", found.headline
    ), found.headline
    assert found.rows["eager"].startswith("| ❌ ")
    assert "❌ different math from step " in found.rows["eager"]
    assert "leaves the rounding envelope at step " in found.findings[Rule.LEARNING_CHANGED]
    assert [one.verdict.holds for one in found.comparison.cases[0].parity] == [True], (
        "within head, arms agree"
    )


@pytest.mark.engine
def test_an_initialisation_that_is_too_large_is_never_passed_in_silence(measured) -> None:
    """Whether so small a model learns worse from it is the seeds' to say; that it differs from the first step on is certain."""
    found = judged(measured, CHANGES["init_too_large"], LEARNING)
    learning = found.comparison.cases[0].learning
    assert (learning.from_another_start, learning.first_step) == (True, 0)
    said = {
        Rule.LEARNING_CHANGED,
        Rule.LEARNING_UNKNOWN,
        Rule.START_CHANGED,
    } & found.findings.keys()
    assert len(said) == 1
    assert (
        "the start weights differ from base's, and so do the losses from step 0 on"
        in found.findings[said.pop()]
    )
    assert "from another start" in found.rows["eager"]
    assert "training matches base" not in found.headline
    strict = {
        **LEARNING,
        "severities": {
            **LEARNING["severities"],
            "start_changed": "fail",
            "learning_unknown": "fail",
        },
    }
    (measured / "alone" / "init_too_large").rename(measured / "alone" / "by default")
    failed = judged(measured, CHANGES["init_too_large"], strict)
    assert (failed.code, failed.headline.startswith("### ❌ Failed")) == (1, True)


@pytest.mark.engine
def test_the_same_mathematics_by_fused_kernels_is_no_finding_of_learning(measured) -> None:
    found = judged(measured, CHANGES["fused"], LEARNING)
    assert (found.code, found.comparison.judgement.verdict) == (0, RunVerdict.PASSED), (
        found.headline
    )
    assert found.comparison.cases[0].learning.verdict is Parity.NUMERIC_PARITY
    assert (
        not {Rule.LEARNING_CHANGED, Rule.LEARNING_UNKNOWN, Rule.START_CHANGED, Rule.PARITY_BROKEN}
        & found.findings.keys()
    )
    assert "✅ numeric parity" in found.rows["eager"]


@pytest.mark.engine
def test_needless_copies_are_never_passed(measured) -> None:
    """By the default policy, after one launch on a machine that nobody calibrated."""
    found = judged(measured, CHANGES["copies"])
    assert found.comparison.judgement.verdict is not RunVerdict.PASSED
    assert not found.headline.removeprefix("### ").startswith("✅")
    assert found.verdicts("eager")["step_time"] in {
        Verdict.INCONCLUSIVE,
        Verdict.SUSPECTED,
        Verdict.REGRESSED,
    }
    assert found.comparison.cases[0].learning.verdict is Parity.BITWISE


@pytest.mark.engine
def test_attention_maps_that_are_kept_are_found_in_the_eager_arm(tmp_path) -> None:
    pytest.importorskip("torch")
    kept = CHANGES["maps_kept"]
    found = judged(repository(tmp_path / "models", [kept], launches=2), kept, {"thresholds": TIMES})
    assert found.code == 1
    assert "memory growth per step" in found.headline
    assert found.verdicts("eager")["memory_growth"] is Verdict.REGRESSED
    assert found.rows["eager"].startswith("| ❌ regressed")


@pytest.fixture(scope="module")
def benchmarks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose script leaves what pytest-benchmark writes; on head one benchmark is 1.7 times as slow, one 4.8 times."""
    folder = tmp_path_factory.mktemp("planted") / "benchmarks"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for factors in ({}, {"test_parse": 1.7, "test_render": 4.8}):
        (folder / "bench.py").write_text(SPEEDS.format(factors=factors))
        (folder / "ci-bench.yml").touch()
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "a commit")
    return folder


def gate(folder: Path, base: str, **run: object) -> Told:
    command = [sys.executable, "bench.py", "{output}"]
    configure(
        folder,
        {"command": [{"name": "speed", "command": command, "format": "pytest-benchmark"}]},
        **run,
    )
    out = folder.parent / f"{base}-{run['launches']}"
    return told(
        ci_bench(folder, "gate", "--base", base, "--format", "comment", "--output", out), out
    )


def test_benchmarks_that_are_slower_are_suspected_after_one_launch(benchmarks) -> None:
    found = gate(benchmarks, "HEAD~1", launches=1)
    assert found.code == 1
    assert found.headline.startswith("### ❌ Failed: speed: suspected: test_speed.py::test_render")
    verdicts = {pair.title: pair.verdict for pair in found.comparison.cases[0].pairs}
    worse = {Verdict.SUSPECTED, Verdict.REGRESSED}
    assert {title for title, verdict in verdicts.items() if verdict in worse} == {
        "test_speed.py::test_parse",
        "test_speed.py::test_render",
    }
    assert [row.startswith("| ❌ suspected") for row in found.rows.values()] == [True]


def test_the_same_benchmarks_are_undecided_after_one_launch(benchmarks) -> None:
    found = gate(benchmarks, "HEAD", launches=1)
    assert (found.code, found.comparison.judgement.verdict) == (0, RunVerdict.UNDECIDED)
    assert found.headline.startswith("### ❔ Not decided: 3 of 3 metrics (speed)")
    assert [row.startswith("| ❔ undecided") for row in found.rows.values()] == [True]


def test_benchmarks_that_are_slower_in_six_launches_regressed(benchmarks) -> None:
    found = gate(benchmarks, "HEAD~1", launches=6)
    assert found.code == 1
    assert found.headline.startswith("### ❌ Failed: speed: test_speed.py::test_render")
    verdicts = {
        pair.title.rpartition("::")[2]: pair.verdict for pair in found.comparison.cases[0].pairs
    }
    assert (verdicts["test_parse"], verdicts["test_render"]) == (
        Verdict.REGRESSED,
        Verdict.REGRESSED,
    )
    assert verdicts["test_scan"] in {Verdict.UNCHANGED, Verdict.INCONCLUSIVE}
    assert [row.startswith("| ❌ regressed") for row in found.rows.values()] == [True]
