"""Rows to batches: loads the dataset, tokenises only the rows that are needed, keeps them as tensors.

Selecting comes before tokenising. Tensors are stored as safetensors, so that later workers read bytes and run no code.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ci_bench.suites.training_loss.options import EMBEDDED, Dataset, Options

DATA = Path(str(files("ci_bench.suites.training_loss") / "data"))
BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}

Batch = dict[str, Tensor]


class BadData(Exception):
    """The dataset does not fit the options. The message names the option."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Tokenised rows: `inputs` maps a model input to int64 [rows, max_length], `labels` is int64 [rows]."""

    inputs: Batch
    labels: Tensor

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.labels)

    def batch(self, indices: Tensor) -> Batch:
        """The model's keyword arguments for some rows, labels included."""
        return {**{name: values[indices] for name, values in self.inputs.items()}, "labels": self.labels[indices]}

    def to(self, device: str) -> "Rows":
        """The same rows on a device."""
        return Rows(inputs={name: values.to(device) for name, values in self.inputs.items()}, labels=self.labels.to(device))

    def digest(self) -> str:
        """A digest of all bytes, on whatever device."""
        digest = hashlib.sha256()
        for name in sorted(self.inputs):
            digest.update(self.inputs[name].cpu().numpy().tobytes())
        digest.update(self.labels.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]


def prepare_rows(options: Options, folder: Path) -> None:
    """Load, select, tokenise and store the rows of both splits in `folder`. May use the network for hub data.

    Raises:
        BadData: a column is missing, a label is out of range, or a split is empty.
    """
    for split, rows in (("train", options.num_samples), ("test", options.evaluation_rows)):
        if split == "test" and not options.evaluation:
            continue
        tokenised = _tokenise(options, split, rows, folder)
        save_file({**tokenised.inputs, "labels": tokenised.labels}, folder / f"{split}.safetensors")


def load_rows(folder: Path, split: str) -> Rows:
    """Read what `prepare_rows` stored."""
    tensors = load_file(folder / f"{split}.safetensors")
    labels = tensors.pop("labels")
    return Rows(inputs=tensors, labels=labels)


def epoch_order(rows: int, *, seed: int, epoch: int) -> Tensor:
    """The order of rows in one epoch, int64 [rows]: a permutation that depends on seed and epoch alone."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(rows, generator=generator)


def batches(rows: Rows, *, batch_size: int, seed: int, epochs: int) -> Iterator[tuple[Tensor, Batch]]:
    """The indices and inputs of every batch of a training, the smaller last one of each epoch included."""
    for epoch in range(epochs):
        for indices in epoch_order(len(rows), seed=seed, epoch=epoch).split(batch_size):
            yield indices, rows.batch(indices.to(rows.labels.device))


def _tokenise(options: Options, split: str, count: int, folder: Path) -> Rows:
    from transformers import AutoTokenizer

    dataset = options.dataset
    selected = _load_split(dataset, split, count, folder)
    missing = {dataset.text_column, dataset.label_column} - set(selected.column_names)
    if missing:
        message = f"dataset.text_column/label_column: no column {sorted(missing)} in {dataset.path}; it has {selected.column_names}"
        raise BadData(message)
    path = str(DATA / "tokenizer") if options.model.path == EMBEDDED else options.model.path
    tokenizer = AutoTokenizer.from_pretrained(path, revision=options.model.revision or "main")
    encoded = tokenizer(
        list(selected[dataset.text_column]),
        padding="max_length",
        truncation=True,
        max_length=options.max_length,
        return_tensors="pt",
    )
    labels = torch.tensor(list(selected[dataset.label_column]), dtype=torch.int64)
    _check_labels(labels, dataset, split)
    return Rows(inputs={name: values.contiguous() for name, values in encoded.items()}, labels=labels)


def _load_split(dataset: Dataset, split: str, count: int, folder: Path):  # type: ignore[no-untyped-def] # noqa: ANN202 - datasets ships no types
    from datasets import load_dataset

    name = dataset.train_split if split == "train" else dataset.test_split
    data_files = _embedded_files() if dataset.path == EMBEDDED else dict(dataset.files)
    if data_files:
        if split not in data_files:
            message = f"dataset.files.{split}: no file is given for this split; add one, or set evaluation: false"
            raise BadData(message)
        path = Path(data_files[split])
        builder = BUILDERS.get(path.suffix)
        if builder is None:
            message = f"dataset.files.{split}: {path.name} is not one of {', '.join(BUILDERS)}"
            raise BadData(message)
        loaded = load_dataset(builder, data_files={split: str(path)}, split=split, cache_dir=str(folder / "datasets"))
    else:
        loaded = load_dataset(dataset.path, dataset.subset, revision=dataset.revision, split=name)
    return loaded.select(range(min(count, len(loaded))))


def _embedded_files() -> dict[str, str]:
    return {split: str(DATA / "reviews" / f"{split}.jsonl") for split in ("train", "test")}


def _check_labels(labels: Tensor, dataset: Dataset, split: str) -> None:
    if len(labels) == 0:
        message = f"dataset: the {split} split of {dataset.path} has no rows"
        raise BadData(message)
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= dataset.num_labels:
        message = f"dataset.num_labels: labels run from {low} to {high}, but num_labels is {dataset.num_labels}"
        raise BadData(message)


