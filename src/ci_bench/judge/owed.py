"""Comparison of the plans of base and head: reductions, other work, and renamed cases.

Base's plan says what a case owes. Head may add to it, and may not take anything out of it. Plans
only; what was measured is compared elsewhere.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from ci_bench.judge.wording import count_of
from ci_bench.records.faults import show
from ci_bench.records.results import Case, CaseResult, Metric, Role, Status, Trace, Unit

PLACES: Mapping[str, frozenset[str]] = {"functions": frozenset({"file"})}
"""Parameters by suite that locate a case's code: moving a file changes no benchmark."""
_NAMES = frozenset({"name", "function", "file"})
"""Parameters that a rename changes."""
OTHER_WORK = "other work than base"
"""Begins each clause about what is computed, and not about what is owed."""
OWN_PROGRAM = "command"
"""The suite whose programs report as many values as they like."""
LEAST_SHARE = 0.5
"""A program owes this share of base's values, or values of this share of their sum."""
ALIKE = 0.6
"""Required similarity of names of renamed cases whose parameters differ (`difflib`'s ratio)."""
_MOST_NAMES = 5


def changed_parameters(base: Case, head: Case) -> list[str]:
    """Return the names of the differing parameters that affect the benchmark, sorted."""
    places = PLACES.get(head.suite, frozenset())
    names = {*base.params, *head.params} - places
    return sorted(name for name in names if base.params.get(name) != head.params.get(name))


def have_other_inputs(base: CaseResult, head: CaseResult) -> bool:
    """Return whether inputs differ between sides, in a suite that derives them only from seeds.

    Elsewhere inputs may follow from weights that were drawn before, which a change may well mean to
    change.
    """
    ours, theirs = head.outputs, base.outputs
    return (
        head.case.suite in PLACES
        and ours is not None
        and theirs is not None
        and ours.inputs != theirs.inputs
    )


def is_edited(base: Case, head: Case) -> bool:
    """Return whether both sides know their benchmark's own code, and it differs."""
    return bool(base.body and head.body) and base.body != head.body


def reductions(base: CaseResult, head: Case) -> tuple[str, ...]:
    """List what head's plan owes less than base's, one clause for each; empty if nothing is lost.

    A metric that head calls a detail is lost if base owes or brought it. Titles, further arms,
    further checks and a stricter threshold are not reductions.
    """
    return tuple(_reductions(base, base.case, head))


def other_work(base: CaseResult, head: CaseResult) -> tuple[str, ...]:
    """List what head's case computes from or with that base's does not, which bars comparing them.

    One clause each: start weights, inputs, a training's data or length, outputs that are no longer
    returned, code that returns none, values that a program no longer reports. A training that
    starts elsewhere is judged over seeds instead.
    """
    if base.status is not Status.OK or head.status is not Status.OK:
        return ()
    return _other_computation(base, head) or tuple(_fewer_values(base, head))


def _other_computation(base: CaseResult, head: CaseResult) -> tuple[str, ...]:
    if base.parity is not None and head.parity is not None:
        return tuple(_other_training(_trainings(base), _trainings(head)))
    theirs, ours = base.outputs, head.outputs
    if theirs is not None and ours is None:
        return ("nothing that it computes can be compared any longer",)
    if theirs is None or ours is None:
        edited = is_edited(base.case, head.case) and head.case.suite in PLACES
        return (
            ("its own code differs, and it returns nothing to compare",)
            if edited and ours is None
            else ()
        )
    differences = {
        "start weights": not ours.start.same_as(theirs.start),
        "inputs": ours.inputs != theirs.inputs and head.case.suite not in PLACES,
    }
    subjects = " and ".join(words for words, differ in differences.items() if differ)
    return (
        (f"its {subjects} differ",)
        if subjects and ours.arm == theirs.arm and ours.digest != theirs.digest
        else ()
    )


def _fewer_values(base: CaseResult, head: CaseResult) -> Iterator[str]:
    """Name the times and rates of which a program reports less than half of base's values.

    The least of twenty times is not like the twenty, nor is the highest of twenty rates. A program
    that measures for a fixed duration has fewer values if it is slower, and the same duration.
    """
    if head.case.suite != OWN_PROGRAM:
        return
    theirs = {(metric.name, metric.arm, metric.unit): _durations(metric) for metric in base.metrics}
    for metric in head.metrics:
        ours = _durations(metric)
        of_base = theirs.get((metric.name, metric.arm, metric.unit), ())
        if not ours or len(ours) >= LEAST_SHARE * len(of_base):
            continue
        if sum(ours) < LEAST_SHARE * sum(of_base):
            yield (
                f"its program reports {count_of(len(ours), 'value')} of {metric.name} a run, and"
                f" base's {len(of_base)}"
            )


