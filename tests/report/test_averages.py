"""Means over cases, by hand: over what both sides have, over what passes on both, and never over a figure that is not there."""

from dataclasses import replace

import pytest
from rendered import faults
from report_builders import case, check, comparison, incomparable, pair, parity, speedup

from ci_bench.records.comparison import BaselineMode, Parity, Verdict
from ci_bench.records.results import Check, Outcome, Status
from ci_bench.report.averages import MeanChange, averages, setting_of
from ci_bench.report.markdown import render_comment

SETTING = "backend=inductor,mode=training,precision=fp32"


def model(
    name, now=2.0, then=2.0, *, compile_s=(2.0, 2.0), setting=SETTING, compression=2.0, **fields
):
    """A case with the arm inductor: speedup and compile time on head (`now`) and on base."""
    compiling = pair("compile_cold", base=compile_s[1], head=compile_s[0], spread=0)
    factors = [speedup(now, then)] if now else []
    factors += [speedup(compression, compression, metric="peak_rss")] if compression else []
    fields = {
        "arms": ("eager", "inductor"),
        "reference": "eager",
        "pairs": (compiling,),
        "speedups": tuple(factors),
        **fields,
    }
    return case(f"torchbench/{name}[{setting}]", **fields)


def run(*cases, **fields):
    return comparison(*cases, headline="x", **fields)


def alone(*cases):
    return run(*cases, base=None, absence="none was given", mode=BaselineMode.NONE)


def mean(head, base, cases):
    return MeanChange(head=pytest.approx(head), base=pytest.approx(base), cases=cases)


def test_the_figures_by_hand():
    """Speedups 2 and 8 have the geometric mean 4, 4 and 9 have 6; compile times 1 and 3 the mean 2; memory halves."""
    (found,) = averages(
        run(
            model("mlp", 2.0, 4.0, compile_s=(1.0, 5.0)),
            model("cnn", 8.0, 9.0, compile_s=(3.0, 6.0)),
        )
    )
    assert (found.suite, found.setting, found.arm, found.cases) == (
        "torchbench",
        SETTING,
        "inductor",
        2,
    )
    assert found.passing == mean(1.0, 1.0, 2)
    assert found.speedup == mean(4.0, 6.0, 2)
    assert found.compile_cold_s == mean(2.0, 5.5, 2)
    assert found.compression == mean(2.0, 2.0, 2)
    assert (found.only_head, found.only_base) == (0, 0)


BROKEN = [
    {"checks": (check(outcome=Outcome.FAIL),)},
    {"head_status": Status.CRASHED},
    {"parity": (parity(Parity.DIFFERENT_MATH),)},
    {"parity": (parity(Parity.INSUFFICIENT_DATA),)},
]


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_broken_on_head_lowers_the_rate_and_shifts_no_mean(how):
    (found,) = averages(run(model("mlp"), model("cnn", 100.0, 2.0, **how)))
    assert found.passing == mean(0.5, 1.0, 2)
    assert found.speedup == mean(2.0, 2.0, 1)


@pytest.mark.parametrize(
    "how", [{"base_status": Status.FAILED}, {"base_faults": ("accuracy failed",)}]
)
def test_what_was_broken_on_base_is_in_no_mean_either(how):
    (found,) = averages(run(model("mlp"), model("cnn", 100.0, 2.0, **how)))
    assert found.passing == mean(1.0, 0.5, 2)
    assert found.speedup == mean(2.0, 2.0, 1)


def test_what_one_side_lacks_is_counted_and_in_no_mean():
    new = model("vit", 100.0, None, base_status=None, verdict=Verdict.NEW)
    gone = model("gnn", 50.0, 50.0, head_status=None, verdict=Verdict.REMOVED)
    (found,) = averages(run(model("mlp"), model("cnn"), new, gone))
    assert (found.cases, found.only_head, found.only_base) == (2, 1, 1)
    assert found.speedup == mean(2.0, 2.0, 2)
    assert found.passing.cases == 2


