"""One thread, one compiler cache of its own, and torch's global switches as they were after each test."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NEED_NO_TORCH = {"conftest.py", "test_plan.py", "test_options.py"}

sys.path.insert(0, str(HERE))
collect_ignore = (
    [] if find_spec("torch") else sorted({path.name for path in HERE.glob("*.py")} - NEED_NO_TORCH)
)


@pytest.fixture(autouse=True)
def _untouched():
    """Cores may be shared, and two threads that wait for each other on one core are far slower than one.

    The suite sets TorchScript's and dynamo's switches for the whole worker process; here the next
    test lives in it, too.
    """
    if "torch" not in sys.modules:
        yield
        return
    import torch
    from torch._dynamo import config
    from torch._functorch import config as functorch

    torch.set_num_threads(1)
    with (
        torch.random.fork_rng(devices=[]),
        config.patch(allow_rnn=False),
        functorch.patch(donated_buffer=True),
    ):
        yield
    torch._C._jit_set_profiling_executor(True)
    torch._C._jit_set_profiling_mode(True)
    torch._C._jit_override_can_fuse_on_cpu(False)
    torch._C._jit_set_texpr_fuser_enabled(True)


@pytest.fixture(scope="session")
def compiler_cache(tmp_path_factory):
    """The same small graphs are compiled once per session, and never found in a cache from elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield
