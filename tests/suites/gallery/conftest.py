"""One thread, no hub; the builders of the suites' own tests."""

import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent

os.environ["HF_HUB_OFFLINE"] = "1"

sys.path[:0] = [
    str(HERE.parent / suite) for suite in ("torchbench", "transformers", "fastrnns", "functions")
]
collect_ignore = (
    []
    if find_spec("torch")
    else sorted({path.name for path in HERE.glob("*.py")} - {"conftest.py"})
)


@pytest.fixture(autouse=True)
def one_thread():
    """Cores may be shared, and two threads that wait for each other on one core are far slower than one."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(autouse=True)
def quiet():
    if "transformers" in sys.modules:
        sys.modules["transformers"].logging.set_verbosity_error()
    logging.getLogger("torch.__trace").propagate = False


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """Collecting garbage among all of transformers takes longer than a small model's step."""
    if "ci_bench.suites.transformers.verify" in sys.modules:
        monkeypatch.setattr(
            sys.modules["ci_bench.suites.transformers.verify"], "forget", lambda device: None
        )


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """An empty tree, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path
