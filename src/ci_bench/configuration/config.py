"""ci-bench.yml and flags into one frozen `Config`.

Owns how the configuration is found, checked and complained about. Each suite's own module makes
cases of its options; their form is in `schemas/config.json` with everything else, so all faults are
reported together.

YAML is read with line numbers: text in; plain values, the line of each JSON path, and faults out.
It reads what JSON can say, spelled as in YAML 1.2's core schema: PyYAML's own rules make `5e-4` a
text and `no` a boolean. Anchors and aliases may be used, as long as what they unfold to stays
small.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from ci_bench.configuration.imports import backend_faults, import_faults
from ci_bench.errors import BadConfig
from ci_bench.records.config import (
    IMPLAUSIBLE_SPEEDUP,
    CasePolicy,
    Config,
    Floor,
    Machine,
    Plugin,
    Policy,
    Rule,
    RunOptions,
    Setup,
    Severity,
    SuiteEntry,
    SuitePolicy,
)
from ci_bench.records.declarations import Cases
from ci_bench.records.documents import Kind, schema, validate
from ci_bench.records.faults import Fault, capped, schema_faults, show, step
from ci_bench.records.metrics import MetricKind
from ci_bench.records.spelling import nearest
from ci_bench.records.units import seconds
from ci_bench.suites.registry import find_metrics

MAX_DEPTH = 30
MAX_NODES = 20_000
"""Values in a file once its aliases are unfolded."""

_STANDARD = "tag:yaml.org,2002:"
_SCALARS: Mapping[str, tuple[str, list[str], Callable[[str], Any]]] = {
    "null": (r"(?:~|null|Null|NULL|)\Z", ["~", "n", "N", ""], lambda _: None),
    "bool": (
        r"(?:true|True|TRUE|false|False|FALSE)\Z",
        list("tTfF"),
        lambda text: text.lower() == "true",
    ),
    "int": (r"[-+]?[0-9]+\Z", list("-+0123456789"), int),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z",
        list("-+.0123456789"),
        float,
    ),
}
"""Scalar types: spelling, first characters, and conversion. Anything else is text.

Source: YAML 1.2.2, 10.3.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """A YAML document.

    `lines` count from 1; a fault's line is that of its path. `value` is partial where there are
    faults.
    """

    value: Any
    lines: Mapping[str, int]
    faults: tuple[Fault, ...]


def parse(text: str) -> Parsed:
    """Read one YAML document; never raises: a text that is not YAML is one fault at ``$``."""
    import yaml

    builder = _Builder()
    try:
        _check_depth(text)
        root = yaml.compose(text, Loader=_loader())
        value = None if root is None else builder.value(root, "$", 0)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = (
            getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
        )
        fault = Fault("$", f"cannot be read as YAML: {problem}")
        return Parsed(value=None, lines={"$": mark.line + 1 if mark else 1}, faults=(fault,))
    return Parsed(value=value, lines=builder.lines, faults=tuple(builder.faults))


@cache
def _loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("Loader", (base,), {"yaml_implicit_resolvers": {}})
    for name, (spelling, first, _) in _SCALARS.items():
        loader.add_implicit_resolver(_STANDARD + name, re.compile(spelling), first)
    return loader


def _check_depth(text: str) -> None:
    """Refuse deep nesting before `yaml.compose`, which recurses in C, takes the process down."""
    import yaml

    depth = 0
    event: Any
    for event in yaml.parse(text, Loader=_loader()):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
            event, yaml.CollectionEndEvent
        )
        if depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {MAX_DEPTH} deep", problem_mark=event.start_mark
            )


