"""Do the candidate's random masks match the reference's? Asked of the machine, not assumed.

Inductor draws its own random numbers unless `fallback_random` is set, and even then not everywhere:
https://github.com/pytorch/pytorch/issues/141645 and #142853.
"""

import torch
from torch import Tensor

from ci_bench.records.case import ArmMasks, Masks
from ci_bench.suites.training_loss.corpus import Batch
from ci_bench.suites.training_loss.training import Trainee, make_compiler

PROBE_ELEMENTS = 4096


def model_is_random(trainee: Trainee, batch: Batch) -> bool:
    """Whether two forward passes in training mode differ when only the random seed differs.

    Told from the logits: in bf16 two losses are often equal by rounding alone.
    """
    logits = []
    with torch.no_grad():
        for seed in (1, 2):
            torch.manual_seed(seed)
            with trainee.autocast():
                logits.append(trainee.logits(batch))
    return not torch.equal(logits[0], logits[1])


def probe_masks(arm: str, backend: str, *, device: str, random: bool) -> ArmMasks:
    """Draw one dropout mask eagerly and one through the backend, from the same seed, and compare them."""
    if not random:
        return ArmMasks(arm=arm, masks=Masks.NO_DROPOUT, detail="the model draws no random numbers in training")
    ones = torch.ones(PROBE_ELEMENTS, device=device)

    def draw(values: Tensor) -> Tensor:
        return torch.nn.functional.dropout(values, p=0.5, training=True)

    torch.manual_seed(0)
    eager = draw(ones)
    torch.manual_seed(0)
    compiled = make_compiler(backend)(draw)(ones)
    differing = int((eager != compiled).sum())
    if differing:
        detail = f"{differing} of {PROBE_ELEMENTS} elements of a probe mask differ from eager's"
        return ArmMasks(arm=arm, masks=Masks.DIFFER, detail=detail)
    return ArmMasks(arm=arm, masks=Masks.ALIGNED, detail="a probe mask equals eager's")
