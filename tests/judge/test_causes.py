"""Two profiles become what changed: rows matched, ranked by their share of the change, and nothing blamed that did not move."""

from dataclasses import replace

import pytest
from judge_builders import metric, result, sampled

from ci_bench.judge.policy.causes import (
    KernelMatch,
    arms_that_fail_to_compile,
    arms_to_explain,
    cause_of,
    causes,
    matched,
    scatter_of,
)
from ci_bench.records.comparison import CaseComparison, Pair, Parity, ParityFinding, Verdict
from ci_bench.records.profiles import GraphBreak, Profile, ProfileRow, RowKind, SourceLine
from ci_bench.records.results import Better, Check, Failure, Outcome, Status, Unit


def row(name, seconds, at="model.py:1", code="", kind=RowKind.OPERATOR, **fields):
    lines = (
        () if at is None else tuple(SourceLine(place=place, code=code) for place in at.split(","))
    )
    return ProfileRow(name=name, kind=kind, lines=lines, calls=1.0, seconds=seconds, **fields)


def kernel(name, seconds, at="model.py:1", **fields):
    return row(name, seconds, at, kind=RowKind.KERNEL, **fields)


def profile(*rows, step_s=None, **fields):
    return Profile(
        arm="eager",
        step_s=sum(one.seconds for one in rows) if step_s is None else step_s,
        steps=9,
        rows=rows,
        **fields,
    )


def said(base, head):
    return [
        (part.before, part.after, round(part.change_s, 6)) for part in cause_of(base, head).parts
    ]


def test_what_is_new_is_first_with_its_share_and_its_line() -> None:
    base = profile(row("aten::mm", 0.010), row("aten::add", 0.001, "model.py:2"))
    head = profile(
        row("aten::mm", 0.0101),
        row("aten::add", 0.001, "model.py:2"),
        row("aten::copy_", 0.004, "model.py:3"),
    )
    cause = cause_of(base, head)
    assert (cause.parts[0].after, cause.parts[0].places) == (("aten::copy_",), ("model.py:3",))
    assert cause.parts[0].share == pytest.approx(0.004 / 0.0041)
    assert cause.attributed == pytest.approx(1.0)


def test_what_no_row_explains_is_not_attributed() -> None:
    cause = cause_of(profile(row("aten::mm", 0.01)), profile(row("aten::mm", 0.011), step_s=0.012))
    assert cause.attributed == pytest.approx(0.5)
    too_much = cause_of(
        profile(row("aten::mm", 0.01)), profile(row("aten::mm", 0.013), step_s=0.012)
    )
    assert too_much.attributed == pytest.approx(0.5), (
        "parts that say more than there is are as far off"
    )


def test_an_unchanged_step_has_no_parts_and_nothing_to_attribute() -> None:
    rows = (
        row("aten::mm", 0.010, error_s=1e-4),
        row("aten::add", 0.001, "model.py:2", error_s=1e-5),
    )
    moved = tuple(replace(one, seconds=one.seconds * 1.004) for one in rows)
    cause = cause_of(profile(*rows), profile(*moved))
    assert (cause.parts, cause.attributed) == ((), None)


@pytest.mark.parametrize(("error_s", "parts"), [(0.0001, 1), (0.0002, 1), (0.0005, 0)])
def test_a_row_that_moved_within_its_noise_is_no_part(error_s, parts) -> None:
    base, head = (profile(row("aten::mm", seconds, error_s=error_s)) for seconds in (0.010, 0.011))
    assert len(cause_of(base, head).parts) == parts


def test_lines_that_moved_are_the_same_by_their_text() -> None:
    base = profile(
        row("aten::mul", 0.001, "m.py:10", "y = x * 2"),
        row("aten::mul", 0.002, "m.py:20", "z = y * y"),
    )
    head = profile(
        row("aten::mul", 0.001, "m.py:12", "y = x * 2"),
        row("aten::mul", 0.005, "m.py:17", "y = y * 1"),
        row("aten::mul", 0.002, "m.py:22", "z = y * y"),
    )
    assert said(base, head) == [((), ("aten::mul",), 0.005)]
    assert cause_of(base, head).parts[0].places == ("m.py:17",)


