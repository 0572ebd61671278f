"""The options of `fastrnns` as frozen values: one entry of the configuration, and one case's plan.

No torch here. The defaults are the original tool's sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from ci_bench.suites.fastrnns.variants import VARIANTS, FastrnnsTask, Form, Variant
from ci_bench.suites.shared.planning.arms import CompiledArm, read_arm

DEFAULT_GROUPS = ("cnns", "rnns")


class Dtype(StrEnum):
    """The number format of weights, inputs and arithmetic."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Fuser(StrEnum):
    """Fusers that TorchScript may use; `default` leaves torch's own choice."""

    TE = "te"
    OLD = "old"
    NONE = "none"
    DEFAULT = "default"


class Executor(StrEnum):
    """Executors of TorchScript; `default` leaves the fuser's choice."""

    PROFILING = "profiling"
    SIMPLE = "simple"
    LEGACY = "legacy"
    DEFAULT = "default"


class CompileMode(StrEnum):
    """The mode of `torch.compile`."""

    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    MAX_AUTOTUNE = "max-autotune"
    MAX_AUTOTUNE_NO_CUDAGRAPHS = "max-autotune-no-cudagraphs"

    @property
    def uses_cudagraphs(self) -> bool:
        """True if the next step overwrites the memory of outputs (on a GPU)."""
        return self in {CompileMode.REDUCE_OVERHEAD, CompileMode.MAX_AUTOTUNE}


class CnnLibrary(StrEnum):
    """Sources of ResNets."""

    TRANSFORMERS = "transformers"
    TORCHVISION = "torchvision"


@dataclass(frozen=True, kw_only=True, slots=True)
class FastrnnsOptions:
    """Options of the variants."""

    seq_length: int = 100
    """Steps of a sequence; variable lengths are drawn from 30 % to below 100 % of it."""
    num_layers: int = 1
    """Number of recurrent layers."""
    input_size: int = 512
    """Features of the input in each step."""
    hidden_size: int = 512
    """Features of the hidden state."""
    batch_size: int = 64
    """Sequences in a batch."""
    dropout: float = 0.4
    """Share of features that dropout drops between layers, from 0 to 1."""
    cnn_batch_size: int = 32
    """Images in a batch."""
    image_size: int = 224
    """Width and height of an image in pixels."""
    cnn_library: CnnLibrary = CnnLibrary.TRANSFORMERS
    """Library of the ResNets."""
    dtype: Dtype = Dtype.FLOAT32
    """Number format of weights and inputs."""
    allow_tf32: bool = False
    """True if CUDA matmuls may round to ten mantissa bits."""
    seed: int = 0
    """Seed of weights, inputs, states and the output gradient."""
    fuser: Fuser = Fuser.TE
    """Fuser of TorchScript."""
    executor: Executor = Executor.DEFAULT
    """Executor of TorchScript."""
    cuda_pointwise_loop_level: int | None = None
    """TorchScript's loop levels of a pointwise CUDA kernel; `None` leaves torch's."""
    cuda_pointwise_block_count: int | None = None
    """TorchScript's blocks of a pointwise CUDA kernel; `None` leaves torch's."""
    cuda_pointwise_block_size: int | None = None
    """TorchScript's threads of a block; `None` leaves torch's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FastrnnsEntry:
    """One entry of the configuration: its variants, and the options of all of them."""

    name: str | None = None
    """Name of the entry, put before the variant's in a case's name; `None` puts nothing there."""
    groups: tuple[str, ...] | None = None
    """Names of groups of variants; `None` if the entry lists none."""
    variants: tuple[str, ...] = ()
    """Names of single variants, in addition to the groups."""
    compile_modes: tuple[CompileMode, ...] = ()
    """Modes of compiled variants, a case each; empty is the default mode and adds no variants."""
    arms: tuple[CompiledArm, ...] = ()
    """Ways of compiling each variant, an arm each in one case; empty if the entry has no `arms`."""
    usual: CompiledArm | None = None
    """The entry's `compile`, for variants without `arms`; `None` if it is not set."""
    options: FastrnnsOptions = FastrnnsOptions()
    """Options of all variants of the entry."""
    given: frozenset[str] = frozenset()
    """The options that the entry names, whatever their value."""

    @property
    def chosen_groups(self) -> tuple[str, ...]:
        """The requested groups; by default, without variants, the original tool's."""
        if self.groups is not None:
            return self.groups
        return () if self.variants else DEFAULT_GROUPS