def test_without_a_baseline_head_speaks_for_itself():
    new = {"base_status": None, "verdict": Verdict.NEW}
    (found,) = averages(alone(model("mlp", 2.0, None, **new), model("cnn", 8.0, None, **new)))
    assert (found.cases, found.only_head) == (2, 0)
    assert found.speedup == MeanChange(head=pytest.approx(4.0), base=None, cases=2)
    assert found.passing == MeanChange(head=1.0, base=None, cases=2)


def test_two_machines_are_not_averaged_together():
    apart = run(
        model("mlp", 2.0, 9.0), model("cnn", 2.0, 9.0), mismatches=incomparable().mismatches
    )
    (found,) = averages(apart)
    assert found.speedup == MeanChange(head=pytest.approx(2.0), base=None, cases=2)


def test_settings_and_arms_are_kept_apart_and_a_single_case_needs_no_mean():
    other = [
        model(name, setting="backend=inductor,mode=inference,precision=fp32")
        for name in ("mlp", "cnn", "vit")
    ]
    found = averages(run(model("mlp"), model("cnn"), *other, model("mlp", setting="backend=x")))
    assert [(one.setting.partition("mode=")[2].partition(",")[0], one.cases) for one in found] == [
        ("training", 2),
        ("inference", 3),
    ]
    two = [
        replace(one, arms=("eager", "inductor", "aot_eager"))
        for one in (model("mlp"), model("cnn"))
    ]
    assert [(one.arm, one.speedup.cases) for one in averages(run(*two))] == [
        ("inductor", 2),
        ("aot_eager", 0),
    ]
    assert (
        averages(
            run(replace(model("mlp"), arms=("eager",)), replace(model("cnn"), arms=("eager",)))
        )
        == ()
    )


def test_a_skipped_case_is_none_of_them():
    (found,) = averages(run(model("mlp"), model("cnn"), model("vit", head_status=Status.SKIPPED)))
    assert (found.cases, found.passing) == (2, mean(1.0, 1.0, 2))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0, None])
def test_a_figure_that_is_none_is_not_counted_and_no_zero(value):
    (found,) = averages(run(model("mlp", 2.0), model("cnn", value or None, 8.0)))
    assert found.speedup == mean(2.0, 2.0, 1)
    odd = model("cnn", 8.0, 8.0, compile_s=(value, 2.0))
    assert averages(run(model("mlp"), odd))[0].compile_cold_s == mean(2.0, 2.0, 1)


def test_nothing_known_is_no_figure():
    (found,) = averages(run(model("mlp", None), model("cnn", None)))
    assert found.speedup == MeanChange(head=None, base=None, cases=0)
    assert averages(run()) == ()


def test_an_informative_check_does_not_count():
    told = Check(
        name="runner_rule", arm="inductor", outcome=Outcome.FAIL, detail="x", informative=True
    )
    (found,) = averages(run(model("mlp", checks=(told,)), model("cnn")))
    assert found.passing == mean(1.0, 1.0, 2)


@pytest.mark.parametrize(
    ("case_id", "setting"),
    [("torchbench/mlp[a=1,b=2]", "a=1,b=2"), ("command/sort", ""), ("x/y[a=[1]]", "a=[1]")],
)
def test_the_setting_is_what_stands_in_brackets(case_id, setting):
    assert setting_of(case_id) == setting


def test_the_comment_has_a_row_with_both_sides_and_the_counts():
    broken = model("vit", 100.0, 2.0, checks=(check(outcome=Outcome.FAIL),))
    text = render_comment(
        run(model("mlp", 2.0, 4.0), model("cnn", 8.0, 9.0), broken, model("gnn", base_status=None))
    )
    (row,) = [line for line in text.splitlines() if line.startswith("| `torchbench` | ")]
    cells = [cell.replace("\u00a0", " ").strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "`torchbench`", f"`{SETTING}`", "`inductor`", "3", "100 → 67 %", "6.00 → 4.00× (of 2)", "2.00 → 2.00 s (of 2)",
        "2.00 → 2.00× (of 2)", "1 on head",
    ]  # fmt: skip
    assert "<summary>Means over cases (1)</summary>" in text
    assert faults(text) == []


def test_a_run_of_single_cases_has_no_such_table():
    assert "Means over cases" not in render_comment(
        run(model("mlp"), model("cnn", setting="backend=x"))
    )
