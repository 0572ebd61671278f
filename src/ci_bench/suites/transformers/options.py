"""The options of one case of `transformers` as one frozen value, with their defaults. No torch here.

An entry of the configuration may give lists where a case has one value; `plan` makes the grid.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from ci_bench.suites.arms import DEFAULT_MODE, MODES, arm_name

REFERENCE_ARM = "eager"

AGREES, TIMED_AGREES = "agrees", "timed_output_agrees"
"""The checks that two arms compute the same: of the first steps against fp64, and of the last timed step against the model."""


class Mode(StrEnum):
    """What a step does: a forward pass, a whole training step, or a greedy generation from a prompt."""

    INFERENCE = "inference"
    TRAINING = "training"
    GENERATION = "generation"


class Precision(StrEnum):
    """How numbers are kept and multiplied.

    `tf32` lets CUDA matmuls round to ten mantissa bits; `bf16` and `fp16` keep weights in that format; the `amp_` forms autocast.
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
    """The implementation of attention; `auto` is what transformers chooses for the model."""

    AUTO = "auto"
    EAGER = "eager"
    SDPA = "sdpa"
    FLASH = "flash_attention_2"
    FLEX = "flex_attention"


class CacheKind(StrEnum):
    """Where a generation keeps keys and values: in tensors that grow, or in ones of full length from the start."""

    DYNAMIC = "dynamic"
    STATIC = "static"


class Way(StrEnum):
    """How a candidate translates the model."""

    DYNAMO = "dynamo"
    """`torch.compile`."""
    TORCHSCRIPT = "torchscript"
    """`torch.jit.trace`."""
    EXPORT = "export"
    """`torch.export`, its graph run as it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """The arm beside the reference. All but `way` is for `Way.DYNAMO` and goes to `torch.compile`.

    `whole` compiles the whole training step, or a generation's prefill too, and not the model's forward pass alone.
    """

    way: Way = Way.DYNAMO
    backend: str = "inductor"
    mode: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None
    whole: bool = False

    @property
    def arm(self) -> str:
        """Its name, which tells what goes to `torch.compile`."""
        if self.way is not Way.DYNAMO:
            return str(self.way)
        shapes = {None: "", True: "dynamic-shapes", False: "static-shapes"}[self.dynamic]
        marks = (arm_name(self.backend), self.mode, "fullgraph" if self.fullgraph else "", shapes, "whole" if self.whole else "")
        return "+".join(mark for mark in marks if mark)

    def as_params(self) -> dict[str, Any]:
        """Its fields, as `parse` reads them."""
        return {**asdict(self), "way": str(self.way)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """Which model: `path` is a preset, a folder or a hub id, `None` where `config` says everything.

    `config` is whole for a preset and where there is no path; else it overrides what is stored. `pretrained` loads the stored
    weights; without it they are drawn from the seed. `stored` says that a configuration has to be read from `path`.
    """

    name: str
    path: str | None = None
    revision: str | None = None
    pretrained: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    stored: bool = False

    @property
    def on_hub(self) -> bool:
        """Whether preparing has to ask the hub, or its cache."""
        return self.stored and self.path is not None and not looks_local(self.path)


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """One case. `sequence_length` is `None` where the model has none; `seed` rules weights and inputs.

    `candidate` is the only arm beside the reference; where an entry lists `arms` there is none, and `listed` are the candidates.
    `prepared_inputs` batches take turns. `memory_limit_bytes` is what a worker may take beyond what it starts with.
    """

    model: Model
    mode: Mode = Mode.INFERENCE
    batch_size: int = 8
    sequence_length: int | None = 128
    precision: Precision = Precision.FP32
    attention: Attention = Attention.AUTO
    candidate: Candidate | None = Candidate()
    listed: tuple[Candidate, ...] = ()
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
    prepared_inputs: int = 4
    seed: int = 0

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The arms beside the reference."""
        return self.listed or (() if self.candidate is None else (self.candidate,))

    @property
    def arms(self) -> tuple[str, ...]:
        """The reference first."""
        return (REFERENCE_ARM, *(candidate.arm for candidate in self.candidates))

    def candidate_of(self, arm: str) -> Candidate | None:
        """What an arm runs; `None` for the reference."""
        return next((candidate for candidate in self.candidates if candidate.arm == arm), None)

    def as_params(self) -> dict[str, Any]:
        """All options, as `parse` reads them: two cases can be compared when these are equal."""
        params = asdict(self)
        del params["candidate"], params["listed"]
        plain = {name: str(value) if isinstance(value, StrEnum) else value for name, value in params.items()}
        if self.listed:
            return {**plain, "arms": [candidate.as_params() for candidate in self.listed]}
        return {**plain, "candidate": None if self.candidate is None else self.candidate.as_params()}


def parse(params: Mapping[str, Any]) -> Options:
    """Options from a case's parameters. What a case need not say takes its default."""
    kinds = {"mode": Mode, "precision": Precision, "attention": Attention, "cache": CacheKind}
    values: dict[str, Any] = {name: kinds[name](value) if name in kinds else value for name, value in params.items()}
    listed = tuple(map(_candidate_of, values.pop("arms", ())))
    given = values.pop("candidate", None if listed else asdict(Candidate()))
    candidate = None if given is None else _candidate_of(given)
    values |= {"model": Model(**values["model"]), "candidate": candidate, "listed": listed}
    return Options(**values)


def _candidate_of(params: Mapping[str, Any]) -> Candidate:
    return Candidate(**{**params, "way": Way(params["way"])})


def candidate_from(word: str | Mapping[str, Any]) -> Candidate | None:
    """A candidate as an entry writes it: ``none``, a way, a mode of `torch.compile`, a backend, or a mapping of its arguments."""
    if not isinstance(word, str):
        return compiled_from(word)
    if word == "none":
        return None
    if word in {Way.TORCHSCRIPT, Way.EXPORT}:
        return Candidate(way=Way(word))
    return compiled_from(word)


def compiled_from(word: str | Mapping[str, Any]) -> Candidate:
    """A candidate under `torch.compile`: a mode, a backend, or a mapping of arguments, where the default mode is none."""
    if isinstance(word, str):
        word = {"mode": word} if word in MODES else {"backend": word}
    mode = word.get("mode")
    return Candidate(**{**word, "mode": None if mode == DEFAULT_MODE else mode})


def looks_local(path: str) -> bool:
    """Whether a path is meant as a folder: it starts with ``/``, ``./``, ``../`` or ``~``."""
    return path.startswith(("/", "./", "../", "~"))


FIELDS = tuple(one.name for one in fields(Options) if one.name != "listed")
