"""Options to cases to stages, with no torch."""

import json
import subprocess
import sys

import pytest

from ci_bench.errors import BadConfig
from ci_bench.suites.contract import Cache, StageKind
from ci_bench.suites.registry import find_suite
from ci_bench.suites.training_loss.options import TrainingOptions, TrainingPrecision, parse
from ci_bench.suites.training_loss.plan import SUITE

FULL = {
    "name": "mine",
    "backend": ["inductor", "eager", "my.module:compile"],
    "precision": "amp_bf16",
    "epochs": 2,
    "num_samples": 10,
    "batch_size": 4,
    "lr": 0.01,
    "optimizer": "AdamW",
    "optimizer_options": {"betas": [0.9, 0.99], "weight_decay": 0.1},
    "loss": "my.module:loss",
    "evaluation": False,
    "evaluation_rows": 7,
    "seed": 3,
    "seeds": 5,
    "align_rng": False,
    "perturbations": 2,
    "max_length": 16,
    "dataset": {
        "path": "owner/reviews",
        "subset": "small",
        "files": {"train": "a.csv"},
        "num_labels": 3,
    },
    "model": {"path": "owner/model", "revision": "v1", "pretrained": False},
}


def test_the_default_case_has_a_stable_id():
    (case,) = SUITE.plan({})
    assert case.id == "training_loss/reviews[backend=inductor,precision=fp32]"
    assert (case.suite, case.name, case.arms, case.reference) == (
        "training_loss",
        "reviews",
        ("eager", "inductor"),
        "eager",
    )


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"backend": "aot_eager"}, ["training_loss/reviews[backend=aot_eager,precision=fp32]"]),
        (
            {"name": "mine", "backend": ["a", "b"]},
            ["training_loss/mine[backend=a+b,precision=fp32]"],
        ),
        (
            {"precision": ["fp32", "amp_bf16"]},
            [
                f"training_loss/reviews[backend=inductor,precision={name}]"
                for name in ("fp32", "amp_bf16")
            ],
        ),
        (
            {"lr": 0.5, "epochs": 1, "seed": 4},
            ["training_loss/reviews[backend=inductor,precision=fp32]"],
        ),
    ],
)
def test_ids_name_backends_and_precision_alone(options, ids):
    assert [case.id for case in SUITE.plan(options)] == ids


@pytest.mark.parametrize("options", [{}, FULL, {"backend": "eager"}, {"precision": "tf32"}])
def test_params_are_read_back_as_the_same_options(options):
    wanted = parse(options)
    params = wanted.as_params()
    assert parse(params) == wanted
    assert parse(json.loads(json.dumps(params))) == wanted
    assert parse(json.loads(json.dumps(params))).as_params() == params


def test_params_hold_every_default():
    (case,) = SUITE.plan({})
    assert set(case.params) == {*FULL}
    assert case.params["lr"] == TrainingOptions().lr


def test_dynamos_own_eager_is_an_arm_of_its_own():
    options = parse({"backend": "eager"})
    assert options.arms == ("eager", "dynamo-eager")
    assert options.candidate_of("dynamo-eager").backend == "eager"
    assert options.candidate_of("eager") is None


@pytest.mark.parametrize("backends", [["inductor", "inductor"], ["eager", "dynamo-eager"]])
def test_one_arm_named_twice_is_refused(backends):
    with pytest.raises(
        BadConfig, match=r"suites\.training_loss\.mine\.backend: .* names one arm twice"
    ):
        SUITE.plan({"name": "mine", "backend": backends})


def test_stages_come_in_order():
    (case,) = SUITE.plan({"backend": ["aot_eager", "inductor"]})
    stages = [(stage.kind, stage.arms, stage.cache) for stage in SUITE.stages(case)]
    arms = ("eager", "aot_eager", "inductor")
    assert stages == [
        (StageKind.PREPARE, (), Cache.SHARED),
        (StageKind.ALONE, ("aot_eager",), Cache.COLD),
        (StageKind.ALONE, ("inductor",), Cache.COLD),
        (StageKind.VERIFY, arms, Cache.SHARED),
        (StageKind.ROUNDING, ("eager",), Cache.SHARED),
        (StageKind.SEEDS, ("eager",), Cache.SHARED),
        *((StageKind.ALONE, (arm,), Cache.SHARED) for arm in arms),
        (StageKind.TIME, arms, Cache.SHARED),
    ]


def test_preparing_and_verifying_happen_once():
    (case,) = SUITE.plan({})
    once, twice, always = (0,), (0, 1), None
    assert [stage.launches for stage in SUITE.stages(case)] == [
        once,
        always,
        once,
        once,
        once,
        twice,
        twice,
        always,
    ]


def test_there_is_no_more_of_rounding_to_measure_than_one_training():
    (case,) = SUITE.plan({"perturbations": 1})
    assert StageKind.ROUNDING not in {stage.kind for stage in SUITE.stages(case)}


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({}, False),
        ({"dataset": {"path": "owner/reviews"}}, True),
        ({"dataset": {"path": "./data"}}, False),
        ({"dataset": {"path": "~/data"}, "model": {"path": "/models/bert"}}, False),
        (
            {"dataset": {"path": "owner/reviews", "files": {"train": "a.csv", "test": "b.csv"}}},
            False,
        ),
        ({"model": {"path": "bert-base-cased"}}, True),
        ({"model": {"path": "bert-base-cased", "pretrained": False}}, True),
    ],
)
def test_only_ids_on_the_hub_need_a_network(options, needed):
    (case,) = SUITE.plan(options)
    assert SUITE.needs_network(case) is needed


@pytest.mark.parametrize(
    ("precision", "epsilon"),
    [
        ("fp32", 2**-24),
        ("tf32", 2**-11),
        ("amp_fp16", 2**-11),
        ("bf16", 2**-8),
        ("amp_bf16", 2**-8),
    ],
)
def test_one_rounding_of_the_narrowest_format(precision, epsilon):
    assert TrainingPrecision(precision).epsilon == epsilon


def test_planning_needs_no_torch():
    assert find_suite("training_loss") is SUITE
    script = "import sys, ci_bench.suites.training_loss.plan as p; p.SUITE.plan({}); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
