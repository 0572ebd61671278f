"""What is said of a run as a whole, what is marked, and what is kept out of sight."""

from dataclasses import replace

import pytest
from endings import BUILDERS, compared
from rendered import render
from report_builders import (
    HALF,
    REVIEWS,
    case,
    check,
    common_shift,
    comparison,
    memory,
    outputs,
    pair,
    paired_run,
    passed,
    speedup,
    turned,
)

from ci_bench.records.comparison import (
    BaselineMode,
    CaseComparison,
    Interval,
    MeanSpeedup,
    Pairing,
    SpeedupChange,
    Verdict,
)
from ci_bench.records.config import Severity
from ci_bench.records.outputs import Sameness
from ci_bench.records.results import Outcome
from ci_bench.report import words
from ci_bench.report.changes import rest
from ci_bench.report.markdown import render_comment, render_report
from ci_bench.report.rows import main_rows
from ci_bench.report.summary import summary
from ci_bench.report.words import Mood

PAIRING = Pairing(calibration="none", gating=1, launches=1)
WEAKER = "The baseline is an earlier run, so only changes larger than the normal drift between runs count."


def one(*pairs, **fields) -> CaseComparison:
    return case(pairs=pairs, **fields)


def run(*cases, pairing=PAIRING, **fields):
    return comparison(*cases, headline="x", mode=BaselineMode.PAIRED, pairing=pairing, **fields)


def table(text, head):
    return next(rows for rows in render(text).tables if head in rows[0])


class TestSummary:
    def test_a_baseline_of_another_moment_is_called_weaker(self):
        assert summary(passed()) == [WEAKER, "7 of 7 gating metrics decided."]
        assert summary(replace(passed(), base=None)) == []

    def test_all_there_is_to_say(self):
        assert summary(paired_run()) == [
            "7 of 8 gating metrics decided; slowdowns below about 1.3 % may go unnoticed.",
            "Geometric mean over 4 gating times: 1.6 % slower (95 % interval 1.1 % to 2.1 %).",
            "Launch-to-launch noise 0.41 % (median, up to 8 launches); today 1.3× the calibrated level.",
            "1 of 4 timings is uncalibrated and may need more launches.",
            "Calibration: 6 runs of unchanged code against itself, the last of 2026-01-02.",
        ]

    @pytest.mark.parametrize(
        ("verdicts", "how"),
        [
            ((Sameness.BITWISE,), "outputs match base (bitwise)."),
            ((Sameness.WITHIN_ROUNDING, Sameness.CHANGED), "outputs match base in 1 of 2 cases."),
            (
                (Sameness.WITHIN_ROUNDING, Sameness.BITWISE, Sameness.BITWISE),
                "outputs match base (2 bitwise).",
            ),
        ],
    )
    def test_outputs_that_match_are_said_once(self, verdicts, how):
        found = comparison(
            *(case(f"s/{n}", outputs=outputs(one)) for n, one in enumerate(verdicts)),
            headline="Passed.",
        )
        assert rest(found).lower().endswith(how)
        assert not any("match base" in line for line in summary(found))

    @pytest.mark.parametrize("verdict", [Sameness.CHANGED, Sameness.UNKNOWN])
    def test_a_run_that_does_not_is_not_said_to(self, verdict):
        assert "match base" not in rest(
            comparison(case(outputs=outputs(verdict)), headline="Failed.")
        )

    def test_the_detectable_change_is_said_once(self):
        for name in BUILDERS:
            lines = [rest(compared(name)), *summary(compared(name))]
            assert sum("may go unnoticed" in line for line in lines) <= 1

    @pytest.mark.parametrize(
        "mean",
        [
            MeanSpeedup(
                speedup=1.02,
                interval=Interval(low=1.0, high=1.1, level=0.95),
                metrics=1,
                launches=3,
            ),
            MeanSpeedup(speedup=1.2, interval=None, metrics=2, launches=1),
        ],
        ids=["one time", "one launch"],
    )
    def test_no_mean_of_one(self, mean):
        assert not any("mean" in line for line in summary(run(pairing=replace(PAIRING, mean=mean))))

    @pytest.mark.parametrize(
        ("mean", "words_"),
        [
            (
                MeanSpeedup(
                    speedup=1.02,
                    interval=Interval(low=1.01, high=1.03, level=0.95),
                    metrics=2,
                    launches=3,
                ),
                "over 2 gating times: 2 % faster (95 % interval 0.99 % to 2.9 %).",
            ),
            (
                MeanSpeedup(
                    speedup=1.0,
                    interval=Interval(low=0.99, high=1.01, level=0.9),
                    metrics=2,
                    launches=1,
                ),
                "no change (90 % interval −0.99 % to +1 %).",
            ),
        ],
    )
    def test_the_mean(self, mean, words_):
        assert summary(run(pairing=replace(PAIRING, mean=mean)))[0].endswith(words_)

    @pytest.mark.parametrize(
        ("lost", "said"),
        [
            (0, []),
            (1, ["1 lease of the fleet was lost and retried (losses in results.json)."]),
            (1200, ["1,200 leases of the fleet were lost and retried (losses in results.json)."]),
        ],
    )
    def test_what_a_fleet_lost(self, lost, said):
        assert [
            line for line in summary(run(pairing=replace(PAIRING, lost=lost))) if "fleet" in line
        ] == said

    def test_nothing_known_is_not_made_up(self):
        assert summary(run(one(memory()))) == [
            "1 of 1 gating metric decided.",
            "Calibration: none.",
        ]

    def test_details_and_memory_are_no_part_of_the_noise_floor(self):
        loud = replace(turned("forward_time"), noise=0.5, resolvable=0.9, detail=True)

        lines = summary(run(one(turned(), loud, memory())))
        assert lines[0] == "2 of 2 gating metrics decided."
        assert lines[1].startswith("Launch-to-launch noise 0.41 %")

    def test_a_shift_that_a_finding_tells_is_told_once(self):
        value = common_shift()
        quiet = replace(
            value,
            judgement=replace(
                value.judgement,
                findings=tuple(
                    replace(f, severity=Severity.NOTE) for f in value.judgement.findings
                ),
            ),
        )

        assert summary(value)[0] == WEAKER
        assert summary(quiet)[:2] == [value.shifts[0].reason, WEAKER]

    def test_lines_are_escaped(self):
        comment = render_comment(
            run(one(turned()), pairing=replace(PAIRING, calibration="<b>@user</b>"))
        )

        assert "<b>" not in comment
        assert "&lt;b&gt;" in comment


