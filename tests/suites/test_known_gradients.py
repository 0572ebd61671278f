"""An optimizer alone, on gradients that are the same everywhere: what it does otherwise shows, how it is run does not."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - after torch is known to be there

from ci_bench.suites.shared.worker.numerics import (  # noqa: E402
    FP32_EPSILON,
    judged,
    measured,
    of_optimizer,
    yardstick_of,
)
from ci_bench.suites.shared.worker.optimizers import (  # noqa: E402
    KNOWN_SIZES,
    MOST_KEPT,
    UPDATES,
    updates_by_known_gradients,
)

pytestmark = pytest.mark.engine
ALLOWED = of_optimizer(yardstick_of(FP32_EPSILON), 0.999)


def weights(*names):
    generator = torch.Generator().manual_seed(1)
    drawn = {
        "first": torch.randn(12, 8, generator=generator),
        "bias": torch.randn(12, generator=generator),
    }
    return {name: drawn[name] for name in names or drawn}


def moves(make, given=None, *, apart=True):
    return updates_by_known_gradients(make, given or weights(), separately=apart)


def wrong(base, head):
    return [
        one.name
        for one in judged(measured(head, truth=None, runs=[base], starts={}), ALLOWED)
        if one.wrong
    ]


class Stale(torch.optim.AdamW):
    """Forgets to bring the second moments up to date after the first step."""

    def step(self, closure=None):
        before = {id(one): state["exp_avg_sq"].clone() for one, state in self.state.items()}
        super().step(closure)
        for weight, state in self.state.items():
            if id(weight) in before:
                state["exp_avg_sq"].copy_(before[id(weight)])


def adamw(cls=torch.optim.AdamW, **options):
    given = {"lr": 1e-3, "weight_decay": 0.01, **options}
    return lambda parameters: cls(parameters, **given)


@pytest.mark.parametrize(
    "planted",
    [
        adamw(lr=1.002e-3),
        adamw(weight_decay=0.0),
        adamw(betas=(0.9, 0.9)),
        adamw(betas=(0.91, 0.999)),
        adamw(eps=1e-6),
        adamw(amsgrad=True),
        adamw(maximize=True),
        adamw(torch.optim.Adam),
        adamw(Stale),
    ],
    ids=[
        "lr",
        "decay",
        "beta2",
        "beta1",
        "eps",
        "amsgrad",
        "sign",
        "Adam for AdamW",
        "stale moments",
    ],
)
def test_what_an_optimizer_does_otherwise_shows(planted):
    assert wrong(moves(adamw()), moves(planted))


@pytest.mark.parametrize("ways", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
@pytest.mark.parametrize("name", ["AdamW", "NAdam", "Adagrad", "RMSprop", "SGD", "Adamax", "Rprop"])
def test_how_it_is_run_does_not(name, ways):
    kind = getattr(torch.optim, name)
    if "fused" in ways and name not in {"AdamW", "SGD", "Adagrad"}:
        pytest.skip("torch has no fused form of it")
    assert not wrong(
        moves(lambda them: kind(them, lr=1e-3)), moves(lambda them: kind(them, lr=1e-3, **ways))
    )


def test_arithmetic_in_fp32_does_not():
    class Narrow(torch.optim.Optimizer):
        """Adam with its moments and divisors in fp32."""

        def __init__(self, params):
            super().__init__(params, {})

        @torch.no_grad()
        def step(self, closure=None):
            for weight in self.param_groups[0]["params"]:
                state = self.state[weight]
                gradient = weight.grad.float()
                first, second, steps = (
                    state.setdefault(key, torch.zeros_like(gradient)) for key in ("m", "v", "t")
                )
                first.lerp_(gradient, 0.1)
                second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                steps += 1
                left = 1 - torch.tensor(0.999) ** steps
                away = first / (1 - 0.9**steps) / ((second / left).sqrt() + 1e-8)
                weight.sub_(1e-3 * away.double())

    assert not wrong(moves(lambda them: torch.optim.Adam(them, lr=1e-3)), moves(Narrow))


def test_names_and_the_order_of_modules_make_no_other_gradients():
    here = moves(adamw())
    renamed = moves(adamw(), dict(zip(("b", "a"), reversed(weights().values()), strict=True)))
    assert torch.equal(here[f"{UPDATES}: first"], renamed[f"{UPDATES}: a"])
    assert torch.equal(here[f"{UPDATES}: bias"], renamed[f"{UPDATES}: b"])


def test_one_that_looks_at_all_weights_together_sees_them_together():
    class ByNorm(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        @torch.no_grad()
        def step(self, closure=None):
            own = self.param_groups[0]["params"]
            norm = torch.linalg.vector_norm(torch.stack([one.grad.norm() for one in own]))
            for one in own:
                one.sub_(one.grad / norm)

    assert wrong(moves(ByNorm, apart=True), moves(ByNorm, apart=False))


def test_a_large_weight_leaves_a_sample_and_the_weights_are_left_alone():
    large = {"wide": torch.zeros(3 * MOST_KEPT + 5)}
    (moved,) = moves(lambda them: torch.optim.SGD(them, lr=1.0), large).values()
    assert MOST_KEPT // 2 < moved.numel() <= MOST_KEPT
    assert moved.dtype is torch.float32
    assert float(moved.std()) == pytest.approx(
        sum(size**2 for size in KNOWN_SIZES) ** 0.5, rel=0.02
    )
    assert not large["wide"].any()


def test_one_that_cannot_be_tried_leaves_nothing(caplog):
    class NoFp64(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self, closure=None):
            raise RuntimeError("no kernel for Double")

    with caplog.at_level("INFO"):
        assert moves(NoFp64) == {}
    assert "no kernel for Double" in caplog.text
    assert moves(torch.optim.LBFGS, {"w": nn.Parameter(torch.ones(2))}) == {}
