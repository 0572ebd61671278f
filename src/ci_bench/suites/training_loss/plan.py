"""The half of `training_loss` that needs no torch: options to cases, cases to stages."""

from collections.abc import Mapping
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import Case, Due
from ci_bench.suites.arms import listed_arms
from ci_bench.suites.base import COMPILING, Cache, Stage, StageKind
from ci_bench.suites.training_loss.options import EMBEDDED, REFERENCE_ARM, Options, Precision, parse

MEMORY_LAUNCHES = (0, 1)
"""Peaks are taken in two launches: where they repeat exactly they can be compared exactly."""


class TrainingLoss:
    """Train the same model on the same data eagerly and compiled."""

    name = "training_loss"
    worker = "ci_bench.suites.training_loss.run"
    preload: tuple[str, ...] = ("torch", *COMPILING)

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """One case per precision. Raises `BadConfig` where two arms would be the same."""
        listed_arms(options, f"suites.training_loss.{options.get('name', Options().name)}", instead_of="backend")
        precisions = options.get("precision", Precision.FP32)
        listed = [precisions] if isinstance(precisions, str) else list(precisions)
        return tuple(_plan_case({**options, "precision": str(precision)}) for precision in listed)

    def preload_of(self, case: Case) -> tuple[str, ...]:
        """A model of one's own needs nothing of transformers."""
        model = parse(case.params).model
        if model.factory is not None:
            return self.preload
        architecture = "bert.modeling_bert" if model.path == EMBEDDED else "auto.modeling_auto"
        return (*self.preload, f"transformers.models.{architecture}")

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Prepare, compile from cold, verify, then memory and time."""
        candidates = tuple(arm for arm in case.arms if arm != REFERENCE_ARM)
        cold = tuple(Stage(kind=StageKind.ALONE, arms=(arm,), launches=None, cache=Cache.COLD) for arm in candidates)
        memory = tuple(Stage(kind=StageKind.ALONE, arms=(arm,), launches=MEMORY_LAUNCHES) for arm in case.arms)
        return (
            Stage(kind=StageKind.PREPARE, arms=()),
            *cold,
            Stage(kind=StageKind.VERIFY, arms=case.arms),
            Stage(kind=StageKind.SEEDS, arms=(REFERENCE_ARM,)),
            *memory,
            Stage(kind=StageKind.TIME, arms=case.arms, launches=None),
        )

    def needs_network(self, case: Case) -> bool:
        """Whether model or data come from a hub."""
        options = parse(case.params)
        return not (options.dataset.is_local and options.model.is_local)


SUITE = TrainingLoss()


def _plan_case(params: Mapping[str, Any]) -> Case:
    options = parse(params)
    if len(set(options.arms)) < len(options.arms):
        message = f"suites.training_loss.{options.name}.backend: {', '.join(options.backends)} names one arm twice"
        raise BadConfig(message)
    if options.dataset.factory is not None and (options.dataset.files or options.dataset.path != EMBEDDED):
        where = f"suites.training_loss.{options.name}.dataset.factory"
        raise BadConfig(f"{where}: makes the rows itself; leave out dataset.path and dataset.files")
    return Case(
        id=f"training_loss/{options.name}[{_backends(options)}precision={options.precision}]",
        suite="training_loss",
        name=options.name,
        params=options.as_params(),
        arms=options.arms,
        reference=REFERENCE_ARM,
        due=Due(checks=("compiled", "refereed"), times=(STEP_TIME.name,), parity=True),
    )


def _backends(options: Options) -> str:
    """The backends; arms that are listed are no part of an id, which would be long with them."""
    return "" if options.listed else f"backend={'+'.join(options.backends)},"
