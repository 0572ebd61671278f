"""What is read of a first call: sketches tell other values from rounding, and what does not repeat is not compared."""

import math

import pytest

torch = pytest.importorskip("torch")

from ci_bench.suites.shared.worker.first_calls import (  # noqa: E402
    held_to,
    read_call,
    read_start,
    sketch,
    verified,
)

pytestmark = pytest.mark.engine
FP32 = 2.0**-24


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("shape", [(3,), (4096,), (257, 4099), (2, 3, 5)])
@pytest.mark.parametrize("share", [1e-2, 1.0])
def test_the_distance_of_sketches_is_that_of_tensors(shape, share):
    one = drawn(*shape)
    other = one + share * drawn(*shape, seed=1)
    apart = math.dist(sketch([one]), sketch([other]))
    true = float((other - one).norm())
    assert 0.5 * true < apart < 1.7 * true


def test_errors_of_one_sign_do_not_add_up():
    one = torch.ones(1 << 20)
    off = math.dist(sketch([one]), sketch([one * (1 + 1e-5)])) / math.hypot(*sketch([one]))
    assert off < 3e-5


def call(**left):
    return read_call(read_start([drawn(8, 4)], [("w", drawn(4, 4))]), left)


BASE = {
    "output": drawn(64, 8),
    "gradients.w": drawn(4, 4),
    "weights.w": drawn(4, 4),
    "loss": torch.tensor(2.0),
}


@pytest.mark.parametrize(
    ("timed", "said"),
    [
        ({}, ""),
        ({"output": BASE["output"] * (1 + 1e-6)}, ""),
        ({"output": BASE["output"].flip(0)}, "values of the outputs off by"),
        ({"output": BASE["output"] * 1.01}, "values of the outputs off by 0.01 of their size"),
        ({"output": BASE["output"][:32]}, "outputs float32[32, 8] instead of float32[64, 8]"),
        (
            {"output": BASE["output"].bfloat16()},
            "outputs bfloat16[64, 8] instead of float32[64, 8]",
        ),
        (
            {"output": BASE["output"] * math.nan},
            "outputs float32[64, 8], 512 of them not finite instead of float32[64, 8]",
        ),
        (
            {"output": torch.where(BASE["output"] > 2.5, math.inf, BASE["output"])},
            "outputs float32[64, 8], ",
        ),
        ({"gradients.w": torch.zeros(4, 4)}, "values of the gradients off by 1 of their size"),
        ({"loss": torch.tensor(2.1)}, "values of the loss off by"),
        ({"weights.w": torch.zeros(4, 4)}, ""),
    ],
)
def test_other_results_are_told_from_rounding(timed, said):
    found = "; ".join(verified(call(**BASE), epsilon=FP32).differing(call(**{**BASE, **timed})))
    assert found.startswith(said), found
    assert bool(found) == bool(said), found


def test_forms_are_named_once():
    known = verified(call(**BASE), epsilon=FP32)
    other = read_call(read_start([drawn(4, 4)], [("w", drawn(4, 4, seed=1))]), BASE)
    assert [one.partition(" instead")[0] for one in known.differing(other)] == [
        "inputs float32[4, 4]",
        f"values of the weights {other.words['values of the weights']}",
    ]


@pytest.mark.parametrize(
    ("runs", "draws", "compared"),
    [
        ([], False, {"outputs", "gradients", "loss"}),
        ([{"output": BASE["output"] * (1 + 1e-4)}], False, {"outputs", "gradients", "loss"}),
        ([{"output": BASE["output"].flip(0)}], False, {"gradients", "loss"}),
        ([{"gradients.w": BASE["gradients.w"] * 1.2}], False, {"outputs", "loss"}),
        ([], True, set()),
    ],
)
def test_values_that_do_not_repeat_are_not_compared(runs, draws, compared):
    known = verified(
        call(**BASE), epsilon=FP32, runs=[call(**{**BASE, **run}) for run in runs], draws=draws
    )
    assert {*known.sketches} == compared
    assert "outputs" in known.words or draws
    assert list(known.differing(call(**BASE))) == []


def test_shapes_that_do_not_repeat_are_not_compared():
    known = verified(
        call(**BASE), epsilon=FP32, runs=[call(**{**BASE, "output": BASE["output"][:9]})]
    )
    assert list(known.differing(call(**{**BASE, "output": BASE["output"][:50]}))) == []


def test_weights_that_each_build_draws_anew_are_not_compared():
    one, other = (read_start([drawn(8, 4)], [("w", drawn(4, 4, seed=seed))]) for seed in (1, 2))
    known, timed = (
        verified(read_call(one, BASE), epsilon=FP32),
        read_call(other, {**BASE, "output": drawn(64, 8, seed=3)}),
    )
    assert held_to(known, one) == known
    assert held_to(known, other).words.keys() == {"inputs", "values of the inputs", "weights"}
    assert list(held_to(known, other).differing(timed)) == []
    assert list(held_to(known, {}).differing(timed)) == []


@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), float("nan")])
def test_a_call_that_leaves_masks_or_holes_has_a_sketch_of_the_rest(odd):
    plain = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    masked, other = plain.clone(), plain.clone() * 1.1
    masked[3], other[3] = odd, odd
    same = read_call({}, {"output": masked})
    assert all(map(math.isfinite, same.sketches["outputs"]))
    assert same.sketches == read_call({}, {"output": masked.clone()}).sketches
    assert same.sketches != read_call({}, {"output": other}).sketches
    assert read_call({}, {"output": torch.full((300, 4096), 3e38)}).sketches == {}, (
        "sums that overflow show nothing"
    )
