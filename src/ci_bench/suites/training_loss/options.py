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
        """The size of one rounding in the narrowest format in use.

        It is half the distance from 1 to the next number.
        """
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
    """Hub id, local folder, or ``embedded`` for the embedded reviews."""
    subset: str | None = None
    """Configuration of the dataset on the hub; `None` is the default one."""
    revision: str | None = None
    """Commit, branch or tag on the hub; `None` is the default branch."""
    train_split: str = "train"
    """Name of the split to train on."""
    test_split: str = "test"
    """Name of the split to evaluate on."""
    text_column: str = "text"
    """Name of the column that has the text."""
    label_column: str = "label"
    """Name of the column that has the class, an integer from 0."""
    num_labels: int = 5
    """Number of classes, which is also the number of the model's logits."""
    files: Mapping[str, str] = field(default_factory=dict)
    """File by split (``train``, ``test``), relative to the start folder; empty reads `path`."""
    factory: str | None = None
    """Import path of the user's function; `None` reads files or `path`."""

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
    """Model and tokenizer: a hub id, a local folder, the embedded one, or the user's own module.

    The embedded model has no stored weights.
    """

    path: str = EMBEDDED
    """Hub id, local folder, or ``embedded``; the tokenizer is always read from it."""
    revision: str | None = None
    """Commit, branch or tag on the hub; `None` is ``main``."""
    pretrained: bool = True
    """True for the stored weights; else they are drawn from the seed."""
    factory: str | None = None
    """Import path of the user's function, which returns a module; `None` uses `path`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `factory`."""

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
    """Options of one training.

    The arms are `backends`, or `listed`, or `layouts`, each next to the eager reference.
    """

    name: str = "reviews"
    """Name of the entry, which is also that of its cases."""
    backends: tuple[str, ...] = ("inductor",)
    """Backends of `torch.compile`, an arm each; of no effect if `listed` or `layouts` has arms."""
    listed: tuple[CompiledArm, ...] = ()
    """Compiled arms of an entry that has `arms`; empty takes `backends`."""
    dropout: bool = True
    """False switches the model's own dropout off."""
    layouts: tuple[Layout, ...] = ()
    """Layouts over several processes, an arm each; empty compares compiled arms."""
    processes: int = 2
    """Number of processes of each layout; of no effect without `layouts`."""
    checkpoint: Checkpointing | None = None
    """Checkpoints that layouts exchange; `None` saves none."""
    epochs: int = 3
    """Passes over the training rows."""
    num_samples: int = 2000
    """Maximum of training rows."""
    batch_size: int = 16
    """Rows of a step, of all processes together."""
    lr: float = 1e-3
    """Learning rate of the optimizer."""
    loss: str | None = None
    """Import path of a function of logits and labels; `None` is the model's own loss."""
    optimizer: str = "Adam"
    """Class of `torch.optim`, or import path of the user's own factory."""
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    """Further keyword arguments of the optimizer."""
    evaluation: bool = True
    """True to compare accuracy on the test rows after a whole training."""
    evaluation_rows: int = 1000
    """Maximum of test rows."""
    precision: TrainingPrecision = TrainingPrecision.FP32
    """Number format of weights and arithmetic."""
    seed: int = 0
    """Seed of weights, data order and masks."""
    seeds: int = 3
    """Number of seeds over which trainings are compared if masks differ."""
    align_rng: bool = True
    """True to make inductor draw the random numbers of eager mode."""
    perturbations: int = 3
    """Number of perturbed references, which show the effect of rounding."""
    max_length: int = 64
    """Tokens of a row; shorter texts are padded, longer ones truncated."""
    dataset: Dataset = Dataset()
    """Source of the rows."""
    model: Model = Model()
    """Source of model and tokenizer."""

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
        """Return all options, defaults included, as `parse` reads them.

        Two cases can be compared if these are equal.
        """
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
    """Parse the parameters of a case, or one entry of the configuration.

    The schema has already validated the entry.
    """
    values = dict(params)
    backend, usual = values.pop("backend", "inductor"), values.pop("compile", None)
    arms = tuple(read_arm(word, usual) for word in values.pop("arms", ()))
    layouts = tuple(map(read_layout, values.pop("layouts", ())))
    saved = values.pop("checkpoint", None)
    precision = values.pop("precision", TrainingPrecision.FP32)
    dataset = Dataset(**values.pop("dataset", {}))
    model = Model(**values.pop("model", {}))
    backends = (backend,) if isinstance(backend, str) else tuple(backend)
    if usual and not arms:
        arms = tuple(read_arm({"backend": name}, usual) for name in backends)
    return TrainingOptions(
        backends=backends,
        listed=arms,
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
