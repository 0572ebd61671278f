"""The model of a case: its configuration, its class, and fresh instances with the same weights.

The configuration is read from a folder or the hub, or made of its fields, without what chance would
add to a step. Weights are drawn from the seed on the device itself, in the format that the
precision keeps them in. Imports transformers.
"""

import difflib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.shared.worker.numerics import shaken
from ci_bench.suites.transformers.options import (
    Attention,
    Mode,
    TransformersModel,
    TransformersOptions,
    TransformersPrecision,
    looks_local,
)

A_SLIP = 0.85
"""Similarity of two names, 0..1, above which one was probably meant for the other."""


class UnusableModel(Exception):  # noqa: N818 - named like BadConfig
    """The model does not exist, or cannot be built from its configuration.

    The message names the field and the fix.
    """


def load_config(options: TransformersOptions) -> Any:
    """Build the configuration of transformers with the case's overrides.

    Dropout is off unless the case asks for it.

    Raises:
        UnusableModel: the family, folder or hub id does not exist, or the configuration is refused.
    """
    model = options.model
    config = _read_stored(model) if model.stored else _from_fields(model.config)
    for part in _configs(config):
        _settle(part, options)
    return config


def stored_path(model: TransformersModel) -> str:
    """Return a folder with its ``~`` replaced, or a hub id."""
    path = model.path or ""
    return str(Path(path).expanduser()) if looks_local(path) else path


def meant(name: str, names: Sequence[str], cutoff: float = 0.6) -> str:
    """Return the end of a sentence: the name that was probably meant; empty if nothing is near."""
    near = difflib.get_close_matches(name, names, 1, cutoff)
    return f"; did you mean {near[0]}?" if near else ""


def sentence(error: BaseException) -> str:
    """Return the start of a library's message, in one line."""
    return " ".join(str(error).split())[:600]


def _read_stored(model: TransformersModel) -> Any:
    """Read the configuration from a folder or the hub, and override it.

    An override of a missing field would be lost silently.
    """
    from transformers import AutoConfig

    path, revision = stored_path(model), model.revision or "main"
    try:
        stored = AutoConfig.from_pretrained(path, revision=revision)
        config = AutoConfig.from_pretrained(path, revision=revision, **model.config)
    except Exception as error:  # configurations are checked by several libraries
        advice = (
            "check the spelling, and that this machine may read it"
            if model.on_hub
            else "check its config.json"
        )
        raise UnusableModel(
            f"model: {path!r} cannot be read: {sentence(error)} ({advice})"
        ) from error
    for name in model.config:
        if not hasattr(stored, name):
            raise UnusableModel(
                f"model.config.{name}: the configuration of {path} has no such"
                f" field{meant(name, dir(stored))}"
            )
    return config


def _from_fields(values: Mapping[str, Any]) -> Any:
    """Build a configuration from its fields.

    Families take some that they don't declare, so only what looks like a slip is refused.
    """
    from transformers import CONFIG_MAPPING, AutoConfig, __version__

    fields = dict(values)
    family = str(fields.pop("model_type"))
    if family not in CONFIG_MAPPING:
        near = meant(family, list(CONFIG_MAPPING.keys()))
        raise UnusableModel(
            f"model.config.model_type: transformers {__version__} knows no {family!r}{near}"
        )
    try:
        config = AutoConfig.for_model(family, **fields)
        field_names = dir(AutoConfig.for_model(family))
    except Exception as error:  # configurations are checked by several libraries
        raise UnusableModel(
            f"model.config: transformers {__version__} refuses it for {family}: {sentence(error)}"
        ) from error
    for name in fields:
        if name not in field_names and (near := meant(name, field_names, A_SLIP)):
            raise UnusableModel(f"model.config.{name}: {family} has no such field{near}")
    return config


def _configs(config: Any) -> Iterator[Any]:
    """Yield a configuration and those inside it, for example of a vision tower."""
    yield config
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None:
            yield from _configs(part)


def _settle(config: Any, options: TransformersOptions) -> None:
    """Take chance out of the forward pass: the arms' timed code must be comparable.

    SpecAugment masks by numpy's random numbers, which no arm can repeat; dropout is off unless the
    case asks for it.
    """
    if getattr(config, "apply_spec_augment", False):
        config.apply_spec_augment = False
    if not options.dropout:
        for name, value in _rates(config):
            setattr(config, name, type(value)(0))


def _rates(config: Any) -> Iterator[tuple[str, float]]:
    """Yield dropout rates by name: ``hidden_dropout_prob``, ``attn_pdrop`` and the like."""
    stored: Mapping[str, Any] = vars(config)
    return (
        (name, value)
        for name, value in stored.items()
        if "drop" in name and isinstance(value, float) and value > 0
    )


