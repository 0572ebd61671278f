"""A model's configuration: read from a folder or the hub, or made of its fields, without what chance would add to a step."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci_bench.suites.transformers.options import Model, Options, looks_local

A_SLIP = 0.85
"""How like two names are, 0..1, where one was probably meant for the other."""


class BadModel(Exception):  # noqa: N818 - named like BadConfig
    """The model does not exist, or cannot be built from its configuration. The message names the field and the fix."""


def load_config(options: Options) -> Any:
    """The configuration of transformers with the case's overrides, and without dropout unless it is asked for.

    Raises:
        BadModel: there is no such family, folder or hub id, or the configuration is refused.
    """
    model = options.model
    config = _read_stored(model) if model.stored else _from_fields(model.config)
    for part in _configs(config):
        _settle(part, options)
    return config


def stored_path(model: Model) -> str:
    """A folder with its ``~`` replaced, or a hub id."""
    path = model.path or ""
    return str(Path(path).expanduser()) if looks_local(path) else path


def meant(name: str, known: Sequence[str], cutoff: float = 0.6) -> str:
    """The end of a sentence: what was probably meant; empty where nothing is near."""
    near = difflib.get_close_matches(name, known, 1, cutoff)
    return f"; did you mean {near[0]}?" if near else ""


def sentence(error: BaseException) -> str:
    """The first lines of a library's message."""
    return " ".join(str(error).split())[:600]


def _read_stored(model: Model) -> Any:
    """What a folder or the hub holds, overridden; an override of a field that is not there would be lost without a word."""
    from transformers import AutoConfig

    path, revision = stored_path(model), model.revision or "main"
    try:
        found = AutoConfig.from_pretrained(path, revision=revision)
        config = AutoConfig.from_pretrained(path, revision=revision, **model.config)
    except Exception as error:  # configurations are checked by several libraries
        advice = "check the spelling, and that this machine may read it" if model.on_hub else "check its config.json"
        raise BadModel(f"model: {path!r} cannot be read: {sentence(error)} ({advice})") from error
    for name in model.config:
        if not hasattr(found, name):
            raise BadModel(f"model.config.{name}: the configuration of {path} has no such field{meant(name, dir(found))}")
    return config


def _from_fields(given: Mapping[str, Any]) -> Any:
    """A configuration from its fields. Families take some that they don't declare, so only what looks like a slip is refused."""
    from transformers import CONFIG_MAPPING, AutoConfig, __version__

    fields = dict(given)
    family = str(fields.pop("model_type"))
    if family not in CONFIG_MAPPING:
        near = meant(family, list(CONFIG_MAPPING.keys()))
        raise BadModel(f"model.config.model_type: transformers {__version__} knows no {family!r}{near}")
    try:
        config = AutoConfig.for_model(family, **fields)
        known = dir(AutoConfig.for_model(family))
    except Exception as error:  # configurations are checked by several libraries
        raise BadModel(f"model.config: transformers {__version__} refuses it for {family}: {sentence(error)}") from error
    for name in fields:
        if name not in known and (near := meant(name, known, A_SLIP)):
            raise BadModel(f"model.config.{name}: {family} has no such field{near}")
    return config


def _configs(config: Any) -> Iterator[Any]:
    """A configuration and those inside it (of a vision tower, say)."""
    yield config
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None:
            yield from _configs(part)


def _settle(config: Any, options: Options) -> None:
    """Take chance out of the forward pass, so that what is timed can be compared between the arms.

    SpecAugment masks by numpy's random numbers, which no arm can repeat; dropout is off unless the case asks for it.
    """
    if getattr(config, "apply_spec_augment", False):
        config.apply_spec_augment = False
    if not options.dropout:
        for name, value in _rates(config):
            setattr(config, name, type(value)(0))


def _rates(config: Any) -> Iterator[tuple[str, float]]:
    """Dropout rates by name: ``hidden_dropout_prob``, ``attn_pdrop``, ``layerdrop`` and the like."""
    stored: Mapping[str, Any] = vars(config)
    return ((name, value) for name, value in stored.items() if "drop" in name and isinstance(value, float) and value > 0)
