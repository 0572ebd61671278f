"""The self-test's backend: harmless unless told otherwise, and each plant does what it says."""

import pytest

torch = pytest.importorskip("torch")

from ci_bench.suites.training_loss import planted  # noqa: E402 - after torch was found

pytestmark = pytest.mark.engine


@pytest.fixture
def step():
    torch.compiler.reset()
    weight = torch.tensor([2.0], requires_grad=True)
    return torch.compile(lambda: weight.mul(3).sum(), backend=planted.backend)


def test_nothing_is_planted_unless_named(step, monkeypatch):
    monkeypatch.delenv("CI_BENCH_PLANT", raising=False)

    assert step().item() == 6.0


def test_loss_scales_what_gradients_flow_through(step, monkeypatch):
    monkeypatch.setenv("CI_BENCH_PLANT", "loss")

    assert step().item() == pytest.approx(6.0 * 1.01)


def test_slow_sleeps(step, monkeypatch):
    slept = []
    monkeypatch.setattr(planted.time, "sleep", slept.append)
    monkeypatch.setenv("CI_BENCH_PLANT", "slow")

    assert step().item() == 6.0
    assert slept == [planted.SLEEP_S]


def test_leak_keeps_memory_up_to_a_bound(step, monkeypatch):
    made = []
    real = torch.ones
    monkeypatch.setattr(planted.torch, "ones", lambda size, **_: made.append(size) or real(1))
    monkeypatch.setenv("CI_BENCH_PLANT", "leak")
    for _ in range(planted.MOST_LEAKS + 3):
        step()

    assert made == [planted.LEAKED_FLOATS] * planted.MOST_LEAKS


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_leak_lies_on_the_inputs_device(monkeypatch, device):
    """Only the GPU's allocator is weighed where a graph computes on a GPU."""
    monkeypatch.setenv("CI_BENCH_PLANT", "leak")
    leaked, ones = [], torch.ones
    monkeypatch.setattr(
        torch, "ones", lambda *size, **named: leaked.append(ones(*size, **named)) or leaked[-1]
    )
    run = planted.backend(torch.fx.symbolic_trace(torch.nn.Identity()), ())

    run(torch.empty(3, device=device))

    assert [one.device.type for one in leaked] == [device]
