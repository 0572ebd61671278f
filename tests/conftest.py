"""What holds for every test: none waits for a device that a run outside the tests holds; one browser, container engine and image for all.

Properties are tried on the same examples each time, so that a commit passes or does not; the
nightly run draws new ones.

All hear the signals that a shell has its background jobs ignore, or `nohup` a job, with all that
these start.
"""

import signal

import pytest
from beside import order, pytest_runtest_protocol, pytest_xdist_make_scheduler
from browsing import browser
from container_engine import engine, image
from extent import mark
from hypothesis import settings

settings.register_profile("same", derandomize=True, database=None)
settings.load_profile("same")

__all__ = [
    "browser",
    "engine",
    "image",
    "pytest_runtest_protocol",
    "pytest_xdist_make_scheduler",
]

for _number, _usual in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
}.items():
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    mark(items)  # before tests are chosen by their marks
    order(config, items)


@pytest.fixture(scope="session", autouse=True)
def _own_locks(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CI_BENCH_LOCKS", str(tmp_path_factory.mktemp("locks")))
        yield
