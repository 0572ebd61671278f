"""Tables: what is known of single models, by source, device, mode and precision. No torch here.

A table is a list of rules: ours, a CSV of results that the runner expects, or made from a YAML of
the dynamo runner's (`runner_tables`). Rules that concern a case are put into its parameters; where
one depends on the device, the worker decides. Later rules win, field by field.
"""

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.records.faults import capped, schema_faults
from ci_bench.suites.torchbench.options import TorchbenchOptions, TorchbenchPrecision
from ci_bench.suites.torchbench.runner_tables import (
    canaries_of,
    is_of_the_runner,
    rules_of,
    rules_of_expected,
)

MAX_BYTES = 1_000_000
SITUATION = ("models", "when", "reason")
"""Fields of a rule that limit where it applies; all others are settings."""

MOST, LEAST = ("graph_breaks", "fallbacks"), ("graphs", "ops_captured")
"""Counts of dynamo: of the first more is worse, of the second less."""

Rule = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rules in their order, and the canary models that are run anyway."""

    rules: tuple[Rule, ...] = ()
    canaries: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """A case on its device after applying the rules."""

    options: TorchbenchOptions
    """The case's options with the rules' changes."""
    skip: str | None = None
    """The reason to skip the case; `None` to run it."""
    skip_accuracy: str | None = None
    """The reason to leave accuracy out; `None` to verify it."""
    tolerance: float | None = None
    """Tolerance of the verification; `None` for the precision's own."""
    non_deterministic: bool = False
    """True if eager need not repeat itself."""
    train_mode: bool | None = None
    """Overrides `Loaded.train_mode`; `None` leaves it."""
    runner_tolerance: float | None = None
    """Tolerance of the runner's rule; `None` for its default."""
    runner_larger_multiplier: bool = False
    """True if the runner's rule is wider for small tensors."""
    runner_iou: float | None = None
    """Overlap at which the runner's rule takes masks as equal; `None` for equality."""
    expected: str | None = None
    """The word in which accuracy should end; `None` for a pass."""
    most: Mapping[str, int] = field(default_factory=dict)
    """Upper bounds of dynamo's counts, by name."""
    least: Mapping[str, int] = field(default_factory=dict)
    """Lower bounds of dynamo's counts, by name."""


def read_tables(paths: Iterable[str]) -> Table:
    """Read tables, ours or the runner's, one after the other.

    Raises:
        BadConfig: a file cannot be read, or breaks the schema; the message lists every fault.
    """
    rules: list[Rule] = []
    canaries: set[str] = set()
    for path in paths:
        if path.endswith(".csv"):
            rules += _expected(Path(path).expanduser())
            continue
        raw = _load(Path(path).expanduser())
        if is_of_the_runner(raw):
            rules += rules_of(raw)
            canaries |= canaries_of(raw)
        else:
            rules += _checked(raw, path)
    return Table(rules=tuple(rules), canaries=frozenset(canaries))


def unknown_models(table: Table, models: Iterable[str]) -> list[str]:
    """Return the models that a table names and the source does not have.

    A pattern that matches nothing is unknown as well.
    """
    names = tuple(models)
    patterns = {name for rule in table.rules for name in rule.get("models", ())}
    return sorted(name for name in patterns if not any(fnmatchcase(model, name) for model in names))


def rules_for(
    table: Table, options: TorchbenchOptions, *, no_skip: bool, fast: bool
) -> tuple[Rule, ...]:
    """Return the rules that concern a case, without the conditions that are met.

    Conditions on a device stay.
    """
    rules = []
    for rule in table.rules:
        when = dict(rule.get("when", {}))
        device = when.pop("device", None)
        if not (_names(rule, options.model) and _met(when, options)):
            continue
        settings = {key: value for key, value in rule.items() if key not in SITUATION}
        settings = _without_skips(settings, rule, no_skip=no_skip, fast=fast)
        if settings:
            rules.append({**settings, **({} if device is None else {"when": {"device": device}})})
    return tuple(rules)


