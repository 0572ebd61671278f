"""Words for changes, speedups and parity, and the choice of rows."""

from typing import Any

import pytest
from report_builders import (
    REVIEWS,
    case,
    comparison,
    fail,
    failed_cases,
    graphs,
    outputs,
    pair,
    parity,
    passed,
    regressed,
    speedup,
)

from ci_bench.records.comparison import AccuracyParity, Interval, Parity, Verdict
from ci_bench.records.config import DEFAULT_SEVERITIES, Rule, Severity
from ci_bench.records.labels import WORST_FIRST
from ci_bench.records.outputs import Sameness
from ci_bench.records.results import Better, Check, Outcome, Status, Unit
from ci_bench.report import words
from ci_bench.report.rows import main_rows, outcome_mood
from ci_bench.report.words import Mood


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"verdict": Verdict.REGRESSED, "base": 0.100, "head": 0.103}, "3.0 % slower"),
        ({"verdict": Verdict.IMPROVED, "base": 0.100, "head": 0.098}, "2.0 % faster"),
        ({"verdict": Verdict.UNCHANGED, "base": 0.100, "head": 0.1004}, "+0.4 %"),
        ({"verdict": Verdict.INCONCLUSIVE, "base": 0.100, "head": 0.097}, "3.0 % faster"),
        (
            {"verdict": Verdict.REGRESSED, "unit": Unit.BYTES, "base": 1e9, "head": 1.2e9},
            "20 % more",
        ),
        (
            {"verdict": Verdict.IMPROVED, "unit": Unit.BYTES, "base": 1e9, "head": 0.8e9},
            "20 % less",
        ),
        (
            {
                "verdict": Verdict.REGRESSED,
                "unit": Unit.COUNT,
                "base": 0,
                "head": 2,
                "speedup": None,
            },
            "2 more",
        ),
        ({"verdict": Verdict.IMPROVED, "unit": Unit.COUNT, "base": 3, "head": 1}, "2 fewer"),
        ({"unit": Unit.COUNT, "base": 3, "head": 3}, "same"),
        (
            {
                "verdict": Verdict.REGRESSED,
                "unit": Unit.PER_SECOND,
                "better": Better.HIGHER,
                "speedup": 0.9,
            },
            "10 % lower",
        ),
        (
            {
                "verdict": Verdict.IMPROVED,
                "unit": Unit.PER_SECOND,
                "better": Better.HIGHER,
                "speedup": 1.1,
            },
            "10 % higher",
        ),
        ({"base": None}, "–"),
        ({"speedup": 0.0}, "–"),
    ],
)
def test_a_change_reads_as_words_where_the_verdict_says_so(
    fields: dict[str, Any], shown: str
) -> None:
    assert words.change(pair(**fields)) == shown


def test_the_interval_of_a_change_has_the_sign_of_the_change() -> None:
    assert words.change_interval(pair(speedup=0.92, spread=0.02)) == "+6.4 to +11 %"
    assert (
        words.change_interval(pair(speedup=0.92, spread=0.02, better=Better.HIGHER))
        == "−10 to −6.0 %"
    )
    assert words.change_interval(pair(speedup=0.01, spread=0.02)) == "–"
    assert words.change_interval(pair(base=None)) == "–"


@pytest.mark.parametrize(
    ("now", "base", "shown"),
    [(1.5, 1.62, "1.50×, was 1.62×"), (1.5, 1.51, "1.50×"), (1.5, None, "1.50×")],
)
def test_a_speedup_tells_what_it_was_only_outside_its_interval(
    now: float, base: float | None, shown: str
) -> None:
    assert words.speedup(speedup(now, base)) == shown


