"""Optimizers by name or import path, and the parameters that they train."""

import pytest

torch = pytest.importorskip("torch")

from ci_bench.suites.shared.worker.optimizers import BadOptimizer, make_optimizer, names_of  # noqa: E402 - after torch


@pytest.fixture
def model():
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))


def matrices(parameters, lr):
    return torch.optim.SGD([one for one in reversed([*parameters]) if one.ndim == 2], lr=lr)


def backward(model) -> None:
    model(torch.ones(4, 3)).sum().backward()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_left_out_parameters_have_no_old_gradients(model, set_to_none) -> None:
    optimizer = make_optimizer(f"{__name__}:matrices", model.parameters(), lr=0.1, device="cpu")
    backward(model)
    first = {name: one.grad.clone() for name, one in model.named_parameters()}
    optimizer.zero_grad(set_to_none=set_to_none)
    assert model[0].bias.grad is None
    backward(model)
    assert all(torch.equal(one.grad, first[name]) for name, one in model.named_parameters())


class WithClosure(torch.optim.SGD):
    def step(self, closure):
        return super().step(closure)


@pytest.mark.parametrize("name", ["torch.optim:LBFGS", f"{__name__}:WithClosure"])
def test_a_needed_closure_is_refused(model, name) -> None:
    with pytest.raises(BadOptimizer, match=f"optimizer: the step of {name} needs a closure"):
        make_optimizer(name, model.parameters(), lr=0.1, device="cpu")


def test_names_are_in_the_optimizers_order(model) -> None:
    some = make_optimizer(f"{__name__}:matrices", model.parameters(), lr=0.1, device="cpu")
    assert names_of(some, model) == ("1.weight", "0.weight")
    every = make_optimizer("SGD", model.parameters(), lr=0.1, device="cpu")
    assert names_of(every, model) == ("0.weight", "0.bias", "1.weight", "1.bias")
    assert "zero_grad" not in vars(every)
    model[1].bias.requires_grad_(requires_grad=False)
    other = torch.nn.Linear(3, 2)
    assert names_of(torch.optim.SGD(other.parameters()), model) == (
        "0.weight",
        "0.bias",
        "1.weight",
    )
