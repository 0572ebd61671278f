"""Optimizers by name, with options, and of the user's own: built, judged like torch's, and refused by name."""

from dataclasses import replace

import pytest
from torchbench_builders import QUICK, accuracy, context, opened, own, word

from ci_bench.suites.torchbench import program
from ci_bench.suites.torchbench.plan import SUITE
from ci_bench.suites.torchbench.run import open_workload
from ci_bench.suites.torchbench.status import ModelFailed

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    "entry",
    [
        {"optimizer": "planted_optimizers:Signed", "optimizer_options": {"decay": 0.1}},
        {"optimizer": "SGD", "optimizer_options": {"momentum": 0.9, "nesterov": True}},
        {"optimizer": "Adafactor"},
        {"optimizer": "planted_optimizers:matrices"},
        {"optimizer": "planted_optimizers:matrices", "scope": "step", "backend": "aot_eager"},
    ],
    ids=lambda entry: entry["optimizer"],
)
def test_a_right_step_passes(entry):
    check = accuracy(**own("Plain", **entry))
    assert word(check) == "pass", check.detail


def test_options_make_a_difference():
    _, workload = opened(
        **own("Plain", optimizer="planted_optimizers:Signed", optimizer_options={"decay": 0.5})
    )
    optimizer = workload._build(candidate=None).optimizer
    assert (type(optimizer).__name__, optimizer.defaults["decay"]) == ("Signed", 0.5)


@pytest.mark.parametrize(
    ("more", "eps"),
    [
        ({}, 1e-8),
        ({"precision": "fp16"}, 1e-4),
        ({"precision": "fp16", "optimizer_options": {"eps": 1e-3}}, 1e-3),
        ({"precision": "fp16", "optimizer": "Adafactor"}, (None, 1e-3)),
    ],
)
def test_an_epsilon_is_not_zero_in_fp16(more, eps):
    _, workload = opened(**own("Plain", **{"optimizer": "Adam", **more}))
    assert workload._build(candidate=None).optimizer.defaults["eps"] == eps


@pytest.mark.parametrize("optimizer", ["RAdam", "NAdam", "AdamW"])
def test_what_a_compiled_correction_loses_after_many_steps_is_rounding(optimizer):
    check = accuracy(
        **own("Plain", optimizer=optimizer, scope="step", backend="aot_eager", lr=0.01, steps=9)
    )
    assert word(check) == "pass", check.detail


def test_a_radam_that_goes_further_compiled_fails():
    whole = {"scope": "step", "backend": "aot_eager", "steps": 9}
    check = accuracy(**own("Plain", optimizer="planted_optimizers:HastyRAdam", **whole))
    assert (word(check), "updates." in check.detail) == ("fail_accuracy", True), check.detail


@pytest.mark.parametrize(
    ("scope", "arm", "captured", "capturable"),
    [
        ("model", "eager", False, False),
        ("model", "aot_eager", False, False),
        ("step", "eager", False, False),
        ("step", "aot_eager", False, True),
        ("model", "eager", True, True),
    ],
)
def test_an_optimizer_is_capturable_where_its_step_is_captured_or_compiled(
    scope, arm, captured, capturable, monkeypatch
):
    asked = []
    build = program.build_optimizer

    def noting(*given, capturable):
        asked.append(capturable)
        return build(*given, capturable=capturable)

    monkeypatch.setattr(program, "build_optimizer", noting)
    (case,) = SUITE.plan({**QUICK, **own("Plain", scope=scope)})
    open_workload(case, replace(context(), cuda_graph=captured)).open(arm)
    assert asked == [capturable]


def test_an_optimizer_that_does_something_else_compiled_fails():
    whole = {"scope": "step"}
    assert word(accuracy(**own("Plain", optimizer="planted_optimizers:Signed", **whole))) == "pass"
    check = accuracy(**own("Plain", optimizer="planted_optimizers:Hasty", **whole))
    assert (word(check), "updates." in check.detail) == ("fail_accuracy", True), check.detail


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (
            {"optimizer_options": {"beta": 0.9}},
            r"optimizer_options\.beta: torch\.optim\.Adam .*did you mean betas\?",
        ),
        (
            {"optimizer": "planted_optimizers:Signed", "optimizer_options": {"decai": 1}},
            r"did you mean decay\?",
        ),
        (
            {"optimizer": "planted_optimizers:no_optimizer"},
            r"gives object; it has to give a torch\.optim\.Optimizer",
        ),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_measured(entry, fault):
    _, workload = opened(**own("Plain", **entry))
    with pytest.raises(ModelFailed, match=fault):
        workload.prepare()


def test_an_optimizer_that_is_not_there_is_told_before_anything_is_measured():
    _, workload = opened(**own("Plain", optimizer="planted_optimizers:Absent"))
    with pytest.raises(ModelFailed, match=r"optimizer: planted_optimizers has no 'Absent'"):
        workload.prepare()
