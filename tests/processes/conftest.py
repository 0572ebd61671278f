"""Both ways to learn of the end of a process."""

import errno

import pytest

from ci_bench.processes import descendants


@pytest.fixture(params=["told by the kernel", "looked for"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel, or the sandbox, has no descriptors of processes, they are looked at."""
    if request.param == "looked for":

        def refuse(_pid: int) -> int:
            raise OSError(errno.ENOSYS, "Function not implemented")

        monkeypatch.setattr(descendants.os, "pidfd_open", refuse)
