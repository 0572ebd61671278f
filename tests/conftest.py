"""What holds for every test: none waits for a device that a run outside the tests holds; one container engine and image for all.

And all hear an interrupt, which a shell has its background jobs ignore, with all that they start.
"""

import signal

import pytest
from container_engine import engine, image

__all__ = ["engine", "image"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_locks(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CI_BENCH_LOCKS", str(tmp_path_factory.mktemp("locks")))
        yield
