"""What passes is claimed: a process without code of the tree agrees with honest arms, and not with a loosened rule."""

from dataclasses import replace

import pytest
from torchbench_builders import context, opened

from ci_bench.records.results import Outcome
from ci_bench.suites.shared.worker import numerics
from ci_bench.worker.comparing import ClaimFiles, judge
from ci_bench.worker.keeping import Claimer

pytestmark = pytest.mark.engine


def claimed(folder, **entry):
    """The checks of the worker, and the files that it left."""
    case, workload = opened(**entry)
    claimer = Claimer(folder=folder)
    workload._context = replace(context(), claim=claimer.claim)
    checks = workload.verify(case.arms[1:]).checks
    files = [
        ClaimFiles(
            check=one.check,
            arm=one.arm,
            expected=str(folder / one.expected),
            expected_digest=one.expected_digest,
            seen=str(folder / one.seen),
            seen_digest=one.seen_digest,
        )
        for one in claimer.records
    ]
    return {check.name: check.outcome for check in checks}, files


@pytest.mark.parametrize(
    ("model", "mode", "precision"),
    [
        ("mlp", "training", "fp32"),
        ("mlp", "training", "amp_bf16"),
        ("encoder", "inference", "fp32"),
        ("gnn", "inference", "bf16"),
    ],
)
def test_an_honest_arm_is_agreed_with(tmp_path, model, mode, precision):
    entry = {
        "source": "zoo",
        "models": [model],
        "mode": mode,
        "precision": precision,
        "backend": "aot_eager",
    }
    found, files = claimed(tmp_path, **entry)
    assert found["accuracy"] is Outcome.PASS
    assert {(one.check, one.arm) for one in files} == {("accuracy", "aot_eager")}
    assert [check.detail for check in judge(files) if check.outcome is Outcome.FAIL] == []
    assert 1 < len({one.expected for one in files}) <= len(files), "one for each step"


def test_a_loosened_rule_is_found_out(tmp_path, monkeypatch):
    for name in ("MULTIPLIER_FP32", "LAST_DIGITS", "ROUNDINGS", "JOLT_MULTIPLIER"):
        monkeypatch.setattr(numerics, name, 1e15)
    for name in ("BLIND", "BLIND_FP32"):
        monkeypatch.setattr(numerics, name, float("inf"))
    entry = {
        "source": "own",
        "models": ["planted_models:Plain"],
        "mode": "inference",
        "backend": "planted_backends:scaled_output",
    }
    found, files = claimed(tmp_path, **entry)
    monkeypatch.undo()
    assert found["accuracy"] is Outcome.PASS
    assert {check.outcome for check in judge(files)} == {Outcome.FAIL}