@pytest.mark.parametrize(
    ("after", "before", "gone"), [(0.0, 2.0, True), (2.0, 0.0, False)], ids=["quicker", "slower"]
)
def test_the_largest_share_comes_first_whichever_way_the_step_moved(before, after, gone) -> None:
    rows = row("aten::mm", 0.010)
    base, head = (
        profile(rows, row("aten::copy_", one, "b.py:2"), row("aten::add", one / 4, "c.py:3"))
        for one in (before, after)
    )
    cause = cause_of(base, head)
    names = [part.before if gone else part.after for part in cause.parts]
    assert names == [("aten::copy_",), ("aten::add",)]
    assert [part.share for part in cause.parts] == [pytest.approx(0.8), pytest.approx(0.2)]


def test_a_step_that_moved_by_half_a_per_cent_has_no_shares() -> None:
    parts = row("aten::add", 0.02, "b.py:2"), row("aten::mul", 0.02, "c.py:3")
    still, moved = (
        profile(row("aten::mm", 1.0), step_s=1.0),
        profile(row("aten::mm", 1.0), *parts, step_s=1.005),
    )
    assert (
        cause_of(still, moved).attributed,
        [one.share for one in cause_of(still, moved).parts],
    ) == (None, [None, None])
    assert cause_of(still, replace(moved, step_s=1.0051)).attributed is not None


def test_a_line_that_is_new_comes_before_those_that_both_sides_have() -> None:
    """A fused kernel has more lines than are shown, in any order; the one that matters must be among them."""
    old = tuple(SourceLine(place=f"m.py:{number}", code=f"y = f{number}(y)") for number in range(5))
    new, unread = SourceLine(place="m.py:5", code="y = y[order]"), SourceLine(place="m.py:9")
    base = profile(replace(kernel("cpp_fused_add_gelu_mul_0", 0.002), lines=old))
    head = profile(replace(kernel("cpp_fused_add_gelu_mul_0", 0.005), lines=(unread, *old, new)))
    (part,) = cause_of(base, head).parts
    assert part.places == ("m.py:5", "m.py:9", "m.py:0", "m.py:1"), (
        "whose text cannot be read is not called new"
    )
    assert part.codes[0] == "y = y[order]"


def test_only_so_many_parts_names_and_places_are_kept() -> None:
    many = [row("aten::copy_", 0.001 * (100 - one), f"m.py:{one}", f"y{one}") for one in range(70)]
    assert (
        len(cause_of(profile(row("aten::mm", 1.0)), profile(row("aten::mm", 1.0), *many)).parts)
        == 60
    )
    lines = ",".join(f"m.py:{one}" for one in range(9))
    head = profile(row("aten::mm", 1.0), row("aten::copy_", 1.0, lines))
    (part,) = cause_of(profile(row("aten::mm", 1.0)), head).parts
    assert part.places == ("m.py:0", "m.py:1", "m.py:2", "m.py:3")


@pytest.mark.parametrize(("held", "told"), [(64 * 1024, 1), (64 * 1024 - 1, 0)])
def test_memory_below_64_kib_is_not_named(held, told) -> None:
    head = profile(
        row("aten::mm", 0.01),
        row("aten::empty", 0.0, "b.py:2", alive_bytes=float(held)),
        step_s=0.01,
    )
    assert len(cause_of(profile(row("aten::mm", 0.01)), head).memory) == told


def test_a_kernel_with_another_number_is_the_same_kernel() -> None:
    assert (
        said(
            profile(kernel("triton_poi_fused_add_mul_0", 0.001)),
            profile(kernel("triton_poi_fused_add_mul_3", 0.001)),
        )
        == []
    )


def test_a_kernel_whose_operators_are_in_another_order_is_the_same_kernel() -> None:
    base = profile(kernel("triton_poi_fused_mul_add_0", 0.001, "a.py:1"))
    head = profile(kernel("triton_poi_fused_add_mul_0", 0.003, "b.py:9"))
    assert said(base, head) == [
        (("triton_poi_fused_mul_add_0",), ("triton_poi_fused_add_mul_0",), 0.002)
    ]


