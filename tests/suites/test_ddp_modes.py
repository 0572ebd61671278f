"""Modes of dynamo for DDP: they hold inside of a step, and are gone after it.

`test_shared_trainings` has what they do.
"""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - after torch was found
from torch._dynamo import compiled_autograd, config, trace_rules  # noqa: E402
from torch._inductor import config as inductor  # noqa: E402

from ci_bench.suites.shared.planning.arms import CompiledArm  # noqa: E402
from ci_bench.suites.shared.planning.layouts import Layout, read_layout  # noqa: E402
from ci_bench.suites.shared.worker.compiling import compile_arguments, kept_apart  # noqa: E402
from ci_bench.suites.shared.worker.ddp_modes import BUCKET_MIB, DDP_MODULE, optimizing_ddp  # noqa: E402
from ci_bench.suites.training_loss.layouts import ParallelStep  # noqa: E402

pytestmark = pytest.mark.engine
MODES = (
    "ddp_optimizer",
    "python_reducer",
    "python_reducer_without_compiled_forward",
    "no_optimization",
)


def settings() -> tuple[object, ...]:
    """All that a mode sets for the process."""
    return (
        config.optimize_ddp,
        compiled_autograd.compiled_autograd_enabled,
        inductor._fuse_ddp_communication,
        inductor._fuse_ddp_bucket_size,
        DDP_MODULE in trace_rules.LEGACY_MOD_INLINELIST,
        any(
            path.endswith("nn/parallel/distributed")
            for path in trace_rules.get_legacy_mod_inlinelist()
        ),
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_holds_inside_and_leaves_nothing_behind_also_where_a_step_fails(mode: str) -> None:
    before, layout, inside = (
        settings(),
        Layout(layout="ddp", backend="eager", optimize_ddp=mode),
        [],
    )

    @optimizing_ddp(layout)
    def step() -> None:
        inside.append(settings())
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        step()
    assert inside == [
        (mode, True, True, BUCKET_MIB, True, True)
        if mode == "python_reducer"
        else (mode, *before[1:])
    ]
    assert settings() == before


def test_without_a_mode_nothing_is_set() -> None:
    before = settings()
    with optimizing_ddp(Layout(layout="ddp", backend="eager")):
        assert settings() == before


class Seen(nn.Module):
    """A loss that keeps the mode in which it was computed, and in which its gradient was."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.modes = nn.Parameter(torch.ones(())), []
        self.weight.register_hook(lambda _: self.modes.append(config.optimize_ddp))

    def forward(self, labels):
        self.modes.append(config.optimize_ddp)
        return self.weight * labels.float().mean()


@pytest.mark.parametrize(
    ("mode", "parts"), [("no_optimization", 1), ("no_optimization", 2), (None, 1)]
)
def test_forward_and_backward_passes_of_a_training_are_in_its_mode(
    mode: str | None, parts: int
) -> None:
    whole, usual = Seen(), config.optimize_ddp
    step = ParallelStep(
        layout=Layout(layout="ddp", backend="eager", optimize_ddp=mode, accumulate=parts),
        whole=whole,
        optimizer=torch.optim.SGD(whole.parameters(), lr=0.1),
        autocast=torch.enable_grad,
        ranks=SimpleNamespace(rank=0, count=1),
        device="cpu",
    )
    step({"labels": torch.arange(4)})
    assert whole.modes == [usual if mode is None else mode] * (2 * parts)
    assert config.optimize_ddp == usual


def test_backends_of_arms_that_are_kept_apart_are_equal_only_where_both_are_the_same() -> None:
    one, same, other = (
        kept_apart("eager", word)
        for word in ("no_optimization", "no_optimization", "ddp_optimizer")
    )
    assert (one, hash(one)) == (same, hash(same))
    assert one not in {other, kept_apart("aot_eager", "no_optimization")}
    assert kept_apart("eager", "") == "eager"
    assert compile_arguments(CompiledArm(backend="eager"), key="no_optimization")["backend"] == one
    assert torch.compile(lambda value: value + 1, backend=one)(torch.ones(1)).tolist() == [2.0]


@pytest.mark.parametrize(
    ("word", "mode"),
    [(True, "ddp_optimizer"), (False, "no_optimization"), *((mode, mode) for mode in MODES)],
)
def test_truths_are_read_as_the_modes_that_torch_takes_them_for(word: object, mode: str) -> None:
    layout = read_layout({"layout": "ddp", "backend": "inductor", "optimize_ddp": word})
    assert (layout.optimize_ddp, layout.name) == (mode, f"ddp+{mode}+inductor")
    assert read_layout(layout.as_params()) == layout
    with optimizing_ddp(layout):
        assert torch._dynamo.utils.get_optimize_ddp_mode() == mode, "torch knows it"


def test_a_layout_without_a_mode_is_stored_as_before_there_were_modes() -> None:
    assert "optimize_ddp" not in read_layout({"layout": "ddp", "backend": "inductor"}).as_params()