KEPT_IN = {TransformersPrecision.FP16: torch.float16, TransformersPrecision.BF16: torch.bfloat16}
"""The format of the weights, where it is not fp32."""
IN_FP64 = {Attention.FLASH: Attention.SDPA, Attention.FLEX: Attention.SDPA}
"""Attention without fp64, and its replacement in the reference: the same mathematics."""
EXPERTS = "experts_implementation"
"""The option of a mixture of experts, whose grouped products have no fp64; ``eager`` has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRecipe:
    """Recipe for the model of a case."""

    options: TransformersOptions
    """Options of the case."""
    device: str
    """Device of the model, unless `build` is given another one."""
    exact: bool = False
    """True builds it in fp64, from the same weights, rounded as the arms have them."""
    shake: float = 0.0
    """Share of itself by which every weight is moved, drawn from a seed; 0 moves none."""
    captured: bool = False
    """True if its steps have to fit into a CUDA graph as they are."""

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights and inputs in the arms."""
        return KEPT_IN.get(self.options.precision, torch.float32)

    def build(self, device: str | None = None) -> nn.Module:
        """Build a fresh model, in training mode if the case trains.

        Byte for byte the same on each call.
        """
        config = load_config(self.options)
        attention = self.options.attention
        if self.exact:
            attention = IN_FP64.get(attention, attention)
        kind = find_class(self.options, config)
        torch.manual_seed(self.options.seed)
        model = self._instance(kind, config, attention, device or self.device)
        model = model.double() if self.exact else model
        if self.shake:
            shake_weights(model, self.shake)
        return model.train(self.options.mode is Mode.TRAINING)

    def _instance(self, kind: Any, config: Any, attention: Attention, device: str) -> nn.Module:
        arguments = {} if attention is Attention.AUTO else {"attn_implementation": str(attention)}
        arguments |= {EXPERTS: "eager"} if self.exact else {}
        model = self.options.model
        built: nn.Module
        try:
            if model.pretrained and device != "meta":
                revision = model.revision or "main"
                stored = kind.from_pretrained(
                    stored_path(model),
                    revision=revision,
                    config=config,
                    dtype=self.dtype,
                    use_safetensors=True,
                    **arguments,
                )
                built = stored.to(device)
            else:
                with torch.device(device):
                    built = kind._from_config(config, dtype=self.dtype, **arguments)  # noqa: SLF001 - what Auto classes call
        except (ImportError, ValueError, AssertionError) as error:  # torch asserts ids of padding
            if "attn_implementation" in arguments and "attention" in str(error).lower():
                raise Unsupported(f"attention {attention}: {sentence(error)}") from error
            message = f"model: {kind.__name__} cannot be built: {sentence(error)}{_beyond(config)}"
            raise UnusableModel(message) from error
        return built


def _beyond(config: Any) -> str:
    """Return the end of a sentence: a padding id that a smaller vocabulary does not have."""
    padding, size = (getattr(config, name, None) for name in ("pad_token_id", "vocab_size"))
    if not isinstance(padding, int) or not isinstance(size, int) or padding < size:
        return ""
    return f"; set `pad_token_id`, which is {padding}, below `vocab_size`, which is {size}"


def shake_weights(model: nn.Module, epsilon: float) -> None:
    """Move every weight by about `epsilon` of it, in place."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(shaken({name: weight}, epsilon, generator)[name])


def find_class(options: TransformersOptions, config: Any) -> Any:
    """Find the class of transformers for a configuration.

    It is the one in `architectures`, the bare model if that is asked for, else one with a head.

    Raises:
        UnusableModel: `architectures` names a class that transformers does not have.
    """
    import transformers
    from transformers.models.auto import modeling_auto

    if options.only_pretrain_model:
        return _from_mapping(modeling_auto.MODEL_MAPPING, config)
    for name in config.architectures or ():
        model_class = getattr(transformers, name, None)
        if model_class is None:
            near = meant(name, dir(transformers))
            message = (
                f"model.config.architectures: transformers {transformers.__version__} has no"
                f" {name}{near}"
            )
            raise UnusableModel(f"{message} (only_pretrain_model: true takes the bare model)")
        return model_class
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
"""Heads for a configuration without a class: the first of these that knows its family is taken."""


def parameter_counts(model: nn.Module) -> tuple[int, int]:
    """Count all parameters, and those that are trained; shared ones once."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained)


def forget(device: str) -> None:
    """Release the memory of unused objects."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def _from_mapping(table: Any, config: Any) -> Any:
    model_class = table.get(type(config), None)
    if model_class is None:
        raise UnusableModel(
            f"model: transformers has no bare model for {type(config).__name__}; name a class in"
            " `architectures`"
        )
    return model_class[0] if isinstance(model_class, tuple) else model_class
