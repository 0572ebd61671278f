"""The torch-free half of `torchbench`: an entry's models, options to cases, cases to stages.

Models are chosen by name, by pattern, by share. Shares are balanced by the models' durations in an
earlier run: the longest first, each to the share with the least. A model without a known duration
counts as the median of the known ones.
"""

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from ci_bench.errors import BadConfig
from ci_bench.records.documents import read_results
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import Case, Due
from ci_bench.records.spelling import nearest
from ci_bench.suites.contract import COMPILING, Cache, Stage, StageKind, Suite
from ci_bench.suites.shared.planning.arms import (
    MAKE_FILES,
    PACKAGE,
    CompiledArm,
    Experiment,
    arm_name,
    compiled_backends,
    listed_arms,
)
from ci_bench.suites.shared.planning.inductor import option_faults
from ci_bench.suites.shared.planning.layouts import (
    IMPORTED,
    counts_of,
    shared_models,
    shared_stages,
)
from ci_bench.suites.shared.planning.sizes import Size, check_dynamic, limits_of
from ci_bench.suites.torchbench import COMPILED_AUTOGRAD, catalogue
from ci_bench.suites.torchbench.options import (
    QUANTIZATION_LOSS,
    REFERENCE_ARM,
    TRAINING_PARTS,
    BenchMode,
    Measure,
    ModelScope,
    ModelSource,
    TorchbenchOptions,
    TorchbenchPrecision,
    TorchbenchSettings,
    parse,
    settings_from,
)
from ci_bench.suites.torchbench.tables import Table, read_tables, rules_for, unknown_models

WHERE = "suites.torchbench"
LONGEST_NAME = 60
"""Characters of a model's name in a case's; the entry's prefix and a dot have the other 20."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSelection:
    """Selection of a source's models."""

    models: tuple[str, ...] = ()
    """Exact names; empty for all."""
    filter: tuple[str, ...] = ()
    """Regular expressions, without regard to case, of which one must match; empty for all."""
    exclude: tuple[str, ...] = ()
    """Regular expressions, without regard to case, of names to leave out."""
    exclude_exact: tuple[str, ...] = ()
    """Exact names to leave out."""
    partitions: int = 1
    """The number of shares."""
    partition: int = 0
    """The number of the selected share, from 0."""
    durations: str | None = None
    """Path of an earlier run's results, to balance shares; `None` counts models alike."""


def selection_from(entry: Mapping[str, Any]) -> ModelSelection:
    """Return the selection of an entry of the configuration."""
    lists: dict[str, Any] = {
        name: tuple(entry.get(name, ()))
        for name in ("models", "filter", "exclude", "exclude_exact")
    }
    rest: dict[str, Any] = {
        name: entry[name] for name in ("partitions", "partition", "durations") if name in entry
    }
    return ModelSelection(**lists, **rest)


def select(available: Sequence[str], selection: ModelSelection) -> tuple[str, ...]:
    """Return the selected names in the source's order.

    Raises:
        BadConfig: a name or pattern is wrong, or nothing is left: an empty share would pass unseen.
    """
    _check_names(available, selection)
    chosen = [name for name in available if not selection.models or name in selection.models]
    chosen = [
        name
        for name in chosen
        if not selection.filter
        or any(_search("filter", pattern, name) for pattern in selection.filter)
    ]
    chosen = [
        name
        for name in chosen
        if not any(_search("exclude", pattern, name) for pattern in selection.exclude)
    ]
    chosen = [name for name in chosen if name not in selection.exclude_exact]
    if not chosen:
        raise BadConfig(
            f"{WHERE}: none of {len(available)} models is chosen by models, filter and exclude;"
            " correct them"
        )
    return _share(tuple(chosen), selection)


def _check_names(available: Sequence[str], selection: ModelSelection) -> None:
    for field, names in (("models", selection.models), ("exclude_exact", selection.exclude_exact)):
        for name in names:
            if name not in available:
                raise BadConfig(
                    f"{WHERE}.{field}: none of the {len(available)} models is called"
                    f" {name!r}{nearest(name, available)}"
                )


def _search(field: str, pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name, re.IGNORECASE) is not None
    except re.error as error:
        raise BadConfig(
            f"{WHERE}.{field}: {pattern!r} is not a regular expression: {error}"
        ) from error