def test_a_broken_fusion_is_one_part_of_what_was_fused_and_what_is_left() -> None:
    base = profile(kernel("cpp_fused_add_gelu_mul_0", 0.001, "m.py:1,m.py:2,m.py:3"))
    head = profile(
        kernel("cpp_fused_add_gelu_0", 0.002, "m.py:1,m.py:2"),
        kernel("cpp_fused_mul_1", 0.001, "m.py:3"),
        row("aten::sort", 0.005, "m.py:9"),
    )
    assert said(base, head) == [
        ((), ("aten::sort",), 0.005),
        (("cpp_fused_add_gelu_mul_0",), ("cpp_fused_add_gelu_0", "cpp_fused_mul_1"), 0.002),
    ]


def test_a_formula_in_place_of_an_operator_is_one_part() -> None:
    base = profile(row("aten::gelu", 0.001, "m.py:3"), row("aten::mm", 0.01, "m.py:1"))
    head = profile(
        row("aten::erf", 0.002, "m.py:3"),
        row("aten::mul", 0.001, "m.py:3"),
        row("aten::mm", 0.01, "m.py:1"),
    )
    assert said(base, head) == [(("aten::gelu",), ("aten::erf", "aten::mul"), 0.002)]


def test_what_is_new_on_one_line_is_one_part_python_and_operators_alike() -> None:
    base = profile(
        row("aten::mm", 0.01, "m.py:1"), row("forward", 0.001, "m.py:0", kind=RowKind.PYTHON)
    )
    head = profile(
        row("aten::mm", 0.01, "m.py:1"),
        row("forward", 0.003, "m.py:0", kind=RowKind.PYTHON),
        row("numpy", 0.001, "m.py:3", kind=RowKind.PYTHON),
        row("aten::to", 0.0015, "m.py:3"),
        row("aten::relu", 0.0001, "m.py:5"),
    )
    assert said(base, head) == [
        ((), ("aten::to", "numpy"), 0.0025),
        (("forward",), ("forward",), 0.002),
        ((), ("aten::relu",), 0.0001),
    ]
    assert said(head, base)[0] == (("aten::to", "numpy"), (), -0.0025), (
        "and what is gone of one line"
    )


def apart(*ratios, new_s=0.0):
    """A step of rows of 100 ms and more, each by its ratio longer on head, and one more row on head."""
    base = [row(f"aten::op{n}", 0.1 + 0.01 * n, f"m.py:{n}", f"y{n}") for n in range(len(ratios))]
    head = [
        replace(one, seconds=one.seconds * ratio) for one, ratio in zip(base, ratios, strict=True)
    ]
    return profile(*base), profile(
        *head, *([row("aten::copy_", new_s, "m.py:90", "new")] if new_s else [])
    )


@pytest.mark.parametrize(
    ("ratios", "new_s", "first"),
    [
        ((1.05, 1.06, 1.10, 1.05, 1.06), 0.010, "aten::copy_"),
        ((1.0, 1.01, 1.30, 1.0, 1.01), 0.010, "aten::op2"),
        ((1.05, 1.06, 1.50, 1.05, 1.06), 0.010, "aten::op2"),
        ((1.30, 1.30, 1.30, 1.30, 1.30), 0.0, "aten::op4"),
        ((1.05, 1.10), 0.010, "aten::op1"),
        ((1.05, 1.05, 1.05, 1.10), 0.010, "aten::copy_"),
        ((1.05, 1.05, 1.01, 1.12), 0.010, "aten::copy_"),
        ((1.05, 1.05, 1.27, 1.05, 1.05), 0.010, "aten::op2"),
        ((1.05, 1.05, 1.27, 1.05, 1.05), 0.020, "aten::copy_"),
    ],
    ids=[
        "processes that differ",
        "one that is slower alone",
        "one that is slower by more than processes differ",
        "all slower alike: the largest",
        "too few to say what processes differ by",
        "three others are enough",
        "the middle of what processes differ by, not their least",
        "three times what processes differ by, and not four",
        "beyond that by less than the new one takes",
    ],
)
def test_a_row_that_moved_as_all_rows_did_does_not_come_before_a_new_one(
    ratios, new_s, first
) -> None:
    base, head = apart(*ratios, new_s=new_s)
    cause = cause_of(base, head)
    assert cause.parts[0].after == (first,)
    assert cause.attributed == pytest.approx(1.0, abs=0.06), "nothing is left out for that"
    gone = cause_of(head, base)
    assert first in (*gone.parts[0].before, *gone.parts[0].after), "and where the step got quicker"


