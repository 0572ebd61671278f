"""Precision of fp32 products on GPUs: TF32 may round them to ten mantissa bits. Imports torch.

Torch has two interfaces for this: flags (`allow_tf32`, `set_float32_matmul_precision`) and, from
2.9 on, `fp32_precision` by backend and kind of operation. Setting one does not always set the
other. Reading a flag raises if the two disagree
(https://docs.pytorch.org/docs/stable/notes/cuda.html#tf32-on-ampere), also when inductor and cuDNN
read it. So all of it is set, the flags first, and again after a user's model is built, which may
have set one of them.
"""

from typing import Any

import torch


def set_fp32_precision(*, tf32: bool) -> None:
    """Let matmuls, convolutions and recurrent layers use TF32, or none of them.

    Earlier settings have no effect.
    """
    general: Any = torch.backends
    if getattr(general, "fp32_precision", "none") != "none":
        general.fp32_precision = "none"  # it would speak for whatever the flags leave open
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    for settings in _settings().values():
        settings.fp32_precision = "tf32" if tf32 else "ieee"


def effective_precision() -> dict[str, str]:
    """Return the precision in force, as facts: by kind of operation `tf32` or `ieee`.

    `none` is torch's name for its default.
    """
    return {
        f"fp32_precision_{name}": str(settings.fp32_precision)
        for name, settings in _settings().items()
        if name != "cudnn"
    }


def _settings() -> dict[str, Any]:
    """Return the newer interface's settings, the general ones first; empty if torch lacks it."""
    cudnn: Any = torch.backends.cudnn
    places = {"matmul": torch.backends.cuda.matmul, "cudnn": cudnn}
    places |= {kind: getattr(cudnn, kind) for kind in ("conv", "rnn") if hasattr(cudnn, kind)}
    return places if hasattr(cudnn, "fp32_precision") and "conv" in places else {}
