"""Rows to batches: loads the dataset, tokenises only the needed rows, keeps them as tensors.

Selecting comes before tokenising. Tensors are stored as safetensors, so later workers read bytes
and run no code.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import has_magic
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ci_bench.suites.shared.worker.user_code import load_named
from ci_bench.suites.training_loss.model_files import (
    DATA,
    BadModel,
    expanded,
    reading_files,
    stored_path,
)
from ci_bench.suites.training_loss.options import EMBEDDED, Dataset, TrainingOptions, looks_local

BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
RELATIVE = "give its path relative to the folder where the run starts"
WORD_MARKS = "\u2581\u0120"
"""Marks in front of a word, which some tokenizers have as tokens of no text."""
COLUMNS = {"text_column": str, "label_column": int}

Batch = dict[str, Tensor]


class BadData(Exception):  # noqa: N818 - named like BadConfig
    """The dataset does not fit the options. The message names the option."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Tokenised rows.

    `inputs` maps a model input to int64 [rows, max_length], `labels` is int64 [rows]. Rows from the
    user's own code have the types and further dimensions that the user's model takes.
    """

    inputs: Batch
    labels: Tensor

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)

    def batch(self, indices: Tensor) -> Batch:
        """Return the model's keyword arguments for some rows, labels included."""
        return {
            **{name: values[indices] for name, values in self.inputs.items()},
            "labels": self.labels[indices],
        }

    def to(self, device: str) -> "Rows":
        """Return the same rows on a device."""
        return Rows(
            inputs={name: values.to(device) for name, values in self.inputs.items()},
            labels=self.labels.to(device),
        )

    def digest(self) -> str:
        """Return a digest of all bytes, which does not depend on the device."""
        digest = hashlib.sha256()
        for name in sorted(self.inputs):
            digest.update(self.inputs[name].cpu().numpy().tobytes())
        digest.update(self.labels.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]


def prepare_rows(options: TrainingOptions, folder: Path) -> None:
    """Load, select, tokenise and store the rows of both splits in `folder`.

    May use the network for hub data.

    Raises:
        BadData: a column is missing or holds something else, a label is out of range, or a split is
            empty.
        BadModel: `model.path` has no tokenizer that knows the texts.
    """
    for split, rows in (("train", options.num_samples), ("test", options.evaluation_rows)):
        if split == "test" and not options.evaluation:
            continue
        tokenised = _load_rows(options, split, rows, folder)
        save_file({**tokenised.inputs, "labels": tokenised.labels}, folder / f"{split}.safetensors")


def load_rows(folder: Path, split: str) -> Rows:
    """Read the rows that `prepare_rows` stored."""
    tensors = load_file(folder / f"{split}.safetensors")
    labels = tensors.pop("labels")
    return Rows(inputs=tensors, labels=labels)


