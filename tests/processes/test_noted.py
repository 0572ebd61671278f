"""Code and constants that checks are made with: each way to change them is named, and honest tools are not."""

import builtins
import ctypes
import json
import math
import random
import statistics
import sys
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ci_bench.processes import noted, protocol  # noqa: E402 - only with torch
from ci_bench.records.metrics import STEP_TIME  # noqa: E402
from ci_bench.records.results import Outcome  # noqa: E402
from ci_bench.suites.functions import declaring, verify  # noqa: E402
from ci_bench.suites.shared.worker import draws, freshness, numerics, randomness  # noqa: E402
from ci_bench.worker import referee  # noqa: E402
from ci_bench.worker.clock import HostClock  # noqa: E402

pytestmark = pytest.mark.engine


def always(*_args: object, **_named: object) -> bool:
    return True


def half(value: float) -> float:
    return value / 2


def code_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics._pair, "__code__", (lambda norms, value: (0.0, 0.0)).__code__)


def named_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(numerics.agree.__kwdefaults__, "memory", 1 - 1e-12)


def default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        HostClock.__init__, "__kwdefaults__", {"unmet": (), "now": partial(half, 1.0)}
    )


def closure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function behind a decorator."""
    cell = verify.Bench.opened.__closure__[0]
    kept = cell.cell_contents
    monkeypatch.setattr(cell, "cell_contents", always)
    assert cell.cell_contents is not kept


def float_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a float object, which keeps its address."""
    place = ctypes.c_double.from_address(id(numerics.LAST_DIGITS) + object.__basicsize__)
    monkeypatch.setattr(place, "value", 1e9)


def swapped_module(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = ModuleType(numerics.__name__)
    vars(copy).update(vars(numerics))
    monkeypatch.setitem(sys.modules, numerics.__name__, copy)


def removed_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, numerics.__name__)


def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(verify.PRECISIONS, torch.float32, "bf16")


CHEATS = {
    "constant": (
        lambda m: m.setattr(numerics, "MULTIPLIER_FP32", 1e15),
        "numerics.MULTIPLIER_FP32",
    ),
    "set of types": (lambda m: m.setattr(numerics, "NORMED", frozenset()), "numerics.NORMED"),
    "imported function": (lambda m: m.setattr(verify, "agree", always), "verify.agree"),
    "body": (code_of, "numerics._pair"),
    "named default": (named_default, "numerics.agree"),
    "clock's default": (default, "HostClock.__init__"),
    "behind a decorator": (closure, "Bench.opened"),
    "method": (lambda m: m.setattr(referee.Referee, "check", always), "Referee.check"),
    "property": (
        lambda m: m.setattr(numerics.Deviation, "wrong", property(always)),
        "Deviation.wrong",
    ),
    "hidden builtin": (lambda m: m.setattr(numerics, "max", half, raising=False), "numerics.max"),
    "module": (swapped_module, "ci_bench.suites.shared.worker.numerics"),
    "removed module": (removed_module, "ci_bench.suites.shared.worker.numerics"),
    "table": (table, "verify.PRECISIONS"),
    "float's bytes": (float_in_place, "numerics.LAST_DIGITS"),
    "encoder": (lambda m: m.setattr(protocol, "encode", always), "protocol.encode"),
    "seeds": (
        lambda m: m.setattr(randomness, "seed_everything", always),
        "randomness.seed_everything",
    ),
    "draws": (lambda m: m.setattr(draws, "drawn_alike", always), "draws.drawn_alike"),
}


@pytest.mark.parametrize("cheat", sorted(CHEATS))
def test_changed_engine_code_is_named(cheat, monkeypatch):
    made = noted.current()
    change, name = CHEATS[cheat]
    change(monkeypatch)
    (check,) = made.checks("eager")
    monkeypatch.undo()
    assert (check.name, check.arm, check.outcome) == ("untouched", "eager", Outcome.FAIL)
    assert name in check.detail


def test_changed_frozen_value_is_named():
    made, title = noted.current(), STEP_TIME.title
    object.__setattr__(STEP_TIME, "title", "another")
    try:
        assert any(name.endswith(".STEP_TIME") for name in made.replaced())
    finally:
        object.__setattr__(STEP_TIME, "title", title)


OF_OTHERS = {
    "statistics.median": (statistics, "median"),
    "numpy.random.seed": (np.random, "seed"),
    "random.seed": (random, "seed"),
    "random.Random.getrandbits": (random.Random, "getrandbits"),
    "random.Random.random": (random.Random, "random"),
    "json.dumps": (json, "dumps"),
    "math.isfinite": (math, "isfinite"),
    "torch.equal": (torch, "equal"),
    "torch.allclose": (torch, "allclose"),
    "torch.random.manual_seed": (torch.random, "manual_seed"),
    "torch.Tensor.__eq__": (torch.Tensor, "__eq__"),
    "torch.Tensor.to": (torch.Tensor, "to"),
    "torch.Tensor.__getitem__": (torch.Tensor, "__getitem__"),
    "torch.Tensor.data": (torch.Tensor, "data"),
    "torch.utils._pytree.tree_leaves": (torch.utils._pytree, "tree_leaves"),
    "builtins.max": (builtins, "max"),
    "builtins.float": (builtins, "float"),
}


@pytest.mark.parametrize("name", sorted(OF_OTHERS))
def test_replaced_library_function_is_named(name, monkeypatch):
    made = noted.current()
    place, attribute = OF_OTHERS[name]
    monkeypatch.setattr(place, attribute, type("Other", (), {})() if place is builtins else always)
    found = made.replaced_of_others()
    monkeypatch.undo()
    assert found == [name]


def test_each_function_of_looks_is_noted():
    """What a write before a look calls, and samples do not, would announce the look."""
    assert freshness.MOVE is ctypes.memmove
    assert any(name.endswith("freshness.MOVE") for name in noted.current().own)


def test_the_functions_of_a_clock_are_noted():
    clock, made = HostClock(always), noted.current()
    made.take_clock(clock)
    assert made.replaced_of_clock(clock) == []
    clock._now = partial(half, 1.0)
    assert made.replaced_of_clock(clock) == ["the clock: _now"]


def test_watching_engine_code_is_named(monkeypatch):
    made, code = noted.current(), referee.take_look.__code__
    watching = SimpleNamespace(
        get_tool=lambda tool: "x" if tool == 4 else None,
        get_local_events=lambda tool, of: 2 if (tool, of) == (4, code) else 0,
    )
    monkeypatch.setattr(sys, "monitoring", watching, raising=False)
    (check,) = made.checks("eager")
    assert "referee.take_look (watched by sys.monitoring)" in check.detail


def test_honest_tools_change_nothing_noted(monkeypatch):
    """Import hooks, patched `open`, `print` and clocks, trace functions, modes within a call, new names in our modules."""
    made = noted.current()
    monkeypatch.setattr(
        sys, "meta_path", [*sys.meta_path, SimpleNamespace(find_spec=lambda *_: None)]
    )
    monkeypatch.setattr(builtins, "open", partial(open))
    monkeypatch.setattr(builtins, "print", partial(print))
    monkeypatch.setattr(builtins, "__import__", partial(__import__))
    monkeypatch.setattr("time.perf_counter", partial(half, 2.0))
    monkeypatch.setattr(numerics, "__annotations_of_a_tool__", {}, raising=False)
    monkeypatch.setitem(declaring._REGISTERED, "a file", [])
    with torch.overrides.BaseTorchFunctionMode():
        torch.ones(2).add(1)
    assert list(made.checks("eager")) == []
