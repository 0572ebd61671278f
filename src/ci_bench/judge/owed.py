"""Compares the plans of base and head: what head no longer owes of a case, and which new case may be a removed one.

Base's plan says what a case owes. Head may add to it, and may not take anything out of it. Plans only; what was measured is
compared elsewhere.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from ci_bench.judge.wording import count_of
from ci_bench.records.faults import show
from ci_bench.records.results import Case, CaseResult

PLACES: Mapping[str, frozenset[str]] = {"functions": frozenset({"file"})}
"""By suite, the parameters that say where a case's code lies, and not what it does: moving a file changes no benchmark."""
_NAMES = frozenset({"name", "function", "file"})
"""Parameters that a rename changes."""
ALIKE = 0.6
"""How similar names of renamed cases have to be where their parameters differ (`difflib`'s ratio)."""
_MOST_NAMES = 5


def changed_parameters(base: Case, head: Case) -> list[str]:
    """The names of parameters that differ, and matter, sorted."""
    places = PLACES.get(head.suite, frozenset())
    names = {*base.params, *head.params} - places
    return sorted(name for name in names if base.params.get(name) != head.params.get(name))


def have_other_inputs(base: CaseResult, head: CaseResult) -> bool:
    """Whether head's benchmark draws other inputs than base's, in a suite where a case's seed alone says which.

    Elsewhere inputs may follow from weights that were drawn before, which a change may well mean to change.
    """
    ours, theirs = head.outputs, base.outputs
    return head.case.suite in PLACES and ours is not None and theirs is not None and ours.inputs != theirs.inputs


def reductions(base: CaseResult, head: Case) -> tuple[str, ...]:
    """What head's plan of a case owes less than base's own plan, one clause for each; empty where nothing is lost.

    A metric of base's that head calls a detail is lost where base owes or brought it. Titles, further arms, further checks and a
    stricter threshold are no reductions.
    """
    return tuple(_reductions(base, base.case, head))


def _reductions(row: CaseResult, base: Case, head: Case) -> Iterator[str]:
    if lost := _without(base.arms, head.arms):
        yield f"{_named('arm', lost)} {'is' if len(lost) == 1 else 'are'} gone"
    if base.reference != head.reference:
        yield f"the reference arm is {show(head.reference)}, and {show(base.reference)} in base"
    if changed := changed_parameters(base, head):
        values = ", ".join(f"{name} is {_value(head, name)}, and {_value(base, name)} in base" for name in changed[:_MOST_NAMES])
        yield f"other parameters under the same id: {values}"
    gating = {*base.due.times, *(metric.name for metric in row.metrics)} - {*base.details}
    if details := [name for name in head.details if name in gating]:
        yield f"{_named('metric', details)} can no longer fail the run (`details`)"
    if lost := _without(base.due.checks, head.due.checks):
        yield f"{_named('check', lost)} {'is' if len(lost) == 1 else 'are'} no longer owed"
    if lost := _without(base.due.times, head.due.times):
        yield f"{_named('time', lost)} {'is' if len(lost) == 1 else 'are'} no longer owed"
    if base.due.parity and not head.due.parity:
        yield "loss parity is no longer owed"
    if base.threshold is not None and (head.threshold is None or head.threshold > base.threshold):
        now = "gone" if head.threshold is None else f"{head.threshold:g}"
        yield f"the threshold of its times is {now}, and {base.threshold:g} in base"
    if lost := list(dict.fromkeys(kind for kind, arm in _stages(base) - _stages(head) if arm in head.arms)):
        yield f"{_named('stage', sorted(lost))} {'is' if len(lost) == 1 else 'are'} no longer planned"


def _stages(case: Case) -> set[tuple[str, str]]:
    """The stages of each arm; one without arms is of all of them."""
    named = (stage.partition(" ") for stage in case.stages)
    return {(kind, arm) for kind, _, arms in named for arm in (arms.split(",") if arms else case.arms)}


def successor(gone: Case, added: Sequence[Case]) -> Case | None:
    """The new case that a removed one may be called now; `None` where no new case resembles it.

    The same suite and the same parameters but for names; else the same suite and a similar name.
    """
    own = [case for case in added if case.suite == gone.suite]
    same = [case for case in own if _body(case) == _body(gone)]
    near = [case for case in own if _alikeness(gone, case) >= ALIKE]
    return max(same or near, key=lambda case: _alikeness(gone, case), default=None)


def _alikeness(one: Case, two: Case) -> float:
    first, second = (case.id.partition("/")[2] for case in (one, two))
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def _body(case: Case) -> Mapping[str, object]:
    """The parameters that a rename leaves as they are."""
    return {name: value for name, value in case.params.items() if name not in _NAMES}


def _without(names: Sequence[str], others: Collection[str]) -> list[str]:
    return [name for name in names if name not in others]


def _named(noun: str, names: Sequence[str]) -> str:
    shown = ", ".join(map(show, names[:_MOST_NAMES]))
    more = f" and {count_of(len(names) - _MOST_NAMES, 'more')}" if len(names) > _MOST_NAMES else ""
    return f"{noun if len(names) == 1 else f'{noun}s'} {shown}{more}"


def _value(case: Case, name: str) -> str:
    if name not in case.params:
        return "nothing"
    value = case.params[name]
    return show(value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str))
