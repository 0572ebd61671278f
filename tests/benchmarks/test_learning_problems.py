"""Problems and changes of the benchmark of loss parity: each trains, and each fault is one."""

from dataclasses import replace

import pytest
import torch
from benchmarks.learning_problems import BENIGN, FAULTS, PROBLEMS
from benchmarks.learning_quality import Trainings

from benchmarks import learning_quality
from ci_bench.records.results import Role

pytestmark = pytest.mark.engine


def trainings(problem, steps, monkeypatch):
    """Trainings of so many steps."""
    monkeypatch.setattr(learning_quality, "STEPS", steps)
    torch.set_num_threads(1)
    return Trainings(problem, "fp32", 1, None)


def test_there_are_enough_problems_and_kinds():
    assert len({one.name for one in PROBLEMS}) == len(PROBLEMS) >= 44
    assert len({one.name for one in FAULTS}) == len(FAULTS) >= 20
    kinds = [(one.model, one.optimizer) for one in PROBLEMS[:24]]
    assert {model for model, _ in kinds} == {"mlp", "transformer", "cnn", "lstm", "moe"}
    assert {optimizer for _, optimizer in kinds} == {"adamw", "sgd", "lion", "adafactor"}
    for change in (*BENIGN, *FAULTS):
        assert any(change.applies(one) for one in PROBLEMS), change.name


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.name)
def test_a_problem_trains(problem, monkeypatch):
    run = trainings(problem, 2, monkeypatch)._run(Role.REFERENCE)
    assert len(set(run.loss)) == 2
    assert all(1 < loss < 10 for loss in run.loss), "near ln 5, and more after a hot step"
    assert min(run.grad_norm) > 0


@pytest.mark.parametrize("change", FAULTS, ids=lambda one: one.name)
def test_a_fault_moves_a_bit(change, monkeypatch):
    """In a problem it applies to."""
    problem = next(one for one in PROBLEMS if change.applies(one))
    both = trainings(problem, 14 if "skip" in change.settings else 4, monkeypatch)
    reference, changed = both._run(Role.REFERENCE), both.changed(change)
    assert (reference.loss, reference.grad_norm) != (changed.loss, changed.grad_norm)


def test_spikes_show_in_the_loss(monkeypatch):
    spiky = next(one for one in PROBLEMS if one.spikes)
    calm = replace(spiky, spikes=False)
    one, two = (
        trainings(each, 16, monkeypatch)._run(Role.REFERENCE).loss for each in (spiky, calm)
    )
    assert one[:15] == two[:15]
    assert one[15] != two[15]