def epoch_order(rows: int, *, seed: int, epoch: int) -> Tensor:
    """Return the order of rows in one epoch, int64 [rows]: a permutation from seed and epoch."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(rows, generator=generator)


def batches(
    rows: Rows, *, batch_size: int, seed: int, epochs: int
) -> Iterator[tuple[Tensor, Batch]]:
    """Yield the indices and inputs of every batch of a training.

    The last batch of an epoch may be smaller than the others.
    """
    for epoch in range(epochs):
        for indices in epoch_order(len(rows), seed=seed, epoch=epoch).split(batch_size):  # type: ignore[no-untyped-call] # torch leaves it unannotated
            yield indices, rows.batch(indices.to(rows.labels.device))


def full_batches(rows: Rows, options: TrainingOptions) -> list[Batch]:
    """Return the batches of full size of the first epoch: those that are timed."""
    size = min(options.batch_size, len(rows))
    stream = batches(rows, batch_size=options.batch_size, seed=options.seed, epochs=1)
    return [batch for indices, batch in stream if len(indices) == size]


def _load_rows(options: TrainingOptions, split: str, count: int, folder: Path) -> Rows:
    """Return the rows of a split.

    Tensors of the user's own code stay as they are, everything else is tokenised.
    """
    if options.dataset.factory is None:
        return _tokenise(options, split, _load_split(options.dataset, split, count, folder))
    data = load_named(options.dataset.factory, option="dataset.factory")(split, count)
    if isinstance(data, Mapping):
        return _own_tensors(options, split, data, count)
    from datasets import Dataset as Table

    try:
        table = Table.from_list([dict(row) for row in islice(data, count)])
    except (TypeError, ValueError) as error:
        gives = f"{options.dataset.factory} gives {type(data).__name__}"
        raise BadData(
            f"dataset.factory: {gives}; it has to give rows (mappings), or a mapping of tensors:"
            f" {error}"
        ) from error
    return _tokenise(options, split, table)


def _own_tensors(
    options: TrainingOptions, split: str, tensors: Mapping[str, Any], count: int
) -> Rows:
    where = f"dataset.factory: the {split} split of {options.dataset.factory}"
    malformed = [
        name
        for name, values in tensors.items()
        if not isinstance(values, Tensor) or values.ndim == 0
    ]
    if malformed or "labels" not in tensors or len(tensors) == 1:
        raise BadData(
            f"{where} has to be a mapping of tensors, one per input of the model and `labels`; not"
            f" so: {malformed or [*tensors]}"
        )
    lengths = {name: len(values) for name, values in tensors.items()}
    if len({*lengths.values()}) > 1 or not lengths["labels"]:
        raise BadData(
            f"{where} has to have as many rows in each tensor, and one at least: {lengths}"
        )
    inputs = {
        name: values[:count].detach().cpu().contiguous().clone() for name, values in tensors.items()
    }
    return Rows(labels=inputs.pop("labels"), inputs=inputs)


def _tokenise(options: TrainingOptions, split: str, selected) -> Rows:  # type: ignore[no-untyped-def] # noqa: ANN001 - datasets ships no types
    from transformers import AutoTokenizer

    texts, labels = _columns(options.dataset, split, selected)
    path = stored_path(options.model, "tokenizer")
    with reading_files(options.model):
        tokenizer = AutoTokenizer.from_pretrained(path, revision=options.model.revision or "main")
    if tokenizer.pad_token is None:
        raise BadModel(
            f"model.path: the tokenizer of {options.model.path} has no padding token; "
            "set `pad_token` in its tokenizer_config.json"
        )
    encoded = tokenizer(
        texts,
        padding="max_length",
        truncation=True,
        max_length=options.max_length,
        return_tensors="pt",
    )
    if any(text.strip() for text in texts):
        _require_known(options, split, tokenizer, encoded)
    return Rows(
        inputs={name: values.contiguous() for name, values in encoded.items()},
        labels=torch.tensor(labels),
    )


def _require_known(options: TrainingOptions, split: str, tokenizer: Any, encoded: Batch) -> None:
    """Refuse texts of which the tokenizer knows no more than half: their rows would be alike.

    A folder without a tokenizer's files gets one that has only the special tokens.

    Raises:
        BadModel: half of the tokens, or more, are unknown.
    """
    ids = encoded["input_ids"]
    mask = encoded.get("attention_mask", torch.ones_like(ids)).bool()
    written, special = ids[mask].tolist(), frozenset(tokenizer.all_special_ids)
    ordinary = tokenizer.convert_ids_to_tokens(
        [token_id for token_id in written if token_id not in special]
    )
    known_count = sum(bool(token.strip(WORD_MARKS)) for token in ordinary)
    unknown_count = written.count(tokenizer.unk_token_id)
    if unknown_count >= known_count:
        raise BadModel(
            f"model.path: the tokenizer of {options.model.path} knows {known_count} of"
            f" {known_count + unknown_count} tokens of {_source(options.dataset, split)}; add the"
            " tokenizer's files to the folder, or take a model that fits the texts"
        )


def _columns(dataset: Dataset, split: str, selected) -> tuple[list[str], list[int]]:  # type: ignore[no-untyped-def] # noqa: ANN001 - datasets ships no types
    """Return texts and labels.

    Columns of other types than text and class number are refused.
    """
    source = _source(dataset, split)
    if len(selected) == 0:
        message = f"dataset: {source} has no rows"
        raise BadData(message)
    texts, labels = (
        _column(dataset, option, kind, selected, source) for option, kind in COLUMNS.items()
    )
    low, high = min(labels), max(labels)
    if low < 0 or high >= dataset.num_labels:
        message = (
            f"dataset.num_labels: labels run from {low} to {high} in {source}, but num_labels is"
            f" {dataset.num_labels}"
        )
        raise BadData(message)
    return texts, labels


def _column(dataset: Dataset, option: str, kind: type, selected, source: str) -> list[Any]:  # type: ignore[no-untyped-def] # noqa: ANN001 - datasets ships no types
    column = getattr(dataset, option)
    if column not in selected.column_names:
        message = (
            f"dataset.{option}: no column {column!r} in {source}; it has"
            f" {', '.join(selected.column_names)}"
        )
        raise BadData(message)
    values = list(selected[column])
    for row, value in enumerate(values):
        if not isinstance(value, kind):
            fault = f"{column!r} holds {value!r:.80} in row {row} of {source}"
            message = f"dataset.{option}: {fault}, where {kind.__name__} is needed"
            raise BadData(message)
    return values


def _load_split(dataset: Dataset, split: str, count: int, folder: Path):  # type: ignore[no-untyped-def] # noqa: ANN202 - datasets ships no types
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    request = _request(dataset, split)
    try:
        cache = str(folder / "datasets") if dataset.is_local else None
        loaded = load_dataset(**request, cache_dir=cache)
    except (ValueError, OSError, RuntimeError, StopIteration, DatasetsError) as error:
        # StopIteration, of a file without a line, has no text
        reason = str(error.__cause__ or error) or "it is empty"
        raise BadData(f"dataset: {_source(dataset, split)} cannot be read: {reason}") from error
    return loaded.select(range(min(count, len(loaded))))


def _request(dataset: Dataset, split: str) -> dict[str, Any]:
    """Return the arguments for `datasets.load_dataset`: files take precedence over a path."""
    data_files = dict(dataset.files) or (_embedded_files() if dataset.path == EMBEDDED else {})
    if not data_files:
        name = dataset.train_split if split == "train" else dataset.test_split
        if looks_local(dataset.path) and not Path(expanded(dataset.path)).exists():
            raise BadData(f"dataset.path: {dataset.path} does not exist; {RELATIVE}")
        return {
            "path": expanded(dataset.path),
            "name": dataset.subset,
            "revision": dataset.revision,
            "split": name,
        }
    if split not in data_files:
        message = (
            f"dataset.files.{split}: no file is given for this split; add one, or set evaluation:"
            " false"
        )
        raise BadData(message)
    path = Path(expanded(data_files[split]))
    builder = BUILDERS.get(path.suffix)
    if builder is None:
        message = f"dataset.files.{split}: {path.name} is not one of {', '.join(BUILDERS)}"
        raise BadData(message)
    if not has_magic(str(path)) and not path.is_file():
        raise BadData(f"dataset.files.{split}: {data_files[split]} does not exist; {RELATIVE}")
    return {"path": builder, "data_files": {split: str(path)}, "split": split}


def _source(dataset: Dataset, split: str) -> str:
    return f"the {split} split of {dataset.factory or dataset.files.get(split, dataset.path)}"


def _embedded_files() -> dict[str, str]:
    return {split: str(DATA / "reviews" / f"{split}.jsonl") for split in ("train", "test")}
