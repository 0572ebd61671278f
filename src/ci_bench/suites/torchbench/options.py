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
        """Half the distance from 1 to the next number of the narrowest format in use: the size of one rounding."""
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
    """Settings that all cases of an entry share: how a model is built, compiled, run and verified.

    `steps` is the least number of steps that are verified, one after the other. `perturbations` is
    the number of eager runs from shaken numbers that measure rounding. `prepared` is the number of
    batches that take turns. `None` for `cudagraphs`, `lr` and `batch_size` leaves it to torch, to
    the optimizer and to the model. `quantization_limit` is the share of the outputs that may be
    lost by quantising only the candidate; `None` takes the limit of its kind
    (`quantization.LIMITS`). With `dynamic`, batches differ in size along the axes that `varies`
    names. `largest` are the limits of a search for the batch size, which replaces `batch_size`;
    `None` without a search.
    """

    scope: ModelScope = ModelScope.MODEL
    measure: Measure = Measure.BOTH
    batch_size: int | None = None
    largest: SizeLimits | None = None
    optimizer: str = "Adam"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    lr: float = 0.01
    seed: int = 1337
    prepared: int = 3
    steps: int = 2
    perturbations: int = 3
    nopython: bool = False
    dynamic: bool = False
    varies: tuple[Axis, ...] = VARIES
    dynamic_shapes: DynamicShapes = DynamicShapes.SYMBOLS
    cudagraphs: bool | None = None
    freezing: bool = False
    channels_last: bool = False
    deterministic: bool = False
    align_rng: bool = True
    batch_invariance: bool = False
    activation_checkpointing: bool = False
    quantization: str | None = None
    quantized_arms: QuantizedArms = QuantizedArms.BOTH
    quantization_limit: float | None = None
    inductor: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def compares_quantization(self) -> bool:
        """True if a quantised candidate is compared with an unquantised reference."""
        return self.quantization is not None and self.quantized_arms is QuantizedArms.CANDIDATE


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchbenchOptions:
    """One case.

    `rules` are the table rows that concern it (see `tables`); those with a device are decided in
    the worker. `backend` is that of the only candidate; if an entry lists `arms` it is empty, and
    `listed` are the candidates. If it lists `layouts`, these are the arms next to the reference,
    each in `processes`.
    """

    model: str
    mode: BenchMode
    precision: TorchbenchPrecision
    backend: str
    source: ModelSource = ModelSource.ZOO
    path: str | None = None
    settings: TorchbenchSettings = TorchbenchSettings()
    rules: tuple[Mapping[str, Any], ...] = ()
    listed: tuple[CompiledArm, ...] = ()
    layouts: tuple[Layout, ...] = ()
    processes: int = 1

    @property
    def candidates(self) -> Mapping[str, CompiledArm]:
        """Arms of one process except the reference, each with its compilation, by name.

        With an unquantised reference, the names include the quantisation.
        """
        if self.layouts:
            return {}
        ending = f"-{self.settings.quantization}" if self.settings.compares_quantization else ""
        return {
            f"{one.name}{ending}": one
            for one in self.listed or (CompiledArm(backend=self.backend),)
        }

    @property
    def arms(self) -> tuple[str, ...]:
        """The reference first."""
        return (REFERENCE_ARM, *self.candidates, *(layout.name for layout in self.layouts))

    def layout_of(self, arm: str) -> Layout | None:
        """Layout of the processes that share an arm; `None` if one process runs it."""
        return next((layout for layout in self.layouts if layout.name == arm), None)

    def as_params(self) -> dict[str, Any]:
        """All options, defaults included, as `parse` reads them: two cases can be compared when these are equal."""
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
        plain: dict[str, Any] = _plain(params)
        return plain


def parse(params: Mapping[str, Any]) -> TorchbenchOptions:
    """The options of a case from its parameters."""
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
    """Settings from plain values, which have been checked against the schema."""
    known = {one.name for one in fields(TorchbenchSettings)}
    given = {name: value for name, value in values.items() if name in known}
    given["varies"] = tuple(map(Axis, given.get("varies", VARIES)))
    given["dynamic_shapes"] = DynamicShapes(given.get("dynamic_shapes", DynamicShapes.SYMBOLS))
    limits = given.get("largest")
    given["largest"] = SizeLimits(**limits) if isinstance(limits, Mapping) else limits
    given["scope"] = ModelScope(given.get("scope", ModelScope.MODEL))
    given["quantized_arms"] = QuantizedArms(given.get("quantized_arms", QuantizedArms.BOTH))
    given["measure"] = Measure(given.get("measure", Measure.BOTH))
    return TorchbenchSettings(**given)


def _plain(value: Any) -> Any:
    """Enumerations as their text, tuples as lists: as JSON gives them back."""
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