def test_what_processes_differ_by_is_the_middle_of_their_seconds() -> None:
    def same(*rows):
        return [
            KernelMatch(base=[row("a", seconds)], head=[row("a", seconds * ratio)])
            for seconds, ratio in rows
        ]

    assert scatter_of(same((1.0, 1.01), (1.0, 1.05), (1.0, 1.09))) == pytest.approx(0.05)
    assert scatter_of(same((2.0, 1.25), (1.0, 1.5), (1.0, 1.75))) == 0.25, (
        "the first has half of them by itself"
    )


@pytest.mark.parametrize(("calls", "same"), [(10, True), (11, True), (12, False), (9, True)])
def test_a_row_is_the_same_where_it_is_called_as_often_but_for_a_tenth(calls, same) -> None:
    one, two = (replace(row("a", 1.0), calls=float(often)) for often in (10, calls))
    assert KernelMatch(base=[one], head=[two]).is_same is same


def test_where_the_step_is_as_long_as_before_what_is_longer_comes_first() -> None:
    base = profile(row("aten::mm", 1.0), row("aten::add", 0.02, "b.py:2"), step_s=1.0)
    head = profile(row("aten::mm", 1.0), row("aten::copy_", 0.02, "c.py:3"), step_s=1.0)
    assert said(base, head) == [((), ("aten::copy_",), 0.02), (("aten::add",), (), -0.02)]


def test_exactly_half_a_per_cent_is_no_change() -> None:
    base = profile(row("aten::mm", 200.0))
    new = row("aten::copy_", 1.0, "b.py:2")
    cause = cause_of(base, profile(row("aten::mm", 200.0), new, step_s=201.0))
    assert (cause.parts, cause.attributed) == ((), None)


def test_only_six_names_of_a_part_are_kept() -> None:
    head = profile(
        row("aten::mm", 1.0), *(row(f"aten::op{n}", 1.0 - n / 10, "m.py:3") for n in range(8))
    )
    (part,) = cause_of(profile(row("aten::mm", 1.0)), head).parts
    assert part.after == tuple(f"aten::op{n}" for n in range(6))


def test_a_function_with_another_number_is_another_function() -> None:
    base = profile(row("layer_0", 0.001, "a.py:1", kind=RowKind.PYTHON))
    head = profile(row("layer_1", 0.003, "b.py:2", kind=RowKind.PYTHON))
    assert said(base, head) == [((), ("layer_1",), 0.003), (("layer_0",), (), -0.001)]


def test_kernels_without_operators_in_their_names_are_not_the_same_by_that() -> None:
    base, head = profile(kernel("gemm", 0.001, "a.py:1")), profile(kernel("conv", 0.003, "b.py:2"))
    assert said(base, head) == [((), ("conv",), 0.003), (("gemm",), (), -0.001)]


def test_the_kernel_of_the_same_operators_is_the_same_before_others_are_related() -> None:
    base = profile(kernel("triton_poi_fused_mul_add_0", 0.001, "a.py:1"))
    head = profile(
        kernel("triton_poi_fused_add_mul_0", 0.004, "b.py:9"),
        kernel("triton_poi_fused_add_1", 0.001, "c.py:3"),
    )
    assert said(base, head) == [
        (("triton_poi_fused_mul_add_0",), ("triton_poi_fused_add_mul_0",), 0.003),
        ((), ("triton_poi_fused_add_1",), 0.001),
    ]