@pytest.mark.parametrize(
    ("verdict", "fields", "shown", "how"),
    [
        (Parity.BITWISE, {}, "bitwise", Mood.GOOD),
        (Parity.NUMERIC_PARITY, {"first_step": 4}, "numeric parity", Mood.GOOD),
        (Parity.EQUIVALENT, {}, "equivalent", Mood.GOOD),
        (Parity.DIFFERENT_MATH, {"first_step": 1234}, "different math from step 1,234", Mood.BAD),
        (Parity.DIFFERENT, {}, "different", Mood.BAD),
        (Parity.NON_FINITE, {"first_step": 7}, "not finite from step 7", Mood.BAD),
        (Parity.INCONCLUSIVE, {}, "undecided", Mood.UNSURE),
        (Parity.INSUFFICIENT_DATA, {}, "insufficient data", Mood.UNSURE),
    ],
)
def test_every_word_of_parity(
    verdict: Parity, fields: dict[str, Any], shown: str, how: Mood
) -> None:
    assert (
        words.parity(parity(verdict, **fields)),
        words.parity_mood(parity(verdict, **fields)),
    ) == (shown, how)


def test_parity_that_holds_does_not_hide_a_broken_accuracy() -> None:
    wrong = AccuracyParity(
        reference=0.9, candidate=0.5, spread=0.01, limit=0.05, holds=False, detail=""
    )
    found = parity(accuracy=wrong)
    assert (words.parity(found), words.parity_mood(found)) == ("accuracy differs", Mood.BAD)


def test_distance_stands_beside_its_limit() -> None:
    assert words.distance(parity()) == "loss 0.82, gradient norm 1.31, limit 10"
    spread = Interval(low=-0.001, high=0.004, level=0.9)
    assert (
        words.distance(parity(difference=0.0012, interval=spread, limit=0.01))
        == "+0.1 % (−0.1 to +0.4 %), margin 1.0 %"
    )
    assert words.distance(parity(loss_score=None, grad_norm_score=None)) == "–"


@pytest.mark.parametrize(
    ("verdict", "fields", "shown"),
    [
        (Parity.BITWISE, {}, "identical in every bit over 40 steps"),
        (
            Parity.NUMERIC_PARITY,
            {},
            "numeric parity over 40 steps, 1.31 times what rounding explains (10 is allowed)",
        ),
        (
            Parity.DIFFERENT_MATH,
            {"first_step": 7, "loss_score": 834.0},
            "learns differently from step 7, 834 times what rounding explains (10 is allowed)",
        ),
        (
            Parity.INSUFFICIENT_DATA,
            {"loss_score": None, "grad_norm_score": None},
            "insufficient data over 40 steps",
        ),
        (
            Parity.EQUIVALENT,
            {"difference": 0.0012, "limit": 0.01},
            "equivalent over 40 steps; +0.1 %, margin 1.0 %",
        ),
        (
            Parity.NON_FINITE,
            {"first_step": 7, "loss_score": float("inf")},
            "not finite from step 7 over 40 steps; loss inf",
        ),
    ],
)
def test_a_training_in_a_clause(verdict: Parity, fields: dict[str, Any], shown: str) -> None:
    assert words.training(parity(verdict, steps=40, **fields)).startswith(shown)


def test_every_verdict_has_a_mood() -> None:
    assert set(WORST_FIRST) == set(Verdict)
    assert [words.mood(verdict) for verdict in WORST_FIRST] == sorted(map(words.mood, Verdict))


@pytest.mark.parametrize(
    ("learning", "sameness", "text", "mood"),
    [
        (Parity.BITWISE, Sameness.CHANGED, "changed", Mood.BAD),
        (Parity.BITWISE, Sameness.UNKNOWN, "unknown", Mood.UNSURE),
        (Parity.DIFFERENT_MATH, Sameness.CHANGED, "different math", Mood.BAD),
        (Parity.DIFFERENT_MATH, Sameness.WITHIN_ROUNDING, "different math", Mood.BAD),
        (Parity.BITWISE, Sameness.WITHIN_ROUNDING, "bitwise", Mood.GOOD),
    ],
)
def test_parity_with_base_is_the_worse_of_learning_and_outputs(
    learning, sameness, text: str, mood: Mood
) -> None:
    found = case(learning=parity(learning, arm="eager"), outputs=outputs(sameness))
    assert text in words.base_parity(found)
    assert words.base_parity_mood(found) is mood


FAILING_RULES = sorted(
    rule for rule, severity in DEFAULT_SEVERITIES.items() if severity is Severity.FAIL
)


