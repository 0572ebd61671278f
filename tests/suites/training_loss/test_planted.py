"""The self-test's planted leak grows the memory that is weighed."""

import pytest

torch = pytest.importorskip("torch")

from ci_bench.suites.training_loss import planted  # noqa: E402 - needs torch

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_leak_lies_on_the_inputs_device(monkeypatch, device):
    monkeypatch.setenv("CI_BENCH_PLANT", "leak")
    leaked = []
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *size, **named: leaked.append(ones(*size, **named)) or leaked[-1])
    graph = torch.fx.symbolic_trace(torch.nn.Identity())

    run = planted.backend(graph, ())
    run(torch.empty(3, device=device))

    (one,) = leaked
    assert one.device.type == device
