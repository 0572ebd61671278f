"""The embedded data set can be learned: parity of trainings that learn nothing would prove little."""

import pytest
from training_loss_builders import context

from ci_bench.records.results import Role
from ci_bench.suites.training_loss.corpus import load_rows, prepare_rows
from ci_bench.suites.training_loss.options import TrainingOptions
from ci_bench.suites.training_loss.recipes import TrainingRecipe
from ci_bench.suites.training_loss.verify import TrainingVerifier

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_the_default_training_learns(tmp_path):
    options = TrainingOptions()
    prepare_rows(options, tmp_path)
    train, test = (load_rows(tmp_path, split) for split in ("train", "test"))
    verifier = TrainingVerifier(options=options, context=context(tmp_path), train=train, test=test)
    trace = verifier._run(TrainingRecipe(arm="eager", role=Role.REFERENCE, seed=0))
    assert len(trace.loss) == options.epochs * options.num_samples / options.batch_size
    first, last = (sum(part) / len(part) for part in (trace.loss[:20], trace.loss[-20:]))
    assert 1.5 < first < 1.75
    assert last < 0.6 * first
    assert 0.6 < trace.accuracy < 0.95
    assert trace.disagreements is None