class TestMarks:
    def test_a_time_without_history_is_uncalibrated_in_table_and_terminal(self):
        value = run(
            case("s/new", pairs=(turned(calibrated=False),)),
            case("s/known", pairs=(turned(calibrated=True),)),
        )

        assert {row.case.id: row.marks for row in main_rows(value)} == {
            "s/new": "uncalibrated",
            "s/known": "",
        }
        assert render_comment(value).count("✅ unchanged (uncalibrated)") == 1
        assert main_rows(run(one(turned())))[0].marks == ""

    def test_without_a_calibration_one_line_says_so(self):
        value = run(
            one(turned(calibrated=False)),
            pairing=replace(PAIRING, calibration="none; run ci-bench calibrate"),
        )
        assert main_rows(value)[0].marks == ""
        assert render_comment(value).lower().count("calibrat") == len(["Calibration", "calibrate"])

    def test_unchanged_beyond_a_common_shift_says_so(self):
        assert {row.marks for row in main_rows(common_shift())} == {"beyond the common shift"}
        still = replace(
            common_shift(), shifts=(replace(common_shift().shifts[0], verdict=Verdict.UNCHANGED),)
        )
        assert {row.marks for row in main_rows(still)} == {""}


SLOWER = {"by": 1.3, "verdict": Verdict.REGRESSED, "detail": True}


