"""One thread, no hub, one compiler cache of its own, and rows that are tokenised once for the whole session."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TABLE = pytest.StashKey[list[str]]()
NEED_NO_TORCH = {"conftest.py", "test_data.py", "test_plan.py"}

# transformers, datasets and evaluate read these when they are imported
for name in (
    "HF_HUB_OFFLINE",
    "HF_DATASETS_OFFLINE",
    "HF_EVALUATE_OFFLINE",
    "HF_DATASETS_DISABLE_PROGRESS_BARS",
):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

sys.path.insert(0, str(HERE))
collect_ignore = (
    [] if find_spec("torch") else sorted({path.name for path in HERE.glob("*.py")} - NEED_NO_TORCH)
)


@pytest.fixture(autouse=True)
def one_thread():
    """Cores may be shared, and two threads that wait for each other on one core are far slower than one."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def compiler_cache(tmp_path_factory):
    """The same small graphs are compiled once per session, and never found in a cache from elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture(scope="session")
def bench(tmp_path_factory, compiler_cache):
    """A small model and rows to train it on."""
    from training_loss_builders import make_bench

    return make_bench(tmp_path_factory.mktemp("training_loss"))


@pytest.fixture(scope="session")
def table(request):
    """Lines that are printed after the run with ``-v``."""
    return request.config.stash.setdefault(TABLE, [])


def pytest_terminal_summary(terminalreporter, config):
    lines = config.stash.get(TABLE, [])
    if lines and config.get_verbosity() > 0:
        terminalreporter.section("loss parity: envelopes apart (limit 10)")
        for line in lines:
            terminalreporter.write_line(line)