@dataclass(slots=True)
class _Builder:
    """Turns nodes into values, and remembers lines and faults."""

    lines: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    nodes: int = 0

    def value(self, node: Any, path: str, depth: int) -> Any:
        import yaml

        self.nodes += 1
        self.lines.setdefault(path, node.start_mark.line + 1)
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            problem = f"more than {MAX_NODES:,} values, or an alias inside itself"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if node.tag not in {_STANDARD + "map", _STANDARD + "seq"}:
            return self._fault(path, f"the tag {show(node.tag)} is not allowed; leave it out")
        if isinstance(node, yaml.SequenceNode):
            return [
                self.value(item, step(path, index), depth + 1)
                for index, item in enumerate(node.value)
            ]
        return self._mapping(node, path, depth)

    def _mapping(self, node: Any, path: str, depth: int) -> dict[str, Any]:
        import yaml

        fields: dict[str, Any] = {}
        for key_node, item in node.value:
            key = key_node.value
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(
                    problem="a field name must be a string", problem_mark=key_node.start_mark
                )
            inner = step(path, key)
            if key in fields:
                self._fault(inner, f"the field comes twice, first on line {self.lines[inner]}")
            self.lines[inner] = key_node.start_mark.line + 1
            if key_node.tag != _STANDARD + "str":
                self._fault(inner, "the name of a field is text; put it in quotes")
                continue
            fields[key] = self.value(item, inner, depth + 1)
        return fields

    def _scalar(self, node: Any, path: str) -> Any:
        name = node.tag.removeprefix(_STANDARD)
        if name == "str":
            return node.value
        if name not in _SCALARS:
            return self._fault(path, f"the tag {show(node.tag)} is not allowed; leave it out")
        try:
            value = _SCALARS[name][2](node.value)
        except ValueError:
            return self._fault(
                path, f"{show(node.value)} is not of the type {name}; leave the tag out"
            )
        if isinstance(value, float) and not math.isfinite(value):
            return self._fault(
                path, f"{show(node.value)} is not a finite number; put it in quotes if it is text"
            )
        return value

    def _fault(self, path: str, message: str) -> None:
        self.faults.append(Fault(path, message))


MAX_BYTES = 1_000_000
QUICKSTART = Path("quickstart")
"""The word of ``--config`` that names the embedded configuration."""
UNCONFIGURED = (
    "schema_version: 1\nsuites: {functions: [{path: benchmarks}]}\npolicy: {severities:"
    " {baseline_missing: note}}\n"
)
"""The configuration without a file: the defaults. Files of benchmarks are named on the command
line.
"""
NAMES = {None: "the defaults", QUICKSTART: "quickstart (embedded)"}
ANY_ENTRY: Mapping[str, Any] = {"type": "object"}
"""The form of an entry where a suite does not say what it should be."""
PLUGIN = re.compile(r"[a-z][a-z0-9_]{0,59}=[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*")
"""The form of a name and its import path; the schema complains about any other."""
METRIC = re.compile(r"[a-z0-9_]{1,60}")
"""The form of a metric's name; the schema complains about any other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overrides:
    """Flags that override the file's `run`; `None` keeps the file's value."""

    device: str | None = None
    launches: int | None = None
    budget_s: float | None = None


def load_config(
    path: Path | None,
    overrides: Overrides | None = None,
    *,
    more_suites: Mapping[str, Mapping[str, Any]] | None = None,
    tree: Sequence[Path] = (),
    benchmarks: Sequence[str] = (),
) -> Config:
    """Read, check and apply flags.

    `QUICKSTART` reads the embedded configuration, `None` the defaults.

    Paths of `benchmarks` replace the file's suites: its run and its policy still count.

    `more_suites` maps the name of a plugin's suite to the JSON Schema of one of its entries; what
    the file itself names under `plugins` needs none, and any mapping is an entry of it then. With
    `tree`, the folders of the measured code, names by import path are looked up there. Raises
    `BadConfig` with every fault, one on each line, as
    ``ci-bench.yml:12: run.launchs: unknown field; did you mean 'launches'?``.
    """
    flags = {
        name: value for name, value in asdict(overrides or Overrides()).items() if value is not None
    }
    name = NAMES.get(path, str(path))
    parsed = _with_benchmarks(parse(_read(path)), benchmarks)
    more = {**dict.fromkeys(_plugins(parsed.value), ANY_ENTRY), **(more_suites or {})}
    form = _with_suites(schema(Kind.CONFIG), more)
    metrics = {} if more else find_metrics()
    suites = _own_suites()
    path_faults = import_faults(parsed.value, tree, suites=suites) if tree else ()
    more_faults = (*backend_faults(parsed.value, suites=suites), *path_faults)
    complaints = [
        *_file_complaints(name, parsed, form, metrics, more_faults),
        *_override_complaints(flags),
    ]
    if complaints:
        raise BadConfig(capped(complaints, indent=""))
    return _convert(parsed.value, flags)


def named_plugins(path: Path | None) -> dict[str, str]:
    """Return the suites that a configuration takes from the measured tree: import paths by name.

    Faulty entries are left out.

    Raises `BadConfig` if the file cannot be read.
    """
    return _plugins(parse(_read(path)).value)


def function_entries(path: Path | None, benchmarks: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """Return the sound entries of the suite `functions`, as written.

    Raises `BadConfig` if the file cannot be read.
    """
    listing = _mapping(
        _mapping(_with_benchmarks(parse(_read(path)), benchmarks).value).get("suites")
    ).get("functions")
    entries = [_mapping(entry) for entry in (listing if isinstance(listing, list) else ())]
    return tuple(entry for entry in entries if isinstance(entry.get("path"), str | list))


def _with_benchmarks(parsed: Parsed, benchmarks: Sequence[str]) -> Parsed:
    """Replace the document's suites by paths of benchmarks, without settings of removed suites."""
    if not benchmarks or not isinstance(parsed.value, Mapping):
        return parsed
    remaining = {
        name: value for name, value in parsed.value.items() if name not in {"suites", "plugins"}
    }
    policy = _mapping(remaining.get("policy"))
    function_policies = {
        name: value for name, value in _mapping(policy.get("suites")).items() if name == "functions"
    }
    policy = {**policy, **({"suites": function_policies} if "suites" in policy else {})}
    gone = ("$.suites", "$.plugins", "$.policy.suites")
    faults = tuple(fault for fault in parsed.faults if not fault.path.startswith(gone))
    value = {
        **remaining,
        **({"policy": policy} if policy else {}),
        "suites": {"functions": [{"path": list(benchmarks)}]},
    }
    return replace(parsed, value=value, faults=faults)


