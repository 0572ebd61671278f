"""Compiled, Adam computes its bias corrections in fp32, eager in fp64: that is rounding, and no other math.

A model of attention without dropout, 12 steps, fp32, one thread, CPU; the backends change nothing
else.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from training_loss_builders import context

from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.records.comparison import Parity
from ci_bench.suites.shared.worker.optimizers import lost_by_correction
from ci_bench.suites.training_loss import recipes
from ci_bench.suites.training_loss.plan import SUITE
from ci_bench.suites.training_loss.run import open_workload
from ci_bench.suites.training_loss.training import rounded_rates

pytestmark = pytest.mark.engine

ENTRY = {
    "name": "corrected",
    "epochs": 1,
    "num_samples": 96,
    "batch_size": 8,
    "evaluation": False,
    "dataset": {"factory": "dropping_models:rows", "num_labels": 3},
    "model": {"factory": "dropping_models:Net"},
}


def finding(folder, **changes):
    torch.compiler.reset()
    (case,) = SUITE.plan({**ENTRY, "backend": "eager", **changes})
    workload = open_workload(case, context(folder))
    workload.prepare()
    (found,) = parity_findings(workload.verify(case.arms).parity)
    return found


@pytest.mark.parametrize("lr", [0.01, 0.001])
@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "NAdam", "RAdam"])
def test_a_backend_that_runs_the_graph_as_it_is_is_right_under_adam(tmp_path, optimizer, lr):
    found = finding(tmp_path, optimizer=optimizer, lr=lr)
    assert found.verdict in {Parity.BITWISE, Parity.NUMERIC_PARITY}, found.detail


def test_without_that_rounding_in_the_perturbed_runs_it_would_be_called_other_math(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(recipes, "rounded_rates", lambda *_: None)
    assert finding(tmp_path, optimizer="Adam", lr=0.01).verdict is Parity.DIFFERENT_MATH


def groups(**options):
    return SimpleNamespace(param_groups=[{"lr": 0.1, **options}])


@pytest.mark.parametrize(
    ("step", "room"), [(0, 1.5 * 2**-24 / (1 - 0.999)), (999, 501 * 2**-24 / (1 - 0.999**1000))]
)
def test_the_rate_is_off_by_the_rounding_of_the_correction(step, room):
    draws = []
    for seed in range(200):
        optimizer = groups(betas=(0.9, 0.999))
        rounded_rates("Adam", optimizer, (0.1,), step, torch.Generator().manual_seed(seed))
        draws.append(optimizer.param_groups[0]["lr"] / 0.1 - 1)
    assert math.sqrt(sum(one**2 for one in draws) / len(draws)) == pytest.approx(room, rel=0.2)


@pytest.mark.parametrize(
    ("step", "share"), [(5, 1e-5), (6, 5.7e-3), (7, 6.0e-3), (20, 9.7e-4), (50, 3.1e-4)]
)
def test_radams_rate_is_off_by_what_its_root_loses_in_fp32(step, share):
    """From the sixth step on, by as much as the same formula in numpy's fp32 is off, or up to five times that."""
    assert share <= lost_by_correction("RAdam", (0.9, 0.999), step) <= 5 * share
    assert lost_by_correction("Adam", (0.9, 0.999), step) < 1e-4


@pytest.mark.parametrize(
    "options", [{}, {"betas": (0.9, 1.0)}, {"betas": (torch.tensor(0.9), torch.tensor(0.999))}]
)
def test_an_optimizer_without_such_a_correction_keeps_a_rate_that_is_a_number(options):
    optimizer = groups(**options)
    rounded_rates("Adam", optimizer, (0.1,), 0, torch.Generator().manual_seed(0))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1, rel=1e-3)
    tensor = groups(betas=(0.9, 0.999))
    tensor.param_groups[0]["lr"] = torch.tensor(0.1)
    rounded_rates("Adam", tensor, (torch.tensor(0.1),), 0, torch.Generator().manual_seed(0))
    assert isinstance(tensor.param_groups[0]["lr"], torch.Tensor)
