"""What the dynamo runner's own rule would have said of the same tensors. Shown beside our answer, and never a verdict.

The rule in words: types must match; close within ``atol = rtol = tolerance`` passes; else the root mean square error against fp64
may be `k` times eager's plus a tenth of the tolerance. `k` is 2, 3 in half precision, 3 as well for fewer than 1000
elements, 1x1 convolutions, or tolerances of 0.02 and more; 10 and 8 for the smallest tensors of listed models. Its absolute
term lets gradients below the tolerance vanish, which is why it is not ours.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
FEW, FEWER, FEWEST = 1000, 500, 10
LARGE_TOLERANCE = 0.02
IOU = 0.99


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerRule:
    """Its settings for one model. `equal_nan` is off in fp32 runs; `iou` judges boolean masks by their overlap."""

    tolerance: float
    equal_nan: bool = False
    larger_multiplier: bool = False
    iou: float | None = None


def agrees(result: Tensor, eager: Tensor, truth: Tensor | None, rule: RunnerRule) -> bool:
    """Whether the rule takes a result for the same as eager's; `truth` is the fp64 run's, `None` without one."""
    if result.dtype != eager.dtype or result.shape != eager.shape:
        return False
    if eager.dtype is torch.bool:
        return _same_masks(result, eager, rule.iou)
    if torch.allclose(result, eager, atol=rule.tolerance, rtol=rule.tolerance, equal_nan=rule.equal_nan):
        return True
    if truth is None or truth.dtype is not torch.float64:
        return False
    return _near_enough_to_truth(result, eager, truth, rule)


def _near_enough_to_truth(result: Tensor, eager: Tensor, truth: Tensor, rule: RunnerRule) -> bool:
    wide, reference = result.double(), eager.double()
    if bool(reference.isnan().any()) and not bool(truth.isnan().any()) and not bool(wide.isnan().any()):
        return torch.allclose(wide, truth, atol=0.04, rtol=0.04)
    error, rounding = _rmse(wide, truth), _rmse(reference, truth)
    return error <= _multiplier(result, rule) * rounding + rule.tolerance / 10


def _multiplier(result: Tensor, rule: RunnerRule) -> float:
    if rule.larger_multiplier and result.numel() <= FEWER:
        return 10.0 if result.numel() <= FEWEST else 8.0
    pointwise = result.dim() >= 4 and result.shape[-1] == result.shape[-2] == 1  # noqa: PLR2004 - a convolution's weights
    lenient = result.numel() < FEW or pointwise or rule.tolerance >= LARGE_TOLERANCE
    return 3.0 if lenient or result.dtype in HALF else 2.0


def _same_masks(result: Tensor, eager: Tensor, iou: float | None) -> bool:
    if iou is None:
        return torch.equal(result, eager)
    union = int((result | eager).sum())
    return union == 0 or int((result & eager).sum()) / union >= iou


def _rmse(value: Tensor, truth: Tensor) -> float:
    return float((value - truth).square().mean().sqrt()) if value.numel() else 0.0
