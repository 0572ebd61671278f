"""Models that several processes train: what is planned, timed and skipped.

`test_shared_trainings` has what is verified.
"""

import pytest

torch = pytest.importorskip("torch")

import ranked_stages  # noqa: E402
from torchbench_builders import FIXTURES, HERE  # noqa: E402

from ci_bench.errors import BadConfig  # noqa: E402
from ci_bench.processes.resident import explain  # noqa: E402
from ci_bench.records.results import Case, Outcome, Status  # noqa: E402
from ci_bench.suites.contract import Evidence  # noqa: E402
from ci_bench.suites.torchbench.options import parse  # noqa: E402
from ci_bench.suites.torchbench.plan import SUITE  # noqa: E402

pytestmark = pytest.mark.engine
QUICK = {"models": ["mlp"], "mode": "training", "perturbations": 1, "prepared": 1, "batch_size": 6}
PLANTED = "planted_layouts:"


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    with ranked_stages.opened(
        SUITE, tmp_path_factory.mktemp("layouts"), paths=(HERE, FIXTURES)
    ) as bench:
        yield bench


def planned(**entry: object) -> Case:
    (case,) = SUITE.plan({**QUICK, **entry})
    return case


def checks(evidence: Evidence, name: str) -> dict[str, tuple[Outcome, str]]:
    return {
        check.arm: (check.outcome, check.detail) for check in evidence.checks if check.name == name
    }


def test_timed_steps_are_refereed_and_replicas_that_drift_apart_fail(bench) -> None:
    """A batch of six in three processes, and a weight of which one of them has nothing where it is sharded."""
    case = planned(layouts=["fsdp", f"{PLANTED}unsynced"], processes=3, measure="performance")
    ranked_stages.done(bench.prepared(case))
    evidence = bench.timed(case)
    replicas, refereed = checks(evidence, "replicas"), checks(evidence, "refereed")
    assert [(replicas[arm][0], refereed[arm][0]) for arm in case.arms[1:]] == [
        (Outcome.PASS,) * 2,
        (Outcome.FAIL,) * 2,
    ]
    assert "weights are not those of rank 0: rank 1: " in replicas[f"{PLANTED}unsynced"][1]
    series = {(metric.name, metric.arm): metric for metric in evidence.metrics}
    assert series["step_time", "fsdp"].items == 6, "rows of all processes together"
    assert series["rank_skew", "fsdp"].launches
    assert evidence.facts["ranks_fsdp"].count("rank ") == 3


def own(model: str, **entry: object) -> Case:
    return planned(
        **{
            "source": "own",
            "models": [f"shared_models:{model}"],
            "layouts": ["ddp"],
            "batch_size": None,
            **entry,
        }
    )


@pytest.mark.parametrize("model", ["summed_loss", "projected", "dropping"])
def test_losses_that_are_sums_or_projections_and_models_that_drop_out_are_held_against_one_process(
    bench, model: str
) -> None:
    case = own(model, layouts=["ddp", f"{PLANTED}summed"])
    found = checks(bench.verified(case), "accuracy")
    assert [found[arm][0] for arm in case.arms[1:]] == [Outcome.PASS, Outcome.FAIL], found
    assert found["ddp"][1].endswith(", without dropout") is (model == "dropping")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            "normalised",
            "computes loss differently for part of a batch than for the whole batch, as with batch norm",
        ),
        ("one_row", "1 rows are too few for 2 processes"),
        ("noisy", "draws random numbers besides dropout"),
    ],
)
def test_a_model_that_processes_cannot_share_is_skipped_with_the_reason(
    bench, model: str, said: str
) -> None:
    status, reason = explain(bench.prepared(own(model)), limit_s=60.0)
    assert (status, said in reason) == (Status.SKIPPED, True), reason


def test_one_case_for_each_number_of_processes_and_what_it_owes() -> None:
    cases = SUITE.plan(
        {
            **QUICK,
            "layouts": ["ddp", {"layout": "fsdp", "backend": "aot_eager"}],
            "processes": [2, 4],
        }
    )
    assert [case.id for case in cases] == [
        f"torchbench/mlp[processes={count},mode=training,precision=fp32]" for count in (2, 4)
    ]
    assert cases[0].arms == ("eager", "ddp", "fsdp+aot_eager")
    assert cases[0].due.checks == ("replicas", "accuracy", "refereed")
    assert {stage.kind: stage.processes for stage in SUITE.stages(cases[1])} == {
        "prepare": 1,
        "verify": 4,
        "alone": 4,
        "time": 4,
    }
    assert parse(cases[1].params).as_params() == cases[1].params
    assert "processes" not in SUITE.plan({**QUICK, "backend": "aot_eager"})[0].params, (
        "earlier results stay comparable"
    )
    assert [
        case.params["mode"] for case in SUITE.plan({"models": ["mlp"], "layouts": ["ddp"]})
    ] == ["training"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"processes": 2},
            "torchbench.processes: says how many share a layout, and no `layouts` are listed; add `layouts: [ddp]`",
        ),
        (
            {"layouts": ["ddp"], "backend": "inductor"},
            "layouts: replaces `backend`; remove one of them",
        ),
        ({"layouts": ["ddp", "ddp"]}, "layouts: ddp is listed twice; remove one of them"),
        (
            {"layouts": ["dpp"]},
            "layouts: 'dpp' is neither one of ddp, fsdp nor an import path; did you mean 'ddp'?",
        ),
        (
            {"layouts": ["pipeline"]},
            "layouts: pipeline is of suite training_loss; use one of ddp, fsdp",
        ),
        (
            {"layouts": [{"layout": "ddp", "reshard": False}]},
            "layouts: `reshard` is of fsdp, hsdp, fsdp_tensor, and ddp has none",
        ),
        (
            {"layouts": [{"layout": "ddp", "optimize_ddp": "python_reducer"}]},
            "`optimize_ddp` is of ddp that is compiled; add",
        ),
        (
            {"layouts": ["ddp"], "mode": "inference"},
            "layouts: share a training, and inference has none; write `mode: training`",
        ),
        (
            {"layouts": ["ddp"], "processes": 8},
            "batch_size: 6 rows are too few for 8 processes; write `batch_size: 8` or more",
        ),
        (
            {"layouts": ["ddp"], "dynamic": True},
            "dynamic: with `layouts`, processes share one batch size; leave it out",
        ),
        (
            {"layouts": ["ddp"], "batch_size": "largest"},
            "batch_size: with `layouts`, the largest is found for one process",
        ),
        (
            {"layouts": ["ddp"], "scope": "step"},
            "scope: with `layouts`, a step of several processes is not compiled as a whole",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_with_field_and_fix(entry: dict, said: str) -> None:
    with pytest.raises(BadConfig) as caught:
        SUITE.plan({**QUICK, **entry})
    assert said in str(caught.value)