def settle(options: TorchbenchOptions, device: str) -> Settled:
    """Apply a case's rules on a device (``cuda:0`` is ``cuda``)."""
    settings: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    for rule in options.rules:
        devices = _as_list(rule.get("when", {}).get("device", device.partition(":")[0]))
        if device.partition(":")[0] in devices:
            settings |= {key: value for key, value in rule.items() if key not in SITUATION}
            expected |= rule.get("expected", {})
    return Settled(
        options=_changed(options, settings),
        skip=settings.get("skip"),
        skip_accuracy=settings.get("skip_accuracy"),
        tolerance=settings.get("tolerance"),
        non_deterministic=settings.get("non_deterministic", False),
        train_mode=settings.get("train_mode"),
        runner_tolerance=settings.get("runner_tolerance"),
        runner_larger_multiplier=settings.get("runner_larger_multiplier", False),
        runner_iou=settings.get("runner_iou"),
        expected=expected.get("accuracy"),
        most={name: expected[name] for name in MOST if name in expected},
        least={name: expected[name] for name in LEAST if name in expected},
    )


def _changed(options: TorchbenchOptions, changes: Mapping[str, Any]) -> TorchbenchOptions:
    """Apply the rules' changes to the options.

    The batch size is the user's first, unless the model's is fixed; then the table's; then the
    model's own.
    """
    settings = options.settings
    batch = settings.batch_size if settings.batch_size is not None else changes.get("batch_size")
    batch = None if changes.get("fixed_batch") else batch
    most = changes.get("max_batch_size")
    batch = min(batch, most) if batch is not None and most is not None else batch
    cudagraphs = changes.get("cudagraphs", settings.cudagraphs)
    precision = TorchbenchPrecision(changes.get("precision", options.precision))
    return replace(
        options,
        precision=precision,
        settings=replace(settings, batch_size=batch, cudagraphs=cudagraphs),
    )


def _names(rule: Rule, model: str) -> bool:
    patterns = rule.get("models")
    return patterns is None or any(fnmatchcase(model, pattern) for pattern in patterns)


def _met(when: Mapping[str, Any], options: TorchbenchOptions) -> bool:
    """Return true if a rule is about a case.

    One about a backend applies if any arm has that: its model, batch and verdict are shared.
    """
    facts = {
        "source": str(options.source),
        "mode": str(options.mode),
        "precision": str(options.precision),
        "measure": str(options.settings.measure),
        "scope": str(options.settings.scope),
        "freezing": options.settings.freezing,
        "nopython": options.settings.nopython,
    }
    backends = {arm.backend for arm in options.candidates.values()}
    return all(
        (
            not backends.isdisjoint(_as_list(allowed))
            if name == "backend"
            else facts[name] in _as_list(allowed)
        )
        for name, allowed in when.items()
    )


def _without_skips(
    settings: dict[str, Any], rule: Rule, *, no_skip: bool, fast: bool
) -> dict[str, Any]:
    """Turn `slow` into a reason to skip if the entry is fast.

    `no_skip` removes all such reasons.
    """
    slow = settings.pop("slow", False)
    if slow and fast:
        settings["skip"] = (
            f"slow{': ' + rule['reason'] if 'reason' in rule else ''}, and this entry is fast"
        )
    if no_skip:
        settings.pop("skip", None)
    return settings


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _load(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(_text(path))
    except (
        yaml.YAMLError,
        ValueError,
        AttributeError,
        LookupError,
    ) as error:  # the others for invalid dates, and tags
        raise BadConfig(f"{path}: cannot be read as YAML: {str(error)[:300]}") from error
    except RecursionError as error:
        raise BadConfig(f"{path}: nested too deep for a table") from error


def _expected(path: Path) -> list[Rule]:
    try:
        return [*rules_of_expected(_text(path))]
    except (ValueError, csv.Error) as error:
        raise BadConfig(f"{path}: not the runner's expected results: {error}") from error


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise BadConfig(
            f"{path}: cannot be read: {error.strerror}; check suites.torchbench.tables"
        ) from error
    except UnicodeDecodeError as error:
        raise BadConfig(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    if len(content) > MAX_BYTES:
        raise BadConfig(
            f"{path}: larger than {MAX_BYTES:,} bytes, the most that is read of a table"
        )
    return text


def _checked(raw: Any, path: str) -> list[Rule]:
    faults = list(schema_faults(raw, table_schema()))
    if faults:
        raise BadConfig(f"{path}: not a sound table:\n{capped(faults)}")
    rules: list[Rule] = raw["rules"]
    return rules


@cache
def table_schema() -> dict[str, Any]:
    """Return the JSON Schema of our tables, shared: copy it before changing it."""
    from importlib.resources import files

    text = (
        files("ci_bench").joinpath("schemas", "torchbench-table.json").read_text(encoding="utf-8")
    )
    loaded: dict[str, Any] = json.loads(text)
    return loaded
