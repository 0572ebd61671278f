"""Compiled arms that an entry lists under `arms`: they run in one case next to one reference.

A form is a backend of `torch.compile`, a mode of inductor, or an experiment, which captures or
compiles in another way than `torch.compile`. All suites share one spelling: the words of `arms`,
and the arguments of `compile`, which hold for all arms of an entry. Reading them needs no torch.
Compiling, and looking up a backend, is for workers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from hashlib import sha256
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.records.spelling import meant
from ci_bench.suites.shared.planning.inductor import MODE_OPTIONS, option_faults

INDUCTOR = "inductor"
DEFAULT_MODE = "default"
MODES = tuple(MODE_OPTIONS)
"""The modes of `torch.compile`, which only inductor has."""
MODES_WITH_CUDA_GRAPHS = frozenset({"reduce-overhead", "max-autotune"})
MOST_OF_A_NAME = 80
"""Characters of an arm's name; a longer name ends in a digest."""


class Experiment(StrEnum):
    """A form of a model that stands where a backend does, in `arms` and in `backend`."""

    EXPORT = "export"
    """`torch.export` by tracing Python (not strict), its graph run as it is."""
    EXPORT_STRICT = "export-strict"
    """`torch.export` by way of dynamo's bytecode analysis, its graph run as it is."""
    AOT_INDUCTOR = "aot-inductor"
    """`torch.export`, compiled by inductor into a package that other processes load."""
    AOT_PRECOMPILE = "aot-precompile"
    """One whole graph of `torch.compile` compiled ahead, saved, and loaded by other processes."""
    CACHING_PRECOMPILE = "caching-precompile"
    """`torch.compile`, its graphs and guards kept by torch's caching precompile and loaded by other
    processes.
    """
    TORCHSCRIPT = "torchscript"
    """`torch.jit.trace`."""
    TORCHSCRIPT_SCRIPT = "torchscript-script"
    """`torch.jit.script`."""
    OVERHEAD = "overhead"
    """Only capture: dynamo runs its graphs as they are."""
    COVERAGE = "coverage"
    """The same with AOTAutograd behind it, and how much of a step ran inside the graphs."""

    @property
    def by_dynamo(self) -> bool:
        """Return true for `torch.compile` with other settings, which can take a whole step."""
        return self in {Experiment.OVERHEAD, Experiment.COVERAGE}


MAKE_FILES = frozenset(
    {Experiment.AOT_INDUCTOR, Experiment.AOT_PRECOMPILE, Experiment.CACHING_PRECOMPILE}
)
PACKAGE = "package"
"""The check that another process loaded the file of such an arm than the one that made it."""
TAKES_OPTIONS = frozenset({INDUCTOR, *MAKE_FILES})
"""The backends that are inductor, in one form or another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledArm:
    """An arm under `torch.compile`, or an experiment instead of it."""

    backend: str = INDUCTOR
    """A backend of `torch.compile`, or an `Experiment`."""
    mode: str | None = None
    """Inductor's mode; `None` for its default."""
    fullgraph: bool = False
    """True if a graph break is an error."""
    dynamic: bool | None = None
    """True if every size is a symbol, false if none is; `None` if dynamo decides."""
    compiled_autograd: bool = False
    """True if dynamo captures the backward pass as it runs, too."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Inductor's options, by their dotted names."""

    @property
    def name(self) -> str:
        """The name of the arm, with everything except defaults: ``inductor+max-autotune``."""
        shapes = {None: "", True: "dynamic-shapes", False: "static-shapes"}[self.dynamic]
        graph = "fullgraph" if self.fullgraph else ""
        autograd = "compiled-autograd" if self.compiled_autograd else ""
        return joined(
            arm_name(self.backend), self.mode, graph, shapes, autograd, *option_marks(self.options)
        )

    @property
    def experiment(self) -> Experiment | None:
        """Return the experiment; `None` for a backend of `torch.compile`."""
        return Experiment(self.backend) if self.backend in set(Experiment) else None

    def as_params(self) -> dict[str, Any]:
        """Return the arm as `read_arm` reads it.

        It has the backend, the mode, and all other values except defaults.
        """
        default = CompiledArm()
        rest = {
            argument.name: getattr(self, argument.name)
            for argument in fields(self)
            if argument.name not in {"backend", "mode", "options"}
        }
        changed = {name: value for name, value in rest.items() if value != getattr(default, name)}
        options = {"options": dict(self.options)} if self.options else {}
        return {"backend": self.backend, "mode": self.mode, **changed, **options}


def arm_name(backend: str) -> str:
    """Return the name of the arm that runs a backend.

    Dynamo's own backend ``eager`` must not be mistaken for the reference.
    """
    return "dynamo-eager" if backend == "eager" else backend


def joined(*marks: str | None) -> str:
    """Return an arm's name made of its marks, without empty ones; a long name ends in a digest."""
    name = "+".join(mark for mark in marks if mark)
    return (
        name
        if len(name) <= MOST_OF_A_NAME
        else f"{name[: MOST_OF_A_NAME - 9]}+{sha256(name.encode()).hexdigest()[:8]}"
    )


