"""The half of `torchbench` that needs no torch: options to cases, cases to stages."""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import product
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.records.case import Case, Due
from ci_bench.suites.base import Cache, Stage, StageKind
from ci_bench.suites.torchbench import catalogue
from ci_bench.suites.torchbench.options import (
    REFERENCE_ARM,
    TRAINING_PARTS,
    Measure,
    Mode,
    Options,
    Precision,
    Scope,
    Settings,
    Source,
    arm_name,
    settings_from,
)
from ci_bench.suites.torchbench.selection import WHERE, select, selection_from
from ci_bench.suites.torchbench.tables import Table, read_tables, rules_for, unknown_models

MEMORY_LAUNCHES = (0, 1)
"""Peaks are taken in two launches: where they repeat exactly they can be compared exactly."""
NAME = re.compile(r"[^A-Za-z0-9_.-]+")
SETTINGS = frozenset(one.name for one in fields(Settings))


class TorchBench:
    """Run the models of a zoo eagerly and compiled."""

    name = "torchbench"
    worker = "ci_bench.suites.torchbench.run"
    preload = ("torch", "torch._dynamo")

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """One case per model, mode, precision and backend.

        Raises:
            BadConfig: options contradict each other, or nothing is chosen.
        """
        settings = settings_from({name: value for name, value in options.items() if name in SETTINGS})
        source = Source(options.get("source", Source.ZOO))
        table = read_tables(options.get("tables", ()))
        axes = product(_models(options, source, table), _modes(options), _listed(options, "precision"), _backends(options))
        prefix = _prefix(options)
        cases = []
        for model, mode, precision, backend in axes:
            one = Options(
                model=model,
                mode=Mode(mode),
                precision=Precision(precision),
                backend=backend,
                source=source,
                path=options.get("path"),
                settings=settings,
            )
            _check(one)
            no_skip, fast = bool(options.get("no_skip", False)), bool(options.get("fast", False))
            cases.append(_case(replace(one, rules=rules_for(table, one, no_skip=no_skip, fast=fast)), prefix))
        return tuple(cases)

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Prepare, compile from cold, verify, then memory and time; each only where it was asked for."""
        measure = Measure(case.params["settings"]["measure"])
        arms = case.arms
        (candidate,) = (arm for arm in arms if arm != REFERENCE_ARM)
        prepare = Stage(kind=StageKind.PREPARE, arms=())
        cold = Stage(kind=StageKind.ALONE, arms=(candidate,), cache=Cache.COLD)
        verify = (Stage(kind=StageKind.VERIFY, arms=arms),) if measure is not Measure.PERFORMANCE else ()
        memory = tuple(Stage(kind=StageKind.ALONE, arms=(arm,), launches=MEMORY_LAUNCHES) for arm in arms)
        timed = (*memory, Stage(kind=StageKind.TIME, arms=arms, launches=None)) if measure is not Measure.ACCURACY else ()
        return (prepare, cold, *verify, *timed)

    def needs_network(self, case: Case) -> bool:
        """Never: the zoo and configurations need none, and a checkout's models have to be there already."""
        del case
        return False


SUITE = TorchBench()


def _models(options: Mapping[str, Any], source: Source, table: Table) -> tuple[str, ...]:
    if source is Source.OWN:
        models = tuple(options.get("models", ()))
        if not models:
            raise BadConfig(f"{WHERE}.models: source own needs models, as package.module:factory or path:FILE,class:NAME")
        return models
    known = catalogue.names(source, options.get("path"), canary=table.canaries | frozenset(options.get("models", ())))
    if source is Source.TIMM and options.get("models"):
        return tuple(options["models"])
    strangers = unknown_models(table, known)
    if options.get("strict", False) and strangers:
        raise BadConfig(f"{WHERE}.tables: strict, and {source} has no model {', '.join(strangers[:10])}")
    return select(known, selection_from(options))


def _modes(options: Mapping[str, Any]) -> tuple[str, ...]:
    return _listed(options, "mode", default=("training", "inference"))


def _backends(options: Mapping[str, Any]) -> tuple[str, ...]:
    backends = _listed(options, "backend", default=("inductor",))
    if len({arm_name(backend) for backend in backends}) < len(backends):
        raise BadConfig(f"{WHERE}.backend: {', '.join(backends)} names one arm twice")
    return backends


def _listed(options: Mapping[str, Any], name: str, default: tuple[str, ...] = ("fp32",)) -> tuple[str, ...]:
    value = options.get(name, default)
    return (value,) if isinstance(value, str) else tuple(value)


def _check(options: Options) -> None:
    """Refuse what cannot be asked together."""
    settings, training = options.settings, options.mode is Mode.TRAINING
    if settings.nopython and training and settings.scope is Scope.STEP:
        message = (
            f"{WHERE}.nopython: a whole training step breaks the graph at backward; take `scope: model`, or mode inference alone"
        )
        raise BadConfig(message)
    if settings.freezing and training:
        raise BadConfig(f"{WHERE}.freezing: only inference can freeze its weights; take `mode: inference`")
    if settings.batch_invariance and training:
        raise BadConfig(f"{WHERE}.batch_invariance: asks about inference; take `mode: inference`")
    if settings.quantization and (training or options.precision is not Precision.BF16):
        raise BadConfig(f"{WHERE}.quantization: is for `mode: inference` and `precision: bf16`")


def _case(options: Options, prefix: str) -> Case:
    parts = TRAINING_PARTS if options.mode is Mode.TRAINING and options.settings.scope is Scope.MODEL else ()
    accuracy = ("accuracy",) if options.settings.measure is not Measure.PERFORMANCE else ()
    times = ("step_time",) if options.settings.measure is not Measure.ACCURACY else ()
    name = prefix + NAME.sub("_", options.model)[-60:]
    setting = f"backend={options.backend},mode={options.mode},precision={options.precision}"
    return Case(
        id=f"torchbench/{name}[{setting}]",
        suite="torchbench",
        name=name,
        params=options.as_params(),
        arms=(REFERENCE_ARM, options.arm),
        reference=REFERENCE_ARM,
        due=Due(checks=("compiled", *accuracy), times=times),
        details=parts,
    )


def _prefix(options: Mapping[str, Any]) -> str:
    name = options.get("name")
    return f"{name}." if name else ""