def _share(names: tuple[str, ...], selection: ModelSelection) -> tuple[str, ...]:
    if not 0 <= selection.partition < selection.partitions:
        last = selection.partitions - 1
        raise BadConfig(
            f"{WHERE}.partition: {selection.partition} is not in 0..{last}, and there are"
            f" {selection.partitions} partitions"
        )
    if selection.partitions > len(names):
        message = (
            f"{WHERE}.partitions: {selection.partitions} partitions of {len(names)} models would"
            " leave some empty; use fewer"
        )
        raise BadConfig(message)
    if selection.partitions == 1:
        return names
    costs = costs_of(
        names, {} if selection.durations is None else earlier_durations(Path(selection.durations))
    )
    mine = set(balanced(costs, selection.partitions)[selection.partition])
    return tuple(name for name in names if name in mine)


def costs_of(names: Sequence[str], durations: Mapping[str, float]) -> dict[str, float]:
    """Return seconds by model; the median of the known ones, or 1, for the others."""
    measured = [durations[name] for name in names if name in durations]
    usual = statistics.median(measured) if measured else 1.0
    return {name: durations.get(name, usual) for name in names}


def balanced(costs: Mapping[str, float], shares: int) -> list[list[str]]:
    """Distribute names: the longest first, each to the share with the least so far.

    If shares are equal, the one with the fewest gets it: none is empty if there are enough names.
    """
    loads = [0.0] * shares
    split: list[list[str]] = [[] for _ in range(shares)]
    for name in sorted(costs, key=lambda model: (-costs[model], model)):
        least = min(
            range(shares),
            key=lambda index: (bool(split[index]), loads[index], len(split[index]), index),
        )
        split[least].append(name)
        loads[least] += costs[name]
    return split


def earlier_durations(path: Path) -> dict[str, float]:
    """Read the seconds that each model took in an earlier run's results, all its cases together.

    Raises `BadDocument`.
    """
    durations: dict[str, float] = {}
    for row in read_results(path).cases:
        if row.case.suite == "torchbench" and row.duration_s:
            model = str(row.case.params.get("model", row.case.name))
            durations[model] = durations.get(model, 0.0) + row.duration_s
    return durations


MEMORY_LAUNCHES = (0, 1)
"""Peaks are taken in two launches: where they repeat exactly they can be compared exactly."""
NAME = re.compile(r"[^A-Za-z0-9_.-]+")
SETTINGS = frozenset(setting.name for setting in fields(TorchbenchSettings))


