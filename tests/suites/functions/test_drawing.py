"""Inputs of functions: drawn from a seed, on the device of the case."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from ci_bench.suites.functions.drawing import Draw, Drawing, Given  # noqa: E402 - likewise
from ci_bench.suites.shared.worker.freshness import Fresh  # noqa: E402 - needs torch

pytestmark = pytest.mark.engine
REAL = Given(shape=(3, 4), dtype=torch.bfloat16, device="cpu", drawn_on="cpu")
WHOLE = replace(REAL, dtype=torch.int32, high=100)
CARD = "cuda:0"


@pytest.fixture
def asked(monkeypatch):
    """The devices that values are drawn on; the CPU stands in for each."""
    devices = []

    def on_the_cpu(function):
        def drawn(*given, device="cpu", **options):
            devices.append(str(device))
            return function(*given, **options)

        return drawn

    for name in ("randn", "randint"):
        monkeypatch.setattr(torch, name, on_the_cpu(getattr(torch, name)))

    class Generator(torch.Generator):
        def __new__(cls, device="cpu"):
            devices.append(str(device))
            return super().__new__(cls)

    monkeypatch.setattr(torch, "Generator", Generator)
    return devices


@pytest.mark.parametrize("given", [REAL, WHOLE], ids=["real", "whole"])
@pytest.mark.parametrize("noise", [0, 1])
def test_values_are_drawn_on_the_device_of_the_case(asked, given, noise):
    draw = Draw(seed=1, noise=noise, epsilon=1e-3)
    on_host = draw.tensor(0, given)
    assert {*asked} == {"cpu"}
    asked.clear()
    assert torch.equal(draw.tensor(0, replace(given, drawn_on=CARD)), on_host)
    assert CARD in asked
    assert asked.count("cpu") <= noise, (
        "the noise is drawn where its generator is, which is a stand-in"
    )


def test_a_tensor_of_the_host_is_drawn_on_the_device_of_the_case(asked):
    session = Drawing(draw=Draw(seed=1), device=CARD)
    session.inputs(1, (2,), "fp32", device="cpu", requires_grad=None, constant=False, high=None)
    assert {*asked} == {CARD}
    assert (session.given[0].device, session.given[0].drawn_on) == ("cpu", CARD)


def test_other_values_are_drawn_on_the_device_of_an_input(asked):
    fresh = Fresh(2, rows=4, shaken=3, epsilon=1e-3)
    asked.clear()
    there = torch.empty(4, 8, device="meta")
    fresh._mixed(there)
    fresh._shake(there)
    assert asked.count("meta") == 2, "a generator for the elements, and one for their noise"
