"""Which generated kernels changed: names without their numbering, sources without what is of one compilation, all of it bounded."""

import pytest

from ci_bench.judge.kernels import MOST_CHANGES, kernel_changes, operators_of, unnumbered
from ci_bench.records.profiles import MOST_SOURCE, GeneratedKernel


def kernel(name, *lines):
    return GeneratedKernel(
        name=name, source="\n".join((f'RECORD record_graph_{name[-1]}_{name}("graph_{name[-1]}_{name}")', *lines))
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
    long = [kernel(f"cpp_fused_{chr(97 + n)}_0", *(f"{n} {line}" for line in range(300))) for n in range(20)]
    other = [kernel(f"cpp_fused_{chr(97 + n)}_0", *("z" * 200 for _ in range(300))) for n in range(20)]
    changes = kernel_changes(long, other)
    assert len(changes) == MOST_CHANGES
    for change in changes:
        lines = change.diff.splitlines()
        assert (len(lines), lines[-1].endswith("more lines")) == (61, True)
        assert max(map(len, lines)) <= 140
        assert len(change.diff) <= 9000
    hostile = [GeneratedKernel(name="k_0", source="\r".join("ab" * (MOST_SOURCE // 2)))]
    assert all(len(one.diff) <= 9000 for one in kernel_changes(hostile, [GeneratedKernel(name="k_0", source="x")]))


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
