"""Each probe runs in a fork with a limit."""

import faulthandler
import io
import json
import os
import signal
import sys
import time

import pytest

pytest.importorskip("torch")

from ci_bench.diagnostics.gpu_check import probes, serve
from ci_bench.diagnostics.gpu_check.sections import NAMES


@pytest.fixture
def served(monkeypatch, capfd):
    def run(probe, limits=("one 5",)):
        monkeypatch.setattr(probes, "PROBES", {"one": probe, "two": lambda device: {"x": device}})
        monkeypatch.setattr(probes.torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(limits) + "\n"))
        serve.main("cuda:1")
        ready, *answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert ready == {"ready": True}
        return answers

    return run


def test_its_figures_are_told(served):
    (answer,) = served(lambda device: {"x": 1.5})
    assert (answer["name"], answer["figures"]) == ("one", {"x": 1.5})


def fail(_):
    raise ValueError("no")


def die(_):
    faulthandler.disable()  # it is meant, and a stack on standard error looks as if it were not
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(_):
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (fail, "ValueError: no"),
        (die, "its process ended with SIGSEGV"),
        (hang, "it did not end within 1 s"),
        (lambda _: os._exit(3), "its process ended with 3"),
        (lambda _: sys.exit(4), "SystemExit: 4"),
        (lambda _: {"x": object()}, "TypeError"),
    ],
)
def test_one_that_goes_wrong_is_told_and_the_next_runs(served, probe, words):
    first, second = served(probe, ("one 1", "two 5"))
    assert words in first["error"]
    assert second["figures"] == {"x": "cuda:1"}


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(probes.torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="ci-bench doctor says why"):
        probes.probe("fence", "cuda")


def test_there_is_a_probe_for_each_section_but_that_of_the_engine():
    assert {*probes.PROBES} == {*NAMES} - {"unchanged"}
