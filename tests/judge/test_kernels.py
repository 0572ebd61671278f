"""Which generated kernels changed: names without their numbering, sources without what is of one compilation, all of it bounded."""

import pytest

from ci_bench.judge.policy.kernels import MOST_CHANGES, kernel_changes, operators_of, unnumbered
from ci_bench.records.profiles import MOST_SOURCE, GeneratedKernel


def kernel(name, *lines):
    return GeneratedKernel(
        name=name,
        source="\n".join(
            (f'RECORD record_graph_{name[-1]}_{name}("graph_{name[-1]}_{name}")', *lines)
        ),
    )


def test_the_same_kernels_under_other_numbers_are_no_change() -> None:
    base = [kernel("cpp_fused_add_0", "x = 1"), kernel("cpp_fused_mul_1", "y = 1")]
    head = [kernel("cpp_fused_mul_0", "y = 1"), kernel("cpp_fused_add_3", "x = 1")]
    assert kernel_changes(base, head) == ()


def test_a_kernel_of_the_same_name_has_the_diff_of_its_source() -> None:
    base = [kernel("cpp_fused_add_0", "load", "x = a + b", "store")]
    head = [kernel("cpp_fused_add_2", "load", "x = a - b", "store")]
    (change,) = kernel_changes(base, head)
    assert (change.before, change.after) == ("cpp_fused_add_0", "cpp_fused_add_2")
    assert change.diff.splitlines()[1:] == [
        ' RECORD record_cpp_fused_add("cpp_fused_add")',
        " load",
        "-x = a + b",
        "+x = a - b",
        " store",
    ]


def test_of_two_of_one_name_the_one_that_is_as_it_was_is_not_compared_with_the_other() -> None:
    base = [kernel("cpp_fused_add_0", "x = 1"), kernel("cpp_fused_add_1", "x = 2")]
    head = [kernel("cpp_fused_add_0", "x = 3"), kernel("cpp_fused_add_1", "x = 1")]
    (change,) = kernel_changes(base, head)
    assert (change.before, change.after) == ("cpp_fused_add_1", "cpp_fused_add_0")


def test_operators_in_another_order_are_one_kernel_and_the_rest_is_new_or_gone() -> None:
    base = [kernel("triton_poi_fused_add_mul_0", "x"), kernel("triton_red_fused_sum_1", "s")]
    head = [kernel("triton_poi_fused_mul_add_0", "y"), kernel("triton_poi_fused_exp_1", "e")]
    changes = kernel_changes(base, head)
    assert [(one.before, one.after) for one in changes] == [
        ("triton_poi_fused_add_mul_0", "triton_poi_fused_mul_add_0"),
        ("", "triton_poi_fused_exp_1"),
        ("triton_red_fused_sum_1", ""),
    ]
    assert changes[1].diff == '+RECORD record_triton_poi_fused_exp("triton_poi_fused_exp")\n+e'
    assert changes[2].diff.splitlines()[-1] == "-s"


def test_where_one_side_has_none_nothing_is_known_of_it() -> None:
    assert kernel_changes([], [kernel("cpp_fused_add_0", "x")]) == ()
    assert kernel_changes([kernel("cpp_fused_add_0", "x")], []) == ()


def test_what_is_kept_is_bounded() -> None:
    long = [
        kernel(f"cpp_fused_{chr(97 + n)}_0", *(f"{n} {line}" for line in range(300)))
        for n in range(20)
    ]
    other = [
        kernel(f"cpp_fused_{chr(97 + n)}_0", *("z" * 200 for _ in range(300))) for n in range(20)
    ]
    changes = kernel_changes(long, other)
    assert len(changes) == MOST_CHANGES == 12
    for change in changes:
        lines = change.diff.splitlines()
        assert (len(lines), lines[-1].endswith("more lines")) == (61, True)
        assert max(map(len, lines)) <= 140
        assert len(change.diff) <= 9000
    hostile = [GeneratedKernel(name="k_0", source="\r".join("ab" * (MOST_SOURCE // 2)))]
    assert all(
        len(one.diff) <= 9000
        for one in kernel_changes(hostile, [GeneratedKernel(name="k_0", source="x")])
    )


def lines_of(before, after):
    """The diff of one kernel between two sources, without the place that it begins with."""
    (change,) = kernel_changes([kernel("k_0", *before)], [kernel("k_0", *after)])
    return change.diff.splitlines()[1:]


def test_a_diff_has_two_lines_around_what_changed() -> None:
    same = [f"y{number}" for number in range(5)]
    assert lines_of([*same, "a", *same], [*same, "b", *same]) == [
        " y3",
        " y4",
        "-a",
        "+b",
        " y0",
        " y1",
    ]


@pytest.mark.parametrize(
    ("length", "shown"),
    [(139, "+" + "z" * 139), (140, "+" + "z" * 138 + "…"), (400, "+" + "z" * 138 + "…")],
)
def test_a_line_is_cut_to_140_characters(length, shown) -> None:
    assert lines_of(["a"], ["z" * length])[-1] == shown


@pytest.mark.parametrize(
    ("new", "last"), [(57, "+56"), (58, "… 1 more line"), (59, "… 2 more lines")]
)
def test_a_diff_is_cut_to_60_lines_and_says_by_how_many(new, last) -> None:
    """One line is the place, one the name, one is gone."""
    shown = lines_of(["a"], [str(number) for number in range(new)])
    assert (len(shown), shown[-1]) == (min(new + 2, 60), last)


@pytest.mark.parametrize(("own", "last"), [(24, "+23"), (25, "… 1 more line")])
def test_a_kernel_of_one_side_is_cut_to_25_lines(own, last) -> None:
    """The first line is its name."""
    base, head = (
        kernel("cpp_fused_add_0", "x"),
        kernel("cpp_fused_exp_0", *(str(number) for number in range(own))),
    )
    new = next(one for one in kernel_changes([base], [head]) if not one.before)
    assert new.diff.splitlines()[-1] == last


@pytest.mark.parametrize(("place", "changes"), [(148, 1), (149, 0)])
def test_what_comes_after_150_lines_is_not_compared(place, changes) -> None:
    """The first line is its name."""
    sources = [[mark if number == place else "same" for number in range(200)] for mark in "ab"]
    assert len(kernel_changes(*([kernel("k_0", *source)] for source in sources))) == changes


@pytest.mark.parametrize(
    ("name", "plain", "operators"),
    [
        ("triton_poi_fused_add_mul_12", "triton_poi_fused_add_mul", {"add", "mul"}),
        ("cpp_fused_0_1", "cpp_fused", set()),
        ("aten::mm", "aten::mm", set()),
    ],
)
def test_names_without_numbers(name, plain, operators) -> None:
    assert (unnumbered(name), operators_of(name)) == (plain, operators)