@pytest.mark.parametrize("rule", FAILING_RULES)
def test_a_case_that_fails_the_run_is_red_for_whatever_reason(rule: Rule) -> None:
    fine = comparison(case(pairs=(pair(), pair(arm="eager"))), headline="x")
    assert {row.mood for row in main_rows(fine)} == {Mood.GOOD}
    failing = comparison(*fine.cases, headline="x", findings=(fail(rule, "why", fine.cases[0].id),))
    first, second = main_rows(failing)
    assert (first.mood, first.word, second.mood) == (Mood.BAD, rule.replace("_", " "), Mood.GOOD)


@pytest.mark.parametrize(
    ("fields", "word", "mood"),
    [
        ({"learning": parity(Parity.BITWISE, arm="eager")}, "unchanged", Mood.GOOD),
        ({"learning": parity(Parity.DIFFERENT_MATH, arm="eager")}, "learns differently", Mood.BAD),
        (
            {"learning": parity(Parity.INSUFFICIENT_DATA, arm="eager")},
            "parity with base unclear",
            Mood.UNSURE,
        ),
        ({"outputs": outputs(Sameness.CHANGED)}, "outputs changed", Mood.BAD),
        ({"outputs": outputs(Sameness.UNKNOWN)}, "parity with base unclear", Mood.UNSURE),
        ({"outputs": outputs(Sameness.WITHIN_ROUNDING)}, "unchanged", Mood.GOOD),
    ],
)
def test_what_differs_from_base_shows_in_the_row_of_the_reference(
    fields, word: str, mood: Mood
) -> None:
    rows = main_rows(comparison(case(pairs=(pair(arm="eager"), pair()), **fields), headline="x"))
    assert {row.arm: (row.word, row.mood) for row in rows} == {
        "eager": (word, mood),
        "inductor": ("unchanged", Mood.GOOD),
    }


def test_rows_hold_all_arms_those_of_a_case_together_worst_first() -> None:
    rows = main_rows(regressed())
    assert [(row.word, row.arm) for row in rows] == [
        ("regressed", "inductor"),
        ("unchanged", "eager"),
        ("undecided", "inductor"),
        ("unchanged", "aot_eager"),
    ]


def test_a_reference_arm_that_regressed_has_a_row() -> None:
    slower = pair(arm="eager", verdict=Verdict.REGRESSED, head=0.2)
    rows = main_rows(
        comparison(case(verdict=Verdict.REGRESSED, pairs=(slower, pair())), headline="x")
    )
    assert [(row.arm, row.word) for row in rows] == [
        ("eager", "regressed"),
        ("inductor", "unchanged"),
    ]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"parity": (parity(Parity.DIFFERENT),)}, "parity broken"),
        ({"parity": (parity(Parity.INSUFFICIENT_DATA),)}, "too few steps"),
        ({"parity": (parity(Parity.INCONCLUSIVE),)}, "parity unclear"),
        (
            {"checks": (Check(name="finite", arm="inductor", outcome=Outcome.FAIL, detail=""),)},
            "check failed",
        ),
        ({"verdict": Verdict.FAILED, "head_status": Status.TIMEOUT}, "timeout"),
        ({"verdict": Verdict.FAILED, "head_status": Status.OK}, "failed"),
        ({"pairs": (), "speedups": ()}, "unchanged"),
    ],
)
def test_no_row_looks_better_than_the_worst_that_is_known(
    fields: dict[str, Any], word: str
) -> None:
    assert main_rows(comparison(case(**fields), headline="x"))[0].word == word


def test_without_a_step_time_the_worst_duration_stands_for_the_case() -> None:
    pairs = (
        pair("forward"),
        pair("backward", head=0.2, verdict=Verdict.REGRESSED),
        pair("compile_cold", head=9.0),
        graphs(),
    )
    row = main_rows(
        comparison(case(REVIEWS, Verdict.REGRESSED, pairs=pairs, speedups=()), headline="x")
    )[0]
    assert row.time is not None
    assert row.time.metric == "backward"


def test_the_run_is_good_only_without_failures_and_warnings() -> None:
    assert (outcome_mood(passed()), outcome_mood(failed_cases())) == (Mood.GOOD, Mood.BAD)
