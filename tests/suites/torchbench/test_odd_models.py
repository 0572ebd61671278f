"""Models as users have them are verified for what they are: right ones pass, wrong backends fail, and what hinders is named."""

import pytest
from torchbench_builders import checks_of, context, opened, verified

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Evidence
from ci_bench.suites.torchbench.evidence import _witnessed
from ci_bench.suites.torchbench.options import parse
from ci_bench.suites.torchbench.plan import SUITE
from ci_bench.suites.torchbench.run import ModelWorkload
from ci_bench.suites.torchbench.status import ModelFailed
from ci_bench.suites.torchbench.tables import settle

pytestmark = pytest.mark.engine
MODES = ("training", "inference")


def accuracy(model, **entry):
    return checks_of(verified(**{"source": "own", "models": [f"odd_models:{model}"], **entry}))[
        "accuracy"
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", ["spectral", "spectrum", "answering"])
def test_complex_numbers_and_dataclasses_are_compared(model, mode):
    right = accuracy(model, mode=mode)
    assert right.outcome is Outcome.PASS, right
    wrong = accuracy(model, mode=mode, backend="odd_models:off_by_two_percent")
    assert wrong.outcome is Outcome.FAIL, wrong


@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_fp64_weights_are_trained_and_compared(optimizer):
    check = accuracy("wide", mode="training", optimizer=optimizer)
    assert check.outcome is Outcome.PASS, check
    wrong = accuracy(
        "wide", mode="training", optimizer=optimizer, backend="odd_models:off_by_two_percent"
    )
    assert wrong.outcome is Outcome.FAIL, wrong


@pytest.mark.parametrize("mode", MODES)
def test_imaginary_parts_that_a_backend_drops_are_missed(mode):
    assert (
        accuracy("spectrum", mode=mode, backend="odd_models:drops_imaginary").outcome
        is Outcome.FAIL
    )


@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "RMSprop"])
def test_a_parameter_without_a_gradient_in_a_step_has_no_state_when_it_is_set_back(optimizer):
    options = {"momentum": 0.9} if optimizer == "SGD" else {}
    check = accuracy("turns", mode="training", optimizer=optimizer, optimizer_options=options)
    assert check.outcome is Outcome.PASS, check


def test_a_parameter_that_freezes_is_trained_when_it_is_set_back():
    check = accuracy("freezing", mode="training", optimizer="Adam")
    assert check.outcome is Outcome.PASS, check
    wrong = accuracy("freezing", mode="training", backend="odd_models:off_by_two_percent")
    assert wrong.outcome is Outcome.FAIL, wrong


@pytest.mark.parametrize("mode", MODES)
def test_a_model_that_writes_its_input_is_judged(mode):
    right = accuracy("writing", mode=mode)
    assert right.outcome is Outcome.PASS, right
    wrong = accuracy("writing", mode=mode, backend="odd_models:off_by_two_percent")
    assert wrong.outcome is Outcome.FAIL, wrong
    elsewhere = accuracy("writing", mode=mode, backend="odd_models:writes_to_a_copy")
    assert elsewhere.outcome is Outcome.FAIL, elsewhere
    assert "inputs.0" in elsewhere.detail


def test_a_model_that_writes_shared_inputs_is_unknown():
    entry = {"source": "own", "models": ["odd_models:writing"], "layouts": ["ddp"]}
    (case,) = SUITE.plan({"perturbations": 1, **entry})
    settled = settle(parse(case.params), "cpu")
    workload = ModelWorkload(case, settled, context())
    _, judge = _witnessed(settled, workload._build, context())
    answer = judge.eager_repeats()
    assert (answer.outcome, answer.score) == (Outcome.UNKNOWN, 0.0)
    assert "(inputs.0), of which each process has only its rows" in answer.detail


@pytest.mark.parametrize(
    ("model", "backend", "word"),
    [
        ("third", "aot_eager", "eager_1st_run_fail"),
        ("writing", "odd_models:fails_at_once", "fail_to_run"),
    ],
)
def test_a_model_that_fails_by_itself_is_blamed(model, backend, word):
    entry = {"source": "own", "models": [f"odd_models:{model}"], "mode": "inference"}
    case, workload = opened(backend=backend, **entry)
    workload.prepare()
    program = workload.open(case.arms[1])

    def step_often():
        for _ in range(3):
            program.step(lambda: None)

    with pytest.raises(ModelFailed, match=f"^{word}: ValueError"):
        step_often()


def test_fp32_buffers_that_bf16_rounds_are_reported():
    for precision, expected in (("bf16", "inv_freq by 0.3"), ("fp32", "")):
        facts = verified(
            source="own", models=["odd_models:rotary"], mode="inference", precision=precision
        ).facts
        assert str(facts.get("rounded_buffers", "")).startswith(expected)
        assert ("rounded_buffers" in facts) is bool(expected)


def test_a_generator_of_outputs_is_judged():
    entry = {"source": "own", "models": ["odd_models:yielding"], "mode": "inference"}
    right = accuracy("yielding", mode="inference")
    assert right.outcome is Outcome.PASS, right
    wrong = accuracy("yielding", mode="inference", backend="odd_models:off_by_two_percent")
    assert wrong.outcome is Outcome.FAIL, wrong
    program = opened(**entry)[1].open("aot_eager")
    program.step(lambda: None)
    assert checks_of(Evidence(checks=program.finish()))["finite_outputs"].outcome is Outcome.PASS


def test_outputs_without_a_tensor_fail():
    program = opened(source="own", models=["odd_models:silent"], mode="inference")[1].open("eager")
    program.step(lambda: None)
    check = checks_of(Evidence(checks=program.finish()))["finite_outputs"]
    assert check.outcome is Outcome.FAIL
    assert (
        check.detail == "the outputs (NoneType) hold no tensor, so nothing is compared; return one"
    )


@pytest.mark.parametrize(
    ("model", "mode", "says"),
    [
        ("lazy", "inference", "model_fail_to_load: .*the model has lazy layers"),
        ("yielding", "training", r"the outputs \(generator\) hold no tensor of floating-point"),
        (
            "counting",
            "training",
            r"the outputs \(Tensor\) hold no tensor .*give the model a `loss`",
        ),
    ],
)
def test_faults_of_a_model_are_found_while_preparing(model, mode, says):
    _, workload = opened(source="own", models=[f"odd_models:{model}"], mode=mode)
    with pytest.raises(ModelFailed, match=says):
        workload.prepare()


@pytest.mark.parametrize(
    ("model", "mode", "says"),
    [
        ("sparse", "training", "the gradient of rows.weight is sparse and cannot be compared"),
        ("layer_drop", "training", "the loss of this step depends on no trained weight"),
        ("lazy", "training", "the model has lazy layers"),
        ("lazy", "inference", "the model has lazy layers"),
    ],
)
def test_what_a_model_lacks_is_named(model, mode, says):
    with pytest.raises(Exception, match=says):
        verified(source="own", models=[f"odd_models:{model}"], mode=mode, optimizer="SGD")
