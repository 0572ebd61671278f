"""The options of one case of `transformers` as one frozen value, with their defaults.

No torch here.

An entry of the configuration may give lists where a case has one value; `plan` makes the grid.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from ci_bench.suites.contract import SizeLimits
from ci_bench.suites.shared.planning.arms import CompiledArm, arguments_of
from ci_bench.suites.shared.planning.layouts import Layout, read_layout
from ci_bench.suites.shared.planning.sizes import VARIES, Axis, DynamicShapes

REFERENCE_ARM = "eager"

ROWS_ALONE = "rows_alone"
"""The check that ragged prompts give the same as single ones; of the reference arm."""
AGREES, TIMED_AGREES = "agrees", "timed_output_agrees"
"""The checks that two arms compute the same: of the first steps against fp64, and of the last timed
step against the model.
"""


class Mode(StrEnum):
    """Work of a step: a forward pass, a whole training step, or a generation from a prompt."""

    INFERENCE = "inference"
    TRAINING = "training"
    GENERATION = "generation"


class TransformersPrecision(StrEnum):
    """Formats of stored and multiplied numbers.

    `tf32` lets CUDA matmuls round to ten mantissa bits; `bf16` and `fp16` keep weights in that
    format; the `amp_` forms autocast.
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
        half, brain = 2.0**-11, 2.0**-8
        narrow = {"tf32": half, "fp16": half, "amp_fp16": half, "bf16": brain, "amp_bf16": brain}
        return narrow.get(self.value, 2.0**-24)


class Attention(StrEnum):
    """The implementation of attention; `auto` is transformers' choice for the model."""

    AUTO = "auto"
    EAGER = "eager"
    SDPA = "sdpa"
    FLASH = "flash_attention_2"
    FLEX = "flex_attention"


class CacheKind(StrEnum):
    """Cache of keys and values in a generation: growing tensors, or full length from the start."""

    DYNAMIC = "dynamic"
    STATIC = "static"


class Loop(StrEnum):
    """The loop over tokens."""

    OWN = "own"
    """A loop written out around the model, without stopping rules, processors and streamers."""
    GENERATE = "generate"
    """`generate` of transformers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSampling:
    """Sampling of tokens: logits over `temperature`, the `top_k` likeliest, of these `top_p`.

    `top_p` keeps the likeliest tokens that make up this probability.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0


