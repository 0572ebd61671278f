"""All arms start from the same bytes; they are distributed as they should be, and follow the seed."""

import math

import pytest
import torch
from fastrnns_builders import make_case, make_job, open_case, same_bytes

from ci_bench.suites.fastrnns.initial_state import draw
from ci_bench.suites.fastrnns.networks import build_network
from ci_bench.suites.fastrnns.variants import VARIANTS, Form, reference_of

pytestmark = pytest.mark.engine

ON_CPU = [
    name
    for name, one in VARIANTS.items()
    if one.form is not Form.LIBRARY and one.structure not in {"scan", "while_loop"}
]


@pytest.mark.parametrize("name", [name for name in ON_CPU if not VARIANTS[name].is_convolutional])
def test_both_arms_start_from_the_same_bytes(name):
    job, other = make_job(name), make_job(reference_of(VARIANTS[name]).name)
    mine, theirs = draw(job), draw(other)
    assert [*mine.weights] == [*theirs.weights]
    assert all(same_bytes(mine.weights[key], theirs.weights[key]) for key in mine.weights)
    assert all(
        map(
            same_bytes,
            (*mine.inputs, *mine.states, mine.gradient),
            (*theirs.inputs, *theirs.states, theirs.gradient),
        )
    )
    built = [build_network(one, given).parameters for one, given in ((job, mine), (other, theirs))]
    for key in {*built[0]} & {*built[1]}:
        assert same_bytes(built[0][key].detach(), built[1][key].detach()), key
    norms = {key for key in mine.weights if key.startswith(("scale", "shift"))}
    left_out = norms if job.variant.structure == "library_layernorm" else set()
    assert {*mine.weights} - left_out <= {*built[0]}, "every weight that is drawn is a parameter"


def test_resnets_start_from_the_same_bytes_whatever_torchs_generator_has_done():
    first = draw(make_job("resnet18"))
    torch.randn(7)
    second = draw(make_job("resnet18_jit"))
    assert all(same_bytes(first.weights[key], second.weights[key]) for key in first.weights)
    assert same_bytes(first.inputs[0], second.inputs[0])


def test_drawing_leaves_torchs_generator_alone():
    torch.manual_seed(5)
    wanted = torch.randn(3)
    torch.manual_seed(5)
    draw(make_job("resnet18"))
    draw(make_job("py"))
    assert torch.equal(torch.randn(3), wanted)


def test_the_seed_changes_everything():
    one, two = (draw(make_job("py", seed=seed)) for seed in (0, 1))
    pairs = zip(
        (*one.weights.values(), *one.inputs, one.gradient),
        (*two.weights.values(), *two.inputs, two.gradient),
        strict=True,
    )
    assert not any(torch.equal(*pair) for pair in pairs)


def test_weights_are_uniform_as_the_librarys():
    given = draw(make_job("py", hidden_size=64, input_size=64))
    weight = given.weights["weight_ih_l0"]
    assert float(weight.abs().max()) <= 1 / math.sqrt(64)
    assert float(weight.std()) == pytest.approx(1 / math.sqrt(64) / math.sqrt(3), rel=0.02)
    assert float(given.inputs[0].std()) == pytest.approx(1, rel=0.1)


def test_norms_do_not_start_as_if_they_were_not_there():
    weights = draw(make_job("py_layernorm")).weights
    assert not torch.equal(weights["scale_c_l0"], torch.ones(6))
    assert bool(weights["shift_c_l0"].any())


@pytest.mark.parametrize(
    ("steps", "shortest", "longest"), [(100, 30, 99), (10, 3, 9), (2, 1, 1), (1, 1, 1)]
)
def test_lengths_are_those_of_the_original_at_its_size(steps, shortest, longest):
    lengths = [len(one) for one in draw(make_job("vl_py", seq_length=steps, batch_size=400)).inputs]
    assert (min(lengths), max(lengths)) == (shortest, longest)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_numbers_are_kept_in_the_format_asked_for(dtype):
    given = draw(make_job("jit", dtype=dtype))
    assert {
        str(one.dtype)
        for one in (*given.weights.values(), *given.inputs, *given.states, given.gradient)
    } == {f"torch.{dtype}"}


@pytest.mark.parametrize(
    ("name", "shape"), [("py", (4, 3, 6)), ("py_simple", (3, 6)), ("py_bidirectional", (4, 3, 12))]
)
def test_the_gradient_has_the_shape_of_what_it_is_driven_into(name, shape):
    assert tuple(draw(make_job(name)).gradient.shape) == shape


def test_nothing_given_is_changed_by_running():
    case = make_case("py")
    job = make_job("py")
    before = draw(job)
    program = open_case(case).open("py")
    program.step(lambda: None)
    assert same_bytes(draw(job).inputs[0], before.inputs[0])
