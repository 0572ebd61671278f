"""What all arms share: who changed a setting, and what was replaced of the functions that checks are made with."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from ci_bench.engine.timing.untouched import Untouched  # noqa: E402 - only with torch
from ci_bench.records.results import Outcome  # noqa: E402
from ci_bench.suites import numerics  # noqa: E402

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
from ci_bench.engine.timing.untouched import functions
before = functions()
torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
import torch._inductor.compile_fx, transformers
print([name for name, value in functions().items() if before.get(name) is not value])
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
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
def test_a_function_of_the_checks_that_was_replaced_fails_by_its_name(watched, monkeypatch, place, name):
    monkeypatch.setattr(place, name, lambda *_, **__: True)
    (check,) = watched.checks("eager")
    assert (check.arm, check.outcome) == ("eager", Outcome.FAIL)
    assert (
        f"{getattr(place, '__module__' if isinstance(place, type) else '__name__')}.".removeprefix("torch._tensor.")
        in check.detail
    )
    assert check.detail.endswith(f".{name}")
