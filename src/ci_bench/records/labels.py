"""Names for people: short ones of cases, and stages in words. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ci_bench.records.comparison import CaseComparison, Verdict
from ci_bench.records.config import Rule

WORST_FIRST = (
    Verdict.FAILED,
    Verdict.REGRESSED,
    Verdict.SUSPECTED,
    Verdict.REMOVED,
    Verdict.INCOMPARABLE,
    Verdict.INCONCLUSIVE,
    Verdict.SKIPPED,
    Verdict.NEW,
    Verdict.IMPROVED,
    Verdict.UNCHANGED,
)

DOING = {
    "prepare": "preparing data",
    "size": "looking for the largest batch",
    "verify": "verifying",
    "seeds": "training over seeds",
    "rounding": "measuring rounding",
    "time": "timing",
    "alone": "measuring separately",
    "run": "running",
    "explain": "explaining",
}
"""The activity of each of the engine's stages."""

FAILING_WORDS: Mapping[Rule, str] = {
    Rule.PARITY_UNDECIDED: "parity not shown",
    Rule.CASE_FAILED: "not measured",
}
"""Rules that read otherwise where they fail the gate: "undecided" is what does not."""


def worst_first(cases: Iterable[CaseComparison]) -> list[CaseComparison]:
    """Sort cases by their verdict, the worst first; equal ones keep their order."""
    return sorted(cases, key=lambda case: WORST_FIRST.index(case.verdict))


def labels(cases: Sequence[CaseComparison]) -> Mapping[str, str]:
    """Return a short name for each id: ``reviews[precision=fp32]``.

    Parameters that all cases of one name share are left out, and the suite if all cases belong to
    one. A title is kept as it is. Two cases never share a name; an id of another form stays as it
    is.
    """
    suites = {case.id.partition("/")[0] for case in cases}
    prefix = f"{next(iter(suites))}/" if len(suites) == 1 else ""
    parts = {
        case.id: (case.title, []) if case.title else parted(case.id.removeprefix(prefix) or case.id)
        for case in cases
    }
    values: dict[tuple[str, str], set[str]] = {}
    numbers: Counter[tuple[str, str]] = Counter()
    per_name: Counter[str] = Counter()
    for name, parameters in parts.values():
        per_name[name] += 1
        for key, value in parameters:
            values.setdefault((name, key), set()).add(value)
            numbers[name, key] += 1
    short = {
        case: _joined(
            name,
            [
                (key, value)
                for key, value in parameters
                if len(values[name, key]) > 1 or numbers[name, key] < per_name[name]
            ],
        )
        for case, (name, parameters) in parts.items()
    }
    shared = {label for label, number in Counter(short.values()).items() if number > 1}
    return {
        case: case if label in shared or label in parts else label for case, label in short.items()
    }


def parted(case_id: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the name of a case and its parameters; an id of another form is a name."""
    name, bracket, rest = case_id.partition("[")
    parameters = [part.partition("=") for part in rest.removesuffix("]").split(",")]
    if (
        not bracket
        or not rest.endswith("]")
        or not all(key and sign for key, sign, _ in parameters)
    ):
        return case_id, []
    return name, [(key, value) for key, _, value in parameters]


def _joined(name: str, parameters: list[tuple[str, str]]) -> str:
    return (
        f"{name}[{','.join(f'{key}={value}' for key, value in parameters)}]" if parameters else name
    )
