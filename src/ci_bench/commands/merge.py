"""The command that makes one run of several: `merge`.

Reads documents of other machines as untrusted input.
"""

from collections.abc import Sequence
from pathlib import Path

from ci_bench.command_line.settings import Merging
from ci_bench.commands.inputs import noise_folder
from ci_bench.commands.judging import Baseline, judge, paired_with
from ci_bench.commands.loading import load
from ci_bench.commands.output import tell
from ci_bench.commands.showing import show, tell_files
from ci_bench.errors import CannotMerge, CannotResume
from ci_bench.fleet.merging import RunPair
from ci_bench.fleet.merging import merge as merge_pairs
from ci_bench.judge.times.sequential import SequentialRule, fixed, rule_of
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import RunOptions, Sampling
from ci_bench.records.documents import RESULTS, place
from ci_bench.records.results import Results, RunState, SideName
from ci_bench.runner.resuming import whole_launches


def merge(settings: Merging) -> int:
    """Merge runs of one plan, judge them as one, and exit by the policy."""
    config = load(settings)
    _require_apart(settings.output, settings.runs)
    documents.require_writable(settings.output / RESULTS)
    merged = merge_pairs(read_pair(folder) for folder in settings.runs)
    written = {
        SideName.HEAD: merged.head,
        **({SideName.BASE: merged.base} if merged.base is not None else {}),
    }
    for name, results in written.items():
        documents.write(results, place(settings.output, name))
    tell(_describe_parts(merged))
    alone = Baseline(mode=BaselineMode.NONE, absence="none of the merged runs measured base")
    comparison = judge(
        merged.head,
        alone if merged.base is None else paired_with(merged.base),
        policy=config.policy,
        folder=settings.output,
        calibration=(
            None
            if merged.base is None
            else noise_folder(settings).find(merged.head.environment.identity)
        ),
        rule=None if merged.base is None else rule_of_parts(config.run, merged.head),
    )
    show(comparison, settings.format)
    tell_files(settings.output, sides=written)
    return comparison.judgement.exit_code


def _require_apart(output: Path, runs: Sequence[Path]) -> None:
    """Raise `CannotMerge` if the merged documents would replace a run's own."""
    if output.resolve() in {folder.resolve() for folder in runs}:
        raise CannotMerge(
            f"--output {output}: this is the folder of a merged run; choose another one"
        )


def read_pair(folder: Path) -> RunPair:
    """Read the documents in a run's folder.

    Raises:
        BadDocument: one of them is invalid.
        CannotMerge: the run was cut off, and the number of its whole launches is not recorded.
    """
    paths = {name: place(folder, name) for name in (SideName.HEAD, SideName.BASE)}
    head = documents.read_results(paths[SideName.HEAD])
    base = documents.read_results(paths[SideName.BASE]) if paths[SideName.BASE].exists() else None
    launches = None
    if any(
        side is not None and side.run.state is not RunState.COMPLETE and not side.parts
        for side in (head, base)
    ):
        try:
            counts = [whole_launches(path) for path in paths.values() if path.exists()]
        except CannotResume as error:
            way_out = "resume it, or leave it out"
            raise CannotMerge(
                f"{folder}: the run was interrupted, and its progress.json is missing; {way_out}"
            ) from error
        launches = {name: min(count.get(name, 0) for count in counts) for name in counts[0]}
    return RunPair(name=str(folder), head=head, base=base, whole=launches)


def rule_of_parts(options: RunOptions, merged: Results) -> SequentialRule:
    """Return the rule for launches of several runs.

    With fixed sampling it is one look at all of them.
    """
    if options.sampling is not Sampling.FIXED or not merged.parts:
        return rule_of(options)
    count = max((len(metric.launches) for row in merged.cases for metric in row.metrics), default=1)
    return fixed(min(max(options.launches, count), SequentialRule().looks[-1]))


def _describe_parts(merged: RunPair) -> str:
    slots = {part.slot for part in merged.parts}
    devices = "1 device" if len(slots) == 1 else f"{len(slots)} identical devices"
    return f"{len(merged.parts)} run(s) on {devices}"
