"""The model and its optimizer: built from a seed, so every arm starts from the same bytes.

This module also has the perturbation that measures how far only rounding moves a training.
"""

import hashlib
from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from ci_bench.suites.shared.worker.casts import cast_module, real_parts
from ci_bench.suites.shared.worker.optimizers import make_optimizer
from ci_bench.suites.shared.worker.user_code import load_named
from ci_bench.suites.training_loss.model_files import BadModel, reading_files, stored_path
from ci_bench.suites.training_loss.options import EMBEDDED, TrainingOptions, TrainingPrecision

State = dict[str, Tensor]
POSITION_TABLES = ("position_embeddings", "embed_positions", "positions_embed", "wpe")
"""Names of learned positions in transformers."""
DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)


def build_model(options: TrainingOptions, *, seed: int) -> nn.Module:
    """Build the model on the CPU in fp32, its fresh parts initialised from `seed`.

    `problem_type` is given, since transformers' models otherwise set it in their first forward pass
    and dynamo compiles twice.
    """
    built = _built(options, seed)
    if not options.dropout:
        for module in built.modules():
            if isinstance(module, DROPOUTS):
                module.p = 0.0
            elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
                module.dropout = 0.0
    return built


def _built(options: TrainingOptions, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    if options.model.factory is not None:
        model = load_named(options.model.factory, option="model.factory")(**options.model.options)
        if not isinstance(model, nn.Module):
            raise BadModel(
                f"model.factory: {options.model.factory} gives {type(model).__name__}; it has to"
                " give a torch.nn.Module"
            )
        return model
    return _from_library(options, seed)


def _from_library(options: TrainingOptions, seed: int) -> nn.Module:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    embedded = options.model.path == EMBEDDED
    path = stored_path(options.model, "model")
    revision = options.model.revision or "main"
    config = AutoConfig.from_pretrained(
        path,
        revision=revision,
        num_labels=options.dataset.num_labels,
        problem_type="single_label_classification",
    )
    if not options.dropout:
        for name in [
            name
            for name, value in config.to_dict().items()
            if "drop" in name and isinstance(value, float)
        ]:
            setattr(config, name, 0.0)
    torch.manual_seed(seed)
    built: nn.Module
    if options.model.pretrained and not embedded:
        built = AutoModelForSequenceClassification.from_pretrained(
            path, revision=revision, config=config
        )
    else:
        built = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call] # likewise in transformers
    return built


def try_model(options: TrainingOptions) -> nn.Module:
    """Build a model on the CPU, to find faults while preparing.

    Raises:
        BadModel: its files do not exist or cannot be read.
    """
    library = options.model.factory is None
    with reading_files(options.model) if library else nullcontext():
        return model_from(options, start_state(options, seed=options.seed), "cpu")


def check_ids(options: TrainingOptions, model: nn.Module, ids: Tensor) -> None:
    """Refuse token ids [rows, length] that the model has no embeddings for.

    Raises:
        BadModel: its vocabulary is smaller than an id, or it has fewer positions than `length`.
    """
    words: object = model.get_input_embeddings()  # type: ignore[operator] # of transformers' class
    largest = int(ids.max())
    if isinstance(words, nn.Embedding) and largest >= words.num_embeddings:
        raise BadModel(
            f"model.path: the tokenizer gives id {largest}, and the vocabulary of "
            f"{options.model.path} has {words.num_embeddings}; "
            "raise `vocab_size` in its config.json"
        )
    length = ids.shape[1]
    limit = min(map(_positions, _position_tables(model)), default=length)
    if length > limit:
        raise BadModel(
            f"max_length: rows of {length} tokens are longer than the {limit} positions of "
            f"model.path {options.model.path}; set `max_length: {limit}` or less"
        )


def _position_tables(model: nn.Module) -> Iterator[nn.Embedding]:
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.rpartition(".")[2] in POSITION_TABLES:
            yield module


def _positions(table: nn.Embedding) -> int:
    """Return the number of tokens that a table has positions for.

    RoBERTa's starts behind the padding, and those of OPT and BART have an `offset`.
    """
    padding = -1 if table.padding_idx is None else table.padding_idx
    return table.num_embeddings - max(padding + 1, int(getattr(table, "offset", 0)))


def start_state(options: TrainingOptions, *, seed: int) -> State:
    """Return the initial weights and buffers, on the CPU."""
    return {
        name: value.detach().clone()
        for name, value in build_model(options, seed=seed).state_dict().items()
    }


def model_from(options: TrainingOptions, state: State, device: str) -> nn.Module:
    """Build a model with the given weights, on the device, in the precision's type.

    It is in training mode.
    """
    model = build_model(options, seed=0)
    model.load_state_dict(state)
    if options.precision is TrainingPrecision.BF16:
        model = cast_module(model, torch.bfloat16)
    return model.to(device).train()


def perturbed(state: State, *, epsilon: float, seed: int) -> State:
    """Multiply every floating weight by (1 + epsilon xi), xi standard normal.

    The difference is that of one rounding.
    """
    generator = torch.Generator().manual_seed(seed)

    def shake(value: Tensor) -> Tensor:
        if not value.is_floating_point() and not value.is_complex():
            return value.clone()
        parts = real_parts(value).double()
        noise = torch.randn(parts.shape, generator=generator, dtype=torch.float64)
        off = parts * (1 + epsilon * noise)
        return (torch.view_as_complex(off) if value.is_complex() else off).to(value.dtype)

    return {name: shake(value) for name, value in state.items()}


def state_digest(state: State) -> str:
    """Return a digest of names and bytes of a state."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def build_optimizer(
    options: TrainingOptions, model: nn.Module, device: str, *, capturable: bool = False
) -> torch.optim.Optimizer:
    """Build the named optimizer over all parameters.

    The user's own factory may choose its parameters from the model.

    Raises:
        BadOptimizer: it does not fit its options.
    """
    return make_optimizer(
        options.optimizer,
        model.parameters(),
        lr=options.lr,
        options=options.optimizer_options,
        device=device,
        capturable=capturable,
        model=model,
    )
