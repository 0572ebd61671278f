"""A thousand inputs for every reader and renderer: each is taken or refused by name, and nothing else ever happens."""

import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.fuzz_mutator import MAX_BYTES, mutate
from benchmarks.fuzz_targets import TARGETS, Harmful, Target, poisoned
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from benchmarks import fuzz, fuzz_targets

INPUTS = 1000
RENDERED = 100
"""Of pages, which a parser of Markdown reads again: each holds many texts."""


@pytest.fixture(scope="module")
def _hook():
    sys.addaudithook(_watch)  # which cannot be taken back, but sleeps


def _watch(event, arguments):
    if not watching:
        return
    if event in REACHING_OUT:
        raise AssertionError(f"a reader did {event} {arguments}")
    if event == "open" and isinstance(arguments[0], str | bytes) and any(letter in (arguments[1] or "r") for letter in "wax+"):
        assert "ci-bench-fuzz-" in str(arguments[0]) or ".hypothesis" in str(arguments[0]), arguments


@pytest.fixture
def _watched(_hook):
    """No input makes a reader write outside its own file, start a process or open a connection."""
    watching.append(True)
    yield
    watching.clear()


REACHING_OUT = {"socket.connect", "subprocess.Popen", "os.system", "os.exec", "pickle.find_class"}
watching = []


@pytest.mark.usefixtures("_watched")
@pytest.mark.parametrize("name", TARGETS)
def test_a_thousand_inputs_are_read_or_refused(name):
    target = TARGETS[name]
    seeds = target.seeds()
    assert all(target.feed(seed) for seed in seeds)
    count = []

    @settings(
        max_examples=RENDERED if name in fuzz_targets.RENDERERS else INPUTS,
        deadline=10_000,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**32), free=st.binary(max_size=60))
    def feed(seed, free):
        rng = random.Random(seed)
        count.append(1)
        target.feed(free if seed % 20 == 0 else mutate(rng.choice(seeds), rng, seeds))

    feed()
    assert sum(count) >= (RENDERED if name in fuzz_targets.RENDERERS else INPUTS)


@pytest.mark.usefixtures("_watched")
def test_the_watch_sees_what_reaches_out(tmp_path):
    with socket.socket() as one, pytest.raises(AssertionError, match=r"socket\.connect"):
        one.connect(("127.0.0.1", 1))
    with pytest.raises(AssertionError, match="elsewhere"):
        (tmp_path / "elsewhere").open("w")


def test_changes_are_many_bounded_and_the_same_for_a_seed():
    seed = TARGETS["results"].seeds()[0]
    made = [mutate(seed, random.Random(number)) for number in range(200)]
    assert len({*made}) > 190
    assert max(map(len, made)) <= MAX_BYTES
    assert made[:5] == [mutate(seed, random.Random(number)) for number in range(5)]


def refused(content):
    """A reader with a defect: it falls over a byte that a text may not hold."""
    if b"\xff" in content:
        raise IndexError("planted")
    return True


def test_a_planted_defect_is_found_and_its_input_written_down(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz, "TARGETS", {"planted": Target(name="planted", feed=refused, seeds=lambda: (b"abc",))})
    assert fuzz.run_child("planted", "own", 10_000, 1, tmp_path) == fuzz.FINDING
    kept = (tmp_path / "figures.json").read_text()
    assert "IndexError: planted" in kept
    assert "\\\\xff" in kept


def test_an_input_that_takes_too_long_is_a_finding(tmp_path, monkeypatch):
    def slow(content):
        while content != b"abc":
            pass
        return True

    monkeypatch.setattr(fuzz, "LIMIT_S", 1)
    monkeypatch.setattr(fuzz, "TARGETS", {"slow": Target(name="slow", feed=slow, seeds=lambda: (b"abc",))})
    assert fuzz.run_child("slow", "own", 10, 1, tmp_path) == fuzz.FINDING
    assert "one input took more than" in (tmp_path / "figures.json").read_text()


def test_a_page_that_could_do_harm_is_a_finding(monkeypatch):
    monkeypatch.setattr(fuzz_targets, "render_report", lambda comparison: f"# {comparison.tool_version}\n")
    with pytest.raises(Harmful):
        TARGETS["markdown"].feed(b"@everybody")


def test_hostile_texts_are_everywhere_but_in_our_own_words():
    hostile = poisoned(fuzz_targets._comparison(), ["<b>"], {})
    assert "<b>" in hostile.tool_version
    assert hostile.judgement.findings[0].rule == fuzz_targets._comparison().judgement.findings[0].rule


def test_the_command_counts_and_tells(tmp_path):
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.fuzz", "--target", "worker's answers", "--runs", "1200", "--json", str(tmp_path / "x")],
        capture_output=True, text=True, check=True, cwd=Path(fuzz.__file__).parents[1], timeout=120,
    )  # fmt: skip
    assert "| 1,200  |" in told.stdout
    assert '"runs": 1200' in (tmp_path / "x").read_text()