@pytest.mark.parametrize(
    ("before", "after", "related"),
    [
        (kernel("cpp_fused_a_b_c_d_0", 0.001, "m.py:1"), kernel("cpp_fused_a_b_x_y_0", 0.003, "m.py:9"), True),
        (kernel("cpp_fused_a_b_c_d_0", 0.001, "m.py:1"), kernel("cpp_fused_a_w_x_y_0", 0.003, "m.py:9"), False),
        (kernel("cpp_fused_a_b_c_d_e_0", 0.001, "m.py:1"), kernel("cpp_fused_a_b_x_y_z_0", 0.003, "m.py:9"), False),
        (kernel("cpp_fused_a_0", 0.001, "m.py:1"), kernel("cpp_fused_a_b_c_d_0", 0.003, "m.py:9"), True),
        (kernel("cpp_fused_a_b_c_d_0", 0.001, "m.py:1"), kernel("cpp_fused_a_0", 0.003, "m.py:9"), True),
        (kernel("cpp_fused_add_gelu_0", 0.001, "m.py:1"), row("aten::gelu", 0.003, "m.py:9"), True),
        (row("aten::gelu", 0.001, "m.py:1"), kernel("cpp_fused_add_gelu_0", 0.003, "m.py:9"), True),
        (kernel("cpp_fused_add_gelu_0", 0.001, "m.py:1"), row("aten::where", 0.003, "m.py:1"), True),
        (kernel("cpp_fused_add_gelu_0", 0.001, "m.py:1"), row("aten::where", 0.003, "m.py:9"), False),
        (row("f", 0.001, "m.py:1", kind=RowKind.PYTHON), row("aten::where", 0.003, "m.py:1"), False),
        (row("aten::where", 0.001, "m.py:1"), row("f", 0.003, "m.py:1", kind=RowKind.PYTHON), False),
    ],
    ids=["half of their operators", "a quarter", "less than half", "all of the smaller", "all of the smaller, on head",
         "one of them alone", "one of them alone, on base", "a line", "nothing", "Python takes no operator's place", "nor the other way"],
)  # fmt: skip
def test_what_took_the_place_of_what_is_one_part(before, after, related) -> None:
    parts = cause_of(profile(before), profile(after)).parts
    apart = [((), (after.name,)), ((before.name,), ())]
    assert [(part.before, part.after) for part in parts] == (
        [((before.name,), (after.name,))] if related else apart
    )


def test_what_was_judged_slower_has_what_is_longer_first_though_the_profile_was_quicker() -> None:
    base, head = apart(0.95, 0.96, 0.94, 0.95, new_s=0.01)
    assert cause_of(base, head, slower=True).parts[0].after == ("aten::copy_",)
    assert cause_of(base, head).parts[0].after != ("aten::copy_",)


def test_a_row_that_is_most_of_the_step_does_not_vouch_for_itself() -> None:
    base = [
        kernel("cpp_fused_add_0", 0.2),
        *(row(f"op{n}", 0.01, f"m.py:{n}") for n in range(2, 7)),
    ]
    head = [
        kernel("cpp_fused_add_0", 0.6),
        *(replace(one, seconds=0.0105) for one in base[1:]),
        row("new", 0.001, "m.py:9"),
    ]
    assert cause_of(profile(*base), profile(*head)).parts[0].after == ("cpp_fused_add_0",)


COPIED = SourceLine(place="m.py:4", code="y = y.t().contiguous().t()")


def of_layout(*laid_out):
    """Base, and head with a copy on a new line, and what reads the layout that this line made."""
    base = profile(
        row("aten::gelu", 0.001, "m.py:3", "y = gelu(y)"),
        row("aten::gelu_backward", 0.001, "m.py:3", "y = gelu(y)"),
        row("aten::_softmax", 0.002, "m.py:6", "y = softmax(y)"),
    )
    head = profile(
        row("aten::gelu", 0.001, "m.py:3", "y = gelu(y)"),
        row("aten::gelu_backward", 0.004, "m.py:3", "y = gelu(y)", laid_out=laid_out),
        row("aten::copy_", 0.001, COPIED.place, COPIED.code),
        row("aten::_softmax", 0.002, "m.py:7", "y = softmax(y)", laid_out=laid_out),
        row("aten::copy_", 0.002, "m.py:7", "y = softmax(y)", laid_out=laid_out),
        row("aten::sort", 0.005, "m.py:8", "y = y.sort()", laid_out=laid_out),
    )
    return base, head


