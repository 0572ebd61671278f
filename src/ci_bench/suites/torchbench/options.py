"""The options of `torchbench` as frozen values, with their defaults. No torch here.

`TorchbenchSettings` are those of an entry of the configuration. `TorchbenchOptions` are those of
one case, as its `params` hold them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from ci_bench.records.metrics import STEP_PARTS
from ci_bench.suites.contract import SizeLimits
from ci_bench.suites.shared.planning.arms import CompiledArm, read_arm
from ci_bench.suites.shared.planning.layouts import Layout, read_layout
from ci_bench.suites.shared.planning.sizes import VARIES, Axis, DynamicShapes

REFERENCE_ARM = "eager"
QUANTIZATION_LOSS = "quantization_loss"
"""The check of how far quantised outputs are from unquantised ones."""
TRAINING_PARTS = tuple(part.name for part in STEP_PARTS[1:])
"""Timed parts of a training step if only the model is compiled."""


class ModelSource(StrEnum):
    """Sources of models."""

    ZOO = "zoo"
    """The models that ship with ci-bench."""
    TORCHBENCH = "torchbench"
    """A checkout of the TorchBench repository, or a folder laid out like one."""
    HUGGINGFACE = "huggingface"
    """Configurations of transformers with random weights."""
    TIMM = "timm"
    """The package timm, if it is installed."""
    OWN = "own"
    """The user's own, by import path or by file."""


class BenchMode(StrEnum):
    """The work of a step."""

    TRAINING = "training"
    INFERENCE = "inference"


class Measure(StrEnum):
    """Measurements of a case."""

    BOTH = "both"
    PERFORMANCE = "performance"
    ACCURACY = "accuracy"


class QuantizedArms(StrEnum):
    """Quantised arms: both, to test the compiler, or the candidate, to test quantising."""

    BOTH = "both"
    CANDIDATE = "candidate"


class ModelScope(StrEnum):
    """Part of the step that the backend compiles: the whole step, or only the model.

    With only the model, forward, backward and optimizer are timed separately as well.
    """

    STEP = "step"
    MODEL = "model"


class TorchbenchPrecision(StrEnum):
    """Formats of stored and multiplied numbers.

    `tf32` is for CUDA matmuls; `fp16` and `bf16` cast the weights; `amp_` autocasts.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    AMP_BF16 = "amp_bf16"
    AMP_FP16 = "amp_fp16"

    @property
    def epsilon(self) -> float:
        """Size of one rounding: half the distance from 1 to the narrowest format's next number."""
        return _EPSILON.get(self, 2.0**-24)


