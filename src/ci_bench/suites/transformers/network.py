"""The model of a case: its class, and a fresh instance with the same weights every time.

Weights are drawn from the seed on the device itself, in the format that the precision keeps them in. Imports transformers.
"""

import gc
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ci_bench.suites.base import Unsupported
from ci_bench.suites.transformers.configuration import BadModel, load_config, meant, sentence, stored_path
from ci_bench.suites.transformers.options import Attention, Mode, Options, Precision

KEPT_IN = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}
"""The format of the weights, where it is not fp32."""
IN_FP64 = {Attention.FLASH: Attention.SDPA, Attention.FLEX: Attention.SDPA}
"""Attention that has no fp64, and what stands in for it in the reference: the same mathematics."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How to build the model of a case. `exact` builds it in fp64: the same weights, rounded as the arms have them."""

    options: Options
    device: str
    exact: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """What the arms keep weights and inputs in."""
        return KEPT_IN.get(self.options.precision, torch.float32)

    def build(self, device: str | None = None) -> nn.Module:
        """A fresh model, in training mode where the case trains. Byte for byte the same on each call."""
        config = load_config(self.options)
        attention = self.options.attention
        if self.exact:
            attention = IN_FP64.get(attention, attention)
        kind = find_class(self.options, config)
        torch.manual_seed(self.options.seed)
        model = self._instance(kind, config, attention, device or self.device)
        model = model.double() if self.exact else model
        return model.train(self.options.mode is Mode.TRAINING)

    def _instance(self, kind: Any, config: Any, attention: Attention, device: str) -> nn.Module:
        wanted = {} if attention is Attention.AUTO else {"attn_implementation": str(attention)}
        model = self.options.model
        built: nn.Module
        try:
            if model.pretrained and device != "meta":
                revision = model.revision or "main"
                stored = kind.from_pretrained(
                    stored_path(model), revision=revision, config=config, dtype=self.dtype, use_safetensors=True, **wanted
                )
                built = stored.to(device)
            else:
                with torch.device(device):
                    built = kind._from_config(config, dtype=self.dtype, **wanted)  # noqa: SLF001 - what Auto classes call
        except (ImportError, ValueError) as error:
            if wanted and "attention" in str(error).lower():
                raise Unsupported(f"attention {attention}: {sentence(error)}") from error
            raise BadModel(f"model: {kind.__name__} cannot be built: {sentence(error)}") from error
        return built


def find_class(options: Options, config: Any) -> Any:
    """The class of transformers: the one in `architectures`, the bare model where that is asked for, else one with a head.

    Raises:
        BadModel: `architectures` names a class that transformers does not have.
    """
    import transformers
    from transformers.models.auto import modeling_auto

    if options.only_pretrain_model:
        return _from_mapping(modeling_auto.MODEL_MAPPING, config)
    for name in config.architectures or ():
        found = getattr(transformers, name, None)
        if found is None:
            near = meant(name, dir(transformers))
            message = f"model.config.architectures: transformers {transformers.__version__} has no {name}{near}"
            raise BadModel(f"{message} (only_pretrain_model: true takes the bare model)")
        return found
    for mapping in HEADS:
        table = getattr(modeling_auto, mapping)
        if type(config) in table:
            return _from_mapping(table, config)
    return _from_mapping(modeling_auto.MODEL_MAPPING, config)


HEADS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_MASKED_LM_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
    "MODEL_FOR_CTC_MAPPING",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING",
)
"""Where a configuration names no class: what its family is made for, by the first of these that knows it."""


def parameter_counts(model: nn.Module) -> tuple[int, int]:
    """All parameters, and those that are trained; shared ones once."""
    sizes = [(one.numel(), one.requires_grad) for one in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained)


def forget(device: str) -> None:
    """Give back the memory of what is no longer in use."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def _from_mapping(table: Any, config: Any) -> Any:
    found = table.get(type(config), None)
    if found is None:
        raise BadModel(f"model: transformers has no bare model for {type(config).__name__}; name a class in `architectures`")
    return found[0] if isinstance(found, tuple) else found
