"""The bias benchmark measures what it says, and notices a suite that takes longer or does less."""

import time

import pytest

torch = pytest.importorskip("torch")

from benchmarks import transformers_bias as bias  # noqa: E402 - after torch was found

pytestmark = [pytest.mark.alone, pytest.mark.engine]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(bias, "ROUNDS", 4)
    monkeypatch.setattr(bias, "BUILDS", 3)
    monkeypatch.setattr(bias, "BATCH", 2)
    monkeypatch.setattr(bias, "LENGTH", 16)


@pytest.mark.parametrize("mode", bias.MODES)
def test_every_figure_is_there(mode):
    figures = bias.compare(mode)

    assert figures["suite (ms)"] > 0
    assert figures["hand-written (ms)"] > 0
    assert figures["+- (%)"] >= 0


def slower(real):
    def measured(mode):
        take = real(mode)

        def longer():
            start = time.perf_counter()
            take()
            time.sleep(0.02)
            return time.perf_counter() - start

        return longer

    return measured


def test_a_bias_shows_and_fails(monkeypatch, capsys):
    monkeypatch.setattr(bias, "measured_by_the_suite", slower(bias.measured_by_the_suite))
    monkeypatch.setattr(bias, "MODES", ("inference",))

    assert bias.main([]) == 1
    assert bias.compare("inference")["bias (%)"] > 50
    assert "hand-written" in capsys.readouterr().out
