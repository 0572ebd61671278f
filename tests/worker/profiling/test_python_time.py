"""The interpreter's own time is a line's: the user's function, or the line that calls code of others, Python or C."""

from types import SimpleNamespace

import pytest

from ci_bench.records.profiles import SourceLine
from ci_bench.worker.profiling.operators import PythonTime

OWN, OTHER = "model.py", "torch/_tensor_str.py"


class Sources:
    """Lines of one file."""

    @staticmethod
    def is_own(file):
        return file == OWN

    @staticmethod
    def line(file, number):
        return SourceLine(place=f"{file}:{number}")


def frame(function, line, file=OWN):
    return SimpleNamespace(file_name=file, line_number=line, function_name=function)


def event(kind, nanoseconds, *children, name="", callsite=None, caller=None):
    fields = SimpleNamespace(callsite=callsite, caller=caller)
    return SimpleNamespace(
        tag=SimpleNamespace(name=kind),
        name=name,
        duration_time_ns=nanoseconds,
        children=children,
        extra_fields=fields,
    )


def test_what_code_of_others_takes_is_the_line_that_calls_it() -> None:
    """`step` calls `run` (100 ns), whose line 7 prints (70 ns, 30 of them two levels down) and whose line 8 sleeps (10 ns)."""
    deeper = event(
        "PyCall", 30, callsite=frame("_add_suffixes", 9, OTHER), caller=frame("_str", 5, OTHER)
    )
    prints = event(
        "PyCall", 70, deeper, callsite=frame("__repr__", 3, OTHER), caller=frame("run", 7)
    )
    sleeps = event("PyCCall", 10, name="<built-in function sleep>", caller=frame("run", 8))
    run = event(
        "PyCall", 100, prints, sleeps, callsite=frame("run", 1), caller=frame("step", 2, OTHER)
    )
    step = event(
        "PyCall", 110, run, callsite=frame("step", 2, OTHER), caller=frame("look", 2, OTHER)
    )
    python = PythonTime(sources=Sources(), entered="step")
    python.read([step])
    assert {
        (name, place[0].place): round(own * 1e9) for (name, place), own in python.seconds.items()
    } == {
        ("run", "model.py:1"): 20,
        ("__repr__", "model.py:7"): 70,
        ("sleep", "model.py:8"): 10,
    }
    assert python.whole_s == pytest.approx(110e-9)
