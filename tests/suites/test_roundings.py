"""Every suite means the same by one rounding: half the distance from 1 to the next number, as torch has it."""

import subprocess
import sys

import pytest

from ci_bench.suites.torchbench.options import TorchbenchPrecision as OfTorchbench
from ci_bench.suites.training_loss.options import TrainingPrecision as OfTrainingLoss
from ci_bench.suites.transformers.options import TransformersPrecision as OfTransformers

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.engine

FORMATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
TF32 = 2.0**-10
"""Ten bits behind the point, and no format of torch's own:
https://docs.pytorch.org/docs/stable/notes/cuda.html
"""


@pytest.mark.parametrize("precision", [*OfTorchbench, *OfTrainingLoss, *OfTransformers], ids=repr)
def test_a_rounding_is_half_the_distance_to_the_next_number(precision):
    kind = FORMATS.get(precision.value.removeprefix("amp_"))
    assert precision.epsilon == (TF32 if kind is None else torch.finfo(kind).eps) / 2


@pytest.mark.parametrize("kind", FORMATS.values(), ids=str)
def test_a_value_moves_by_that_at_most(kind):
    """The definition, tried on numbers themselves: twice as much would never be reached, half as much be exceeded."""
    exact = torch.linspace(1, 2, 10_001, dtype=torch.float64)
    moved = float(((exact.to(kind).double() - exact) / exact).abs().max())
    assert 0.9 < moved / (torch.finfo(kind).eps / 2) <= 1


def test_watching_roundings_loads_no_dynamo() -> None:
    """Loading it takes two seconds, in each process of a run."""
    code = """
import sys, torch
from ci_bench.suites.shared.worker.roundings import watch_roundings
with watch_roundings(2.0**-24) as seen:
    torch.ones(3).to(torch.bfloat16) + 1
print(seen.named, "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["bf16", "False"]


def test_dynamo_leaves_the_mode_alone() -> None:
    import torch._dynamo  # noqa: F401

    from ci_bench.suites.shared.worker.roundings import Roundings, watch_roundings

    assert type(watch_roundings(2.0**-24)) is not type(Roundings(2.0**-24))
