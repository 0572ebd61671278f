"""Where the layout of a tensor was made: by the line that transposed it, however far from the one that is slow by it."""

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch

from ci_bench.records.profiles import SourceLine
from ci_bench.worker.profiling.annotating import Layouts, label, layout_of
from ci_bench.worker.profiling.operators import Lines

pytestmark = pytest.mark.engine

MADE, LATER = (
    SourceLine(place="m.py:3", code="y = y.t()"),
    SourceLine(place="m.py:7", code="y = y + 1"),
)


def test_a_layout_is_that_of_the_line_that_made_it_wherever_it_goes() -> None:
    layouts, y = Layouts(), torch.randn(3, 4)
    turned = y.t()
    layouts.follow([y], [turned], MADE)
    later = turned + 1
    layouts.follow([turned, 1], [later], LATER)
    assert layout_of(later) is not None
    assert (layouts.origin([y]), layouts.origin([2.0, turned]), layouts.origin([later])) == (
        None,
        MADE,
        MADE,
    )
    copied = later.contiguous()
    layouts.follow([later], [copied], LATER)
    assert layouts.origin([copied]) is None, "what is contiguous has no layout to speak of"


def test_a_layout_from_before_the_step_has_no_line() -> None:
    layouts = Layouts()
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    other = image * 2
    layouts.follow([image, 2], [other], LATER)
    assert (layouts.origin([image]), layouts.origin([other])) == (None, None)


def test_memory_that_is_used_again_forgets_what_lay_there() -> None:
    layouts, y = Layouts(), torch.randn(3, 4).t()
    layouts.follow([], [y], MADE)
    layouts.follow([torch.randn(4, 3).t()], [y], LATER)  # of an unknown layout, at the same place
    assert layouts.origin([y]) is None


@pytest.mark.parametrize(
    "value", [None, 3, "text", torch.randn(2, 2), torch.eye(3).to_sparse(), torch.randn(1, 1).t()]
)
def test_what_has_no_layout(value) -> None:
    assert layout_of(value) is None


def test_a_subclass_without_memory_is_passed_over() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        layout_of(torch.empty(2, 3).t())
    assert (
        layout_of(
            torch.vmap(lambda row: torch.zeros(()) if layout_of(row) else row.sum())(
                torch.randn(3, 2)
            )
        )
        is None
    )


class Event:
    """One event of the profiler's tree."""

    def __init__(self, name, *children, kind="TorchOp", nanoseconds=10):
        self.name, self.children, self.duration_time_ns = name, children, nanoseconds
        self.tag = type("Tag", (), {"name": kind})


def test_an_annotation_says_both_lines_of_all_below_it() -> None:
    lines = Lines(lines=[MADE, LATER])
    inner = Event("aten::_softmax", Event("aten::copy_"))
    lines.read([Event(label(1, 0), inner), Event(label(1, None), Event("aten::add"))], device="cpu")
    read = {key[1]: (place, tuple(made)) for (key, place), made in lines.laid_out.items()}
    assert read == {
        "aten::_softmax": ((LATER,), (MADE,)),
        "aten::copy_": ((LATER,), (MADE,)),
        "aten::add": ((LATER,), ()),
    }


def test_a_line_within_a_backward_pass_is_one_below_the_function_that_runs_it(tmp_path) -> None:
    from ci_bench.worker.profiling.sources import FrameSources

    def frame(name, file, line, back=None):
        return SimpleNamespace(
            f_code=SimpleNamespace(co_name=name, co_filename=file), f_lineno=line, f_back=back
        )

    own, sources = str(tmp_path / "model.py"), FrameSources(tmp_path)
    (tmp_path / "model.py").write_text("a\nloss.backward()\nreturn g.sort()\n")
    engine = frame("_engine_run_backward", torch.__file__, 9, frame("run", own, 2))
    assert sources.within(engine, "_engine_run_backward") is None, "an operator of the engine's own"
    backward = frame("apply", torch.__file__, 7, frame("backward", own, 3, engine))
    assert sources.within(backward, "_engine_run_backward") == SourceLine(
        place="model.py:3", code="return g.sort()"
    )
    assert sources.within(None, "_engine_run_backward") is None