class TorchBench(Suite):
    """Run the models of a zoo eagerly and compiled."""

    name = "torchbench"
    worker = "ci_bench.suites.torchbench.run"
    preload = ("torch", *COMPILING)
    exports: ClassVar[Mapping[str, str]] = {
        "dynamo-csv": "ci_bench.formats.dynamo_csv:write",
        "userbenchmark": "ci_bench.formats.userbenchmark:write",
    }

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Make one case per model, mode, precision, backend and batch size.

        If `arms` are listed, one case has all of them.

        Raises:
            BadConfig: options contradict each other, or nothing is chosen.
        """
        layouts = shared_models(options, WHERE, instead_of=("backend", "arms", "compile"))
        sizes = _batch_sizes(options)
        settings = settings_from(
            {
                name: value
                for name, value in options.items()
                if name in SETTINGS and name != "batch_size"
            }
        )
        source = ModelSource(options.get("source", ModelSource.ZOO))
        table = read_tables(options.get("tables", ()))
        models = _models(options, source, table)
        _check_short(models)
        axes = product(models, _modes(options), _as_tuple(options, "precision"), _backends(options))
        case_names, arms = (
            _name_cases(options, source, models),
            listed_arms(options, WHERE, instead_of="backend"),
        )
        cases = []
        counts = counts_of(options) if layouts else (1,)
        for (model, mode, precision, (backend, compiled)), size, count in product(
            axes, sizes, counts
        ):
            case_options = TorchbenchOptions(
                model=model,
                mode=BenchMode(mode),
                precision=TorchbenchPrecision(precision),
                backend=backend,
                source=source,
                path=options.get("path"),
                settings=_sized(settings, size, options),
                listed=arms or compiled,
                layouts=layouts,
                processes=count,
            )
            _check(case_options)
            no_skip, fast = bool(options.get("no_skip", False)), bool(options.get("fast", False))
            cases.append(
                _case(
                    replace(
                        case_options,
                        rules=rules_for(table, case_options, no_skip=no_skip, fast=fast),
                    ),
                    case_names[model],
                    sized=len(sizes) > 1,
                )
            )
        return tuple(cases)

    def reads(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the files that the plan of an entry reads.

        They are the folder of a checkout, tables, and the durations that balance shares.
        """
        source = ModelSource(options.get("source", ModelSource.ZOO))
        folder = [options["path"]] if source is ModelSource.TORCHBENCH and "path" in options else []
        durations = (
            [options["durations"]]
            if "durations" in options and options.get("partitions", 1) > 1
            else []
        )
        return (*folder, *options.get("tables", ()), *durations)

    def preload_of(self, case: Case) -> tuple[str, ...]:
        """Add the modules that layouts import."""
        return (*self.preload, *(IMPORTED if "layouts" in case.params else ()))

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Prepare, compile from cold, verify, then memory and time; each only if requested."""
        measure = Measure(case.params["settings"]["measure"])
        arms, options = case.arms, parse(case.params)
        limits = options.settings.largest
        if options.layouts:
            is_timed, is_verified = (
                measure is not Measure.ACCURACY,
                measure is not Measure.PERFORMANCE,
            )
            launches = MEMORY_LAUNCHES if is_timed else ()
            return shared_stages(
                arms,
                REFERENCE_ARM,
                options.processes,
                memory=launches,
                verified=is_verified,
                timed=is_timed,
            )
        prepare = Stage(kind=StageKind.PREPARE, arms=())
        size = (
            (Stage(kind=StageKind.SIZE, arms=(REFERENCE_ARM,), exclusive=True, limits=limits),)
            if limits
            else ()
        )
        candidates = (arm for arm in arms if arm != REFERENCE_ARM)
        cold = (
            Stage(kind=StageKind.ALONE, arms=(arm,), launches=None, cache=Cache.COLD)
            for arm in candidates
        )
        verify = (
            (Stage(kind=StageKind.VERIFY, arms=arms),) if measure is not Measure.PERFORMANCE else ()
        )
        memory = tuple(
            Stage(kind=StageKind.ALONE, arms=(arm,), launches=MEMORY_LAUNCHES) for arm in arms
        )
        timed = (
            (*memory, Stage(kind=StageKind.TIME, arms=arms, launches=None))
            if measure is not Measure.ACCURACY
            else ()
        )
        return (prepare, *size, *cold, *verify, *timed)

    def needs_network(self, case: Case) -> bool:
        """Return false.

        The zoo and configurations need no network, and a checkout's models have to be there
        already.
        """
        del case
        return False


SUITE = TorchBench()


def _models(options: Mapping[str, Any], source: ModelSource, table: Table) -> tuple[str, ...]:
    if source is ModelSource.OWN:
        models = tuple(options.get("models", ()))
        if not models:
            raise BadConfig(
                f"{WHERE}.models: source own needs models, as package.module:factory or"
                " path:FILE,class:NAME"
            )
        return _chosen_of(models, options)
    available = catalogue.names(
        source, options.get("path"), canary=table.canaries | frozenset(options.get("models", ()))
    )
    if source is ModelSource.TIMM and options.get("models"):
        return _chosen_of(tuple(options["models"]), options)
    strangers = unknown_models(table, available)
    if options.get("strict", False) and strangers:
        raise BadConfig(
            f"{WHERE}.tables: strict, and {source} has no model {', '.join(strangers[:10])}"
        )
    return select(available, selection_from(options))


def _chosen_of(models: tuple[str, ...], options: Mapping[str, Any]) -> tuple[str, ...]:
    """Select among models that only the entry names."""
    return select(models, replace(selection_from(options), models=()))


def _batch_sizes(options: Mapping[str, Any]) -> tuple[int | str | None, ...]:
    """Return the batch size of each case; an id has it if there are several."""
    sizes = options.get("batch_size")
    return tuple(sizes) if isinstance(sizes, list | tuple) else (sizes,)


def _sized(
    settings: TorchbenchSettings, size: int | str | None, options: Mapping[str, Any]
) -> TorchbenchSettings:
    """Return the settings of a case of this batch size, given or to be found."""
    limits = limits_of(size, options, _batch_sizes(options), WHERE)
    return replace(
        settings,
        batch_size=None if size is None or limits is not None else int(size),
        largest=limits,
    )


def _modes(options: Mapping[str, Any]) -> tuple[str, ...]:
    return _as_tuple(
        options,
        "mode",
        default=("training",) if "layouts" in options else ("training", "inference"),
    )


def _backends(options: Mapping[str, Any]) -> tuple[tuple[str, tuple[CompiledArm, ...]], ...]:
    """Return the backend of each case, and the compilation of its only arm if the entry sets it."""
    if "arms" in options or "layouts" in options:
        return (("", ()),)
    backends = _as_tuple(options, "backend", default=("inductor",))
    if len({arm_name(backend) for backend in backends}) < len(backends):
        raise BadConfig(f"{WHERE}.backend: {', '.join(backends)} names one arm twice")
    arms = compiled_backends(backends, options, WHERE)
    return tuple(
        (backend, (arm,) if "compile" in options else ())
        for backend, arm in zip(backends, arms, strict=True)
    )


def _as_tuple(
    options: Mapping[str, Any], name: str, default: tuple[str, ...] = ("fp32",)
) -> tuple[str, ...]:
    value = options.get(name, default)
    return (value,) if isinstance(value, str) else tuple(value)


def _check(options: TorchbenchOptions) -> None:
    """Refuse options that clash."""
    settings, training = options.settings, options.mode is BenchMode.TRAINING
    _check_inductor(settings)
    if options.layouts:
        _check_layouts(settings)
    check_dynamic(
        WHERE,
        dynamic=settings.dynamic,
        varies=settings.varies,
        how=settings.dynamic_shapes,
        largest=settings.largest is not None,
        arms=options.candidates.values(),
    )
    if settings.nopython and training and settings.scope is ModelScope.STEP:
        message = (
            f"{WHERE}.nopython: a whole training step breaks the graph at backward; use `scope:"
            " model`, or only mode inference"
        )
        raise BadConfig(message)
    if not training and any(arm.compiled_autograd for arm in options.candidates.values()):
        raise BadConfig(
            f"{WHERE}.compile.compiled_autograd: inference has no backward pass; use `mode:"
            " training`"
        )
    caching = [
        arm
        for arm in options.candidates.values()
        if arm.experiment is Experiment.CACHING_PRECOMPILE
    ]
    if caching and len(options.candidates) > 1:
        raise BadConfig(
            f"{WHERE}.arms: {caching[0].name} loads its graphs onto the model's code, where every"
            " other arm of the case would run them, too; take it as `backend`, which makes a case"
            " of it"
        )
    if settings.freezing and training:
        raise BadConfig(
            f"{WHERE}.freezing: only inference can freeze its weights; use `mode: inference`"
        )
    if settings.batch_invariance and training:
        raise BadConfig(f"{WHERE}.batch_invariance: applies to inference; use `mode: inference`")
    _check_quantization(options)


def _check_layouts(settings: TorchbenchSettings) -> None:
    """Refuse options that a shared batch, or a step with collectives, cannot have."""
    unmet = {
        "dynamic": (settings.dynamic, "processes share one batch size; leave it out"),
        "batch_size": (
            settings.largest is not None,
            "the largest is found for one process; give a number of rows",
        ),
        "scope": (
            settings.scope is ModelScope.STEP,
            "a step of several processes is not compiled as a whole; use `scope: model`",
        ),
    }
    faults = [
        f"{WHERE}.{name}: with `layouts`, {why}"
        for name, (is_asked, why) in unmet.items()
        if is_asked
    ]
    if faults:
        raise BadConfig("\n".join(faults))


def _check_quantization(options: TorchbenchOptions) -> None:
    """Check the precision of quantised weights.

    With an unquantised reference, weights may be fp32, too: such a case measures the effect of
    quantising.
    """
    settings = options.settings
    if settings.quantization is None:
        for name in ("quantized_arms", "quantization_limit"):
            if getattr(settings, name) != getattr(TorchbenchSettings(), name):
                raise BadConfig(f"{WHERE}.{name}: requires `quantization`")
        return
    precisions = (
        (TorchbenchPrecision.BF16, TorchbenchPrecision.FP32)
        if settings.compares_quantization
        else (TorchbenchPrecision.BF16,)
    )
    if options.mode is BenchMode.TRAINING or options.precision not in precisions:
        choices = " or ".join(f"`precision: {precision}`" for precision in precisions)
        raise BadConfig(f"{WHERE}.quantization: is for `mode: inference` and {choices}")
    if settings.quantization_limit is not None and not settings.compares_quantization:
        raise BadConfig(
            f"{WHERE}.quantization_limit: is for `quantized_arms: candidate`, which has an"
            " unquantised reference"
        )


def _check_inductor(settings: TorchbenchSettings) -> None:
    """Refuse options that inductor lacks, or that have another type."""
    faults = [f"{WHERE}.inductor.{fault}" for fault in option_faults(settings.inductor)]
    if faults:
        raise BadConfig("\n".join(faults))


def _case(options: TorchbenchOptions, name: str, *, sized: bool) -> Case:
    shared = bool(
        options.layouts
    )  # of a step of several processes no parts are known: collectives overlap with them
    parts = (
        TRAINING_PARTS
        if options.mode is BenchMode.TRAINING and options.settings.scope is ModelScope.MODEL
        else ()
    )
    lossy = (QUANTIZATION_LOSS,) if options.settings.compares_quantization else ()
    accuracy = ("accuracy", *lossy) if options.settings.measure is not Measure.PERFORMANCE else ()
    timed = options.settings.measure is not Measure.ACCURACY
    times = (STEP_TIME.name,) if timed else ()
    packaged = (
        (PACKAGE,)
        if timed and any(arm.backend in MAKE_FILES for arm in options.candidates.values())
        else ()
    )
    autograd = (
        (COMPILED_AUTOGRAD,)
        if timed and any(arm.compiled_autograd for arm in options.candidates.values())
        else ()
    )
    refereed = (
        ("refereed",) if timed and not lossy else ()
    )  # quantised results are not the unquantised reference's
    only = options.listed[0].name if options.backend and options.listed else options.backend
    backend = f"backend={only}," if only else ""  # an id would be long with all arms
    largest = options.settings.largest is not None
    batch = (
        f",batch={Size.LARGEST if largest else options.settings.batch_size}"
        if sized or largest
        else ""
    )
    processes = f"processes={options.processes}," if shared else ""
    setting = f"{backend}{processes}mode={options.mode},precision={options.precision}{batch}"
    first = (("replicas",) if timed else ()) if shared else ("compiled",)
    return Case(
        id=f"torchbench/{name}[{setting}]",
        suite="torchbench",
        name=name,
        params=options.as_params(),
        arms=options.arms,
        reference=REFERENCE_ARM,
        due=Due(checks=(*first, *accuracy, *packaged, *autograd, *refereed), times=times),
        details=parts,
    )


def _short(model: str) -> str:
    """Return a model's name for the ids of its cases."""
    return NAME.sub("_", model)[-LONGEST_NAME:]


def _check_short(models: Sequence[str]) -> None:
    """Refuse models of one entry whose cases would have one id.

    Raises `BadConfig`.
    """
    first: dict[str, str] = {}
    for model in models:
        other = first.setdefault(_short(model), model)
        if other != model:
            raise BadConfig(
                f"{WHERE}.models: {model!r} and {other!r} are both {_short(model)!r} in the ids of "
                f"cases, which show the last {LONGEST_NAME} characters; "
                "put one of them into another entry with a `name`"
            )


def _name_cases(
    options: Mapping[str, Any], source: ModelSource, models: Sequence[str]
) -> dict[str, str]:
    """Return the name of each model's cases: the model's, after the entry's if it has one.

    The only model of a named entry is called as the entry if it is of the user's own code, whose
    name is a path.
    """
    entry = options.get("name")
    if entry and source is ModelSource.OWN and len(models) == 1:
        return {models[0]: entry}
    prefix = f"{entry}." if entry else ""
    return {model: prefix + _short(model) for model in models}