def option_marks(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield options in the form that an arm's name has: ``max_autotune:true``."""
    for name, value in sorted(options.items()):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        plain_text = "".join(
            letter if letter.isalnum() or letter in "._-" else "_" for letter in text
        )
        yield f"{name}:{plain_text}"


def read_arm(word: str | Mapping[str, Any], usual: Mapping[str, Any] | None = None) -> CompiledArm:
    """Read an item of `arms`: a backend, a mode, an experiment, or a mapping.

    A mode is inductor's. `usual` is the entry's `compile`.
    """
    return CompiledArm(**arguments_of(word, usual or {}))


def arguments_of(word: str | Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an item of `arms`, by default those of the entry's `compile`.

    The default mode counts as no mode.
    """
    if isinstance(word, str):
        word = {"mode": word} if word in MODES else {"backend": word}
    merged = {**usual, **word, "mode": word.get("mode", usual.get("mode"))}
    merged["mode"] = None if merged["mode"] == DEFAULT_MODE else merged["mode"]
    options = {**usual.get("options", {}), **word.get("options", {})}
    return {**merged, **({"options": options} if options else {})}


def listed_arms(
    options: Mapping[str, Any], place: str, *, instead_of: str, without: Iterable[Experiment] = ()
) -> tuple[CompiledArm, ...]:
    """Return the arms that an entry at `place` lists, with its `compile`; none if it has no `arms`.

    Raises:
        BadConfig: an arm is listed twice, has an argument that its backend lacks, or a misspelt
            word; the suite can't run it (`without`); or the entry also has the option that `arms`
            replaces, `instead_of`.
    """
    arms = tuple(read_arm(word, options.get("compile")) for word in options.get("arms", ()))
    check_arms(
        options,
        place,
        {arm.name: arm for arm in arms},
        instead_of=instead_of,
        names=[arm.name for arm in arms],
    )
    check_suits(f"{place}.arms", arms, without)
    return arms


def compiled_backends(
    backends: Sequence[str],
    options: Mapping[str, Any],
    place: str,
    *,
    without: Iterable[Experiment] = (),
) -> tuple[CompiledArm, ...]:
    """Return the backends of an entry as its `compile` has them.

    Raises `BadConfig` if one lacks an argument.
    """
    arms = tuple(read_arm({"backend": backend}, options.get("compile")) for backend in backends)
    faults = dict.fromkeys(fault for arm in arms for fault in arm_faults(arm))
    if faults:
        raise BadConfig("\n".join(f"{place}.compile: {fault}" for fault in faults))
    check_suits(f"{place}.backend", arms, without)
    return arms


def check_suits(place: str, arms: Iterable[CompiledArm], without: Iterable[Experiment]) -> None:
    """Refuse experiments that a suite cannot run.

    Raises `BadConfig`.
    """
    lacking = set(without)
    faults = [
        f"{place}: this suite does not have the experiment {arm.backend}; suite torchbench does"
        for arm in arms
        if arm.experiment in lacking
    ]
    if faults:
        raise BadConfig("\n".join(faults))


def check_arms(
    options: Mapping[str, Any],
    place: str,
    arms: Mapping[str, CompiledArm],
    *,
    instead_of: str,
    names: Sequence[str],
) -> None:
    """Make the checks of `listed_arms`: `names` are those of the items of `arms` in their order.

    Raises `BadConfig`.
    """
    if "arms" not in options:
        return
    faults = [
        f"{name} is listed twice; remove one of them"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    faults += [fault for arm in arms.values() for fault in arm_faults(arm)]
    for word in options["arms"]:
        spellings = (*MODES, *map(str, Experiment))
        if isinstance(word, str) and word not in spellings and (hint := meant(word, spellings)):
            kind = "mode of torch.compile" if meant(word, MODES) else "experiment"
            faults.append(
                f"{word!r} is not a known {kind}{hint} (for a backend of that name, write"
                f" {{backend: {word}}})"
            )
    if instead_of in options:
        faults.append(f"replaces `{instead_of}`; remove one of them")
    if faults:
        raise BadConfig("\n".join(f"{place}.arms: {fault}" for fault in faults))


def arm_faults(arm: CompiledArm) -> Iterator[str]:
    """Yield options that inductor lacks, and arguments without a use for the backend."""
    yield from (f"options.{fault}" for fault in option_faults(arm.options))
    if arm.mode is not None and arm.backend != INDUCTOR:
        yield (
            f"{arm.mode} is a mode of inductor, and backend {arm.backend} has none; leave the"
            " mode out"
        )
    if arm.options and arm.backend not in TAKES_OPTIONS:
        yield f"options are inductor's, and backend {arm.backend} has none; leave them out"
    if arm.experiment is not None and not arm.experiment.by_dynamo:
        if arm.compiled_autograd:
            yield f"compiled_autograd is dynamo's, and {arm.backend} runs without it; leave it out"
        if arm.fullgraph and arm.experiment is not Experiment.CACHING_PRECOMPILE:
            yield f"fullgraph: {arm.backend} is one graph, or nothing; leave it out"


def without_cuda_graphs(modes: Mapping[str, str | None], device: str) -> dict[str, str]:
    """Return the fact `no_cuda_graphs` of a case.

    It is empty unless arms (by mode) need graphs that the device lacks.
    """
    asking = [arm for arm, mode in modes.items() if mode in MODES_WITH_CUDA_GRAPHS]
    if not asking or device.startswith("cuda"):
        return {}
    return {
        "no_cuda_graphs": (
            f"{', '.join(asking)}: the device {device} has no CUDA graphs, so inductor runs without"
            " them"
        )
    }
