"""Settings that all arms share: which arm changed one, and what was changed for all of them."""

import gc
import os
import subprocess
import sys
import threading
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402 - only with torch

from ci_bench.records.results import Outcome  # noqa: E402
from ci_bench.suites.shared.worker import numerics  # noqa: E402
from ci_bench.worker.untouched import OF_THE_ENGINE, Untouched  # noqa: E402

pytestmark = pytest.mark.engine


@pytest.fixture
def watched():
    """Noted with the reference open; settings are put back in the end."""
    threads = torch.get_num_threads()
    made = Untouched()
    made.note()
    yield made
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


def test_where_nothing_was_changed_there_is_no_check(watched):
    watched.look("eager")
    watched.look("mine")
    assert list(watched.checks("eager")) == []


def test_what_compiling_imports_replaces_nothing_of_it():
    """Dynamo wraps `torch.manual_seed` when it is first imported, and transformers brings much of its own."""
    program = """
import torch
from ci_bench.processes.noted import current
before = current()
torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
import torch._inductor.compile_fx, transformers
print(before.replaced() + before.replaced_of_others())
"""
    said = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert said.stdout.strip() == "[]"


def test_the_arm_whose_turn_left_other_threads_fails_and_no_other(watched):
    watched.look("eager")
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    watched.look("mine")
    watched.look("eager")
    (check,) = watched.checks("eager")
    assert (check.name, check.arm, check.outcome) == ("untouched", "mine", Outcome.FAIL)
    assert f"threads {before} -> {before + 1}" in check.detail


def _slower(found, value):
    """Set a flag, and give back how to undo it."""
    module, name = found
    before = getattr(module, name)
    setattr(module, name, value)
    return lambda: setattr(module, name, before)


def _hooked():
    handle = torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: None)
    return handle.remove


def _in(mode):
    mode.__enter__()
    return lambda: mode.__exit__(None, None, None)


def _traced(setter):
    setter(lambda *_: None)
    return lambda: setter(None)


def _pinned():
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one core: none can be taken away")
    os.sched_setaffinity(0, {min(before)})
    return lambda: os.sched_setaffinity(0, before)


def _collecting():
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    return lambda: gc.set_threshold(*before)


LEFT = {
    "oneDNN": lambda: _slower((torch.backends.mkldnn, "enabled"), value=False),
    "cuDNN": lambda: _slower(
        (torch.backends.cudnn, "enabled"), value=not torch.backends.cudnn.enabled
    ),
    "attention kernels": lambda: (
        torch.backends.cuda.enable_flash_sdp(False)
        or partial(torch.backends.cuda.enable_flash_sdp, True)
    ),
    "fast path of attention": lambda: (
        torch.backends.mha.set_fastpath_enabled(False)
        or partial(torch.backends.mha.set_fastpath_enabled, True)
    ),
    "anomaly detection": lambda: (
        torch.autograd.set_detect_anomaly(True)
        and partial(torch.autograd.set_detect_anomaly, False)
    ),
    "hooks of all modules": _hooked,
    "hooks of saved tensors": lambda: _in(
        torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)
    ),
    "modes of functions": lambda: _in(torch.overrides.BaseTorchFunctionMode()),
    "modes of the dispatcher": lambda: _in(FlopCounterMode(display=False)),
    "profiler": lambda: _in(torch.autograd.profiler.profile()),
    "profile function": lambda: _traced(sys.setprofile),
    "trace function of new threads": lambda: _traced(threading.settrace),
    "cores": _pinned,
    "garbage collector": _collecting,
    "switch interval": lambda: sys.setswitchinterval(1e-4) or partial(sys.setswitchinterval, 0.005),
}
"""By the setting: leave it slower for others, and return how to undo that."""


@pytest.mark.parametrize("name", sorted(LEFT))
def test_what_slows_other_arms_fails_by_name(watched, name):
    undo = LEFT[name]()
    try:
        watched.look("mine")
    finally:
        undo()
    (check,) = watched.checks("eager")
    assert (check.name, check.arm, check.outcome) == ("untouched", "mine", Outcome.FAIL)
    assert f"{name} " in check.detail


@pytest.mark.parametrize("name", sorted(LEFT))
def test_a_setting_within_a_call_is_nobodys(watched, name):
    LEFT[name]()()
    watched.look("mine")
    assert list(watched.checks("eager")) == []


def test_a_setting_of_all_arms_is_named_apart(watched):
    """A library that sets threads or oneDNN at import does so for the reference as well."""
    watched.begun = {
        **watched.last,
        "threads": 64,
        "oneDNN": "another",
        "default dtype": torch.float64,
    }
    watched.note()
    (check,) = watched.checks("eager")
    assert (check.name, check.arm, check.outcome) == ("surroundings", "eager", Outcome.UNKNOWN)
    assert "threads 64 -> " in check.detail
    assert "oneDNN another -> " in check.detail
    assert "dtype" not in check.detail, "suites set that themselves"


def test_the_engine_may_keep_to_a_core(watched):
    undo = _pinned()
    watched.accept(*OF_THE_ENGINE)
    watched.look("mine")
    undo()
    assert list(watched.checks("eager")) == []


def test_another_setting_is_a_doubt_that_names_it(watched):
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    watched.look("mine")
    (check,) = watched.checks("eager")
    assert (check.arm, check.outcome, check.informative) == ("mine", Outcome.UNKNOWN, False)
    assert "deterministic algorithms False -> True" in check.detail


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (torch, "equal"),
        (torch.linalg, "vector_norm"),
        (torch.Tensor, "double"),
        (torch.cuda, "synchronize"),
        (numerics, "judged"),
    ],
)
def test_a_function_of_the_checks_that_was_replaced_fails_by_its_name(
    watched, monkeypatch, place, name
):
    monkeypatch.setattr(place, name, lambda *_, **__: True)
    (check,) = watched.checks("eager")
    assert (check.arm, check.outcome) == ("eager", Outcome.FAIL)
    assert (
        f"{getattr(place, '__module__' if isinstance(place, type) else '__name__')}.".removeprefix(
            "torch._tensor."
        )
        in check.detail
    )
    assert check.detail.endswith(f".{name}")
