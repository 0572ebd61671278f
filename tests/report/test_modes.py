"""Compiled arms side by side: which cases, which arm is fastest beyond doubt, and means over the same cases."""

from io import StringIO

import pytest
from report_builders import TUNED, case, comparison, mode_case, passed, several_modes
from rich.console import Console

from ci_bench.report.markdown import render_comment
from ci_bench.report.modes import modes
from ci_bench.report.terminal import print_comparison


def table(*cases):
    (found,) = modes(comparison(*cases, headline="done"))
    return found


def test_rows_are_cases_and_columns_are_arms_and_the_last_row_is_their_geometric_mean():
    (found,) = modes(several_modes())
    assert (found.suite, found.arms) == ("torchbench", ("inductor", TUNED, "aot_eager"))
    assert [row.label for row in found.rows] == ["mlp", "resnet", "geometric mean of 2 cases"]
    assert found.rows[-1].means["inductor"] == pytest.approx((1.62 * 1.31) ** 0.5)


def test_the_fastest_is_one_whose_interval_lies_above_all_others():
    apart, touching, _ = modes(several_modes())[0].rows
    assert (apart.fastest, touching.fastest) == (TUNED, None)


def test_an_arm_that_is_slower_than_the_reference_is_never_the_fastest():
    assert table(mode_case("mlp", {"inductor": 0.9, TUNED: 0.5})).rows[0].fastest is None


def test_an_arm_that_is_wrong_is_no_fastest_and_its_case_is_in_no_mean():
    right = {"inductor": 1.5, TUNED: 1.9}
    found = table(
        mode_case("mlp", right, wrong=TUNED), mode_case("cnn", right), mode_case("vit", right)
    )
    assert (found.rows[0].fastest, found.rows[0].wrong) == ("inductor", {TUNED})
    assert found.rows[-1].label == "geometric mean of 2 cases"


def test_a_mean_is_over_the_cases_that_have_every_arm():
    found = table(
        *(mode_case(name, {"inductor": 2.0, TUNED: 3.0}) for name in "ab"),
        mode_case("c", {"inductor": 9.0, "x": 1.0}),
    )
    assert all(row.case is not None for row in found.rows)


def test_one_compiled_arm_makes_no_table():
    assert (
        modes(passed())
        == modes(comparison(mode_case("mlp", {"inductor": 1.5}), headline="done"))
        == ()
    )


def test_arms_that_are_not_compiled_make_no_table():
    several = mode_case("mlp", {"inductor": 1.5, TUNED: 1.9})
    assert (
        modes(
            comparison(
                case(several.id, speedups=several.speedups, arms=several.arms), headline="done"
            )
        )
        == ()
    )


def test_comment_and_terminal_name_the_fastest_once():
    comment = render_comment(several_modes())
    assert "Compile modes side by side (torchbench)" in comment
    assert comment.count("fastest)") == 1
    out = StringIO()
    print_comparison(several_modes(), Console(file=out, width=80))
    assert "Compile modes of torchbench" in out.getvalue()
    assert out.getvalue().count("fastest") == 1
    assert max(map(len, out.getvalue().splitlines())) <= 80
