"""Slowdowns planted in real steps are named with their line; what is compiled, left alive or unknown is said."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.cause_plants import PLANTS, STEPS
from benchmarks.cause_quality import answer_of, explained

from ci_bench.judge.policy.causes import cause_of
from ci_bench.records.profiles import MOST_ROWS, MOST_SOURCE, RowKind, SourceLine
from ci_bench.suites.contract import Compiler, Context
from ci_bench.worker.profiling import arm
from ci_bench.worker.profiling.arm import explain_arm
from ci_bench.worker.profiling.compiled import generated_kernels
from ci_bench.worker.profiling.operators import c_name, key_of, peak_of
from ci_bench.worker.profiling.sources import FrameSources

pytestmark = pytest.mark.engine

TIMES = {
    "GELU by tanh and a power": "aten::pow",
    "sorted": "aten::sort",
    "waiting": "sleep",
}


@pytest.fixture(scope="module")
def base():
    return explained(STEPS["inference"], compiled=False)


@pytest.mark.parametrize("name", sorted(TIMES))
def test_a_planted_slowdown_is_first_on_its_line(base, name) -> None:
    (plant,) = [one for one in PLANTS if one.name == name]
    cause = cause_of(base, explained(plant.source(), compiled=False))
    assert answer_of(plant, cause).is_first, cause.parts[:3]
    assert any(TIMES[name] in part.after for part in cause.parts)
    assert all(
        part.places[0].startswith("step.py:")
        for part in cause.parts
        if part.kind is RowKind.OPERATOR
    )


def test_what_a_step_consists_of_comes_to_the_whole_of_it(base) -> None:
    assert sum(row.seconds for row in base.rows) + base.left_out_s == pytest.approx(
        base.step_s, rel=1e-6
    )
    assert base.notes == ()
    (product,) = [row for row in base.rows if row.name == "aten::mm"]
    assert [line.code for line in product.lines] == ["y = x @ w"]
    assert sum(row.alive_bytes for row in base.rows) == pytest.approx(
        2 * 384 * 384 * 4, rel=0.02
    ), "of an operator and its input"


def test_the_backward_pass_has_the_lines_of_the_forward_pass() -> None:
    profile = explained(STEPS["training"], compiled=False)
    lines = {
        line.code for row in profile.rows if row.name == "aten::gelu_backward" for line in row.lines
    }
    assert lines == {"y = F.gelu(y)"}


def test_what_own_code_calls_in_the_backward_pass_has_its_line_and_a_slow_layout_the_line_that_made_it() -> (
    None
):
    """A function of autograd that sorts, and a product's gradient that comes transposed to the GELU's backward operator."""
    sources = [
        plant.source()
        for plant in PLANTS
        if plant.name in {"a slow backward", "a copy in both passes"}
    ]
    copied, slow = (explained(source, compiled=False) for source in sources)
    assert {line.code for row in slow.rows if row.name == "aten::sort" for line in row.lines} == {
        "return g.sort(-1).values # planted"
    }
    (laid_out,) = [row.laid_out for row in copied.rows if row.name == "aten::gelu_backward"]
    assert [line.code for line in laid_out] == ["y = y.t().contiguous().t() # planted"]


def test_a_graph_break_is_told_with_its_line_and_kernels_with_theirs() -> None:
    (plant,) = [one for one in PLANTS if one.name == "a graph break"]
    profile = explained(plant.source(), compiled=True)
    (broken,) = profile.breaks
    number = next(n for n, line in enumerate(plant.source().splitlines(), 1) if "# planted" in line)
    assert broken.place == f"step.py:{number}"
    kernels = {
        row.name: [line.code for line in row.lines]
        for row in profile.rows
        if row.kind is RowKind.KERNEL
    }
    assert any("y = F.gelu(y)" in codes for codes in kernels.values()), kernels
    base = explained(STEPS["compiled"], compiled=True)
    assert answer_of(plant, cause_of(base, profile)).is_first
    (kernel,) = [row for row in base.rows if row.kind is RowKind.KERNEL]
    assert len(kernel.lines) > 3, "a fused kernel has the lines of all that was fused"
    assert [one.name for one in base.kernels] == [kernel.name]
    assert "erf" in base.kernels[0].source, "GELU, as C++"
    (changed, *others) = cause_of(base, profile).kernels
    assert (changed.before, changed.after) == ("", profile.kernels[0].name), (
        "a broken fusion has other kernels"
    )
    assert {one.before for one in others} >= {kernel.name}


WRAPPER = """
cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0)
{ }
''')
# Source node to ATen node mapping:
triton_poi_fused_mul_1 = async_compile.triton('triton_poi_fused_mul_1', '''
import triton
def triton_poi_fused_mul_1(in_ptr0): ''', device_str='cuda')
triton_long = async_compile.triton('triton_long', '''%s''')
async_compile.wait(globals())
"""


def test_kernels_are_cut_out_of_the_code_of_a_graph() -> None:
    first, second, long = generated_kernels(WRAPPER % ("x" * 9999))
    assert (first.name, first.source.splitlines()[-1]) == ("cpp_fused_add_0", "{ }")
    assert (second.name, second.source.splitlines()[0]) == (
        "triton_poi_fused_mul_1",
        "import triton",
    )
    assert len(long.source) == MOST_SOURCE
    assert generated_kernels("x = 3\n") == []


class History:
    """A stand-in for the history of a GPU's memory: on what device, and whether it began before the program was opened."""

    note, said = "", ""

    def __init__(self, device):
        History.said = device

    def keep(self, place):
        place.write_text(self.said)


class Nested:
    """A workload that cannot bear a dispatch mode."""

    def open(self, arm):
        History.said += ": opened after"
        return self

    items, parts, compiler = None, (), Compiler.NONE

    def step(self, _mark):
        import torch
        from torch.utils._python_dispatch import _get_current_dispatch_mode

        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("not under a mode")
        torch.ones(8)

    def finish(self):
        return ()


def test_a_program_that_bears_no_dispatch_mode_has_no_lines_and_says_so(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(arm, "MemoryHistory", History)
    context = Context(device="cpu", scratch=tmp_path, progress=lambda *_: None)
    (profile,) = explain_arm(Nested(), "arm", context=context, limit_s=60.0).profiles
    assert profile.notes == ("no lines and no memory: RuntimeError: not under a mode",)
    assert any(row.name == "aten::ones" for row in profile.rows)
    assert (tmp_path / "attachments" / "trace-arm.json.gz").stat().st_size > 100
    assert (tmp_path / "attachments" / "memory-arm.json.gz").read_text() == "cpu: opened after"


def test_a_file_of_the_tree_is_the_users_and_torch_is_nobodys(tmp_path: Path) -> None:
    import torch

    own = tmp_path / "pkg" / "model.py"
    own.parent.mkdir()
    own.write_text("first = 1\nsecond   =   2\n")
    (tmp_path / ".venv/lib/python3/site-packages/lib").mkdir(parents=True)
    sources = FrameSources(tmp_path)
    assert sources.line(str(own), 2) == SourceLine(place="pkg/model.py:2", code="second = 2")
    assert sources.is_own("pkg/model.py"), "the profiler takes off what is on the path"
    assert not sources.is_own(torch.__file__)
    assert not sources.is_own(str(tmp_path / ".venv/lib/python3/site-packages/lib/x.py")), (
        "an environment in the tree is not of it"
    )
    text = f'  File "{own}", line 1, in f\n    first\n  File "{torch.__file__}", line 3, in g\n'
    assert sources.of_traceback(text).place == "pkg/model.py:1"
    assert sources.of_traceback(f'File "{torch.__file__}", line 3, in g') is None
    assert sources.of_frame(sys._getframe()).place.rpartition(":")[0].endswith("test_arm.py")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("aten::mm", (RowKind.OPERATOR, "aten::mm")),
        ("graph_3_cpp_fused_add_0", (RowKind.KERNEL, "cpp_fused_add_0")),
        ("triton_poi_fused_add_0", (RowKind.KERNEL, "triton_poi_fused_add_0")),
        ("Torch-Compiled Region: 0/0", (RowKind.OPERATOR, "Torch-Compiled Region:")),
        (f"## Call CompiledFxGraph f{'a1' * 25} ##", (RowKind.OPERATOR, "Call CompiledFxGraph")),
        ("x" * 500, (RowKind.OPERATOR, "x" * 200)),
        ("##", (RowKind.OPERATOR, "unnamed")),
        ("ci-bench: step", None),
        ("[memory]", None),
    ],
)
def test_names_lose_what_is_of_one_process(name, key) -> None:
    assert key_of(name) == key


def test_a_function_of_c_is_called_by_its_name() -> None:
    assert [c_name(f"<built-in {what} sleep>") for what in ("function", "method")] == [
        "sleep",
        "sleep",
    ]
    assert c_name("something") == "something"


def test_the_peak_is_of_what_is_there_at_once() -> None:
    one, two, three = (((RowKind.OPERATOR, name), ()) for name in "abc")
    allocations = [
        (3, 0x2, -50, two),
        (1, 0x1, 100, one),
        (2, 0x2, 50, two),
        (4, 0x3, 20, three),
        (5, 0x9, -7, one),
    ]
    assert peak_of(allocations) == {one: 100.0, two: 50.0}
    assert peak_of([]) == {}


def test_a_profile_holds_as_many_rows_as_a_document(base) -> None:
    from ci_bench.worker.profiling.arm import _most

    rows = [
        replace(base.rows[0], seconds=float(n), alive_bytes=1.0 if n < 3 else 0.0)
        for n in range(400)
    ]
    kept, left = _most(rows)
    assert (len(kept), len(left)) == (MOST_ROWS, 250)
    assert {row.seconds for row in kept} >= {0.0, 1.0, 2.0, 399.0}, (
        "what holds memory stays, however quick"
    )
