"""Two trees through the real engine: what head changes in what it computes fails by name, honest refactorings pass."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

from two_trees import (
    HONEST,
    KERNEL_CASE,
    LSTM,
    PLANTED,
    TINY,
    UNKNOWN,
    Kernel,
    Verified,
    judged,
    measured,
    nets,
    plan_of,
    verdict,
    write_tree,
)

from ci_bench.records import documents
from ci_bench.records.config import Severity
from ci_bench.records.outputs import Sameness
from ci_bench.records.results import SideName
from ci_bench.runner.beside import FOLDER, OutputsOptions, copy_saved, saved_beside

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SAME = {**TINY, "model": {"path": "./same"}}
OWN = ("Forgetful", "Rewritten", "Momentum")


@pytest.fixture
def trees(tmp_path, monkeypatch):
    """Writes both sides; plans are made in base's."""

    def write():
        for name in ("base", "head"):
            write_tree(tmp_path / name, base=name == "base")
        monkeypatch.chdir(tmp_path / "base")
        return tmp_path

    return write


def short(case):
    """The case by its suite and what is in it: ``own.nets_split fp32`` becomes ``split``."""
    return case.id.partition("[")[0].partition("/")[2].removeprefix("own.nets_") + (
        " bf16" if "bf16" in case.id else ""
    )


def test_what_is_planted_on_head_fails_in_every_suite_and_honest_neighbours_pass(trees) -> None:
    """One run shows them all, each in a case of its own."""
    folder = trees()
    plan = plan_of(
        nets(*PLANTED, *HONEST, *UNKNOWN, mode="inference"),
        nets("gradient", "renamed", "masks", mode="training"),
        nets("half_more", "split", mode="inference", precision="bf16"),
        ("transformers", {**TINY, "mode": "inference"}),
        ("fastrnns", LSTM),
    )
    comparison = judged(folder, (*plan, (Verified(Kernel()), KERNEL_CASE)))
    found = {short(case): case.outputs for case in comparison.cases}
    told = {name: one and (one.verdict, one.detail) for name, one in found.items()}
    assert all(found.values()), told
    changed = {name for name, one in found.items() if one.verdict is Sameness.CHANGED}
    others = {
        name for name in found if name.startswith(("llama", "tiny", "aten", "softmax", "./tiny"))
    }
    assert len(others) == 3, told
    assert changed == {*PLANTED, "gradient", "half_more bf16", *others}, told
    assert {name for name, one in found.items() if one.verdict is Sameness.UNKNOWN} == {
        *UNKNOWN,
        "masks",
    }, told
    assert "gradients of step 1: body.weight" in found["gradient"].detail
    assert "the start weights differ" in found["start"].detail
    assert "the inputs differ" in found["inputs"].detail
    assert "other random numbers" in found["masks"].detail
    failing = {
        finding.case
        for finding in comparison.judgement.findings
        if finding.severity is Severity.FAIL
    }
    assert failing == {case.id for case in comparison.cases if short(case) in changed}
    assert comparison.judgement.exit_code == 1
    assert "outputs differ from base" in comparison.judgement.headline
    honest = [case.id for case in comparison.cases if case.outputs.verdict.holds]
    assert len(honest) == len(HONEST) + 2, told


def test_an_optimizer_that_steps_otherwise_on_head_fails_and_one_that_was_rewritten_passes(
    trees,
) -> None:
    folder = trees()
    plan = plan_of(
        *(
            nets("split", mode="training", name=name, optimizer=f"optimizers:{name}")
            for name in OWN
        ),
        *(
            (
                "transformers",
                {
                    **SAME,
                    "name": f"llama-{name}",
                    "mode": "training",
                    "optimizer": f"optimizers:{name}",
                },
            )
            for name in ("Forgetful", "Rewritten")
        ),
    )
    comparison = judged(folder, plan)
    told = {case.id: (case.outputs.verdict, case.outputs.detail) for case in comparison.cases}
    assert len(told) == len(OWN) + 2
    for case, (verdict_of, detail) in told.items():
        wrong = "Forgetful" in case
        assert verdict_of.holds is not wrong, told
        assert (verdict_of is Sameness.CHANGED, "updates by known gradients" in detail) == (
            wrong,
            wrong,
        ), told


def test_saved_tensors_are_what_a_later_run_is_held_against(trees) -> None:
    folder, plan = trees(), ((Verified(Kernel()), KERNEL_CASE),)
    (folder / "head").rename(folder / "later")
    kept = folder / "results" / FOLDER
    base = measured(folder, plan, outputs=OutputsOptions(save={SideName.BASE: kept}))[SideName.BASE]
    documents.write(base, kept.with_name("results.json"))
    saved = saved_beside(base, kept.with_name("results.json"))
    assert {path.name for path in kept.iterdir()} == {one.path.name for one in saved.values()}
    (folder / "base").rename(folder / "earlier")
    (folder / "later").rename(folder / "head")
    head = measured(folder, plan, outputs=OutputsOptions(baseline=saved), launches=2)[SideName.HEAD]
    (case,) = verdict(base, head, launches=2).cases
    assert case.outputs.verdict is Sameness.CHANGED, case.outputs
    copy_saved(base, kept.with_name("results.json"), folder / "copy" / "results.json")
    assert saved_beside(base, folder / "copy" / "results.json").keys() == saved.keys()
