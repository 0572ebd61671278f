"""What is timed is what was verified: another model, seed, batch or type is found, and an honest training passes."""

import pytest
from first_calls import differences
from training_loss_builders import context, write_model

from ci_bench.suites.training_loss.options import parse
from ci_bench.suites.training_loss.run import TrainingWorkload

pytestmark = pytest.mark.engine
SHORT = {"epochs": 1, "perturbations": 1, "dropout": False, "num_samples": 16}


def opened(bench, **changes):
    return TrainingWorkload(parse(bench.params(**{**SHORT, **changes})), context(bench.folder))


@pytest.fixture(scope="module")
def plain(bench):
    """The first verified step of the reference."""
    return opened(bench).verify(("eager",)).begun


@pytest.mark.parametrize(
    ("timed", "said"),
    [
        ({"batch_size": 4}, "inputs"),
        ({"seed": 7}, "values of the weights"),
        ({"precision": "amp_bf16"}, "values of the gradients off by"),
    ],
)
def test_another_training_when_timed_is_found(bench, plain, timed, said):
    assert said in differences(plain, opened(bench, **timed), ("eager",))["eager"]


def test_a_smaller_model_when_timed_is_found(bench, plain, tmp_path):
    model = {
        **bench.params()["model"],
        "path": write_model(tmp_path / "small", num_hidden_layers=1),
    }
    assert "weights" in differences(plain, opened(bench, model=model), ("eager",))["eager"]


def test_an_honest_training_is_as_verified(bench, plain):
    assert differences(plain, opened(bench), ("eager",)) == {}


def test_masks_are_no_accusation(bench):
    workload = opened(bench, dropout=True)
    assert differences(workload.verify(("eager",)).begun, workload, ("eager",)) == {}
