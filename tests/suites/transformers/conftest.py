"""One thread, no hub, a compiler cache of its own."""

import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NEED_NO_TORCH = {"conftest.py", "test_catalog.py", "test_plan.py", "test_schema.py"}

# transformers reads it when it is imported
os.environ["HF_HUB_OFFLINE"] = "1"

sys.path.insert(0, str(HERE))
collect_ignore = (
    [] if find_spec("torch") else sorted({path.name for path in HERE.glob("*.py")} - NEED_NO_TORCH)
)


@pytest.fixture(autouse=True)
def one_thread():
    """Cores may be shared, and two threads that wait for each other on one core are far slower than one."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(autouse=True)
def quiet():
    """Transformers speaks of token ids that a small vocabulary lacks, and dynamo of every step it takes."""
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
def fresh_dynamo():
    """Compiled code of one test is not that of the next."""
    import torch

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
