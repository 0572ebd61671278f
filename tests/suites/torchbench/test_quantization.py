"""Quantised models with torchao itself: they run and are verified; what quantising costs is told, and a broken one is caught."""

from importlib.util import find_spec

import pytest
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torchbench_builders import accuracy, checks_of, opened, own, verified, word

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Unsupported, no_mark
from ci_bench.suites.shared.worker.digests import plain_parts
from ci_bench.suites.torchbench import quantization
from ci_bench.suites.torchbench.quantization import losses
from ci_bench.suites.torchbench.snapshot import buffers_of, load_state, parameters_of

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        find_spec("torchao") is None, reason="torchao is not installed (dependency group dev)"
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torchao.*"),
    pytest.mark.filterwarnings("ignore::UserWarning:torchao.*"),
]

KINDS = ("int8weightonly", "int8dynamic")
QUANTIZED = {"mode": "inference", "precision": "bf16", "quantization": "int8weightonly"}
BESIDE = {**QUANTIZED, "quantized_arms": "candidate"}


def wrapped(program) -> int:
    return sum(map(is_traceable_wrapper_subclass, program._ready.module.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_both_arms_of_a_quantised_model_are_timed_and_verified(kind):
    case, workload = opened(**{**QUANTIZED, "quantization": kind}, models=["mlp"])
    assert case.arms == ("eager", "aot_eager")
    for arm in case.arms:
        program = workload.open(arm)
        program.step(no_mark)
        assert wrapped(program) == 3
        assert [check.outcome for check in program.finish()] == [Outcome.PASS]
    check = checks_of(workload.verify(case.arms))["accuracy"]
    assert word(check) == "pass", check.detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "model", "precision"),
    [("int8weightonly", "gnn", "bf16"), ("int8dynamic", "mlp", "fp32")],
)
def test_a_quantised_candidate_stands_beside_an_unquantised_reference(kind, model, precision):
    entry = {**BESIDE, "quantization": kind, "precision": precision}
    case, workload = opened(**entry, models=[model])
    assert case.arms == ("eager", f"aot_eager-{kind}")
    assert case.due.checks == ("compiled", "accuracy", "quantization_loss")
    reference, candidate = (workload.open(arm) for arm in case.arms)
    assert (wrapped(reference), wrapped(candidate) > 0) == (0, True)
    evidence = workload.verify(case.arms)
    checks = checks_of(evidence)
    assert {name: checks[name].outcome for name in ("accuracy", "quantization_loss")} == {
        "accuracy": Outcome.PASS, "quantization_loss": Outcome.PASS,
    }, checks  # fmt: skip
    assert 0.001 < evidence.facts["quantization_error"] < 0.03
    assert evidence.facts["unquantized_rounding_error"] < 0.01
    assert evidence.facts["parameter_bytes"] < sum(
        part.numel() * part.element_size() for part in reference._ready.module.parameters()
    )


def _coarse(weight):
    """As of too few bits."""
    weight.qdata.copy_((weight.qdata // 16) * 16)


def _half(weight):
    weight.scale.mul_(0.5)


def _one_row(weight):
    weight.scale[0].mul_(6)


def _lost_row(weight):
    weight.qdata[0].zero_()


@pytest.mark.parametrize("spoil", [_coarse, _half, _one_row, _lost_row])
def test_a_quantisation_that_loses_more_than_its_kind_does_is_caught(monkeypatch, spoil):
    """Eager and compiled alike, so that no compiler is to blame: the one check fails, and the other does not."""
    quantize = quantization.quantize

    def broken(module, options):
        quantize(module, options)
        with torch.no_grad():
            for value in module.parameters():
                if is_traceable_wrapper_subclass(value):
                    spoil(value)

    monkeypatch.setattr("ci_bench.suites.torchbench.run.quantize", broken)
    checks = checks_of(verified(**BESIDE, models=["mlp"], backend="eager"))
    assert (checks["accuracy"].outcome, checks["quantization_loss"].outcome) == (
        Outcome.PASS,
        Outcome.FAIL,
    )
    assert "is off by" in checks["quantization_loss"].detail


@pytest.mark.parametrize(("arms", "defect"), [("both", "scaled"), ("candidate", "nan")])
def test_a_compiler_that_breaks_a_quantised_model_is_caught(arms, defect):
    entry = own("Plain", **{**QUANTIZED, "quantized_arms": arms}, model_options={"defect": defect})
    assert word(accuracy(**entry)) == "fail_accuracy"


def test_a_limit_of_ones_own_wins():
    strict = {**BESIDE, "quantization_limit": 0.0001, "backend": "eager"}
    check = checks_of(verified(**strict, models=["mlp"]))["quantization_loss"]
    assert (check.outcome, "0.0001 is allowed" in check.detail) == (Outcome.UNKNOWN, True), (
        "bf16 rounds more than that"
    )
    fp32 = {**strict, "precision": "fp32"}
    assert checks_of(verified(**fp32, models=["mlp"]))["quantization_loss"].outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("model", "kind", "words"),
    [
        ("unet", "int8weightonly", "unet has no layer that torchao quantises"),
        pytest.param("mlp", "int4weightonly", "quantization int4weightonly: ",
                     marks=pytest.mark.skipif(find_spec("mslk") is not None, reason="what int4 needs is installed")),
    ],
)  # fmt: skip
def test_what_cannot_be_quantised_here_is_skipped_with_the_reason(model, kind, words):
    _, workload = opened(**{**QUANTIZED, "quantization": kind}, models=[model])
    with pytest.raises(Unsupported, match=words):
        workload.prepare()


def test_the_state_of_a_quantised_model_can_be_set_back():
    _, workload = opened(**QUANTIZED, models=["mlp"])
    module = workload.open("eager")._ready.module
    before, buffers = parameters_of(module), buffers_of(module)
    assert {"qdata", "scale"} <= {name.rpartition(".")[2] for name in before}
    with torch.no_grad():
        for name, value in module.named_parameters():
            for _, part in plain_parts(name, value):
                part.zero_()
    load_state(module, before, buffers)
    assert all(torch.equal(before[name], value) for name, value in parameters_of(module).items())


TRUTH = [{"a": torch.tensor([3.0, 4.0])}, {"a": torch.tensor([0.0, 0.0])}]


@pytest.mark.parametrize(
    ("given", "error", "largest"),
    [
        (TRUTH, 0.0, 0.0),
        ([{"a": torch.tensor([3.0, 4.5])}, TRUTH[1]], 0.1, 0.125),
        ([{"a": torch.tensor([float("nan"), 4.0])}, TRUTH[1]], float("inf"), float("inf")),
        ([{"a": torch.tensor([3.0])}, TRUTH[1]], float("inf"), float("inf")),
        ([{}, TRUTH[1]], float("inf"), float("inf")),
    ],
)
def test_a_loss_is_a_share_of_the_norm_and_of_the_largest_element(given, error, largest):
    (loss,) = losses(given, TRUTH)
    assert (loss.name, loss.error, loss.largest) == (
        "a",
        pytest.approx(error),
        pytest.approx(largest),
    )


def test_an_output_of_zeros_that_stays_zero_is_not_off():
    zeros = [{"a": torch.zeros(3)}]
    assert losses(zeros, zeros)[0].worst == 0.0
    assert losses([{"a": torch.ones(3)}], zeros)[0].worst == float("inf")
