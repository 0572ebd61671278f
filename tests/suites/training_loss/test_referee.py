"""Timed training steps under a referee: loss, gradients and updates of the very step that was timed."""

from dataclasses import replace

import pytest
import torch
from refereeing import referee_checks
from training_loss_builders import context, make_bench

from ci_bench.records.results import Outcome
from ci_bench.suites.training_loss import run
from ci_bench.suites.training_loss.plan import SUITE
from ci_bench.suites.training_loss.run import Epoch, open_workload

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return make_bench(tmp_path_factory.mktemp("bench"))


def refereed(bench, **options):
    (case,) = SUITE.plan(bench.params())
    return referee_checks(
        open_workload(case, context(bench.folder)), case.arms, context(bench.folder), **options
    )["aot_eager"]


def test_a_right_backend_agrees(bench):
    check = refereed(bench, calls=2)
    assert check.outcome is Outcome.PASS, check


@pytest.mark.parametrize("seed", range(8))
def test_altered_rows_ignore_the_overwritten_batch(bench, seed):
    """Arms stand at different batches of the epoch when a look overwrites one of them."""
    options = replace(bench.options, batch_size=32)
    left = []
    for steps in (1, 2):
        epoch = Epoch(options, bench.rows)
        for _ in range(steps):
            epoch.following()
        epoch.refresh(seed, moved=False, shaken=0, epsilon=0.0)
        epoch.alter(seed + 100, shaken=0, epsilon=0.0, all_values=True)()
        left.append(epoch.following())
    assert all(torch.equal(values, left[1][name]) for name, values in left[0].items())


POOLED = """
from types import SimpleNamespace

from torch import nn
from torch.nn import functional


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(4096, 16), nn.Linear(16, 2)

    def forward(self, input_ids, attention_mask, token_type_ids=None, labels=None):
        mask = attention_mask.unsqueeze(-1)
        logits = self.head((self.embed(input_ids) * mask).sum(dim=1) / mask.sum(dim=1))
        return SimpleNamespace(loss=functional.cross_entropy(logits, labels), logits=logits)
"""


ROWS = """text,label
good food and kind people,1
the best soup in town,1
we will come again,1
fresh and quick,1
cold soup and rude people,0
the worst bread in town,0
never again,0
stale and slow,0
"""


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    """A training whose gradients show what an optimizer's divisor in fp32 changes of the steps before."""
    folder = tmp_path_factory.mktemp("pooled")
    (folder / "pooled.py").write_text(POOLED)
    (folder / "rows.csv").write_text(ROWS)
    entry = {
        "dataset": {"files": {"train": str(folder / "rows.csv")}, "num_labels": 2},
        "backend": "aot_eager",
    }
    entry |= {"num_samples": 8, "batch_size": 4, "lr": 0.05, "max_length": 8, "evaluation": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        (case,) = SUITE.plan(entry | {"model": {"factory": "pooled:Pooled"}})
        workload = open_workload(case, context(folder))
        workload.prepare()
        yield workload, case.arms, context(folder)


@pytest.mark.parametrize("seed", range(4))
def test_steps_after_a_step_allow_for_the_digits_that_an_optimizer_loses(pooled, seed):
    check = referee_checks(*pooled, seed=1000 * seed + 7)["aot_eager"]
    assert check.outcome is Outcome.PASS, check


@pytest.mark.parametrize(
    "fault",
    ["skipped optimizer", "skipped in every other step", "loss of before", "half of the batch"],
)
def test_a_step_that_is_not_a_step_is_refused(bench, fault, monkeypatch):
    built = run.build_trainee

    def wrong(options, state, *, candidate, **others):
        trainee = built(options, state, candidate=None, **others)
        if candidate is None:
            return trainee
        calls, losses = [0], []

        def step(batch):
            calls[0] += 1
            before = [one.detach().clone() for one in trainee.model.parameters()]
            if fault == "half of the batch":
                batch = {
                    name: torch.cat([values[: len(values) // 2]] * 2)
                    for name, values in batch.items()
                }
            loss = trainee.step(batch)
            losses.append(loss)
            if fault == "skipped optimizer" or (
                fault == "skipped in every other step" and calls[0] % 2
            ):
                with torch.no_grad():
                    for one, value in zip(trainee.model.parameters(), before, strict=True):
                        one.copy_(value)
            return losses[-2] if fault == "loss of before" and len(losses) > 1 else loss

        return replace(trainee, step=step)

    monkeypatch.setattr(run, "build_trainee", wrong)
    check = refereed(bench, calls=2)
    assert check.outcome is Outcome.FAIL, check
