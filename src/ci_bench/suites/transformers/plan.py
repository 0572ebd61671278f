"""The half of `transformers` that needs no torch: an entry's grid to cases, cases to stages.

Each candidate is a separate case, in which the eager arm is measured again: a candidate that does
not compile, or runs out of memory, then costs its own row and no other's. Those that are listed as
`arms` share one case and one eager arm.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice, product
from typing import Any, ClassVar

from ci_bench.errors import BadConfig
from ci_bench.records.metrics import STEP_PARTS, STEP_TIME
from ci_bench.records.results import Case, Due
from ci_bench.suites.contract import COMPILING, Cache, HubModel, Stage, StageKind, Suite
from ci_bench.suites.shared.planning.arms import (
    MAKE_FILES,
    CompiledArm,
    Experiment,
    arguments_of,
    arm_faults,
    check_arms,
)
from ci_bench.suites.shared.planning.layouts import (
    IMPORTED,
    counts_of,
    shared_models,
    shared_stages,
)
from ci_bench.suites.shared.planning.sizes import (
    VARIES,
    Axis,
    DynamicShapes,
    Size,
    check_dynamic,
    limits_of,
)
from ci_bench.suites.transformers import FIRST_TOKEN, PROCESS_VRAM, TOKEN
from ci_bench.suites.transformers.catalog import has_sequence, resolve_models
from ci_bench.suites.transformers.options import (
    AGREES,
    FIELDS,
    REFERENCE_ARM,
    TIMED_AGREES,
    CacheKind,
    Candidate,
    Loop,
    Mode,
    TransformersModel,
    TransformersOptions,
    TransformersPrecision,
    Way,
    candidate_from,
    compiled_from,
    looks_local,
    parse,
)

DEFAULT_MODELS = ("bert", "gpt2", "t5", "llama", "vit")
MEMORY_LAUNCHES = (0, 1)
"""Peaks are taken in two launches: where they repeat exactly they can be compared exactly."""
GRID = ("mode", "batch_size", "sequence_length", "precision", "attention", "cache")
"""Fields that an entry may give lists for, in the order of the grid; `model` and `candidate` are
around them.
"""
OF_GENERATIONS = frozenset({"loop", "sampling", "ragged"})
MOST_CASES = 2000
LACKING = frozenset({Experiment.TORCHSCRIPT_SCRIPT, Experiment.COVERAGE, *MAKE_FILES})
"""Experiments without a form here: TorchScript cannot read these models; others make files of a
module, and one counts.
"""

TRAINING_CHECKS = ("finite_loss", "gradients", "updates_weights")
OUTPUT_CHECKS = ("finite_output", TIMED_AGREES)


class Transformers(Suite):
    """Run models of transformers eagerly and translated."""

    name = "transformers"
    worker = "ci_bench.suites.transformers.run"
    exports: ClassVar[Mapping[str, str]] = {
        "transformers-benchmark": "ci_bench.formats.transformers_benchmark:write_files",
        "transformers-log": "ci_bench.formats.transformers_benchmark:export_log",
    }
    preload = (
        "torch",
        *COMPILING,
        "transformers",
        "transformers.modeling_utils",
        "transformers.cache_utils",
        "transformers.models.auto.modeling_auto",
    )

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Plan one case for each point of the grid.

        Raises `BadConfig` if a model is unknown or options contradict each other.
        """
        place = (
            f"suites.transformers.{options['name']}" if "name" in options else "suites.transformers"
        )
        models = resolve_models(options.get("model", list(DEFAULT_MODELS)), place)
        _check(options, place)
        if shared_models(options, place, instead_of=("candidate", "arms", "compile")):
            _check_layouts(options, place)
        arms = _arms(options, place)
        _check_shapes(options, arms, place)
        points = tuple(islice(_grid(options, models, arms, place), MOST_CASES + 1))
        if len(points) > MOST_CASES:
            raise BadConfig(f"{place}: the grid has more than {MOST_CASES:,} cases; shorten a list")
        return tuple(_case(case_options, options.get("name")) for case_options in points)

    def reads(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the folders of an entry's models.

        Their configurations show if they have a sequence.
        """
        paths = (
            model if isinstance(model, str) else model.get("path", "")
            for model in _as_list(options.get("model", []))
        )
        return tuple(path for path in paths if looks_local(path))

    def preload_of(self, case: Case) -> tuple[str, ...]:
        """Add the modules that layouts import."""
        return (*self.preload, *(IMPORTED if "layouts" in case.params else ()))

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Prepare, compile from cold, verify, then memory and time.

        The process of a single arm also measures its VRAM.
        """
        options = parse(case.params)
        if options.layouts:
            memory = MEMORY_LAUNCHES if options.memory else ()
            return shared_stages(
                case.arms, REFERENCE_ARM, options.processes, memory=memory, timed=options.speed
            )
        candidates = tuple(arm for arm in case.arms if arm != REFERENCE_ARM)
        cold = tuple(
            Stage(kind=StageKind.ALONE, arms=(arm,), launches=None, cache=Cache.COLD)
            for arm in candidates
        )
        peaks = tuple(
            Stage(kind=StageKind.ALONE, arms=(arm,), launches=MEMORY_LAUNCHES) for arm in case.arms
        )
        looks = tuple(
            Stage(kind=StageKind.VERIFY, arms=(arm,), exclusive=True)
            for arm in case.arms
            if candidates
        )
        limits = options.largest
        size = (
            (Stage(kind=StageKind.SIZE, arms=(REFERENCE_ARM,), exclusive=True, limits=limits),)
            if limits
            else ()
        )
        return (
            Stage(kind=StageKind.PREPARE, arms=()),
            *size,
            *cold,
            Stage(kind=StageKind.VERIFY, arms=case.arms),
            *((*peaks, *looks) if options.memory else ()),
            *(
                (Stage(kind=StageKind.TIME, arms=case.arms, launches=None),)
                if options.speed
                else ()
            ),
        )

    def needs_network(self, case: Case) -> bool:
        """Return true if a configuration comes from the hub."""
        return parse(case.params).model.on_hub

    def hub_models(self, case: Case) -> tuple[HubModel, ...]:
        """Return the model if it comes from the hub."""
        model = parse(case.params).model
        if not model.on_hub or model.path is None:
            return ()
        return (HubModel(path=model.path, revision=model.revision, weights=model.pretrained),)


SUITE = Transformers()


def _check(options: Mapping[str, Any], place: str) -> None:
    """Check faults that the schema cannot show."""
    faults = []
    if options.get("speed", True) is False and options.get("memory", True) is False:
        faults.append(
            f"{place}.memory: neither speed nor memory is to be measured; leave one of them on"
        )
    if options.get("memory_timeline", False) and options.get("memory", True) is False:
        faults.append(f"{place}.memory_timeline: needs memory: true")
    if faults:
        raise BadConfig("\n".join(faults))


def _check_layouts(options: Mapping[str, Any], place: str) -> None:
    """Refuse options that steps of several processes cannot have."""
    faults = []
    if TransformersPrecision.AMP_FP16 in _as_list(options.get("precision", ())):
        faults.append(
            f"{place}.precision: {TransformersPrecision.AMP_FP16} needs a loss scaler, which"
            " layouts do not have; use amp_bf16"
        )
    if options.get("dynamic", False):
        faults.append(
            f"{place}.dynamic: with `layouts`, processes share one batch size; leave it out"
        )
    if Size.LARGEST in _as_list(options.get("batch_size", 1)):
        faults.append(
            f"{place}.batch_size: with `layouts`, the largest is found for one process; give a"
            " number of rows"
        )
    if options.get("memory_timeline", False):
        faults.append(
            f"{place}.memory_timeline: is of one process, and layouts have several; leave it out"
        )
    if faults:
        raise BadConfig("\n".join(faults))


def _arms(options: Mapping[str, Any], place: str) -> list[tuple[Candidate, ...]]:
    """Return the candidates of each case of a point."""
    if "layouts" in options:
        return [()]
    if "arms" not in options:
        return [
            () if candidate is None else (candidate,) for candidate in _candidates(options, place)
        ]
    if "none" in options["arms"]:
        raise BadConfig(
            f"{place}.arms: none means only the eager arm; write it as `candidate`, in a separate"
            " entry"
        )
    candidates = tuple(compiled_from(word, options.get("compile")) for word in options["arms"])
    written = [_written(word, options) for word in options["arms"]]
    names = [candidate.arm for candidate in candidates]
    check_arms(
        options, place, dict(zip(names, written, strict=True)), instead_of="candidate", names=names
    )
    _check_words(f"{place}.arms", written, candidates)
    return [candidates]


def _candidates(options: Mapping[str, Any], place: str) -> list[Candidate | None]:
    words = _as_list(options.get("candidate", "inductor"))
    candidates = [candidate_from(word, options.get("compile")) for word in words]
    written = [_written(word, options) for word in words if word != "none"]
    faults = dict.fromkeys(fault for arm in written for fault in arm_faults(arm))
    if faults:
        raise BadConfig("\n".join(f"{place}.candidate: {fault}" for fault in faults))
    _check_words(
        f"{place}.candidate",
        written,
        [candidate for candidate in candidates if candidate is not None],
    )
    arms = [candidate.arm if candidate else "none" for candidate in candidates]
    for arm in arms:
        if arms.count(arm) > 1:
            raise BadConfig(f"{place}.candidate: {arm} is listed twice; remove one of them")
    return candidates


def _written(word: str | Mapping[str, Any], options: Mapping[str, Any]) -> CompiledArm:
    """Return a candidate as all suites spell it, with all that was written of it."""
    arguments = arguments_of(word, options.get("compile") or {})
    return CompiledArm(**{name: value for name, value in arguments.items() if name != "whole"})


def _check_words(
    where: str, written: Sequence[CompiledArm], candidates: Sequence[Candidate]
) -> None:
    """Refuse experiments that this suite lacks, and options without effect. Raises `BadConfig`."""
    lacking = [arm.backend for arm in written if arm.experiment in LACKING]
    faults = [
        f"{where}: {backend} is not for models of transformers; suite torchbench has it"
        for backend in lacking
    ]
    faults += [
        f"{where}: compiled_autograd acts where the whole step is compiled; add `whole: true`"
        for candidate in candidates
        if candidate.compiled_autograd and not candidate.whole
    ]
    if faults:
        raise BadConfig("\n".join(faults))


def _check_shapes(
    options: Mapping[str, Any], arms: Sequence[tuple[Candidate, ...]], place: str
) -> None:
    """Refuse options without effect, and those for only a forward pass and a training.

    Raises `BadConfig`.
    """
    dynamic = bool(options.get("dynamic", False))
    if dynamic and Mode.GENERATION in _as_list(options.get("mode", Mode.INFERENCE)):
        raise BadConfig(
            f"{place}.dynamic: each token of a generation makes it longer as it is; take mode"
            " inference or training (`ragged: true` has prompts of several lengths)"
        )
    check_dynamic(
        place,
        dynamic=dynamic,
        varies=tuple(map(Axis, options.get("varies", VARIES))),
        how=DynamicShapes(options.get("dynamic_shapes", DynamicShapes.SYMBOLS)),
        largest=Size.LARGEST in _as_list(options.get("batch_size", 1)),
        arms=[candidate.compiled for candidates in arms for candidate in candidates],
    )


def _grid(
    options: Mapping[str, Any],
    models: tuple[TransformersModel, ...],
    arms: list[tuple[Candidate, ...]],
    place: str,
) -> Iterator[TransformersOptions]:
    """Yield every combination, without those that only differ in options that do not apply."""
    single = {
        field: options[field]
        for field in FIELDS
        if field in options and field not in {*GRID, "model", "candidate"}
    }
    usual: dict[str, Any] = {"mode": Mode.TRAINING} if "layouts" in options else {}
    usual = {
        field: usual.get(field, getattr(TransformersOptions(model=models[0]), field))
        for field in GRID
    }
    lists = [_as_list(options.get(field, usual[field])) for field in GRID]
    shared = (
        [{"layouts": options["layouts"], "processes": count} for count in counts_of(options)]
        if "layouts" in options
        else [{}]
    )
    keys = set()
    for model in models:
        sequential = has_sequence(model)
        for values in product(*lists):
            point = dict(zip(GRID, values, strict=True))
            point["sequence_length"] = point["sequence_length"] if sequential else None
            point["cache"] = (
                point["cache"] if point["mode"] == Mode.GENERATION else CacheKind.DYNAMIC
            )
            key = (model.name, *point.values())
            if key not in keys:
                keys.add(key)
                limits = limits_of(
                    point["batch_size"], options, _as_list(options.get("batch_size", 1)), place
                )
                sized = {} if limits is None else {"batch_size": None, "largest": limits}
                for candidates, ranks in product(arms, shared):
                    raw = {**single, **point, **sized, **ranks, "model": model}
                    yield _options(raw, candidates, together="arms" in options)


def _options(
    raw: Mapping[str, Any], candidates: tuple[Candidate, ...], *, together: bool
) -> TransformersOptions:
    """Parse the options of a case.

    Its enumerations replace their words.
    """
    if raw["mode"] != Mode.GENERATION:
        raw = {name: value for name, value in raw.items() if name not in OF_GENERATIONS}
    candidate_params = [candidate.as_params() for candidate in candidates]
    arms = (
        {"arms": candidate_params}
        if together
        else {"candidate": candidate_params[0] if candidate_params else None}
    )
    return parse({**raw, "model": asdict(raw["model"]), **arms})


def _case(options: TransformersOptions, entry: str | None) -> Case:
    name = f"{entry}.{options.model.name}" if entry else options.model.name
    training, generation = options.mode is Mode.TRAINING, options.mode is Mode.GENERATION
    times = (FIRST_TOKEN.name, TOKEN.name) if generation else (STEP_TIME.name,)
    parts = tuple(part.name for part in STEP_PARTS) if training and not options.dynamic else ()
    parts = (STEP_TIME.name,) if generation else parts
    return Case(
        id=f"transformers/{name}[{_point(options)}]",
        suite="transformers",
        name=name,
        params=options.as_params(),
        arms=options.arms,
        reference=REFERENCE_ARM,
        due=Due(checks=_owed(options), times=times if options.speed else ()),
        details=(*parts, PROCESS_VRAM.name),
    )


def _owed(options: TransformersOptions) -> tuple[str, ...]:
    """Return the checks of a candidate.

    `compiled` comes from the engine, which counts dynamo's graphs.
    """
    by_dynamo = [candidate.way is Way.DYNAMO for candidate in options.candidates]
    compiled = ("compiled",) if by_dynamo and all(by_dynamo) else ()
    refereed = ("refereed", *(("replicas",) if options.layouts else ())) if options.speed else ()
    return (
        *compiled,
        AGREES,
        *refereed,
        *(TRAINING_CHECKS if options.mode is Mode.TRAINING else OUTPUT_CHECKS),
    )


def _point(options: TransformersOptions) -> str:
    """Describe the options that distinguish the cases of a grid.

    The form is ``mode=inference,batch=8,seq=128,…``.
    """
    generation = (
        {"new": options.new_tokens, "cache": options.cache, **_manner(options)}
        if options.mode is Mode.GENERATION
        else {}
    )
    length = {} if options.sequence_length is None else {"seq": options.sequence_length}
    parts = {
        "mode": options.mode,
        "batch": options.batch_size if options.largest is None else Size.LARGEST,
        **length,
        **({"shapes": options.dynamic_shapes} if options.dynamic else {}),
        **generation,
        "precision": options.precision,
        "attention": options.attention,
        **(
            {"processes": options.processes}
            if options.layouts
            else {}
            if options.listed
            else {"arm": options.arms[-1]}
        ),
    }
    return ",".join(f"{key}={value}" for key, value in parts.items())


def _manner(options: TransformersOptions) -> dict[str, Any]:
    """Describe the way in which tokens are made, if it is not the usual one."""
    sampling = options.sampling
    return {
        **({} if options.loop is Loop.OWN else {"loop": options.loop}),
        **(
            {}
            if sampling is None
            else {
                "sampled": f"{sampling.temperature:g}:{sampling.top_k or 'all'}:{sampling.top_p:g}"
            }
        ),
        **({"prompts": "ragged"} if options.ragged else {}),
    }


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
