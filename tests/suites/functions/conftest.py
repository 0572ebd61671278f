"""One thread, and torch's global generators as they were after each test."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NEED_NO_TORCH = {
    "conftest.py",
    "functions_builders.py",
    "test_collecting.py",
    "test_plan.py",
    "test_literal.py",
    "test_command_line.py",
}

sys.path.insert(0, str(HERE))
collect_ignore = (
    [] if find_spec("torch") else sorted({path.name for path in HERE.glob("*.py")} - NEED_NO_TORCH)
)


@pytest.fixture(autouse=True)
def _untouched():
    """Cores may be shared, and the suite seeds the whole worker process."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        yield


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """An empty tree, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path
