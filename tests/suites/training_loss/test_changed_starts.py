"""A pull request that changes how a model starts: whole trainings over seeds say whether head still learns as well.

State: a residual network of 16 blocks without norms, Adam, 100 steps, four seeds, fp32, one thread,
CPU.
"""

from dataclasses import replace

import pytest
from training_loss_builders import context

from ci_bench.judge.parity.over_seeds import starts_differ
from ci_bench.judge.parity.verdict import learning_of
from ci_bench.records.comparison import Parity, Tier
from ci_bench.records.results import CaseResult, Role, Status
from ci_bench.runner.ledger import merge_parity
from ci_bench.suites.training_loss.plan import SUITE
from ci_bench.suites.training_loss.run import open_workload

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SEEDS = 4
ENTRY = {
    "name": "residual",
    "backend": "eager",
    "epochs": 2,
    "num_samples": 800,
    "batch_size": 16,
    "evaluation": False,
    "optimizer": "Adam",
    "lr": 0.001,
    "perturbations": 1,
    "seeds": SEEDS,
    "dataset": {"factory": "residual_models:rows", "num_labels": 3},
}


def trained(folder, **options):
    """A side, as the engine leaves it once both of its stages have run."""
    (case,) = SUITE.plan({**ENTRY, "model": {"factory": "residual_models:Net", "options": options}})
    workload = open_workload(case, context(folder))
    workload.prepare()
    verified = workload.verify((case.reference,)).parity
    seeds = workload.train_over_seeds((case.reference,)).parity
    return CaseResult(
        case=case, status=Status.OK, reproduce="", parity=merge_parity(verified, seeds)
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("base"))


def test_a_side_has_two_trainings_of_every_seed_from_starts_of_their_own(base):
    trained = [run for run in base.parity.traces if run.role not in {Role.PERTURBED, Role.CONTROL}]
    runs = [(run.role, run.seed) for run in trained]
    assert sorted(runs) == sorted(
        (role, seed) for role in (Role.REFERENCE, Role.OTHER_START) for seed in range(SEEDS)
    )
    assert len({run.start for run in trained}) == len(trained)
    assert len({run.data for run in base.parity.traces}) == SEEDS, (
        "those of one seed see the same data"
    )


def test_branches_that_start_too_large_by_the_root_of_two_learn_worse(base, tmp_path):
    head = trained(tmp_path, gain=2**0.5)
    assert starts_differ(base, head)
    found = learning_of(base, head)
    assert (found.verdict, found.tier) == (Parity.DIFFERENT, Tier.STATISTICAL), found.detail
    assert 0 < found.interval.low < found.difference
    back = learning_of(head, base)
    assert back.verdict is Parity.EQUIVALENT, "the repair of it is no failure"
    assert "head ends lower than base" in back.detail


def test_the_same_starts_drawn_in_another_order_are_never_worse(base, tmp_path):
    head = trained(tmp_path, reordered=True)
    found = learning_of(base, head)
    assert found.verdict in {Parity.EQUIVALENT, Parity.INCONCLUSIVE}
    assert found.interval.low < 0 < found.interval.high


def test_the_same_start_is_compared_step_by_step(base):
    head = replace(base, parity=replace(base.parity))
    assert not starts_differ(base, head)
    assert learning_of(base, head).verdict is Parity.BITWISE
