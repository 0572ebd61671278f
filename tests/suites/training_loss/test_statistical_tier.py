"""Where dropout masks cannot match, whole trainings over seeds decide, and never call other masks a defect."""

from dataclasses import replace

import pytest
import torch
from training_loss_builders import context, judged, train

from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.records.comparison import Parity, Tier
from ci_bench.records.results import Masks, Role
from ci_bench.suites.training_loss.plan import SUITE
from ci_bench.suites.training_loss.recipes import OTHER_MASK_SEED
from ci_bench.suites.training_loss.run import open_workload

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SEEDS = (0, 1, 2)
LONG = {"epochs": 13, "lr": 3e-3}
THIRD_MASK_SEED = 15485863
DRAWING = """
import torch


def compile(graph, inputs):
    def run(*values):
        torch.rand(1)
        return graph.forward(*values)

    return run
"""


@pytest.fixture(scope="module")
def anchors(bench):
    """References, and references with other masks, of every seed."""
    options = replace(bench.options, **LONG)
    return [
        trace
        for seed in SEEDS
        for trace in (
            train(bench, seed, role=Role.REFERENCE, options=options),
            train(bench, seed, role=Role.OTHER_MASKS, options=options, mask_seed=OTHER_MASK_SEED),
        )
    ]


def candidates(bench, change=None):
    options = replace(bench.options, **LONG)
    return [
        train(bench, seed, options=options, mask_seed=THIRD_MASK_SEED, change=change)
        for seed in SEEDS
    ]


def climb(trainee):
    """The optimizer has its sign wrong.

    (Where this training ends hangs on its masks: a slower one is within what they do.)
    """
    for group in trainee.optimizer.param_groups:
        group["lr"] *= -1


def test_a_backend_with_its_own_random_numbers_is_judged_over_seeds(bench, tmp_path, monkeypatch):
    torch.compiler.reset()
    (tmp_path / "seeded_backend.py").write_text(DRAWING)
    monkeypatch.syspath_prepend(str(tmp_path))
    arm = "seeded_backend:compile"
    (case,) = SUITE.plan(
        bench.params(backend=arm, align_rng=False, **LONG, seeds=len(SEEDS), perturbations=1)
    )
    evidence = open_workload(case, context(bench.folder)).verify(case.arms).parity

    assert [entry.masks for entry in evidence.masks] == [Masks.DIFFER]
    trained = sorted((str(trace.role), trace.seed) for trace in evidence.traces)
    roles = (Role.CANDIDATE, Role.OTHER_MASKS, Role.REFERENCE)
    assert trained == sorted(
        [*((str(role), seed) for role in roles for seed in SEEDS), ("perturbed", 0), ("control", 0)]
    )
    (finding,) = parity_findings(evidence)
    assert (finding.tier, finding.masks) == (Tier.STATISTICAL, Masks.DIFFER)
    assert finding.verdict in {Parity.EQUIVALENT, Parity.INCONCLUSIVE}
    assert finding.interval.low < finding.difference < finding.interval.high


def test_other_masks_alone_are_no_defect(bench, anchors):
    finding = judged(*anchors, *candidates(bench), masks=Masks.DIFFER)
    assert finding.tier is Tier.STATISTICAL
    assert finding.verdict in {Parity.EQUIVALENT, Parity.INCONCLUSIVE}


def test_a_real_defect_is_different(bench, anchors):
    finding = judged(*anchors, *candidates(bench, climb), masks=Masks.DIFFER)
    assert (finding.verdict, finding.tier) == (Parity.DIFFERENT, Tier.STATISTICAL)
    assert finding.difference > 0.1


def test_one_seed_cannot_decide(bench, anchors):
    finding = judged(*anchors, *candidates(bench)[:1], masks=Masks.DIFFER)
    assert finding.verdict is Parity.INSUFFICIENT_DATA