class Way(StrEnum):
    """Way in which a candidate translates the model."""

    DYNAMO = "dynamo"
    """`torch.compile`."""
    TORCHSCRIPT = "torchscript"
    """`torch.jit.trace`."""
    EXPORT = "export"
    """`torch.export`, its graph run as it is."""
    EXPORT_STRICT = "export-strict"
    """The same by way of dynamo's bytecode analysis."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """The arm next to the reference.

    All fields but `way` are for `Way.DYNAMO`.
    """

    way: Way = Way.DYNAMO
    """Way in which the model is translated."""
    backend: str = "inductor"
    """Backend of `torch.compile`."""
    mode: str | None = None
    """Mode of inductor; `None` is its default."""
    fullgraph: bool = False
    """True makes a graph break an error."""
    dynamic: bool | None = None
    """Argument `dynamic` of `torch.compile`; `None` leaves it open."""
    whole: bool = False
    """True compiles a whole training step, or a generation's prefill, not only the forward pass."""
    compiled_autograd: bool = False
    """True also captures the backward pass of a training."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the backend, by name."""

    @property
    def arm(self) -> str:
        """Its name, which shows the arguments of `torch.compile`."""
        return f"{self.compiled.name}+whole" if self.whole else self.compiled.name

    @property
    def compiled(self) -> CompiledArm:
        """The arm as all suites spell it."""
        if self.way is not Way.DYNAMO:
            return CompiledArm(backend=str(self.way), options=self.options)
        return CompiledArm(
            backend=self.backend,
            mode=self.mode,
            fullgraph=self.fullgraph,
            dynamic=self.dynamic,
            compiled_autograd=self.compiled_autograd,
            options=self.options,
        )

    def as_params(self) -> dict[str, Any]:
        """Return its fields, as `parse` reads them."""
        params = {**asdict(self), "way": str(self.way)}
        return {
            name: value
            for name, value in params.items()
            if value or name not in {"options", "compiled_autograd"}
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformersModel:
    """Model of a case."""

    name: str
    """Name in the case's id."""
    path: str | None = None
    """Preset, folder or hub id; `None` if `config` has everything."""
    revision: str | None = None
    """Branch, tag or commit on the hub; `None` is `main`."""
    pretrained: bool = False
    """True loads the stored weights; otherwise they are drawn from the seed."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Complete configuration of a preset or without a path; else overrides of the stored one."""
    stored: bool = False
    """True if a configuration has to be read from `path`."""

    @property
    def on_hub(self) -> bool:
        """True if preparing has to ask the hub, or its cache."""
        return self.stored and self.path is not None and not looks_local(self.path)


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformersOptions:
    """One case."""

    model: TransformersModel
    """Model that the case runs."""
    mode: Mode = Mode.INFERENCE
    """Work of a step."""
    batch_size: int = 8
    """Rows of a batch; 1 until a search for the largest has found it."""
    largest: SizeLimits | None = None
    """Limits of the search for the batch size; `None` if the size is given."""
    sequence_length: int | None = 128
    """Tokens of a row; `None` if the model has no sequence."""
    precision: TransformersPrecision = TransformersPrecision.FP32
    """Format of numbers."""
    attention: Attention = Attention.AUTO
    """Implementation of attention."""
    candidate: Candidate | None = Candidate()
    """Only arm next to the reference; `None` without one, or if an entry lists arms or layouts."""
    listed: tuple[Candidate, ...] = ()
    """Candidates of an entry with `arms`; else empty."""
    layouts: tuple[Layout, ...] = ()
    """Layouts of an entry that lists them, as arms next to the reference; else empty."""
    processes: int = 1
    """Processes of each layout."""
    speed: bool = True
    """True measures times."""
    memory: bool = True
    """True measures peaks of memory."""
    memory_timeline: bool = False
    """True records every allocation of one step on a GPU."""
    memory_limit_bytes: int | None = None
    """Memory that a worker may take in addition to its start; `None` if unlimited."""
    only_pretrain_model: bool = False
    """True takes the bare model, without a head."""
    optimizer: str = "AdamW"
    """Name or import path of a training's optimizer."""
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the optimizer."""
    lr: float = 1e-4
    """Learning rate of the optimizer."""
    dropout: bool = False
    """True times a training with dropout; arms are compared without it."""
    cache: CacheKind = CacheKind.DYNAMIC
    """Cache of keys and values of a generation."""
    new_tokens: int = 32
    """Tokens that a generation makes for each row."""
    loop: Loop = Loop.OWN
    """Loop over the tokens of a generation."""
    sampling: TokenSampling | None = None
    """Sampling of a generation's tokens; `None` is greedy."""
    ragged: bool = False
    """True gives the prompts of a generation different lengths."""
    dynamic: bool = False
    """True makes a step go through batches of different sizes."""
    varies: tuple[Axis, ...] = VARIES
    """Axes along which dynamic batches differ."""
    dynamic_shapes: DynamicShapes = DynamicShapes.SYMBOLS
    """Way in which dynamo learns of dynamic sizes."""
    prepared_inputs: int = 4
    """Number of batches that take turns."""
    seed: int = 0
    """Seed of weights and inputs."""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The arms of one process except the reference."""
        return self.listed or (() if self.candidate is None else (self.candidate,))

    @property
    def arms(self) -> tuple[str, ...]:
        """The reference first."""
        shared = (layout.name for layout in self.layouts)
        return (REFERENCE_ARM, *(candidate.arm for candidate in self.candidates), *shared)

    def candidate_of(self, arm: str) -> Candidate | None:
        """Return the candidate that an arm runs; `None` for the reference."""
        return next((candidate for candidate in self.candidates if candidate.arm == arm), None)

    def layout_of(self, arm: str) -> Layout | None:
        """Return the layout of the processes that share an arm; `None` if one process runs it."""
        return next((layout for layout in self.layouts if layout.name == arm), None)

    def as_params(self) -> dict[str, Any]:
        """Return all options, as `parse` reads them: cases can be compared when these are equal."""
        params = asdict(self)
        del params["candidate"], params["listed"], params["layouts"], params["processes"]
        for name, usual in LATER.items():  # earlier results have none of them
            if params[name] == usual:
                del params[name]
        if self.largest is not None:
            params["batch_size"] = None
        json_params = {name: _as_json(value) for name, value in params.items()}
        if self.layouts:
            return {
                **json_params,
                "layouts": [layout.as_params() for layout in self.layouts],
                "processes": self.processes,
            }
        if self.listed:
            return {**json_params, "arms": [candidate.as_params() for candidate in self.listed]}
        return {
            **json_params,
            "candidate": None if self.candidate is None else self.candidate.as_params(),
        }


LATER = {
    "loop": Loop.OWN,
    "sampling": None,
    "ragged": False,
    "largest": None,
    "dynamic": False,
    "varies": VARIES,
    "dynamic_shapes": DynamicShapes.SYMBOLS,
}
"""Options that are left out of a case's parameters if they have this value."""


def _as_json(value: Any) -> Any:
    """Convert enumerations to text and tuples to lists, as JSON gives them back."""
    if isinstance(value, StrEnum):
        return str(value)
    return [_as_json(item) for item in value] if isinstance(value, tuple) else value


def parse(params: Mapping[str, Any]) -> TransformersOptions:
    """Parse the options of a case from its parameters. Missing ones take their defaults."""
    kinds = {
        "mode": Mode,
        "precision": TransformersPrecision,
        "attention": Attention,
        "cache": CacheKind,
        "loop": Loop,
    }
    kinds["dynamic_shapes"] = DynamicShapes
    values: dict[str, Any] = {
        name: kinds[name](value) if name in kinds else value for name, value in params.items()
    }
    candidates = tuple(map(_candidate_of, values.pop("arms", ())))
    sampling = values.pop("sampling", None)
    values["sampling"] = TokenSampling(**sampling) if isinstance(sampling, Mapping) else sampling
    layouts = tuple(map(read_layout, values.pop("layouts", ())))
    limits = values.pop("largest", None)
    values["largest"] = SizeLimits(**limits) if isinstance(limits, Mapping) else limits
    if values.get("batch_size", 1) is None:
        values["batch_size"] = 1
    values["varies"] = tuple(map(Axis, values.pop("varies", VARIES)))
    candidate_params = values.pop(
        "candidate", None if candidates or layouts else asdict(Candidate())
    )
    candidate = None if candidate_params is None else _candidate_of(candidate_params)
    values |= {
        "model": TransformersModel(**values["model"]),
        "candidate": candidate,
        "listed": candidates,
        "layouts": layouts,
    }
    return TransformersOptions(**values)


def _candidate_of(params: Mapping[str, Any]) -> Candidate:
    return Candidate(**{**params, "way": Way(params["way"])})


def candidate_from(
    word: str | Mapping[str, Any], usual: Mapping[str, Any] | None = None
) -> Candidate | None:
    """Build a candidate from an entry's word: ``none``, or an item of `arms`.

    `usual` is the entry's `compile`.
    """
    return None if word == "none" else compiled_from(word, usual)


def compiled_from(
    word: str | Mapping[str, Any], usual: Mapping[str, Any] | None = None
) -> Candidate:
    """Build a candidate from an item of `arms`.

    That is a mode of `torch.compile`, a backend, an experiment, or a mapping of arguments.
    """
    arguments = arguments_of(word, usual or {})
    backend = arguments.get("backend")
    if backend in set(Way) - {Way.DYNAMO}:
        return Candidate(way=Way(backend), options=arguments.get("options", {}))
    return Candidate(**arguments)


def looks_local(path: str) -> bool:
    """Return true if a path means a folder: it starts with ``/``, ``./``, ``../`` or ``~``."""
    return path.startswith(("/", "./", "../", "~"))


FIELDS = tuple(
    option.name
    for option in fields(TransformersOptions)
    if option.name not in {"listed", "layouts", "processes", "largest"}
)