_EPSILON = {
    TorchbenchPrecision.TF32: 2.0**-11,
    TorchbenchPrecision.FP16: 2.0**-11,
    TorchbenchPrecision.AMP_FP16: 2.0**-11,
    TorchbenchPrecision.BF16: 2.0**-8,
    TorchbenchPrecision.AMP_BF16: 2.0**-8,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchbenchSettings:
    """Settings that all cases of an entry share, to build, compile, run and verify a model."""

    scope: ModelScope = ModelScope.MODEL
    """The part of a step that the backend compiles."""
    measure: Measure = Measure.BOTH
    """Measurements of each case: speed, accuracy, or both."""
    batch_size: int | None = None
    """Rows of a batch; `None` for the model's own number."""
    largest: SizeLimits | None = None
    """Limits of a search for the batch size, instead of `batch_size`; `None` without one."""
    optimizer: str = "Adam"
    """Name of a class in `torch.optim`, or an import path."""
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    """The optimizer's arguments by name, except `lr`."""
    lr: float = 0.01
    """The optimizer's learning rate."""
    seed: int = 1337
    """Seed of weights, data and steps."""
    prepared: int = 3
    """The number of batches that take turns."""
    steps: int = 2
    """The least number of steps that are verified, one after the other."""
    perturbations: int = 3
    """The number of eager runs from shaken numbers that measure rounding."""
    nopython: bool = False
    """True if a graph break is an error."""
    dynamic: bool = False
    """True if batches differ in size."""
    varies: tuple[Axis, ...] = VARIES
    """The axes along which `dynamic` batches differ."""
    dynamic_shapes: DynamicShapes = DynamicShapes.SYMBOLS
    """The way in which dynamo learns which sizes differ."""
    cudagraphs: bool | None = None
    """True if inductor uses CUDA graphs, false if not; `None` leaves it to torch."""
    freezing: bool = False
    """True if inductor turns weights into constants, in inference."""
    channels_last: bool = False
    """True for the memory layout in which an image's channels come last."""
    deterministic: bool = False
    """True for torch's deterministic algorithms."""
    align_rng: bool = True
    """True if inductor draws eager's random numbers."""
    batch_invariance: bool = False
    """True to check that a row's result does not depend on the size of its batch."""
    activation_checkpointing: bool = False
    """True if the backward pass computes activations again."""
    quantization: str | None = None
    """Kind of quantisation by torchao, as in `QUANTIZERS`; `None` without."""
    quantized_arms: QuantizedArms = QuantizedArms.BOTH
    """The arms that are quantised."""
    quantization_limit: float | None = None
    """Share of outputs that quantising may lose; `None`: `quantization.LIMITS`."""
    inductor: Mapping[str, Any] = field(default_factory=dict)
    """Inductor's options, by dotted name."""
    model_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments or settings for the model, by name."""

    @property
    def compares_quantization(self) -> bool:
        """True if a quantised candidate is compared with an unquantised reference."""
        return self.quantization is not None and self.quantized_arms is QuantizedArms.CANDIDATE


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchbenchOptions:
    """Options of one case."""

    model: str
    """Name of the model in its source, or an import path."""
    mode: BenchMode
    """The work of a step."""
    precision: TorchbenchPrecision
    """The format of stored and multiplied numbers."""
    backend: str
    """Backend of the only candidate; empty if the entry lists `arms` or `layouts`."""
    source: ModelSource = ModelSource.ZOO
    """The source of the model."""
    path: str | None = None
    """Folder of a TorchBench checkout; `None` for other sources."""
    settings: TorchbenchSettings = TorchbenchSettings()
    """The settings that the entry's cases share."""
    rules: tuple[Mapping[str, Any], ...] = ()
    """Table rows about the case (see `tables`); the worker decides those with a device."""
    listed: tuple[CompiledArm, ...] = ()
    """The candidates; empty for layouts, or if `backend` is compiled with defaults."""
    layouts: tuple[Layout, ...] = ()
    """The arms next to the reference, each in `processes`; empty for arms of one process."""
    processes: int = 1
    """The number of processes of a layout."""

    @property
    def candidates(self) -> Mapping[str, CompiledArm]:
        """Arms of one process except the reference, each with its compilation, by name.

        With an unquantised reference, the names include the quantisation.
        """
        if self.layouts:
            return {}
        ending = f"-{self.settings.quantization}" if self.settings.compares_quantization else ""
        return {
            f"{arm.name}{ending}": arm
            for arm in self.listed or (CompiledArm(backend=self.backend),)
        }

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of all arms, the reference first."""
        return (REFERENCE_ARM, *self.candidates, *(layout.name for layout in self.layouts))

    def layout_of(self, arm: str) -> Layout | None:
        """Layout of the processes that share an arm; `None` if one process runs it."""
        return next((layout for layout in self.layouts if layout.name == arm), None)

    def as_params(self) -> dict[str, Any]:
        """Return all options, defaults included, as `parse` reads them.

        Two cases can be compared if these are equal.
        """
        params: dict[str, Any] = asdict(self)
        del params["listed"], params["layouts"], params["processes"]
        for name in (
            "varies",
            "dynamic_shapes",
            "largest",
        ):  # results of earlier versions have none of them
            if getattr(self.settings, name) == getattr(TorchbenchSettings(), name):
                del params["settings"][name]
        if self.listed:
            del params["backend"]
            params["arms"] = [arm.as_params() for arm in self.listed]
        if self.layouts:
            del params["backend"]
            params |= {
                "layouts": [layout.as_params() for layout in self.layouts],
                "processes": self.processes,
            }
        json_params: dict[str, Any] = _to_json(params)
        return json_params


def parse(params: Mapping[str, Any]) -> TorchbenchOptions:
    """Read the options of a case from its parameters."""
    values = dict(params)
    settings = settings_from(values.pop("settings", {}))
    return TorchbenchOptions(
        mode=BenchMode(values.pop("mode")),
        precision=TorchbenchPrecision(values.pop("precision")),
        source=ModelSource(values.pop("source", ModelSource.ZOO)),
        backend=values.pop("backend", ""),
        listed=tuple(map(read_arm, values.pop("arms", ()))),
        layouts=tuple(map(read_layout, values.pop("layouts", ()))),
        rules=tuple(values.pop("rules", ())),
        settings=settings,
        **values,
    )


def settings_from(values: Mapping[str, Any]) -> TorchbenchSettings:
    """Read settings from plain values, which have been checked against the schema."""
    names = {setting.name for setting in fields(TorchbenchSettings)}
    settings = {name: value for name, value in values.items() if name in names}
    settings["varies"] = tuple(map(Axis, settings.get("varies", VARIES)))
    settings["dynamic_shapes"] = DynamicShapes(
        settings.get("dynamic_shapes", DynamicShapes.SYMBOLS)
    )
    limits = settings.get("largest")
    settings["largest"] = SizeLimits(**limits) if isinstance(limits, Mapping) else limits
    settings["scope"] = ModelScope(settings.get("scope", ModelScope.MODEL))
    settings["quantized_arms"] = QuantizedArms(settings.get("quantized_arms", QuantizedArms.BOTH))
    settings["measure"] = Measure(settings.get("measure", Measure.BOTH))
    return TorchbenchSettings(**settings)


def _to_json(value: Any) -> Any:
    """Convert enumerations to text and tuples to lists, as JSON gives them back."""
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return value