def _plugins(raw: Any) -> dict[str, str]:
    plugins = _mapping(_mapping(raw).get("plugins"))
    targets = {
        name: entry.get("target") if isinstance(entry, Mapping) else entry
        for name, entry in plugins.items()
    }
    fits = {
        name: str(target)
        for name, target in targets.items()
        if PLUGIN.fullmatch(f"{name}={target}")
    }
    return {name: target for name, target in fits.items() if name not in _own_suites()}


def _own_suites() -> Mapping[str, Any]:
    suites: Mapping[str, Any] = schema(Kind.CONFIG)["properties"]["suites"]["properties"]
    return suites


def embedded_file() -> Path:
    """Return the file of the embedded configuration."""
    return Path(__file__).parents[1] / "default.yml"


def _read(path: Path | None) -> str:
    if path is None:
        return UNCONFIGURED
    if path == QUICKSTART:
        return embedded_file().read_text(encoding="utf-8")
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadConfig(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadConfig(f"{path}: cannot be read: {reason}; check the path") from error
    if len(content) > MAX_BYTES:
        raise BadConfig(f"{path}: larger than {MAX_BYTES:,} bytes, the most that is read")
    if not text.strip():
        raise BadConfig(
            f"{path}: the file is empty; name the suites to measure (docs/configuration.md)"
        )
    return text


def _with_suites(
    form: Mapping[str, Any], more: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Let plugins' suites be named wherever a suite can be."""
    if not more:
        return form
    entries = {
        name: {"type": "array", "minItems": 1, "maxItems": 100, "items": entry}
        for name, entry in more.items()
    }
    policies = {name: {"$ref": "#/$defs/suite_policy"} for name in more}
    wider = _widened(form, ("properties", "suites", "properties"), entries)
    return _widened(wider, ("$defs", "policy", "properties", "suites", "properties"), policies)


def _widened(
    form: Mapping[str, Any], path: Sequence[str], more: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the form with more fields at a path; the rest is shared, not copied."""
    if not path:
        return {**form, **more}
    return {**form, path[0]: _widened(form[path[0]], path[1:], more)}


def _file_complaints(
    name: str,
    parsed: Parsed,
    form: Mapping[str, Any],
    metrics: Mapping[str, MetricKind],
    more: Sequence[Fault],
) -> Iterator[str]:
    """Word the faults in the order of their lines.

    A value that YAML refuses has no form to complain about.

    `metrics` are those that a threshold may be for, empty if plugins may bring others.
    """
    refused = {fault.path for fault in parsed.faults}
    formal = () if "$" in refused else validate(parsed.value, Kind.CONFIG, form)
    judged_suites = form["$defs"]["policy"]["properties"]["suites"]["properties"]
    semantic = [
        *_metric_faults(parsed.value, metrics),
        *_idle_faults(parsed.value, judged_suites),
        *_plugin_faults(parsed.value),
        *_budget_faults(parsed.value),
        *more,
    ]
    faults = [*parsed.faults, *(fault for fault in formal if fault.path not in refused), *semantic]
    for line, fault in sorted(
        ((_line(parsed.lines, fault.path), fault) for fault in faults), key=lambda pair: pair[0]
    ):
        place = fault.path.removeprefix("$").removeprefix(".")
        yield f"{name}:{line}: {Fault(place, fault.message) if place else fault.message}"


def _idle_faults(raw: Any, suites: Iterable[str]) -> Iterator[Fault]:
    """Yield a fault for a policy of one of these `suites` that is not measured."""
    measured, judged = (
        _mapping(_mapping(raw).get("suites")),
        _mapping(_mapping(_mapping(raw).get("policy")).get("suites")),
    )
    for suite in suites if measured else ():
        if suite in judged and suite not in measured:
            yield Fault(
                f"$.policy.suites.{suite}",
                "no case of this suite is measured, so this setting has no effect",
            )


def _metric_faults(raw: Any, metrics: Mapping[str, MetricKind]) -> Iterator[Fault]:
    """Yield a fault for a threshold of a metric that nothing measures, or that fails nothing.

    The commands' own tools name the metrics of suite `command`, so any name may be one of theirs.
    """
    policy = _mapping(_mapping(raw).get("policy"))
    suite_policies = {
        f"$.policy.suites.{suite}": entry
        for suite, entry in _mapping(policy.get("suites")).items()
        if suite != "command"
    }
    general = {} if "command" in _mapping(_mapping(raw).get("suites")) else {"$.policy": policy}
    for place, holder in {**general, **suite_policies}.items():
        for metric in _mapping(_mapping(holder).get("thresholds")):
            if not metrics or not METRIC.fullmatch(str(metric)):
                continue
            path = f"{place}.thresholds.{metric}"
            if metric not in metrics:
                yield Fault(
                    path, f"no suite has a metric of this name{nearest(metric, tuple(metrics))}"
                )
            elif not metrics[metric].gates:
                yield Fault(path, "this metric is only shown and never fails; remove its threshold")


def _plugin_faults(raw: Any) -> Iterator[Fault]:
    """Yield a fault for each plugin with the name of a built-in suite, which would be ambiguous."""
    for name in _mapping(_mapping(raw).get("plugins")):
        if name in _own_suites():
            yield Fault(
                f"$.plugins.{name}", "a suite of this name ships with ci-bench; choose another one"
            )


def _budget_faults(raw: Any) -> Iterator[Fault]:
    """Check a budget with a unit: within the bounds of `budget_s`, and only one of the two."""
    word, run = _mapping(raw).get("budget"), schema(Kind.CONFIG)["$defs"]["run"]
    if not isinstance(word, str):
        return
    try:
        options = {"budget_s": seconds(word)}
    except ValueError:
        return  # the form's own complaint
    yield from (Fault("$.budget", fault.message) for fault in schema_faults(options, run))
    if _mapping(_mapping(raw).get("run")).get("budget_s") is not None:
        yield Fault("$.budget", "run.budget_s is set, too; remove one of them")


def _run_options(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `run`, with the budget in seconds."""
    word: str | None = raw.get("budget")
    return {**raw.get("run", {}), **({} if word is None else {"budget_s": seconds(word)})}


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _line(lines: Mapping[str, int], path: str) -> int:
    """Return the line of a path, or of the nearest one around it: a missing field has no line."""
    while path not in lines and path:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get(path, 1)


def _override_complaints(flags: Mapping[str, Any]) -> Iterator[str]:
    if not flags:
        return
    for fault in schema_faults(flags, schema(Kind.CONFIG)["$defs"]["run"]):
        yield f"flag for {fault.path.removeprefix('$.')}: {fault.message}"


def _convert(raw: Mapping[str, Any], flags: Mapping[str, Any]) -> Config:
    import msgspec

    suites: Mapping[str, list[dict[str, Any]]] = raw["suites"]
    return Config(
        entries=tuple(_entry(suite, item) for suite, items in suites.items() for item in items),
        baseline=raw.get("baseline"),
        plugins={name: _plugin(entry) for name, entry in raw.get("plugins", {}).items()},
        machines={
            name: Machine(**(entry or {})) for name, entry in raw.get("machines", {}).items()
        },
        base=raw.get("base"),
        setup=msgspec.convert(raw.get("setup", {}), Setup),
        run=msgspec.convert({**_run_options(raw), **flags}, RunOptions),
        written=msgspec.convert(_run_options(raw), RunOptions) if flags else None,
        policy=_policy(raw.get("policy", {})),
    )


def _entry(suite: str, item: Mapping[str, Any]) -> SuiteEntry:
    """Fields of a plugin's entries are all its own; those of ours may declare their cases."""
    if suite not in _own_suites():
        return SuiteEntry(suite=suite, options=item)
    options = {name: value for name, value in item.items() if name != "cases"}
    return SuiteEntry(suite=suite, options=options, cases=_declared(item.get("cases")))


def _plugin(entry: str | Mapping[str, Any]) -> Plugin:
    if isinstance(entry, str):
        return Plugin(target=entry)
    return Plugin(target=entry.get("target"), cases=_declared(entry.get("cases")))


def _declared(cases: list[str] | int | None) -> Cases:
    return tuple(cases) if isinstance(cases, list) else cases


def _policy(raw: Mapping[str, Any]) -> Policy:
    return Policy(
        thresholds=_thresholds(raw),
        severities=_severities(raw),
        suites={
            suite: SuitePolicy(
                thresholds=_thresholds(settings),
                severities=_severities(settings),
                floors=_floors(settings),
            )
            for suite, settings in raw.get("suites", {}).items()
        },
        default_threshold=_optional_share(raw.get("default_threshold")),
        drift=_optional_share(raw.get("drift")),
        floors=_floors(raw),
        cases={
            pattern: CasePolicy(
                floors=_floors(settings), implausible_speedup=settings.get("implausible_speedup")
            )
            for pattern, settings in raw.get("cases", {}).items()
        },
        implausible_speedup=float(raw.get("implausible_speedup", IMPLAUSIBLE_SPEEDUP)),
        compare_across=tuple(raw.get("compare_across", ())),
        metrics=find_metrics(),
    )


def _floors(raw: Mapping[str, Any]) -> dict[Floor, float]:
    return {Floor(floor): float(value) for floor, value in raw.get("floors", {}).items()}


def _optional_share(value: float | str | None) -> float | None:
    return None if value is None else _share(value)


def _thresholds(raw: Mapping[str, Any]) -> dict[str, float]:
    return {metric: _share(value) for metric, value in raw.get("thresholds", {}).items()}


def _severities(raw: Mapping[str, Any]) -> dict[Rule, Severity]:
    return {Rule(rule): Severity(word) for rule, word in raw.get("severities", {}).items()}


def _share(value: float | str) -> float:
    """``5%`` or 0.05 as 0.05. In decimals, because 0.7 / 100 is not 0.007 in binary."""
    return float(Decimal(value[:-1]) / 100) if isinstance(value, str) else float(value)
