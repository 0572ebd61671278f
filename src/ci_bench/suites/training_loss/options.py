"""The options of `training_loss` as one frozen value, with their defaults. No torch here.

The defaults name the embedded review dataset and model, which need no network.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ci_bench.suites.shared.planning.arms import CompiledArm, read_arm
from ci_bench.suites.shared.planning.layouts import Layout, read_layout

EMBEDDED = "embedded"
REFERENCE_ARM = "eager"


class TrainingPrecision(StrEnum):
    """Formats of stored and multiplied numbers.

    `tf32` lets CUDA matmuls round to ten mantissa bits; `bf16` keeps weights in bfloat16; the
    `amp_` forms autocast.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    AMP_BF16 = "amp_bf16"
    AMP_FP16 = "amp_fp16"

    @property
    def epsilon(self) -> float:
        """Half the distance from 1 to the next number of the narrowest format in use: the size of one rounding."""
        narrow = {
            TrainingPrecision.TF32: 2.0**-11,
            TrainingPrecision.AMP_FP16: 2.0**-11,
            TrainingPrecision.BF16: 2.0**-8,
            TrainingPrecision.AMP_BF16: 2.0**-8,
        }
        return narrow.get(self, 2.0**-24)

    @property
    def perturbation(self) -> float:
        """Share by which perturbed runs move their weights: one rounding, or a fourth of it.

        The fourth is for bf16 autocast. There the weights are fp32: a shake can be finer than the
        rounding of activations.
        """
        return 2.0**-10 if self is TrainingPrecision.AMP_BF16 else self.epsilon


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """Source of the rows: hub id, local folder, `files` per split, embedded reviews, or user code.

    `factory` is called with a split (``train`` or ``test``) and a maximum of `rows`. It gives rows
    with a text and a class, or tensors that are the model's inputs already, with their ``labels``.
    """

    path: str = EMBEDDED
    subset: str | None = None
    revision: str | None = None
    train_split: str = "train"
    test_split: str = "test"
    text_column: str = "text"
    label_column: str = "label"
    num_labels: int = 5
    files: Mapping[str, str] = field(default_factory=dict)
    factory: str | None = None

    @property
    def is_local(self) -> bool:
        """True if the rows need no hub."""
        return (
            self.path == EMBEDDED
            or bool(self.files)
            or self.factory is not None
            or looks_local(self.path)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """Model and tokenizer: a hub id, a local folder, or the embedded one.

    The model has its stored weights, or is made from its configuration. `factory` is the user's
    own: called with `options`, it gives a module. The tokenizer is that of `path` then.
    """

    path: str = EMBEDDED
    revision: str | None = None
    pretrained: bool = True
    factory: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """True if the model needs no hub."""
        return self.path == EMBEDDED or looks_local(self.path)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpointing:
    """Checkpoints of layouts: each arm saves one, and trains on from the others'.

    Every layout and one process save a checkpoint `after` that many steps, and train the `steps`
    after it from each other's. `save` and `load` are the user's own, by import path: both are
    called in every rank with model, optimizer and a folder. `None` is torch's distributed
    checkpoint.
    """

    after: int
    steps: int = 10
    save: str | None = None
    load: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingOptions:
    """One training.

    `seed` sets weights, data order and masks; the statistical tier uses `seeds` seeds. `loss` is
    the user's own function of logits and labels, by import path; `None` is the one that the model
    computes. `optimizer` is a class of `torch.optim`, or an import path. `listed` are the arms of
    an entry that has `arms` instead of `backends`; `layouts` those of one that has `layouts`, each
    in `processes`, which otherwise has no effect. Without `dropout` the model's own is off.
    """

    name: str = "reviews"
    backends: tuple[str, ...] = ("inductor",)
    listed: tuple[CompiledArm, ...] = ()
    dropout: bool = True
    layouts: tuple[Layout, ...] = ()
    processes: int = 2
    checkpoint: Checkpointing | None = None
    epochs: int = 3
    num_samples: int = 2000
    batch_size: int = 16
    lr: float = 1e-3
    loss: str | None = None
    optimizer: str = "Adam"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    evaluation: bool = True
    evaluation_rows: int = 1000
    precision: TrainingPrecision = TrainingPrecision.FP32
    seed: int = 0
    seeds: int = 3
    align_rng: bool = True
    perturbations: int = 3
    max_length: int = 64
    dataset: Dataset = Dataset()
    model: Model = Model()

    @property
    def candidates(self) -> tuple[CompiledArm, ...]:
        """The compiled arms except the reference; none if the arms are layouts."""
        if self.layouts:
            return ()
        return self.listed or tuple(CompiledArm(backend=backend) for backend in self.backends)

    @property
    def arms(self) -> tuple[str, ...]:
        """The reference first, then the candidates."""
        return (REFERENCE_ARM, *(candidate.name for candidate in self.layouts or self.candidates))

    @property
    def shares_rows(self) -> bool:
        """True if a layout has ranks that train on the rows of several together."""
        return any(layout.sharing > 1 for layout in self.layouts)

    def as_params(self) -> dict[str, Any]:
        """All options, defaults included, as `parse` reads them: two cases can be compared when these are equal."""
        params: dict[str, Any] = asdict(self)
        del params["backends"], params["listed"]
        layouts, processes = params.pop("layouts"), params.pop("processes")
        if self.checkpoint is None:
            del params["checkpoint"]
        if self.dropout:
            del params["dropout"]
        arms = [arm.as_params() for arm in self.listed]
        if layouts:
            params |= {
                "layouts": [layout.as_params() for layout in self.layouts],
                "processes": processes,
            }
        else:
            params |= {"arms": arms} if arms else {"backend": list(self.backends)}
        params["precision"] = str(self.precision)
        return params

    def candidate_of(self, arm: str) -> CompiledArm | None:
        """Return the compilation of an arm; `None` for the reference, which is not compiled."""
        return next((candidate for candidate in self.candidates if candidate.name == arm), None)

    def layout_of(self, arm: str) -> Layout | None:
        """Return the layout of the processes that share an arm; `None` if one process runs it."""
        return next((layout for layout in self.layouts if layout.name == arm), None)


def parse(params: Mapping[str, Any]) -> TrainingOptions:
    """Options from a case's parameters (or from one entry of the configuration, already validated by its schema)."""
    values = dict(params)
    backend, usual = values.pop("backend", "inductor"), values.pop("compile", None)
    listed = tuple(read_arm(word, usual) for word in values.pop("arms", ()))
    layouts = tuple(map(read_layout, values.pop("layouts", ())))
    saved = values.pop("checkpoint", None)
    precision = values.pop("precision", TrainingPrecision.FP32)
    dataset = Dataset(**values.pop("dataset", {}))
    model = Model(**values.pop("model", {}))
    backends = (backend,) if isinstance(backend, str) else tuple(backend)
    if usual and not listed:
        listed = tuple(read_arm({"backend": name}, usual) for name in backends)
    return TrainingOptions(
        backends=backends,
        listed=listed,
        layouts=layouts,
        checkpoint=None if saved is None else Checkpointing(**saved),
        precision=TrainingPrecision(precision),
        dataset=dataset,
        model=model,
        **values,
    )


def looks_local(path: str) -> bool:
    """Return true if a path is a folder on this machine, not a hub id."""
    return path.startswith(("/", "./", "../", "~"))
