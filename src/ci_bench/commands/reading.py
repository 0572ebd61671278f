"""The commands that measure nothing: compare, validate, list."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci_bench.command_line.settings import Comparing, Listing, Validating
from ci_bench.commands.inputs import load, load_with_suites, noise_folder
from ci_bench.commands.output import forked, say, show, tell, tell_files
from ci_bench.errors import BadInput, CiBenchError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ci_bench.records.config import Config, Policy
    from ci_bench.suites.contract import Suite

_PLAIN = re.compile(r"(?:\./)?[A-Za-z_][A-Za-z0-9_./+-]*")
"""Text that needs no quotes in YAML, unless it is one of its words."""
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def compare(settings: Comparing) -> int:
    """Judge one side against another: results documents, or what other tools wrote."""
    from ci_bench.commands import pipeline
    from ci_bench.commands.sides import policy_of_files, read_sides, tell_limits
    from ci_bench.formats import is_imported
    from ci_bench.records.comparison import BaselineMode

    config = load(settings)
    base, head = read_sides(_sides(settings), settings.source)
    foreign = is_imported(base.results) or is_imported(head.results)
    if foreign:
        tell_limits(base, head)
    paired = base.results.run.id == head.results.run.id and not foreign
    identity = head.results.environment.identity
    policy = _across(settings.across, config.policy, {*identity, *base.results.environment.identity})
    comparison = pipeline.judge(
        head.results,
        pipeline.Baseline(mode=BaselineMode.PAIRED if paired else BaselineMode.FILE, results=base.results),
        policy=policy_of_files(policy, identity) if foreign else policy,
        folder=None,
        calibration=noise_folder(settings).find(identity) if paired else None,
        rule=pipeline.rule_of(config.run) if paired else None,
    )
    tell_verdict = partial(show, comparison, comment=settings.comment, as_json=settings.as_json)
    if settings.output is None:
        tell_verdict()
    else:
        with forked(partial(pipeline.write_page, comparison, head=head.results, base=base.results, folder=settings.output)):
            pipeline.write_documents(comparison, settings.output)
            tell_verdict()
        tell_files(settings.output, results=())
    return comparison.judgement.exit_code


def _across(fields: "Sequence[str]", policy: "Policy", recorded: "Collection[str]") -> "Policy":
    """The policy with more fields that differ on purpose. Raises `BadInput` if neither side has one of them."""
    from ci_bench.records.spelling import nearest

    if unknown := [name for name in fields if name not in recorded]:
        raise BadInput(f"--across: neither side records {unknown[0]!r}{nearest(unknown[0], sorted(recorded))}")
    return replace(policy, compare_across=(*policy.compare_across, *fields))


def _sides(settings: Comparing) -> dict[str, tuple[Path, ...]]:
    """Base and head: two paths, or the files of both. Raises `BadInput`."""
    if settings.base and settings.head and not settings.sides:
        return {"base": settings.base, "head": settings.head}
    if len(settings.sides) != 2 or settings.base or settings.head:  # noqa: PLR2004 - base and head
        raise BadInput("name two paths, base and head, or the files of each side with --base FILE … --head FILE …")
    return {"base": settings.sides[:1], "head": settings.sides[1:]}


def validate(settings: Validating) -> int:
    """Check documents against their schemas."""
    from ci_bench.configuration.accepting import load_accepted
    from ci_bench.configuration.config import load_config
    from ci_bench.records import documents
    from ci_bench.suites.contract import plugin_forms

    code = ExitCode.OK
    for path in settings.files:
        try:
            kind = documents.document_kind(path)
            match kind:
                case documents.Kind.CONFIG:
                    load_config(path, more_suites=plugin_forms(), tree=(settings.here, settings.here / "src"))
                case documents.Kind.ACCEPTED:
                    load_accepted(path)
                case documents.Kind.RESULTS:
                    documents.read_results(path)
                case documents.Kind.COMPARISON:
                    documents.read_comparison(path)
                case documents.Kind.CALIBRATION:
                    documents.read_calibration(path)
                case documents.Kind.HISTORY:
                    documents.read_history(path)
            say(f"{path}: a valid {kind} document\n")
        except CiBenchError as error:
            sys.stderr.write(f"ci-bench: {error}\n")
            code = error.exit_code
    return int(code)


def list_cases(settings: Listing) -> int:
    """Print what would be measured, or what has to be declared of it."""
    from ci_bench.runner import planning

    config, find = load_with_suites(settings)
    if settings.declare:
        return _declare(settings, config, find)
    plan = planning.plan(config, settings.filter, find, tell)
    for suite, case in plan:
        stages = sum(stage.takes_place_in(launch) for launch in range(config.run.launches) for stage in suite.stages(case))
        say(f"{case.id}\n    arms: {', '.join(case.arms)} (reference: {case.reference}); {stages} worker stages\n")
    say(f"{len(plan)} case(s), {config.run.launches} launch(es), device {config.run.device}\n")
    return int(ExitCode.OK)


def _declare(settings: Listing, config: "Config", find: "Callable[[str], Suite]") -> int:
    """Print the parts of the configuration that declare cases, whole, with what this tree plans."""
    if settings.filter:
        raise BadInput("--declare covers all cases; omit --filter")
    parts = declared_parts(config, find)
    if parts:
        say(_block(parts))
        tell("copy these parts into the configuration; each replaces the part with its name")
    else:
        tell("nothing has to be declared: the configuration defines all cases")
    return int(ExitCode.OK)


def declared_parts(config: "Config", find: "Callable[[str], Suite]") -> dict[str, Any]:
    """`plugins`, and the lists under `suites` in which an entry's plan reads files of the tree, with the cases that are planned.

    If a number is declared, or there are more ids than allowed, it is a number.
    """
    from ci_bench.records.documents import Kind, schema
    from ci_bench.runner import planning
    from ci_bench.suites.contract import BUILT_IN, plans_from_tree

    most = schema(Kind.CONFIG)["$defs"]["declared_cases"]["then"]["maxItems"]
    planned: dict[str, list[str] | int] = {}
    for declared, cases in planning.plan_declared(config, find):
        ids = [case.id for _, case in cases]
        planned[declared.field] = len(ids) if isinstance(declared.cases, int) or len(ids) > most else ids
    plugins = {name: {field: value for field, value in asdict(own).items() if value} for name, own in config.plugins.items()}
    suites: dict[str, list[dict[str, Any]]] = {}
    for entry, declared in zip(config.entries, planning.declarations(config), strict=True):
        found = {"cases": planned[declared.field]}
        if entry.suite not in BUILT_IN:
            plugins[entry.suite] = {**plugins.get(entry.suite, {}), **found}
        else:
            needed = entry.cases is not None or plans_from_tree(entry.suite, entry.options)
            suites.setdefault(entry.suite, []).append({**entry.options, **(found if needed else {})})
    lists = {name: entries for name, entries in suites.items() if any("cases" in entry for entry in entries)}
    return {name: part for name, part in (("plugins", plugins), ("suites", lists)) if part}


def _block(value: Any, indent: str = "") -> str:
    """Mappings and lists as blocks of YAML, a line for each value."""
    if isinstance(value, dict) and value:
        return "".join(f"{indent}{_word(name)}:{_inside(inner, indent)}" for name, inner in value.items())
    if isinstance(value, list | tuple) and value:
        return "".join(f"{indent}- {_block(inner, f'{indent}  ').lstrip()}" for inner in value)
    return f"{indent}{_word(value)}\n"


def _inside(value: Any, indent: str) -> str:
    return f"\n{_block(value, f'{indent}  ')}" if isinstance(value, dict | list | tuple) and value else f" {_word(value)}\n"


def _word(value: Any) -> str:
    """JSON, which is YAML too; without quotes where a text is nothing else without them."""
    plain = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return value if plain else json.dumps(value, ensure_ascii=False)
