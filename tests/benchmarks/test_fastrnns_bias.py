"""The comparison with a plain loop measures both, and notices a clock or a step that adds something."""

import time

import pytest

torch = pytest.importorskip("torch")

from benchmarks import fastrnns_bias  # noqa: E402 - after torch was found

pytestmark = pytest.mark.engine

SHAPE = (10, 4, 1, 3, 16)


def test_both_directions_are_measured_on_both_sides():
    found = fastrnns_bias.measure(SHAPE, device="cpu", repeats=1)
    assert [*found] == ["forward", "backward"]
    for bias in found.values():
        assert bias.ours_ms > 0
        assert bias.plain_ms > 0
        assert bias.low <= bias.median <= bias.high


@pytest.mark.alone
@pytest.mark.parametrize("part", ["forward", "backward"])
def test_a_part_that_takes_longer_shows_in_its_direction(monkeypatch, part):
    real = fastrnns_bias.ours

    def slower(sizes, device):
        take = real(sizes, device)

        def taken():
            forward_s, backward_s = take()
            return (
                (forward_s * 1.5, backward_s)
                if part == "forward"
                else (forward_s, backward_s * 1.5)
            )

        return taken

    monkeypatch.setattr(fastrnns_bias, "ours", slower)
    found = fastrnns_bias.measure(SHAPE, device="cpu", repeats=1)
    other = "backward" if part == "forward" else "forward"
    assert found[part].answer != "yes"
    assert found[part].median > found[other].median + 0.15


def test_a_step_that_does_more_than_it_should_shows(monkeypatch):
    from ci_bench.suites.fastrnns.networks import Network

    real = Network.__dict__["zero_gradients"]
    found = {}
    for name, extra_s in (("sound", 0.0), ("slow", 0.002)):

        def zeroing(self, extra_s=extra_s):
            real(self)
            time.sleep(extra_s)

        monkeypatch.setattr(Network, "zero_gradients", zeroing)
        found[name] = fastrnns_bias.measure(SHAPE, device="cpu", repeats=1)
    assert found["slow"]["backward"].ours_ms < 2, (
        "zeroing is outside both parts, so it does not show"
    )


def test_the_interval_of_a_median_is_between_order_statistics():
    """A hundred pairs whose ratios are 1.00 to 1.99: the median, and the 41st and 60th of them."""
    bias = fastrnns_bias._bias([(1 + k / 100, 1.0) for k in range(100)])
    assert bias.median == pytest.approx(0.495)
    assert (bias.low, bias.high) == (pytest.approx(0.40), pytest.approx(0.59))


@pytest.mark.parametrize(
    ("bounds", "answer", "code"),
    [
        ((-0.01, 0.02), "yes", 0),
        ((0.04, 0.06), "no", 1),
        ((-0.06, -0.04), "no", 1),
        ((-0.02, 0.05), "too noisy to tell", 0),
        ((0.02, 0.04), "too noisy to tell", 0),
    ],
)
def test_the_interval_decides_and_the_exit_code_tells(monkeypatch, capsys, bounds, answer, code):
    low, high = bounds
    monkeypatch.setattr(fastrnns_bias, "SIZES", {"small": SHAPE})
    bias = fastrnns_bias.Bias(ours_ms=1, plain_ms=1, median=(low + high) / 2, low=low, high=high)
    monkeypatch.setattr(fastrnns_bias, "measure", lambda shape, **_: {"forward": bias})
    assert fastrnns_bias.main([]) == code
    assert answer in capsys.readouterr().out
