"""A thousand inputs for every reader and renderer: each is taken or refused by name, and nothing else ever happens."""

import os
import random
import socket
import sys

import pytest
from benchmarks.fuzz_mutator import Herd
from benchmarks.fuzz_targets import TARGETS
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

INPUTS = 1000
FEWER = {"terminal and badge": 200}
"""Beyond readers and pages; a console is slow."""
TOGETHER = 20
"""Inputs of one example: for hypothesis an example costs more than most readers."""


@pytest.fixture(scope="module")
def _hook():
    sys.addaudithook(_watch)  # which cannot be taken back, but sleeps


def _watch(event, arguments):
    if not watching:
        return
    if event in REACHING_OUT:
        raise AssertionError(f"a reader did {event} {arguments}")
    if event == "open":
        path, writes = (
            arguments[0],
            (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC),
        )
        assert not writes or not isinstance(path, str | bytes) or is_own(path), arguments
    if event in CHANGING:
        assert all(is_own(path) for path in arguments[:2] if isinstance(path, str | bytes)), (
            event,
            arguments,
        )


def is_own(path):
    name = os.fsdecode(path)
    return "ci-bench-fuzz-" in name or ".hypothesis" in name


@pytest.fixture
def _watched(_hook, tmp_path):
    """No input makes a reader write outside its own file, start a process or open a connection."""
    watching.append(True)
    yield
    watching.clear()


REACHING_OUT = {
    "socket.connect",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "pickle.find_class",
}
CHANGING = {"os.rename", "os.mkdir", "os.symlink", "os.link", "shutil.rmtree"}
watching = []


@pytest.mark.usefixtures("_watched")
@pytest.mark.parametrize("name", TARGETS)
def test_a_thousand_inputs_are_read_or_refused(name):
    target = TARGETS[name]
    seeds = target.seeds()
    assert all(target.feed(seed) for seed in seeds)
    herd, count, inputs = Herd(seeds), [], FEWER.get(name, INPUTS)

    def try_one(content):
        count.append(content)
        try:
            target.feed(content)
        except Exception as error:
            error.add_note(f"input: {content[:2000]!r}")
            raise

    @settings(
        max_examples=inputs // TOGETHER,
        deadline=10_000,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**32), free=st.binary(max_size=60))
    def feed(seed, free):
        rng = random.Random(seed)
        for content in (free, *(herd.draw(rng) for _ in range(TOGETHER - 1))):
            try_one(content)

    feed()
    assert len(count) >= inputs
    assert len({*count}) > inputs * 0.4  # a small document has only so many neighbours


@pytest.mark.usefixtures("_watched")
def test_the_watch_sees_what_reaches_out(tmp_path):
    with socket.socket() as one, pytest.raises(AssertionError, match=r"socket\.connect"):
        one.connect(("127.0.0.1", 1))
    with pytest.raises(AssertionError, match="elsewhere"):
        (tmp_path / "elsewhere").open("w")
    with pytest.raises(AssertionError, match="elsewhere"):
        os.open(tmp_path / "elsewhere", os.O_CREAT)
    with pytest.raises(AssertionError, match="elsewhere"):
        (tmp_path / "elsewhere").mkdir()
    with pytest.raises(AssertionError, match="elsewhere"):
        (tmp_path / "elsewhere").symlink_to("/")
