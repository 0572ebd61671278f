"""Inputs of a model, drawn from the seed: text, images, sound, and labels.

Their shapes follow from the model's configuration. Ids are uniform over the vocabulary without its
special tokens; images and sound are normal noise. All rows are of full length, but for ragged
prompts. Dynamic batches differ in rows, in length, or in both.
"""

import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.shared.planning.sizes import Axis, drawn_lengths, drawn_rows
from ci_bench.suites.transformers.options import Mode, TransformersOptions

Batch = dict[str, Tensor]

IMAGE_SIZE = 224
"""Of families whose configuration names none, as convolutional networks take any size."""
SHORTEST = 4
"""The shortest of ragged prompts is this part of the longest."""
PADDING = 0
"""Any id: nothing may depend on it."""
ORDER_OF_SIZES = 0
"""Seed for the order of dynamic sizes: a referee's seeds change only the numbers."""
FRAMES_PER_LABEL = 4
"""Frames of sound to one character: CTC needs at least two."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """Draws batches for one model."""

    options: TransformersOptions
    """Options of the case, with the size of a batch."""
    model: Any
    """Model that reads the inputs; its configuration gives their shapes."""
    dtype: torch.dtype
    """Type that float inputs are rounded to."""
    device: str
    """Device of the batches."""
    exact: bool = False
    """True widens the rounded float inputs to fp64."""

    def batches(self) -> tuple[Batch, ...]:
        """Draw the prepared batches, on the device; the same for every arm."""
        if not self.options.dynamic:
            return tuple(self.batch(index) for index in range(self.options.prepared_inputs))
        return tuple(self._sized(*sizes).batch(index) for index, sizes in enumerate(self.sizes()))

    def sizes(self) -> tuple[tuple[int, int | None], ...]:
        """Return rows and length of each dynamic batch.

        Raises `Unsupported` if the length is to vary, but the model has none.
        """
        rows, length, varies = (
            self.options.batch_size,
            self.options.sequence_length,
            self.options.varies,
        )
        if Axis.SEQUENCE in varies and length is None:
            raise Unsupported(
                f"varies: {type(self.model).__name__} reads no sequence; use `varies: [batch]`"
            )
        lengths: tuple[int | None, ...] = (length,)
        if length is not None and Axis.SEQUENCE in varies:
            lengths = drawn_lengths(length, ORDER_OF_SIZES)
        batches = (
            drawn_rows(rows, ORDER_OF_SIZES) if Axis.BATCH in varies else (rows,) * len(lengths)
        )
        return tuple(
            (batch_rows, lengths[index % len(lengths)]) for index, batch_rows in enumerate(batches)
        )

    def _sized(self, rows: int, length: int | None) -> "Inputs":
        return replace(self, options=replace(self.options, batch_size=rows, sequence_length=length))

    def fixed(self) -> dict[str, bool]:
        """Return the arguments other than tensors.

        Scoring and training keep no cache of keys and values.
        """
        return {"use_cache": False} if "use_cache" in arguments_of(self.model) else {}

    def batch(self, index: int) -> Batch:
        """Draw the batch of this number, in the size that the options have."""
        generator = torch.Generator().manual_seed(self.options.seed * 1_000_003 + index)
        batch = self._features(generator)
        if self.options.mode is Mode.TRAINING:
            batch |= self._labels(generator)
        elif self.options.mode is Mode.INFERENCE:
            batch |= self._decoder_ids(generator)
        return {name: self._placed(value) for name, value in batch.items()}

    def _placed(self, value: Tensor) -> Tensor:
        rounded = value.to(self.dtype) if value.is_floating_point() else value
        return (rounded.double() if self.exact and rounded.is_floating_point() else rounded).to(
            self.device
        )

    def _features(self, generator: torch.Generator) -> Batch:
        """Draw the inputs that the model reads, by transformers' name of its main input."""
        name, config = self.model.main_input_name, self.model.config
        match name:
            case "input_ids":
                return self._text(generator)
            case "pixel_values":
                return {name: torch.randn(self._image_shape(config), generator=generator)}
            case "input_values" | "input_features":
                return {name: torch.randn(self._sound_shape(config, name), generator=generator)}
        raise Unsupported(f"{type(self.model).__name__} reads {name}, for which no inputs are made")

    def _text(self, generator: torch.Generator) -> Batch:
        """Draw ids, with a mask if the model takes one.

        Prompts of a generation need no mask, as all have the same length.
        """
        ids = self._ids(generator)
        if self.options.mode is Mode.GENERATION and self.options.ragged:
            return self._ragged(ids, generator)
        masked = (
            "attention_mask" in arguments_of(self.model)
            and self.options.mode is not Mode.GENERATION
        )
        return (
            {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            if masked
            else {"input_ids": ids}
        )

    def _ragged(self, ids: Tensor, generator: torch.Generator) -> Batch:
        """Pad prompts of a quarter to all of the length on the left, as `generate` requires.

        The first one has the full length.
        """
        full = ids.shape[1]
        lengths = torch.randint(
            max(1, full // SHORTEST), full + 1, (len(ids), 1), generator=generator
        )
        lengths[0] = full
        mask = (torch.arange(full) >= full - lengths).long()
        return {"input_ids": torch.where(mask.bool(), ids, PADDING), "attention_mask": mask}

    def _ids(self, generator: torch.Generator, length: int | None = None) -> Tensor:
        config = self.model.config.get_text_config()
        shape = (self.options.batch_size, length or self._length)
        return draw_ids(shape, config.vocab_size, special_ids(config), generator)

    @property
    def _length(self) -> int:
        return self.options.sequence_length or 1

    def _image_shape(self, config: Any) -> tuple[int, ...]:
        config = _image_config(config)
        size = getattr(config, "image_size", None) or IMAGE_SIZE
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        frames = getattr(config, "num_frames", None)
        return (
            self.options.batch_size,
            *((frames,) if frames else ()),
            getattr(config, "num_channels", 3),
            height,
            width,
        )

    def _sound_shape(self, config: Any, name: str) -> tuple[int, ...]:
        """Return the shape of a waveform or a spectrogram.

        A waveform becomes as many frames as the sequence is long; a spectrogram has the model's own
        length.
        """
        batch = self.options.batch_size
        if hasattr(config, "conv_kernel"):
            return (batch, samples_of(self._length, config.conv_kernel, config.conv_stride))
        if hasattr(config, "max_source_positions") and hasattr(config, "num_mel_bins"):
            return (batch, config.num_mel_bins, 2 * config.max_source_positions)
        if hasattr(config, "max_length") and hasattr(config, "num_mel_bins"):
            return (batch, config.max_length, config.num_mel_bins)
        raise Unsupported(
            f"{type(self.model).__name__} reads {name} of a form for which no inputs are made"
        )

    def _labels(self, generator: torch.Generator) -> Batch:
        """Draw labels for the model's own loss; empty for a model without one."""
        config, batch = self.model.config, self.options.batch_size
        match task_of(self.model):
            case "class":
                return {"labels": torch.randint(config.num_labels, (batch,), generator=generator)}
            case "class of each token":
                return {
                    "labels": torch.randint(
                        config.num_labels, (batch, self._length), generator=generator
                    )
                }
            case "span":
                ends = (
                    torch.randint(self._length, (batch,), generator=generator) for _ in range(2)
                )
                return dict(zip(("start_positions", "end_positions"), ends, strict=True))
            case "characters":
                return {"labels": self._ids(generator, max(1, self._length // FRAMES_PER_LABEL))}
            case "text":
                labels = {"labels": self._ids(generator)}
                return labels if shifts_labels(config) else labels | self._decoder_ids(generator)
        return self._decoder_ids(generator)

    def _decoder_ids(self, generator: torch.Generator) -> Batch:
        """Draw the decoder's inputs, for a model that reads some; DETR's decoder has its own."""
        reads = "decoder_input_ids" in arguments_of(self.model)
        decodes = self.model.config.is_encoder_decoder and reads
        return {"decoder_input_ids": self._ids(generator)} if decodes else {}


def _image_config(config: Any) -> Any:
    """Return the part of a configuration that has the size of images."""
    names = ("vision_config", "backbone_config", "encoder")
    parts = (getattr(config, name, None) for name in names)
    return next((part for part in (config, *parts) if getattr(part, "image_size", None)), config)


def require_inputs(model: nn.Module, batch: Batch) -> None:
    """Raise `Unsupported` if a forward pass on `meta` needs an input that is not made.

    Ignore other errors: not every model runs on `meta`.
    """
    try:
        with torch.no_grad():
            model(**{name: value.to("meta") for name, value in batch.items()})
    except (ValueError, TypeError, AttributeError) as error:
        refuse_lacking(model, batch, error, also="NoneType")
    except Exception:  # noqa: BLE001 - a library's code may raise anything on meta
        return


def refuse_lacking(model: nn.Module, batch: Batch, error: Exception, *, also: str = "") -> None:
    """Raise `Unsupported` if an error of a forward pass names a missing input, or has `also`."""
    message = str(error)
    lacking = any(name in message.lower() for name in arguments_of(model) if name not in batch)
    if (lacking and _LACKING.search(message)) or (also and also in message):
        name, provided = type(model).__name__, ", ".join(batch)
        raise Unsupported(
            f"{name} needs more inputs than the {provided} made for it: {message}"
        ) from error


_LACKING = re.compile(r"(?i)specify|required|missing|provide|must|need|expected|NoneType")


def require_length(config: Any, options: TransformersOptions) -> None:
    """Raise `Unsupported` if a model has learned no positions for so long a text.

    Rotary ones have no end.
    """
    text = config.get_text_config()
    prompt, new = (
        options.sequence_length or 0,
        (options.new_tokens if options.mode is Mode.GENERATION else 0),
    )
    length = max(prompt, new + 1) if config.is_encoder_decoder else prompt + new
    limit = getattr(text, "max_target_positions", None) or getattr(
        text, "max_position_embeddings", None
    )
    rotary = any(
        getattr(text, name, None) is not None
        for name in ("rope_parameters", "rope_theta", "rope_scaling")
    )
    if limit is not None and 0 < limit < length and not rotary:  # XLNet has -1, for none
        raise Unsupported(
            f"a text of {length} tokens is longer than the {limit} positions of this model"
        )


def shifts_labels(config: Any) -> bool:
    """Return true if an encoder-decoder can make its decoder's inputs from labels.

    It puts a first id in front of them, and padding where they are masked.
    """
    needed = (getattr(config, f"{name}_token_id", None) for name in ("decoder_start", "pad"))
    vocabulary: int = config.get_text_config().vocab_size
    return all(token_id is not None and 0 <= token_id < vocabulary for token_id in needed)


def described(batch: Batch) -> str:
    """Return the shapes of a batch, as ``input_ids [8, 128], labels [8, 128]``."""
    return ", ".join(f"{name} {list(value.shape)}" for name, value in batch.items())


TASKS = {
    "QUESTION_ANSWERING": "span",
    "SEQUENCE_CLASSIFICATION": "class",
    "NEXT_SENTENCE_PREDICTION": "class",
    "IMAGE_CLASSIFICATION": "class",
    "VIDEO_CLASSIFICATION": "class",
    "AUDIO_CLASSIFICATION": "class",
    "TOKEN_CLASSIFICATION": "class of each token",
    "CTC": "characters",
    "CAUSAL_LM": "text",
    "MASKED_LM": "text",
    "SEQ_TO_SEQ_CAUSAL_LM": "text",
    "SPEECH_SEQ_2_SEQ": "text",
}
"""The training task of a class, by the table of transformers that lists it."""


def task_of(model: nn.Module) -> str | None:
    """Return the kind of a model's labels, `None` for a bare model or an unknown task."""
    from transformers.models.auto import modeling_auto

    name = _class_of(model).__name__
    for table, task in TASKS.items():
        classes = getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES").values()
        if any(
            name == class_names or (isinstance(class_names, tuple) and name in class_names)
            for class_names in classes
        ):
            return task
    return None


def _class_of(model: nn.Module) -> type:
    """Return the model's own class: `fully_shard` puts one of torch's before it."""
    kinds = type(model).__mro__
    return next((kind for kind in kinds if kind.__module__.startswith("transformers.")), kinds[0])


def arguments_of(model: nn.Module) -> Collection[str]:
    """Return the names of the arguments of a model's forward pass."""
    return inspect.signature(model.forward).parameters.keys()


def draw_ids(
    shape: tuple[int, int], vocabulary: int, special: Collection[int], generator: torch.Generator
) -> Tensor:
    """Draw uniform ids, int64 of `shape`, none of them special."""
    ordinary = [token for token in range(min(vocabulary, len(special) + 1)) if token not in special]
    ids = torch.randint(vocabulary, shape, generator=generator)
    if not ordinary:
        return ids
    return torch.where(
        torch.isin(ids, torch.tensor(sorted(special), dtype=torch.int64)), ordinary[0], ids
    )


def special_ids(config: Any) -> frozenset[int]:
    """Return the ids of a configuration that mean something: padding, beginning, end, an image."""
    fields: Mapping[str, Any] = vars(config)
    values = [
        value for name, value in fields.items() if name.endswith(("_token_id", "_token_index"))
    ]
    flat = [
        token_id
        for value in values
        for token_id in (value if isinstance(value, list | tuple) else [value])
    ]
    return frozenset(
        token_id
        for token_id in flat
        if isinstance(token_id, int) and not isinstance(token_id, bool)
    )


def samples_of(frames: int, kernels: Collection[int], strides: Collection[int]) -> int:
    """Return the samples that a stack of unpadded convolutions turns into `frames` frames.

    Their number is (n - 1) stride + kernel, layer by layer.
    """
    needed = frames
    for kernel, stride in zip(reversed(tuple(kernels)), reversed(tuple(strides)), strict=True):
        needed = (needed - 1) * stride + kernel
    return needed
