"""Models that several processes train: what is planned, timed and skipped.

`test_shared_trainings` has what is verified.
"""

import pytest

torch = pytest.importorskip("torch")

import ranked_stages  # noqa: E402
from transformers_builders import tiny  # noqa: E402

from ci_bench.errors import BadConfig  # noqa: E402 - after torch was found
from ci_bench.records.results import Case, Outcome  # noqa: E402
from ci_bench.suites.contract import Evidence  # noqa: E402
from ci_bench.suites.transformers.options import parse  # noqa: E402
from ci_bench.suites.transformers.plan import SUITE  # noqa: E402

pytestmark = pytest.mark.engine
PLANTED = "planted_layouts:"
QUICK = {"mode": "training", "batch_size": 5, "sequence_length": 8, "prepared_inputs": 2}


def planned(model: str = "bert", **entry: object) -> Case:
    (case,) = SUITE.plan({**QUICK, **tiny(model, **entry)})
    return case


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder, preload = (
        tmp_path_factory.mktemp("layouts"),
        ("transformers.models.bert.modeling_bert",),
    )
    with ranked_stages.opened(SUITE, folder, preload=preload, paths=(ranked_stages.HERE,)) as bench:
        yield bench


def checks(evidence: Evidence, name: str) -> dict[str, tuple[Outcome, str]]:
    return {
        check.arm: (check.outcome, check.detail) for check in evidence.checks if check.name == name
    }


def test_timed_steps_are_refereed_and_replicas_that_drift_apart_fail(bench) -> None:
    """An image model this time, whose shards are taken for what they are a part of."""
    case = planned("vit", layouts=["fsdp", f"{PLANTED}unsynced"], sequence_length=None)
    ranked_stages.done(bench.prepared(case))
    evidence = bench.timed(case)
    found = {
        name: checks(evidence, name)
        for name in ("replicas", "refereed", "updates_weights", "gradients", "finite_loss")
    }
    assert {name: of["fsdp"][0] for name, of in found.items()} == dict.fromkeys(
        found, Outcome.PASS
    ), found
    drifting = f"{PLANTED}unsynced"
    assert (found["replicas"][drifting][0], found["refereed"][drifting][0]) == (
        Outcome.FAIL,
    ) * 2, found
    series = {(metric.name, metric.arm): metric for metric in evidence.metrics}
    assert series["step_time", "fsdp"].items == 5, "rows of all processes together"
    assert evidence.facts["ranks_fsdp"].count("rank ") == 2


def test_one_case_for_each_number_of_processes_and_what_it_owes() -> None:
    cases = SUITE.plan(
        {
            **tiny("bert"),
            "layouts": ["ddp", {"layout": "fsdp", "backend": "eager"}],
            "processes": [2, 4],
        }
    )
    assert [(case.id.rpartition(",")[2], case.arms) for case in cases] == [
        (f"processes={count}]", ("eager", "ddp", "fsdp+eager")) for count in (2, 4)
    ]
    assert "mode=training" in cases[0].id
    assert {"agrees", "refereed", "replicas", "updates_weights"} <= {*cases[0].due.checks}
    assert {stage.kind: stage.processes for stage in SUITE.stages(cases[1])} == {
        "prepare": 1,
        "verify": 4,
        "alone": 4,
        "time": 4,
    }
    assert parse(cases[1].params).as_params() == cases[1].params
    assert "processes" not in SUITE.plan(tiny("bert"))[0].params, "earlier results stay comparable"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"processes": 2},
            "suites.transformers.processes: says how many share a layout, and no `layouts` are listed",
        ),
        (
            {"layouts": ["ddp"], "candidate": "inductor"},
            "layouts: replaces `candidate`; remove one of them",
        ),
        (
            {"layouts": ["ddp"], "mode": ["training", "generation"]},
            "layouts: share a training, and generation has none",
        ),
        (
            {"layouts": ["ddp"], "batch_size": [8, 1]},
            "batch_size: 1 rows are too few for 2 processes; write `batch_size: 2`",
        ),
        (
            {"layouts": ["ddp"], "precision": "amp_fp16"},
            "precision: amp_fp16 needs a loss scaler, which layouts do not have",
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
            {"layouts": ["ddp"], "memory_timeline": True},
            "memory_timeline: is of one process, and layouts have several",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_with_field_and_fix(entry: dict, said: str) -> None:
    with pytest.raises(BadConfig) as caught:
        SUITE.plan({**tiny("bert"), **entry})
    assert said in str(caught.value)
