"""Optimizers of the user's own, sound and not."""

import torch


class Signed(torch.optim.Optimizer):
    """Moves every weight against the sign of its gradient, and remembers how often."""

    def __init__(self, params, lr=1e-3, decay=0.0):
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.mul_(1 - group["lr"] * group["decay"]).sub_(
                        torch.sign(weight.grad), alpha=group["lr"]
                    )
                    state = self.state[weight]
                    state["steps"] = state.get("steps", torch.zeros(())) + 1


class Hasty(Signed):
    """Where it is compiled, it moves one per cent further."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            far = group["lr"] * (1.01 if torch.compiler.is_compiling() else 1.0)
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.sub_(torch.sign(weight.grad), alpha=far)


class HastyRAdam(torch.optim.RAdam):
    """Where it is compiled, it takes the rate times 1.02."""

    def step(self, closure=None):
        before = [group["lr"] for group in self.param_groups]
        if torch.compiler.is_compiling():
            for group in self.param_groups:
                group["lr"] = group["lr"] * 1.02
        super().step(closure)
        for group, lr in zip(self.param_groups, before, strict=True):
            group["lr"] = lr


def matrices(parameters, lr):
    """It trains some of the parameters; the others still require gradients."""
    return torch.optim.SGD([one for one in parameters if one.ndim == 2], lr=lr, momentum=0.9)


def no_optimizer(params, lr):
    return object()
