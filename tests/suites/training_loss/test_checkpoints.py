"""Checkpoints from each layout into each other and into one process: right ones hold, what loses something is named."""

import pytest

torch = pytest.importorskip("torch")

from benchmarks.layout_parity import ENTRY, PIPELINE, Trial, evidence_of, stage_of  # noqa: E402

from benchmarks import layout_parity  # noqa: E402 - after torch was found
from ci_bench.errors import BadConfig  # noqa: E402
from ci_bench.judge.parity.verdict import parity_findings  # noqa: E402
from ci_bench.records.results import Outcome, Role  # noqa: E402
from ci_bench.suites.contract import StageKind  # noqa: E402
from ci_bench.suites.training_loss.checkpoints import names_in_whole, put_back, state_of  # noqa: E402
from ci_bench.suites.training_loss.model_files import BadModel  # noqa: E402
from ci_bench.suites.training_loss.options import parse  # noqa: E402
from ci_bench.suites.training_loss.plan import SUITE  # noqa: E402

OWN = "benchmarks.checkpoint_gallery:"
ADAM = {"optimizer": "Adam", "lr": 0.005, "num_samples": 64, "epochs": 2, "perturbations": 2}
AFTER, STEPS = 5, 5
pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    with layout_parity.opened(tmp_path_factory.mktemp("checkpoints")) as bench:
        yield bench


def verified(bench, layouts: list, **options: object):
    (case,) = SUITE.plan(
        {
            **ENTRY,
            **ADAM,
            "checkpoint": {"after": AFTER, "steps": STEPS},
            **options,
            "layouts": layouts,
        }
    )
    ended = bench.run(case, stage_of(case, StageKind.VERIFY))
    evidence = evidence_of(ended)
    assert evidence.parity is not None, ended.log_tail
    return evidence


def test_every_layout_and_one_process_resume_from_each_others_checkpoints(bench) -> None:
    evidence = verified(bench, ["ddp", "fsdp", "tensor", PIPELINE])
    arms = ("eager", "ddp", "fsdp", "tensor", "pipeline+accumulate-2")
    runs = [trace for trace in evidence.parity.traces if trace.role is Role.RESUMED]
    assert {(run.resumed.saved_by, run.arm) for run in runs} == {
        (saved, arm) for saved in arms for arm in arms
    } - {("eager", "eager")}
    assert {len(run.loss) for run in runs} == {STEPS}
    findings = parity_findings(evidence.parity)
    assert [finding.arm for finding in findings] == [*arms[1:]]
    assert all(finding.verdict.holds for finding in findings), findings
    checks = {check.arm: check.outcome for check in evidence.checks if check.name == "resumes"}
    assert checks == dict.fromkeys(arms[1:], Outcome.PASS)


@pytest.mark.parametrize(
    ("save", "load", "said"),
    [
        ("save", "load", ""),
        (
            "save",
            "load_without_state",
            "fsdp resumed at step 5 from the checkpoint that eager saved: loss leaves {} at step 6",
        ),
        (
            "save",
            "load_without_counter",
            "fsdp resumed at step 5 from the checkpoint that eager saved: loss leaves {} at step 6",
        ),
        (
            "save",
            "load_without_shard",
            "fsdp resumed at step 5 from the checkpoint that eager saved: loss leaves {} at step 5",
        ),
        (
            "save_half",
            "load",
            "eager resumed at step 5 from the checkpoint that fsdp saved: loss leaves {} at step 5",
        ),
    ],
    ids=["right", "state", "counter", "shard", "shard-when-saving"],
)
def test_a_checkpoint_that_loses_something_is_found_with_step_and_signal(
    bench, save: str, load: str, said: str
) -> None:
    own = {"after": AFTER, "steps": STEPS, "save": OWN + save, "load": OWN + load}
    (finding,) = parity_findings(verified(bench, ["fsdp"], checkpoint=own).parity)
    assert finding.verdict.holds is not bool(said), finding.detail
    assert said.format("the rounding envelope") in finding.detail


def test_where_a_step_draws_random_numbers_nothing_resumes_and_the_check_says_so(bench) -> None:
    model = {"factory": ENTRY["model"]["factory"], "options": {"dropout": 0.2}}
    evidence = verified(bench, ["ddp"], model=model, seeds=1)
    (check,) = [check for check in evidence.checks if check.name == "resumes"]
    assert (check.outcome, check.arm) == (Outcome.UNKNOWN, "ddp")
    assert "set dropout: false" in check.detail
    assert not [trace for trace in evidence.parity.traces if trace.role is Role.RESUMED]


def test_a_stage_of_a_pipeline_is_saved_under_the_whole_models_names() -> None:
    stage, weight = torch.nn.Sequential(torch.nn.Linear(3, 3)), torch.nn.Linear(3, 3).weight
    names = names_in_whole(
        stage, {"blocks.1.weight": id(stage[0].weight), "blocks.1.bias": id(stage[0].bias)}
    )
    assert names == {"0.weight": "blocks.1.weight", "0.bias": "blocks.1.bias"}
    optimizer = torch.optim.Adam(stage.parameters(), lr=0.1)
    stage(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = state_of(stage, optimizer, names)
    assert [*state["model"]] == ["blocks.1.weight", "blocks.1.bias"]
    assert {key for key in state["optimizer"] if "exp_avg" in key and "weight" in key} == {
        "state.blocks.1.weight.exp_avg",
        "state.blocks.1.weight.exp_avg_sq",
    }
    state["model"]["blocks.1.weight"] = weight.detach()
    state["optimizer"]["state.blocks.1.weight.step"] = torch.tensor(7.0)
    put_back(state, stage, optimizer, names)
    assert torch.equal(stage[0].weight, weight)
    assert float(optimizer.state[stage[0].weight]["step"]) == 7
    with pytest.raises(BadModel, match=r"trains tensors that the model does not have.*0\.weight"):
        names_in_whole(stage, {"weight": 1, "bias": 2})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"checkpoint": {"after": 8}}, "checkpoint: is of layouts, and no `layouts` are listed"),
        (
            {"layouts": ["ddp"], "checkpoint": {"after": 8, "save": "a:b"}},
            "checkpoint: `save` and `load` belong together",
        ),
        (
            {"layouts": ["ddp"], "checkpoint": {"after": 4, "steps": 2}},
            "checkpoint: `after` and `steps` are 6 together",
        ),
        (
            {"layouts": ["ddp"], "checkpoint": {"after": 45}},
            "parity takes 10 to 50 steps, and the training has 375",
        ),
        (
            {"layouts": ["ddp"], "num_samples": 64, "epochs": 1, "checkpoint": {"after": 8}},
            "`after` and `steps` are 18 together; parity takes 10 to 50 steps, and the training has 4",
        ),
    ],
)
def test_what_does_not_fit_is_refused_while_planning(options, said: str) -> None:
    with pytest.raises(BadConfig) as refused:
        SUITE.plan(options)
    assert said in str(refused.value)


def test_the_options_are_part_of_the_case_and_owe_a_check() -> None:
    (case,) = SUITE.plan({**ENTRY, "layouts": ["ddp"], "checkpoint": {"after": 8}})
    assert parse(case.params).as_params() == case.params
    assert case.params["checkpoint"] == {"after": 8, "steps": 10, "save": None, "load": None}
    assert "resumes" in case.due.checks
    assert "checkpoint" not in Trial(name="ddp", layout="ddp").case.params
