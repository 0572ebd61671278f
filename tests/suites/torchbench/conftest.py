"""One thread, no hub, and one compiler cache for the session."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NEED_NO_TORCH = {"conftest.py", "test_plan.py", "test_selection.py", "test_tables.py"}

for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE"):
    os.environ[name] = "1"

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
def fresh_compiler(tmp_path_factory):
    """Nothing compiled is left over, and what a case sets in torch is set back."""
    if "torch" not in sys.modules:
        yield
        return
    import torch
    from torch._dynamo import config as dynamo
    from torch._inductor import config as inductor

    torch.compiler.reset()
    with pytest.MonkeyPatch.context() as patch, dynamo.patch({}), inductor.patch({}):
        kept = dynamo.get_config_copy(), inductor.get_config_copy()
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
        yield
        dynamo.load_config(kept[0])
        inductor.load_config(kept[1])
    torch.use_deterministic_algorithms(False)
