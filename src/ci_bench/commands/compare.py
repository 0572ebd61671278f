"""`ci-bench compare`: judge one side against another: results documents or other tools' files."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ci_bench.command_line.settings import Comparing
from ci_bench.commands.inputs import noise_folder
from ci_bench.commands.judging import Baseline, judge, write_documents, write_page
from ci_bench.commands.loading import load
from ci_bench.commands.output import forked
from ci_bench.commands.showing import show, tell_files
from ci_bench.commands.sides import policy_of_files, read_sides, tell_limits
from ci_bench.errors import BadInput
from ci_bench.formats import is_imported
from ci_bench.judge.times.sequential import rule_of
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Policy
from ci_bench.records.spelling import nearest


def compare(settings: Comparing) -> int:
    """Judge one side against another: results documents, or what other tools wrote."""
    config = load(settings)
    base, head = read_sides(_sides(settings), settings.source)
    foreign = is_imported(base.results) or is_imported(head.results)
    if foreign:
        tell_limits(base, head)
    paired = base.results.run.id == head.results.run.id and not foreign
    identity = head.results.environment.identity
    policy = _across(
        settings.across, config.policy, {*identity, *base.results.environment.identity}
    )
    comparison = judge(
        head.results,
        Baseline(mode=BaselineMode.PAIRED if paired else BaselineMode.FILE, results=base.results),
        policy=policy_of_files(policy, identity) if foreign else policy,
        folder=None,
        calibration=noise_folder(settings).find(identity) if paired else None,
        rule=rule_of(config.run) if paired else None,
    )
    tell_verdict = partial(show, comparison, settings.format)
    if settings.output is None:
        tell_verdict()
    else:
        with forked(
            partial(
                write_page, comparison, head=head.results, base=base.results, folder=settings.output
            )
        ):
            write_documents(comparison, settings.output)
            tell_verdict()
        tell_files(settings.output)
    return comparison.judgement.exit_code


def _across(fields: Sequence[str], policy: Policy, recorded: Collection[str]) -> Policy:
    """Return the policy with more fields that differ on purpose.

    Raises `BadInput` if neither side has one of them.
    """
    if unknown := [name for name in fields if name not in recorded]:
        raise BadInput(
            f"--across: neither side records {unknown[0]!r}{nearest(unknown[0], sorted(recorded))}"
        )
    return replace(policy, compare_across=(*policy.compare_across, *fields))


def _sides(settings: Comparing) -> dict[str, tuple[Path, ...]]:
    """Return the paths of base and head: two paths, or the files of each. Raises `BadInput`."""
    if settings.base and settings.head and not settings.sides:
        return {"base": settings.base, "head": settings.head}
    if len(settings.sides) != 2 or settings.base or settings.head:  # noqa: PLR2004 - base and head
        raise BadInput(
            "name two paths, base and head, or the files of each side with --base FILE … --head"
            " FILE …"
        )
    return {"base": settings.sides[:1], "head": settings.sides[1:]}