def test_what_reads_a_new_layout_is_one_part_at_the_line_that_made_it() -> None:
    base, head = of_layout(COPIED)
    (first, second) = cause_of(base, head).parts
    assert (first.places[0], first.codes[0], first.by_layout) == (COPIED.place, COPIED.code, True)
    assert round(first.change_s, 6) == 0.006, (
        "the copy, the slower backward operator, and the copy within softmax"
    )
    assert (second.after, second.places, second.by_layout) == (
        ("aten::sort",),
        ("m.py:8",),
        False,
    ), "a new line's own time"


def test_a_layout_that_base_has_too_is_no_cause() -> None:
    base, head = of_layout(COPIED)
    again = SourceLine(place="m.py:2", code=COPIED.code)
    base = replace(base, rows=(replace(base.rows[0], laid_out=(again,)), *base.rows[1:]))
    parts = cause_of(base, head).parts
    assert [part.after for part in parts] == [
        ("aten::sort",),
        ("aten::gelu_backward",),
        ("aten::copy_",),
        ("aten::copy_",),
    ]
    assert not any(part.by_layout for part in parts)


def test_every_row_is_in_exactly_one_match() -> None:
    names = ("aten::add", "aten::mul", "cpp_fused_add_0", "cpp_fused_add_mul_1")
    base = [
        row(
            name,
            0.001 * n,
            f"m.py:{n % 3}",
            kind=RowKind.KERNEL if "fused" in name else RowKind.OPERATOR,
        )
        for n, name in enumerate(names * 3)
    ]
    head = [replace(one, seconds=one.seconds * 2, lines=()) for one in base[::2]] + base[1:5]
    found = matched(base, head)
    assert sorted(id(one) for match in found for one in match.base) == sorted(map(id, base))
    assert sorted(one.seconds for match in found for one in match.head) == sorted(
        one.seconds for one in head
    )


def test_breaks_kernels_and_recompiles_are_those_that_only_head_has() -> None:
    old = GraphBreak(reason="print", place="m.py:3")
    new = GraphBreak(reason="Tensor.item", place="m.py:9", times=2)
    base = profile(kernel("cpp_fused_add_0", 0.001), breaks=(old,), recompiles=("f: x",))
    head = profile(kernel("cpp_fused_mul_0", 0.001), breaks=(old, new), recompiles=("f: x", "f: y"))
    cause = cause_of(base, head)
    assert (cause.new_breaks, cause.gone_breaks, cause.new_recompiles) == ((new,), (), ("f: y",))
    assert (cause.new_kernels, cause.gone_kernels) == (("cpp_fused_mul_0",), ("cpp_fused_add_0",))
    again = cause_of(base, profile(breaks=(replace(old, times=3, place="m.py:8"),)))
    assert again.new_breaks == (GraphBreak(reason="print", place="m.py:8", times=2),), (
        "one that comes more often"
    )


def test_a_break_that_is_new_once_is_named_and_one_more_of_a_reason_at_its_new_line() -> None:
    printed, item = (
        GraphBreak(reason="print", place="m.py:3"),
        GraphBreak(reason="Tensor.item", place="m.py:8"),
    )
    again = replace(printed, place="m.py:8")
    assert cause_of(profile(), profile(breaks=(item,))).new_breaks == (item,)
    assert cause_of(
        profile(breaks=(printed, item)), profile(breaks=(printed, again, item))
    ).new_breaks == (again,)


def test_memory_is_matched_by_name_and_line() -> None:
    base = profile(
        row("aten::mm", 0.001, alive_bytes=1e6), row("aten::add", 0.001, "m.py:2", alive_bytes=1e6)
    )
    head = profile(
        row("aten::mm", 0.001, alive_bytes=1e6), row("aten::clone", 0.0, "m.py:3", alive_bytes=4e6)
    )
    assert [(part.name, part.change_bytes) for part in cause_of(base, head).memory] == [
        ("aten::clone", 4e6),
        ("aten::add", -1e6),
    ]