@dataclass(frozen=True, kw_only=True, slots=True)
class FastrnnsJob:
    """Job of one case, or of one of its arms (`of_arm`)."""

    variant: Variant
    """The variant that is compared with its reference."""
    mode: CompileMode | None
    """Mode of `torch.compile`; `None` if uncompiled, or if `listed` has the modes."""
    options: FastrnnsOptions
    """Options of the variant."""
    how: CompiledArm | None = None
    """The compilation of a listed arm, whose mode `mode` repeats; `None` for other arms."""
    listed: tuple[CompiledArm, ...] = ()
    """Ways of compiling the variant, an arm each; empty for a job of one arm."""

    @property
    def arm(self) -> str:
        """The name of the arm that runs it."""
        return self.variant.name if self.how is None else self.how.name

    @property
    def candidates(self) -> tuple[str, ...]:
        """The names of the case's arms that are not only its reference."""
        return tuple(arm.name for arm in self.listed) or (self.variant.name,)

    @property
    def compiled(self) -> CompiledArm | None:
        """The arm's compilation; `None` if uncompiled."""
        if self.how is not None or self.mode is None:
            return self.how
        return CompiledArm(mode=None if self.mode is CompileMode.DEFAULT else str(self.mode))

    def of_arm(self, arm: str) -> "FastrnnsJob":
        """Return the job of one arm.

        It is a listed one, the case's own, or its reference's at the same options.
        """
        compiled = next((candidate for candidate in self.listed if candidate.name == arm), None)
        if compiled is not None:
            mode = CompileMode(compiled.mode or CompileMode.DEFAULT)
            return replace(self, mode=mode, how=compiled, listed=())
        variant = VARIANTS[arm]
        return replace(
            self,
            variant=variant,
            mode=self.mode if variant.form is Form.COMPILE else None,
            listed=(),
        )

    def as_params(self) -> dict[str, Any]:
        """Return the variant and the options that matter to it, as `parse_job` reads them.

        Equal params are the same measurement.
        """
        params: dict[str, Any] = {"variant": self.variant.name}
        if self.listed:
            params["arms"] = [arm.as_params() for arm in self.listed]
        elif self.mode is not None:
            params["compile_mode"] = str(self.mode)
        for name in honoured(self.variant):
            value = getattr(self.options, name)
            params[name] = str(value) if isinstance(value, StrEnum) else value
        return params


ALWAYS = ("dtype", "allow_tf32", "seed")
OF_SEQUENCES = ("seq_length", "num_layers", "input_size", "hidden_size", "batch_size")
OF_IMAGES = ("cnn_batch_size", "image_size", "cnn_library")
OF_TORCHSCRIPT = (
    "fuser",
    "executor",
    "cuda_pointwise_loop_level",
    "cuda_pointwise_block_count",
    "cuda_pointwise_block_size",
)


def honoured(variant: Variant) -> tuple[str, ...]:
    """Return the names of the options that a variant uses, which are part of its measurement."""
    sizes = OF_IMAGES if variant.is_convolutional else OF_SEQUENCES
    knobs = OF_TORCHSCRIPT if variant.form.is_torchscript else ()
    dropout = ("dropout",) if variant.task is FastrnnsTask.DROPOUT else ()
    return (*sizes, *dropout, *ALWAYS, *knobs)


def parse_entry(raw: Mapping[str, Any]) -> FastrnnsEntry:
    """Parse one entry of the configuration, which its schema has already validated."""
    values = dict(raw)
    name = values.pop("name", None)
    groups = values.pop("groups", None)
    variants = tuple(values.pop("variants", ()))
    modes = tuple(CompileMode(mode) for mode in values.pop("compile_modes", ()))
    usual = values.pop("compile", None)
    arms = tuple(read_arm(word, usual) for word in values.pop("arms", ()))
    return FastrnnsEntry(
        name=name,
        groups=None if groups is None else tuple(groups),
        variants=variants,
        compile_modes=modes,
        arms=arms,
        usual=read_arm({}, usual) if usual and not arms else None,
        options=_options(values),
        given=frozenset(values),
    )


def parse_job(params: Mapping[str, Any]) -> FastrnnsJob:
    """Parse a case's parameters, as `FastrnnsJob.as_params` wrote them."""
    values = dict(params)
    variant = VARIANTS[values.pop("variant")]
    mode = values.pop("compile_mode", None)
    arms = tuple(map(read_arm, values.pop("arms", ())))
    assert (mode is not None or bool(arms)) == (variant.form is Form.COMPILE), (  # noqa: S101 - our own bug if not
        "a mode belongs to what is compiled"
    )
    return FastrnnsJob(
        variant=variant,
        mode=None if mode is None else CompileMode(mode),
        options=_options(values),
        listed=arms,
    )


ENUMS: Mapping[str, type[StrEnum]] = {
    "dtype": Dtype,
    "cnn_library": CnnLibrary,
    "fuser": Fuser,
    "executor": Executor,
}
OPTION_NAMES = tuple(option.name for option in fields(FastrnnsOptions))


def _options(values: Mapping[str, Any]) -> FastrnnsOptions:
    typed: dict[str, Any] = {
        name: ENUMS[name](value) if name in ENUMS else value for name, value in values.items()
    }
    return FastrnnsOptions(**typed)
