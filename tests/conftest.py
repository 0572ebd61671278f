"""What holds for every test: none waits for a device that a run outside the tests holds; one container engine and image for all."""

import pytest
from container_engine import engine, image

__all__ = ["engine", "image"]


@pytest.fixture(scope="session", autouse=True)
def _own_locks(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CI_BENCH_LOCKS", str(tmp_path_factory.mktemp("locks")))
        yield
