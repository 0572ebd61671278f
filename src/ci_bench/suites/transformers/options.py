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
        """Half the distance from 1 to the next number of the narrowest format in use: the size of one rounding."""
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
    """The arm next to the reference. All but `way` is for `Way.DYNAMO` and goes to `torch.compile`.

    `whole` compiles the whole training step, or also a generation's prefill, not only the model's
    forward pass.
    """

    way: Way = Way.DYNAMO
    backend: str = "inductor"
    mode: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None
    whole: bool = False
    compiled_autograd: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

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
        """Its fields, as `parse` reads them."""
        params = {**asdict(self), "way": str(self.way)}
        return {
            name: value
            for name, value in params.items()
            if value or name not in {"options", "compiled_autograd"}
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformersModel:
    """Model of a case: `path` is a preset, a folder or a hub id, `None` if `config` has everything.

    `config` is complete for a preset and without a path; else it overrides the stored one.
    `pretrained` loads the stored weights; without it they are drawn from the seed. `stored` means
    that a configuration has to be read from `path`.
    """

    name: str
    path: str | None = None
    revision: str | None = None
    pretrained: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    stored: bool = False

    @property
    def on_hub(self) -> bool:
        """True if preparing has to ask the hub, or its cache."""
        return self.stored and self.path is not None and not looks_local(self.path)


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformersOptions:
    """One case. `sequence_length` is `None` if the model has none; `seed` sets weights and inputs.

    `candidate` is the only arm next to the reference. If an entry lists `arms`, `candidate` is
    empty and `listed` are the candidates. If it lists `layouts`, these are the arms next to the
    reference, each in `processes`. `prepared_inputs` batches take turns. For generations:
    `sampling` of `None` is greedy, and `ragged` prompts differ in length. `memory_limit_bytes` is
    the memory that a worker may take in addition to its start. `largest` are the limits of a search
    for the batch size, which is 1 until it is found. With `dynamic`, a step goes through batches
    that differ along the axes of `varies`.
    """

    model: TransformersModel
    mode: Mode = Mode.INFERENCE
    batch_size: int = 8
    largest: SizeLimits | None = None
    sequence_length: int | None = 128
    precision: TransformersPrecision = TransformersPrecision.FP32
    attention: Attention = Attention.AUTO
    candidate: Candidate | None = Candidate()
    listed: tuple[Candidate, ...] = ()
    layouts: tuple[Layout, ...] = ()
    processes: int = 1
    speed: bool = True
    memory: bool = True
    memory_timeline: bool = False
    memory_limit_bytes: int | None = None
    only_pretrain_model: bool = False
    optimizer: str = "AdamW"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    lr: float = 1e-4
    dropout: bool = False
    cache: CacheKind = CacheKind.DYNAMIC
    new_tokens: int = 32
    loop: Loop = Loop.OWN
    sampling: TokenSampling | None = None
    ragged: bool = False
    dynamic: bool = False
    varies: tuple[Axis, ...] = VARIES
    dynamic_shapes: DynamicShapes = DynamicShapes.SYMBOLS
    prepared_inputs: int = 4
    seed: int = 0

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
        """All options, as `parse` reads them: two cases can be compared when these are equal."""
        params = asdict(self)
        del params["candidate"], params["listed"], params["layouts"], params["processes"]
        for name, usual in LATER.items():  # earlier results have none of them
            if params[name] == usual:
                del params[name]
        if self.largest is not None:
            params["batch_size"] = None
        plain = {name: _plain(value) for name, value in params.items()}
        if self.layouts:
            return {
                **plain,
                "layouts": [layout.as_params() for layout in self.layouts],
                "processes": self.processes,
            }
        if self.listed:
            return {**plain, "arms": [candidate.as_params() for candidate in self.listed]}
        return {
            **plain,
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


def _plain(value: Any) -> Any:
    """Enumerations as their text, tuples as lists: as JSON gives them back."""
    if isinstance(value, StrEnum):
        return str(value)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


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
    listed = tuple(map(_candidate_of, values.pop("arms", ())))
    sampling = values.pop("sampling", None)
    values["sampling"] = TokenSampling(**sampling) if isinstance(sampling, Mapping) else sampling
    layouts = tuple(map(read_layout, values.pop("layouts", ())))
    limits = values.pop("largest", None)
    values["largest"] = SizeLimits(**limits) if isinstance(limits, Mapping) else limits
    if values.get("batch_size", 1) is None:
        values["batch_size"] = 1
    values["varies"] = tuple(map(Axis, values.pop("varies", VARIES)))
    given = values.pop("candidate", None if listed or layouts else asdict(Candidate()))
    candidate = None if given is None else _candidate_of(given)
    values |= {
        "model": TransformersModel(**values["model"]),
        "candidate": candidate,
        "listed": listed,
        "layouts": layouts,
    }
    return TransformersOptions(**values)


def _candidate_of(params: Mapping[str, Any]) -> Candidate:
    return Candidate(**{**params, "way": Way(params["way"])})


def candidate_from(
    word: str | Mapping[str, Any], usual: Mapping[str, Any] | None = None
) -> Candidate | None:
    """A candidate as an entry writes it: ``none``, or an item of `arms`; `usual` is the entry's `compile`."""
    return None if word == "none" else compiled_from(word, usual)


def compiled_from(
    word: str | Mapping[str, Any], usual: Mapping[str, Any] | None = None
) -> Candidate:
    """An item of `arms`: a mode of `torch.compile`, a backend, an experiment, or a mapping of arguments."""
    arguments = arguments_of(word, usual or {})
    backend = arguments.get("backend")
    if backend in set(Way) - {Way.DYNAMO}:
        return Candidate(way=Way(backend), options=arguments.get("options", {}))
    return Candidate(**arguments)


def looks_local(path: str) -> bool:
    """Return true if a path means a folder: it starts with ``/``, ``./``, ``../`` or ``~``."""
    return path.startswith(("/", "./", "../", "~"))


FIELDS = tuple(
    one.name
    for one in fields(TransformersOptions)
    if one.name not in {"listed", "layouts", "processes", "largest"}
)
