"""Configurations of transformers with random weights. Nothing is downloaded.

Batch sizes and sequence lengths are the runner's. Labels, if the model's own loss needs them, are
drawn like the ids. Dropout stays as configured: seeds make both arms draw the same.
"""

import importlib
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ci_bench.suites.torchbench.catalogue import HUGGINGFACE, Listed
from ci_bench.suites.torchbench.options import TorchbenchOptions
from ci_bench.suites.torchbench.sources.loaded import Loaded, Sample

BOTH_ENDS = ("T5", "M2M100", "MT5")
"""Models that need ids for their decoder as well; they get the same."""
TOKENS = "sequence_length"
"""The one of `model_options` that is ours: tokens per row."""


def load(options: TorchbenchOptions, _: str) -> Loaded:
    """Build a model from its configuration.

    Raises `LookupError` if this transformers has no such class or setting.
    """
    entry = HUGGINGFACE[options.model]
    model_options = dict(options.settings.model_options)
    tokens = int(model_options.pop(TOKENS, entry.tokens))
    module = _build(entry, model_options)
    batch = options.settings.batch_size or entry.batch
    generator = torch.Generator().manual_seed(options.settings.seed)
    samples = tuple(
        _sample(options.model, module, (batch, tokens), generator)
        for _ in range(options.settings.prepared)
    )
    return Loaded(module=module, samples=samples, loss=_own_loss, batch_size=batch, sequence=tokens)


def _build(entry: Listed, model_options: dict[str, Any]) -> nn.Module:
    cls = getattr(importlib.import_module("transformers"), entry.cls, None)
    if cls is None:
        raise LookupError(f"this transformers has no {entry.cls}")
    config = cls.config_class()
    for name, value in {**entry.config, **model_options}.items():
        if not hasattr(config, name):
            raise LookupError(
                f"model_options.{name}: the configuration of {entry.cls} has no such setting"
            )
        setattr(config, name, value)
    config.use_cache = False
    built: nn.Module = cls(config)
    return built


def _sample(name: str, module: nn.Module, shape: tuple[int, int], generator: Generator) -> Sample:
    """Draw random ids; the last is the end of the text if the head looks for it."""
    config: Any = module.config
    ids = _draw(config.vocab_size, shape, generator)
    if "Bart" in name:
        ids[:, -1] = config.eos_token_id
    kwargs = {"input_ids": ids, "labels": _labels(name, config, shape, generator)}
    if name.startswith(BOTH_ENDS):
        kwargs["decoder_input_ids"] = ids.clone()
    return Sample(kwargs=kwargs)


def _labels(name: str, config: Any, shape: tuple[int, int], generator: Generator) -> Tensor:
    if name.endswith("SequenceClassification"):
        return _draw(config.num_labels, shape[:1], generator)
    return _draw(config.vocab_size, shape, generator)


def _draw(high: int, shape: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.randint(high, shape, generator=generator)


def _own_loss(outputs: Any, _: Any) -> Tensor:
    loss: Tensor = outputs.loss
    return loss
