"""What several parts of a report ask of a comparison is found once, and is gone with the comparison."""

import gc
from copy import deepcopy
from dataclasses import replace
from itertools import product
from weakref import ref

import pytest
from report_builders import case, comparison, fail, pair

from ci_bench.records.comparison import CaseComparison, Comparison, Pair, RunVerdict, Verdict
from ci_bench.records.config import Rule
from ci_bench.records.labels import WORST_FIRST
from ci_bench.report.averages import averages
from ci_bench.report.groups import groups
from ci_bench.report.next_step import next_step
from ci_bench.report.once import once
from ci_bench.report.rows import labels, main_rows, worst_pairs


def run() -> Comparison:
    return comparison(case("suite/a"), case("suite/b", Verdict.REGRESSED), headline="x")


class Found:
    """What was found of a comparison, in the test's own words."""


def test_what_is_asked_again_of_a_comparison_is_not_looked_for_again() -> None:
    asked = []

    @once
    def ids(value: Comparison) -> list[str]:
        asked.append(value)
        return [one.id for one in value.cases]

    value = run()
    assert ids(value) is ids(value)
    assert len(asked) == 1


def test_another_comparison_is_looked_at_itself_though_it_is_equal() -> None:
    number = once(lambda value: [len(value.cases)])
    one, two = run(), run()
    assert one == two
    assert number(one) is not number(two)
    assert number(replace(one, cases=one.cases[:1])) == [1]


def test_what_was_found_goes_with_the_comparison() -> None:
    found = once(lambda _: Found())
    value = run()
    held = ref(found(value))
    assert held() is not None
    del value
    gc.collect()
    assert held() is None


def test_an_error_is_not_kept_as_an_answer() -> None:
    answers = [ZeroDivisionError("not yet"), "there"]

    @once
    def moody(_: Comparison) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    value = run()
    with pytest.raises(ZeroDivisionError):
        moody(value)
    assert moody(value) == "there"


@pytest.mark.parametrize("find", [averages, groups, labels, main_rows, worst_pairs])
def test_what_a_report_is_made_of_is_found_once_and_lets_the_comparison_go(find) -> None:
    value = deepcopy(run())
    assert find(value) is find(value)
    gone = ref(value)
    del value
    gc.collect()
    assert gone() is None


def plainly_sorted(value: Comparison) -> list[tuple[CaseComparison, Pair]]:
    every = [(one, pair_) for one in value.cases for pair_ in one.pairs]
    return sorted(
        every,
        key=lambda item: (
            item[1].detail,
            WORST_FIRST.index(item[1].verdict),
            1.0 if item[1].speedup is None else item[1].speedup,
        ),
    )


def test_metrics_stand_by_whether_they_count_then_verdict_then_speedup_and_equal_ones_as_they_were() -> (
    None
):
    kinds = list(product((False, True), Verdict, (1.2, None, 0.7, 1.0)))
    pairs = [
        pair(detail=detail, verdict=verdict, speedup=speedup) for detail, verdict, speedup in kinds
    ]
    mixed = [pairs[place * 37 % len(pairs)] for place in range(len(pairs))]
    value = comparison(
        *(case(f"suite/{place}", pairs=tuple(mixed[place:][:9])) for place in range(0, 80, 7)),
        headline="x",
    )
    found = worst_pairs(value)
    assert [(one.id, id(pair_)) for one, pair_ in found] == [
        (one.id, id(pair_)) for one, pair_ in plainly_sorted(value)
    ]
    assert len({pair_.verdict for _, pair_ in found}) == len(Verdict)


class TestNextStep:
    """The worst case that can be measured again is that of the first finding that has a command, else the worst of all."""

    @staticmethod
    def command(*named: str) -> str:
        cases = (
            case("suite/fine", Verdict.UNCHANGED, reproduce="ci-bench run fine"),
            case("suite/worse", Verdict.REGRESSED, reproduce="ci-bench run worse"),
            case("suite/worst", Verdict.FAILED, reproduce="ci-bench run worst"),
            case("suite/mute", Verdict.FAILED, reproduce=None),
        )
        value = comparison(
            *cases,
            headline="x",
            findings=tuple(fail(Rule.REGRESSED, "slower", name) for name in named),
        )
        step = next_step(
            replace(value, judgement=replace(value.judgement, verdict=RunVerdict.FAILED))
        )
        return "" if step is None else step.command

    @pytest.mark.parametrize(
        ("named", "expected"),
        [
            (("suite/worse",), "worse"),
            (("suite/fine", "suite/worst"), "fine"),
            (("suite/mute", "suite/worse", "suite/worst"), "worse"),
            (("suite/mute",), "worst"),
            (("suite/gone",), "worst"),
        ],
    )
    def test_it_is_the_first_that_is_named_and_has_a_command(
        self, named: tuple[str, ...], expected: str
    ) -> None:
        assert self.command(*named) == f"ci-bench run {expected}"