class TestDetails:
    def test_a_detail_stands_for_no_case_and_moves_no_row(self):
        (row,) = main_rows(run(one(turned("query_time"), turned("forward_time", **SLOWER))))

        assert (row.time.metric, row.word, row.mood) == ("query_time", "unchanged", Mood.GOOD)

    def test_a_detail_of_the_reference_arm_moves_its_row_no_more(self):
        pairs = (turned(), turned("forward_time", "eager", **SLOWER))

        assert {row.arm: row.mood for row in main_rows(run(one(*pairs)))} == {
            "eager": Mood.GOOD,
            "inductor": Mood.GOOD,
        }
        gating = (turned(), replace(pairs[1], detail=False))
        assert {row.arm: row.mood for row in main_rows(run(one(*gating)))} == {
            "eager": Mood.BAD,
            "inductor": Mood.GOOD,
        }

    def test_details_come_last_in_the_table_of_metrics_and_are_called_so(self):
        tables = render(render_comment(paired_run())).tables
        rows = next(rows for rows in tables if {"Metric", "Reason"} <= {*rows[0]})[1:]

        assert rows[-1][2] == "forward pass (inductor)"
        assert rows[-1][0] == "❌ regressed (detail)"
        assert not any("(detail)" in row[0] for row in rows[:-1])


class TestInformation:
    def test_a_check_for_information_is_no_failure(self):
        told = replace(check(outcome=Outcome.FAIL), informative=True)
        comment = render_comment(run(one(turned(), checks=(told, check()))))

        assert main_rows(run(one(turned(), checks=(told,))))[0].word == "unchanged"
        assert (
            main_rows(run(one(turned(), checks=(check(outcome=Outcome.FAIL),))))[0].word
            == "check failed"
        )
        assert "<summary>Checks (2)</summary>" in comment
        assert [row[0] for row in table(comment, "Check")[1:]] == [
            "✅ pass",
            "fail (for information)",
        ]

    def test_facts_are_in_the_full_report_only(self):
        rows = table(render_report(paired_run()), "Fact")

        assert rows[1:] == [
            [REVIEWS, "parameters", "11,180,000"],
            [REVIEWS, "attention", "sdpa"],
            [REVIEWS, "exported", "–"],
        ]
        assert "Facts of the cases" not in render_comment(paired_run())


class TestSpeedups:
    @pytest.mark.parametrize(
        ("verdict", "words_"),
        [
            (Verdict.REGRESSED, "1.50×, was 1.62×"),
            (Verdict.UNCHANGED, "1.50×"),
            (Verdict.INCONCLUSIVE, "1.50×"),
        ],
    )
    def test_the_judges_word_on_a_change_wins_over_the_interval(self, verdict, words_):
        change = SpeedupChange(verdict=verdict, ratio=0.93, interval=None)

        assert words.speedup(replace(speedup(1.50, 1.62), change=change)) == words_

    def test_the_change_with_its_interval(self):
        change = SpeedupChange(
            verdict=Verdict.IMPROVED, ratio=1.05, interval=Interval(low=1.02, high=1.08, level=0.95)
        )

        assert (
            words.speedup_change(replace(speedup(), change=change))
            == "improved, +5.0 % (+2.0 to +8.0 %)"
        )
        assert words.speedup_change(speedup()) == "–"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0041, "0.41 %"),
        (0.00057, "0.057 %"),
        (0.02, "2 %"),
        (0.25, "25 %"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_small_shares_keep_two_digits(share, text):
    assert words.fine(share) == text


@pytest.mark.parametrize(
    ("q", "text"), [(None, "–"), (0.5, "0.50"), (0.01, "0.01"), (0.0001, "< 0.01")]
)
def test_false_discovery(q, text):
    assert words.discovery(replace(turned(), q=q)) == text


@pytest.mark.parametrize(
    ("fields", "text"),
    [({"noise": 0.006}, "0.6 % a launch"), ({"calibrated": False}, "uncalibrated"), ({}, "–")],
)
def test_noise(fields, text):
    assert words.noise(replace(pair(), **fields)) == text


def test_statistics_are_folded_and_in_the_full_table_of_the_page_only():
    comment = render_comment(paired_run())
    top, _, folded = comment.partition("<summary>How sure</summary>")
    assert "Launch-to-launch noise" not in top
    assert "Launch-to-launch noise" in folded
    assert HALF in comment
