"""A step is forward, backward and, outside both, the zeroing of gradients; what is told of it fits the engine."""

import pytest
import torch
from fastrnns_builders import make_case, open_case

from ci_bench.suites.contract import Compiler, no_mark
from ci_bench.suites.fastrnns.program import SETTLING_ROUNDS
from ci_bench.suites.fastrnns.variants import VARIANTS, Form
from ci_bench.worker.sampling import make_clock

pytestmark = pytest.mark.engine


def opened(name, arm=None, **options):
    return open_case(make_case(name, **options)).open(arm or name)


@pytest.mark.parametrize("name", ["aten", "py", "jit", "vl_py", "resnet18", "py_gru"])
def test_each_step_marks_the_ends_of_forward_and_backward(name):
    program = opened(name)
    program.step(no_mark)
    marks = []
    program.step(lambda: marks.append(None))
    assert [part.metric for part in program.parts] == ["forward_time", "backward_time"]
    assert len(marks) == 2


def test_both_arms_of_a_lower_bound_run_forward_alone():
    for arm in ("py_layernorm", "aten_layernorm"):
        program = opened("aten_layernorm", arm)
        marks = []
        program.step(lambda marks=marks: marks.append(None))
        assert [part.metric for part in program.parts] == ["forward_time"]
        assert len(marks) == 1
        assert [check.name for check in program.finish()] == ["finite"]


def test_the_engine_can_time_it():
    program = opened("py")
    taken = make_clock("cpu").take(program, calls=3)
    assert len(taken.parts_s) == 2
    assert all(part > 0 for part in taken.parts_s)
    assert sum(taken.parts_s) < taken.wall_s


def test_gradients_are_zero_before_and_after_every_step():
    program = opened("jit")
    parameters = program._network.parameters.values()
    for _ in range(3):
        program.step(no_mark)
        assert not any(bool(parameter.grad.any()) for parameter in parameters)


def test_gradients_exist_when_they_are_zeroed():
    """What the original asserted: a parameter that no gradient reaches would be timed for nothing."""
    program = opened("py")
    seen = []
    real = program._network.zero_gradients

    class Watching:
        parameters = program._network.parameters
        forward = staticmethod(program._network.forward)

        def zero_gradients(self):
            seen.append([bool(parameter.grad.any()) for parameter in self.parameters.values()])
            real()

    program._network = Watching()
    program.step(no_mark)
    program.step(no_mark)
    assert seen == [[True] * 8] * 2


@pytest.mark.parametrize(
    ("name", "compiler"),
    [
        ("aten", Compiler.NONE),
        ("py", Compiler.NONE),
        ("jit", Compiler.OTHER),
        ("resnet18_jit", Compiler.OTHER),
    ],
)
def test_the_engine_is_told_what_translates(name, compiler):
    assert opened(name).compiler is compiler


def test_items_are_rows_or_images():
    assert opened("py").items == 3
    assert opened("resnet18").items == 4


def test_translation_happens_in_the_first_step():
    program = opened("jit")
    translated = program._network.forward.__closure__
    lazy = next(
        cell.cell_contents for cell in translated if hasattr(cell.cell_contents, "_translated")
    )
    assert lazy._translated is None
    program.step(no_mark)
    assert isinstance(lazy._translated, torch.jit.ScriptFunction)


def test_the_first_step_of_a_scripted_arm_ends_when_the_executor_has_optimised(monkeypatch):
    """Its rounds belong to the translation: the second step does no more than any other."""
    rounds = {}
    for name in ("jit", "py"):
        program = opened(name)
        count = []
        real = program._round
        monkeypatch.setattr(
            program, "_round", lambda mark, real=real, count=count: (count.append(None), real(mark))
        )
        program.step(no_mark)
        first = len(count)
        program.step(no_mark)
        rounds[name] = (first, len(count) - first)
    assert rounds == {"jit": (1 + SETTLING_ROUNDS, 1), "py": (1, 1)}


def test_after_settling_the_executor_runs_its_optimised_plan():
    program = opened("jit_premul", fuser="te", executor="profiling")
    program.step(no_mark)
    lazy = next(
        cell.cell_contents
        for cell in program._network.forward.__closure__
        if hasattr(cell.cell_contents, "_translated")
    )
    state = lazy._translated.get_debug_state()
    assert state.execution_plans, "the profiling executor has settled on a plan"


def test_every_form_has_a_compiler():
    assert {variant.form for variant in VARIANTS.values()} == {*Form}
