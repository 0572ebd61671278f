"""Planning of `fastrnns`, without torch: an entry to cases by variant, and a case to stages."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ci_bench.errors import BadConfig
from ci_bench.records.metrics import DEVICE_TIME, STEP_PARTS, STEP_TIME
from ci_bench.records.results import Case, Due
from ci_bench.suites.contract import COMPILING, Cache, Stage, StageKind, Suite
from ci_bench.suites.fastrnns.options import (
    CompileMode,
    FastrnnsEntry,
    FastrnnsJob,
    FastrnnsOptions,
    honoured,
    parse_entry,
    parse_job,
)
from ci_bench.suites.fastrnns.variants import (
    FastrnnsTask,
    Form,
    Variant,
    chosen,
    compiled_form,
    reference_of,
)
from ci_bench.suites.shared.planning.arms import (
    INDUCTOR,
    Experiment,
    compiled_backends,
    listed_arms,
)

MEMORY_LAUNCHES = (0, 1)
"""Peaks are taken in two launches: where they repeat exactly they can be compared exactly."""
FORWARD, BACKWARD = (part.name for part in STEP_PARTS[1:3])
_NETWORKS = (FastrnnsTask.RESNET18, FastrnnsTask.RESNET50)
WHOLE = (STEP_TIME.name, DEVICE_TIME.name)
"""The step as a whole: forward, backward and the zeroing of gradients. Shown, and judged by its
parts.
"""


class FastRnns(Suite):
    """Run each variant next to its reference, with forward and backward timed separately."""

    name = "fastrnns"
    worker = "ci_bench.suites.fastrnns.run"
    preload: tuple[str, ...] = ("torch", "torch._dynamo")
    exports: ClassVar[Mapping[str, str]] = {
        "fastrnns-oss": "ci_bench.formats.fastrnns:export_oss",
        "fastrnns-pep": "ci_bench.formats.fastrnns:export_pep",
        "fastrnns-table": "ci_bench.formats.fastrnns:export_table",
    }

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Return one case per variant and compile mode.

        If `arms` are listed, each compiled variant has one case with all of them.

        Raises:
            BadConfig: options contradict each other or the variants.
        """
        listed_arms(options, "suites.fastrnns", instead_of="compile_modes", without=LACKING)
        compiled_backends((INDUCTOR,), options, "suites.fastrnns")
        entry = parse_entry(options)
        complaints = [f"suites.fastrnns: {complaint}" for complaint in _complaints(entry)]
        if complaints:
            raise BadConfig("\n".join(complaints))
        return tuple(_plan_case(job, entry.name) for job in _jobs(entry))

    def preload_of(self, case: Case) -> tuple[str, ...]:
        """Return the compiler's modules for compiled cases, and the library of networks if used."""
        variant = parse_job(case.params).variant
        compiling = COMPILING if variant.form is Form.COMPILE else ()
        networks = (
            ("transformers.models.resnet.modeling_resnet",) if variant.task in _NETWORKS else ()
        )
        return (*self.preload, *compiling, *networks)

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Return the stages: translate from cold, verify, then memory and time.

        Only variants that are translated have stages from cold.
        """
        job = parse_job(case.params)
        translated = job.candidates if job.variant.form.is_translated else ()
        cold = (
            Stage(kind=StageKind.ALONE, arms=(arm,), launches=None, cache=Cache.COLD)
            for arm in translated
        )
        memory = tuple(
            Stage(kind=StageKind.ALONE, arms=(arm,), launches=MEMORY_LAUNCHES) for arm in case.arms
        )
        return (
            *cold,
            Stage(kind=StageKind.VERIFY, arms=case.arms),
            *memory,
            Stage(kind=StageKind.TIME, arms=case.arms, launches=None),
        )


SUITE = FastRnns()

LACKING = tuple(experiment for experiment in Experiment if experiment is not Experiment.OVERHEAD)
"""The experiments that take modules, outlive a process or count; this suite has functions, and its
own forms for TorchScript.
"""


def _jobs(entry: FastrnnsEntry) -> Iterator[FastrnnsJob]:
    """Yield the chosen variants in their order, then the compiled form of each structure.

    Compiled forms follow only if the entry has modes or arms.
    """
    variants = chosen(entry.chosen_groups, entry.variants)
    modes = entry.compile_modes or (CompileMode.DEFAULT,)
    compiled = (
        [compiled_form(variant) for variant in variants]
        if entry.compile_modes or entry.arms
        else []
    )
    for variant in dict.fromkeys([*variants, *compiled]):
        arms = entry.arms or ((entry.usual,) if entry.usual is not None else ())
        if variant.form is Form.COMPILE and arms:
            yield FastrnnsJob(variant=variant, mode=None, options=entry.options, listed=arms)
        elif variant.form is Form.COMPILE:
            yield from (
                FastrnnsJob(variant=variant, mode=mode, options=entry.options) for mode in modes
            )
        else:
            yield FastrnnsJob(variant=variant, mode=None, options=entry.options)


def _plan_case(job: FastrnnsJob, name: str | None) -> Case:
    variant, reference = job.variant, reference_of(job.variant)
    checks = ("agrees", "refereed", *(("compiled",) if variant.form is Form.COMPILE else ()))
    full_name = f"{name}.{variant.name}" if name else variant.name
    return Case(
        id=f"fastrnns/{full_name}[{','.join(_shown(job))}]",
        suite="fastrnns",
        name=full_name,
        params=job.as_params(),
        arms=tuple(dict.fromkeys((reference.name, *job.candidates))),
        reference=reference.name,
        due=Due(checks=checks, times=(FORWARD,) if variant.forward_only else (FORWARD, BACKWARD)),
        details=WHOLE,
    )


def _shown(job: FastrnnsJob) -> Iterator[str]:
    """Yield the options that distinguish cases of one variant.

    They are its sizes always, its mode, and any other option that is not the default.
    """
    shown, default = job.options, FastrnnsOptions()
    if job.variant.is_convolutional:
        yield f"batch={shown.cnn_batch_size}"
    else:
        yield f"batch={shown.batch_size}"
        yield f"hidden={shown.hidden_size}"
        yield f"input={shown.input_size}"
        yield f"layers={shown.num_layers}"
        yield f"seq={shown.seq_length}"
    if job.variant.is_convolutional:
        yield f"size={shown.image_size}"
    if job.mode is not None:
        yield f"mode={job.mode}"
    for option in sorted(set(honoured(job.variant)) - SIZES - {"seed"}):
        if getattr(shown, option) != getattr(default, option):
            yield f"{option}={getattr(shown, option)}"


SIZES = {
    "batch_size",
    "hidden_size",
    "input_size",
    "num_layers",
    "seq_length",
    "cnn_batch_size",
    "image_size",
}


def _complaints(entry: FastrnnsEntry) -> Iterator[str]:
    """Yield faults that no schema can show: unused options, and variants made meaningless."""
    variants = chosen(entry.chosen_groups, entry.variants)
    names = ", ".join(variant.name for variant in variants)
    used = {option for variant in variants for option in honoured(variant)}
    references = {reference_of(variant).name for variant in variants}
    for name in (arm.name for arm in entry.arms if arm.name in references):
        yield f"arms: {name} is the name of a reference arm; a backend by that name needs another"
    if entry.usual is not None and entry.compile_modes:
        yield "compile: applies to `arms`; list the modes there instead of in `compile_modes`"
    if entry.usual is not None and not any(variant.form is Form.COMPILE for variant in variants):
        yield f"compile: none of the variants {names} is compiled; add one that is, or leave it out"
    if "dropout" in entry.given and "dropout" not in used:
        yield (
            f"dropout: {names} has no dropout between layers; use a variant that has, such as"
            " jit_dropout, or leave it out"
        )
    unused = sorted(entry.given - used - {"dropout"})
    for option in unused:
        yield (
            f"{option}: none of the variants {names} uses it; leave it out, or add a variant that"
            " does"
        )
    if entry.options.num_layers == 1:
        yield from (
            _no_dropout(variant) for variant in variants if variant.task is FastrnnsTask.DROPOUT
        )
    if entry.options.hidden_size == 1 and any(
        variant.task is FastrnnsTask.LAYERNORM for variant in variants
    ):
        yield (
            "hidden_size: a single feature leaves nothing to normalise; set 2 or more, or leave"
            " layer normalisation out"
        )


def _no_dropout(variant: Variant) -> str:
    where = (
        f"num_layers: with one layer {variant.name} has nothing to drop, as dropout acts between"
        " layers"
    )
    return f"{where}; set num_layers to 2 or more, or leave the variant out"
