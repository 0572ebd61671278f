"""The half of `training_loss` that needs no torch: options to cases, cases to stages."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import Case, Due
from ci_bench.records.spelling import meant
from ci_bench.suites.contract import COMPILING, Cache, HubModel, Stage, StageKind, Suite
from ci_bench.suites.shared.planning.arms import Experiment, compiled_backends, listed_arms
from ci_bench.suites.shared.planning.layouts import (
    LAYOUTS,
    ONE_FORWARD_ONE_BACKWARD,
    PAIR,
    PIPELINE,
    SCHEDULES,
    Layout,
    counts_of,
    idle_options,
    read_layout,
)
from ci_bench.suites.training_loss.options import (
    EMBEDDED,
    REFERENCE_ARM,
    Checkpointing,
    TrainingOptions,
    TrainingPrecision,
    parse,
)

LACKING = tuple(experiment for experiment in Experiment if experiment is not Experiment.OVERHEAD)
"""Experiments that this suite lacks.

They capture only a forward pass, but this suite compiles the whole step. One of them counts.
"""
PARALLEL = (
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
    "torch.nn.parallel.distributed",
    "torch.distributed.checkpoint.state_dict",
)
"""Modules that all layouts import."""
LEAST_STEPS, MOST_STEPS = 10, 50
"""Numbers of steps, from the first one on, over which parity can be judged."""
MEMORY_LAUNCHES = (0, 1)
"""Peaks are taken in two launches: where they repeat exactly they can be compared exactly."""


class TrainingLoss(Suite):
    """Train the same model on the same data eagerly and compiled."""

    name = "training_loss"
    worker = "ci_bench.suites.training_loss.run"
    preload: tuple[str, ...] = ("torch", *COMPILING)

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Return one case per precision and number of processes.

        Raises `BadConfig` if two arms would be the same.
        """
        place = f"suites.training_loss.{options.get('name', TrainingOptions().name)}"
        _check_compiled(options, place)
        _check_layouts(options, place)
        option, counts = options.get("precision", TrainingPrecision.FP32), counts_of(options)
        precisions = [option] if isinstance(option, str) else list(option)
        if "layouts" not in options:
            return tuple(
                _plan_case({**options, "precision": str(precision)}) for precision in precisions
            )
        return tuple(
            _plan_case({**options, "precision": str(precision), "processes": count})
            for precision in precisions
            for count in counts
        )

    def preload_of(self, case: Case) -> tuple[str, ...]:
        """Leave transformers out for the user's own model, which does not need it."""
        options = parse(case.params)
        preload = (*self.preload, *(PARALLEL if options.layouts else ()))
        if options.model.factory is not None:
            return preload
        architecture = (
            "bert.modeling_bert" if options.model.path == EMBEDDED else "auto.modeling_auto"
        )
        return (*preload, f"transformers.models.{architecture}")

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Prepare, compile from cold, verify, then memory and time."""
        options = parse(case.params)
        if options.layouts:
            return _stages_of_layouts(case, options.processes)
        candidates = tuple(arm for arm in case.arms if arm != REFERENCE_ARM)
        cold = tuple(
            Stage(kind=StageKind.ALONE, arms=(arm,), launches=None, cache=Cache.COLD)
            for arm in candidates
        )
        memory = tuple(
            Stage(kind=StageKind.ALONE, arms=(arm,), launches=MEMORY_LAUNCHES) for arm in case.arms
        )
        further = (
            (StageKind.ROUNDING, StageKind.SEEDS)
            if options.perturbations > 1
            else (StageKind.SEEDS,)
        )
        return (
            Stage(kind=StageKind.PREPARE, arms=()),
            *cold,
            Stage(kind=StageKind.VERIFY, arms=case.arms),
            *(Stage(kind=kind, arms=(REFERENCE_ARM,)) for kind in further),
            *memory,
            Stage(kind=StageKind.TIME, arms=case.arms, launches=None),
        )

    def needs_network(self, case: Case) -> bool:
        """Return true if model or data come from a hub."""
        options = parse(case.params)
        return not (options.dataset.is_local and options.model.is_local)

    def hub_models(self, case: Case) -> tuple[HubModel, ...]:
        """Return the model with its tokenizer, if it comes from the hub."""
        model = parse(case.params).model
        if model.is_local:
            return ()
        return (
            HubModel(
                path=model.path,
                revision=model.revision,
                weights=model.pretrained and model.factory is None,
            ),
        )


SUITE = TrainingLoss()


def _stages_of_layouts(case: Case, count: int) -> tuple[Stage, ...]:
    """Compile nothing from cold; stages of layouts take place in all ranks."""
    memory = tuple(
        Stage(
            kind=StageKind.ALONE,
            arms=(arm,),
            launches=MEMORY_LAUNCHES,
            processes=1 if arm == case.reference else count,
        )
        for arm in case.arms
    )
    return (
        Stage(kind=StageKind.PREPARE, arms=()),
        Stage(kind=StageKind.VERIFY, arms=case.arms, processes=count),
        Stage(kind=StageKind.SEEDS, arms=(REFERENCE_ARM,)),
        *memory,
        Stage(kind=StageKind.TIME, arms=case.arms, launches=None, processes=count),
    )


def _check_layouts(options: Mapping[str, Any], place: str) -> None:
    """Check that `layouts` and `processes` fit together.

    Raises:
        BadConfig: they do not; the message lists all faults.
    """
    faults = [*_layout_faults(options)] if "layouts" in options else []
    if "checkpoint" in options:
        faults += _checkpoint_faults(options)
    if "processes" in options and "layouts" not in options:
        faults.append(
            "processes: says how many share a layout, and no `layouts` are listed; add them, or"
            " leave it out"
        )
    if faults:
        raise BadConfig("\n".join(f"{place}.{fault}" for fault in faults))


def _layout_faults(options: Mapping[str, Any]) -> Iterator[str]:
    layouts = [read_layout(word) for word in options["layouts"]]
    yield from (
        f"layouts: replaces `{other}`; remove one of them"
        for other in ("backend", "arms")
        if other in options
    )
    if TrainingPrecision.AMP_FP16 in options.get("precision", ()):
        yield (
            f"layouts: precision {TrainingPrecision.AMP_FP16} needs a loss scaler, which layouts do"
            " not have; use amp_bf16"
        )
    names = [layout.name for layout in layouts]
    yield from (
        f"layouts: {name} is listed twice; remove one of them"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    )
    counts, batch = counts_of(options), options.get("batch_size", TrainingOptions().batch_size)
    for layout in layouts:
        word = layout.layout
        if word not in LAYOUTS and ":" not in word:
            hint = meant(word, LAYOUTS)
            yield (
                f"layouts: {word!r} is neither one of {', '.join(LAYOUTS)} nor an import path{hint}"
            )
        if layout.own_rows and batch < max(counts) // layout.sharing:
            yield (
                f"layouts: {layout.name} shares the rows of a batch, and {batch} are too few for"
                f" {max(counts)} processes"
            )
        yield from idle_options(layout)
        if layout.is_meshed:
            yield from _mesh_faults(layout, counts)
        if word == PIPELINE:
            yield from _pipeline_faults(layout, options, counts)


def _mesh_faults(layout: Layout, counts: Sequence[int]) -> Iterator[str]:
    """Yield the numbers of processes that are not two groups or more of `inner`."""
    inner, word = layout.inner, layout.layout
    for count in counts:
        if count % inner or count == inner:
            least = inner * max(PAIR, math.ceil(count / inner))
            yield (
                f"layouts: {word} needs at least two groups of {inner} processes (`inner`), but has"
                f" {count}; set `processes: {least}` or another `inner`"
            )


def _checkpoint_faults(options: Mapping[str, Any]) -> Iterator[str]:
    saved, usual = Checkpointing(**options["checkpoint"]), TrainingOptions()
    if "layouts" not in options:
        yield "checkpoint: is of layouts, and no `layouts` are listed; add them, or leave it out"
    if (saved.save is None) != (saved.load is None):
        yield "checkpoint: `save` and `load` belong together; name both, or leave both out"
    rows, size = (
        options.get("num_samples", usual.num_samples),
        options.get("batch_size", usual.batch_size),
    )
    total, end = (
        math.ceil(rows / size) * options.get("epochs", usual.epochs),
        saved.after + saved.steps,
    )
    if not LEAST_STEPS <= end <= min(total, MOST_STEPS):
        yield (
            f"checkpoint: `after` and `steps` are {end} together; parity takes {LEAST_STEPS} to"
            f" {MOST_STEPS} steps, and the training has {total}"
        )


def _pipeline_faults(
    layout: Layout, options: Mapping[str, Any], counts: Sequence[int]
) -> Iterator[str]:
    batch = options.get("batch_size", TrainingOptions().batch_size)
    if layout.split is None:
        yield (
            "layouts: pipeline needs `split`, a function of the model, the stage and how many there"
            " are, that gives the stage"
        )
    if options.get("loss") is None:
        yield "layouts: pipeline needs `loss`, since the last stage gives logits"
    if options.get("evaluation", TrainingOptions().evaluation):
        yield "layouts: pipeline needs `evaluation: false`: no process has the whole model"
    if (
        batch % layout.accumulate
        or options.get("num_samples", TrainingOptions().num_samples) % batch
    ):
        yield (
            "layouts: pipeline needs a `batch_size` that divides `num_samples`, and `accumulate`"
            " that divides the batch"
        )
    yield from _schedule_faults(layout, counts)
    if layout.backend is not None:
        yield "layouts: pipeline is not compiled here; leave `backend` out"
    precisions = options.get("precision", TrainingPrecision.FP32)
    for precision in [precisions] if isinstance(precisions, str) else precisions:
        # A schedule runs backward passes as well, which autocast should not span.
        if precision == TrainingPrecision.AMP_BF16:
            yield (
                f"layouts: pipeline has no autocast for precision {precision}; write `precision:"
                f" {TrainingPrecision.BF16}`"
            )
    if max(counts) < 2:  # noqa: PLR2004 - one stage does not make a pipeline
        yield "layouts: pipeline needs two processes or more"


def _schedule_faults(layout: Layout, counts: Sequence[int]) -> Iterator[str]:
    """Yield the faults that torch's schedules refuse.

    The rules are torch's own (`torch/distributed/pipelining/schedules.py`).
    """
    word, parts = layout.schedule, layout.accumulate
    if SCHEDULES[word].looped and layout.stages == 1:
        yield (
            f"layouts: the schedule {word} has several stages in each process; write `stages: 2` or"
            " more"
        )
    if not SCHEDULES[word].looped and layout.stages > 1:
        looped = ", ".join(name for name, schedule in SCHEDULES.items() if schedule.looped)
        yield (
            f"layouts: the schedule {word} has one stage in each process; leave `stages` out, or"
            f" take one of {looped}"
        )
    for count in counts:
        if SCHEDULES[word].in_rounds and parts % max(1, parts // count):
            yield (
                f"layouts: the schedule {word} takes micro-batches (`accumulate`) in rounds of"
                f" {count} processes, which {parts} are not; write `accumulate:"
                f" {parts // count * count}`, or another multiple of {count}"
            )
        if word == ONE_FORWARD_ONE_BACKWARD and parts < count:
            yield (
                f"layouts: the schedule {word} needs a micro-batch for each stage; write"
                f" `accumulate: {count}` or more"
            )


def _check_compiled(options: Mapping[str, Any], place: str) -> None:
    """Refuse arms that clash, or that cannot compile a whole step.

    Raises `BadConfig`.
    """
    listed_arms(options, place, instead_of="backend", without=LACKING)
    if "compile" in options and "layouts" in options:
        raise BadConfig(
            f"{place}.compile: layouts are compiled by their own `backend`; leave it out"
        )
    if "arms" not in options:
        backend = options.get("backend", "inductor")
        backends = [backend] if isinstance(backend, str) else backend
        compiled_backends(backends, options, place, without=LACKING)


def _plan_case(params: Mapping[str, Any]) -> Case:
    options = parse(params)
    if len(set(options.arms)) < len(options.arms):
        message = (
            f"suites.training_loss.{options.name}.backend: {', '.join(options.backends)} names one"
            " arm twice"
        )
        raise BadConfig(message)
    if options.dataset.factory is not None and (
        options.dataset.files or options.dataset.path != EMBEDDED
    ):
        where = f"suites.training_loss.{options.name}.dataset.factory"
        raise BadConfig(f"{where}: makes the rows itself; leave out dataset.path and dataset.files")
    return Case(
        id=f"training_loss/{options.name}[{_backends(options)}precision={options.precision}]",
        suite="training_loss",
        name=options.name,
        params=options.as_params(),
        arms=options.arms,
        reference=REFERENCE_ARM,
        due=Due(checks=_owed(options), times=(STEP_TIME.name,), parity=True),
    )


def _owed(options: TrainingOptions) -> tuple[str, ...]:
    """Return the checks of each candidate arm."""
    return (
        "replicas" if options.layouts else "compiled",
        "refereed",
        *(("resumes",) if options.checkpoint is not None else ()),
    )


def _backends(options: TrainingOptions) -> str:
    """Return the backends for an id; listed arms are left out, since they would make it long."""
    if options.layouts:
        return f"processes={options.processes},"
    return "" if options.listed else f"backend={'+'.join(options.backends)},"