def _durations(metric: Metric) -> tuple[float, ...]:
    """Return the duration behind each value of the launch that has most, up to a factor.

    Empty for metrics that are neither times nor rates.
    """
    values = max((launch.values for launch in metric.launches), key=len, default=())
    if metric.unit is Unit.PER_SECOND:
        return tuple(1 / value for value in values if value > 0)
    return values if metric.unit is Unit.SECONDS else ()


def _trainings(row: CaseResult) -> Mapping[int, Trace]:
    """Return the reference's trainings by seed."""
    traces = row.parity.traces if row.parity is not None else ()
    return {
        trace.seed: trace
        for trace in traces
        if trace.role is Role.REFERENCE and trace.arm == row.case.reference
    }


def _other_training(base: Mapping[int, Trace], head: Mapping[int, Trace]) -> Iterator[str]:
    both = [(base[seed], head[seed]) for seed in base if seed in head]
    if any(theirs.data != ours.data for theirs, ours in both):
        yield "the data of its training differ"
    short = [
        (len(ours.loss), len(theirs.loss))
        for theirs, ours in both
        if len(ours.loss) < len(theirs.loss)
    ]
    if short:
        yield f"its training ends after {short[0][0]} steps, and base's after {short[0][1]}"


def _reductions(row: CaseResult, base: Case, head: Case) -> Iterator[str]:
    if lost := _without(base.arms, head.arms):
        yield f"{_count_and_list('arm', lost)} {'is' if len(lost) == 1 else 'are'} gone"
    if base.reference != head.reference:
        yield f"the reference arm is {show(head.reference)}, and {show(base.reference)} in base"
    if changed := changed_parameters(base, head):
        values = ", ".join(
            f"{name} is {_value(head, name)}, and {_value(base, name)} in base"
            for name in changed[:_MOST_NAMES]
        )
        yield f"other parameters under the same id: {values}"
    gating = {*base.due.times, *(metric.name for metric in row.metrics)} - {*base.details}
    if details := [name for name in head.details if name in gating]:
        yield f"{_count_and_list('metric', details)} can no longer fail the run (`details`)"
    if lost := _without(base.due.checks, head.due.checks):
        yield f"{_count_and_list('check', lost)} {'is' if len(lost) == 1 else 'are'} no longer owed"
    if lost := _without(base.due.times, head.due.times):
        yield f"{_count_and_list('time', lost)} {'is' if len(lost) == 1 else 'are'} no longer owed"
    if base.due.parity and not head.due.parity:
        yield "loss parity is no longer owed"
    if base.threshold is not None and (head.threshold is None or head.threshold > base.threshold):
        now = "gone" if head.threshold is None else f"{head.threshold:g}"
        yield f"the threshold of its times is {now}, and {base.threshold:g} in base"
    if lost := list(
        dict.fromkeys(kind for kind, arm in _stages(base) - _stages(head) if arm in head.arms)
    ):
        stages = _count_and_list("stage", sorted(lost))
        yield f"{stages} {'is' if len(lost) == 1 else 'are'} no longer planned"


def _stages(case: Case) -> set[tuple[str, str]]:
    """Return pairs of stage kind and arm; a stage that names no arms has all of them."""
    stages = (stage.partition(" ") for stage in case.stages)
    return {
        (kind, arm) for kind, _, arms in stages for arm in (arms.split(",") if arms else case.arms)
    }


def successor(gone: Case, added: Sequence[Case]) -> Case | None:
    """Return the new case that may be a renamed removed one; `None` if no new case resembles it.

    The same suite and the same parameters but for names; else the same suite and a similar name.
    """
    same_suite = [case for case in added if case.suite == gone.suite]
    same = [case for case in same_suite if _body(case) == _body(gone)]
    near = [case for case in same_suite if _alikeness(gone, case) >= ALIKE]
    return max(same or near, key=lambda case: _alikeness(gone, case), default=None)


def _alikeness(old: Case, new: Case) -> float:
    first, second = (case.id.partition("/")[2] for case in (old, new))
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def _body(case: Case) -> Mapping[str, object]:
    """Return the parameters that a rename does not change."""
    return {name: value for name, value in case.params.items() if name not in _NAMES}


def _without(names: Sequence[str], others: Collection[str]) -> list[str]:
    return [name for name in names if name not in others]


def _count_and_list(noun: str, names: Sequence[str]) -> str:
    shown = ", ".join(map(show, names[:_MOST_NAMES]))
    more = f" and {count_of(len(names) - _MOST_NAMES, 'more')}" if len(names) > _MOST_NAMES else ""
    return f"{noun if len(names) == 1 else f'{noun}s'} {shown}{more}"


def _value(case: Case, name: str) -> str:
    if name not in case.params:
        return "nothing"
    value = case.params[name]
    return show(value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str))