@pytest.mark.parametrize(
    ("base", "head", "why"),
    [
        (None, profile(row("a", 1.0)), "base was not explained"),
        (
            Profile(arm="eager", step_s=None, unknown="too slow"),
            profile(row("a", 1.0)),
            "base: too slow",
        ),
        (profile(row("a", 1.0)), Profile(arm="eager", step_s=None), "head: nothing is known"),
    ],
)
def test_without_both_sides_it_says_why(base, head, why) -> None:
    cause = cause_of(base, head)
    assert (cause.unknown, cause.parts, cause.attributed) == (why, (), None)


def pair(verdict, *, arm="eager", unit=Unit.SECONDS, detail=False, speedup=0.9):
    return Pair(
        metric="step_time",
        arm=arm,
        unit=unit,
        better=Better.LOWER,
        verdict=verdict,
        reason="",
        threshold=0.01,
        detail=detail,
        speedup=speedup,
    )


@pytest.mark.parametrize(
    ("verdict", "detail", "slower"),
    [
        (Verdict.REGRESSED, False, True),
        (Verdict.SUSPECTED, False, True),
        (Verdict.UNCHANGED, False, False),
        (Verdict.INCONCLUSIVE, False, False),
        (Verdict.REGRESSED, True, False),
    ],
)
def test_only_what_was_judged_worse_is_blamed(verdict, detail, slower) -> None:
    base = replace(result(metric(sampled(1.0))), profiles=(profile(row("a", 1.0)),))
    head = replace(base, profiles=(profile(row("a", 1.5)),))
    (cause,) = causes(base, head, [pair(verdict, detail=detail)])
    assert (cause.slower, cause.larger) == (slower, False)
    (cause,) = causes(base, head, [replace(pair(verdict, detail=detail), metric="compile_cold")])
    assert not cause.slower, "compiling is no step"
    (cause,) = causes(base, head, [pair(verdict, detail=detail, unit=Unit.BYTES)])
    assert (cause.slower, cause.larger) == (False, slower)


def compared(**fields):
    return CaseComparison(
        id="fake/a", suite="fake", verdict=Verdict.UNCHANGED, reason="", base_status=Status.OK, head_status=Status.OK,
        reproduce=None, arms=("eager", "fast", "other"), reference="eager", **fields,
    )  # fmt: skip


def test_arms_that_are_worse_come_first_then_those_that_are_wrong() -> None:
    broken = ParityFinding(
        arm="other", verdict=Parity.DIFFERENT_MATH, tier=None, masks=None, steps=9, detail=""
    )
    failed = Check(name="accuracy", arm="fast", outcome=Outcome.FAIL, detail="")
    pairs = (
        pair(Verdict.REGRESSED, speedup=0.9),
        pair(Verdict.REGRESSED, arm="fast", speedup=0.5),
        pair(Verdict.UNCHANGED, arm="other"),
    )
    assert arms_to_explain(compared(pairs=pairs, parity=(broken,))) == ("fast", "eager", "other")
    assert arms_to_explain(compared(checks=(failed,))) == ("fast",)
    assert arms_to_explain(compared(checks=(replace(failed, informative=True),))) == ()
    assert (
        arms_to_explain(
            compared(pairs=(pair(Verdict.UNCHANGED), pair(Verdict.INCONCLUSIVE, arm="fast")))
        )
        == ()
    )
    assert arms_to_explain(compared(learning=broken)) == ("eager",)


def test_a_compilers_error_has_all_candidates_of_its_case_looked_at() -> None:
    failed = replace(result(arms=("eager", "fast", "other"), status=Status.FAILED), failure=None)
    error = Failure(stage="time", arms=("fast",), reason="InductorError: RuntimeError: no lowering")
    assert arms_that_fail_to_compile([replace(failed, failure=error)]) == {"s/a": ("fast", "other")}
    assert (
        arms_that_fail_to_compile(
            [failed, replace(failed, failure=replace(error, reason="it broke"))]
        )
        == {}
    )
