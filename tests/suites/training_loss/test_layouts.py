"""Layouts beside one process: right ones hold parity, planted faults are named with rank and step, a rank that fails is named."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from benchmarks.layout_gallery import Net, rows  # noqa: E402
from benchmarks.layout_parity import (  # noqa: E402
    DEEP,
    ENTRY,
    FAULTS,
    GALLERY,
    MESHES,
    PARTS,
    RIGHT,
    SKIPPED,
    Trial,
    evidence_of,
    items,
    stage_of,
    verify,
)
from ranked_stages import taken_turns  # noqa: E402

from benchmarks import layout_parity  # noqa: E402 - after torch was found
from ci_bench.errors import BadConfig  # noqa: E402
from ci_bench.judge.parity.verdict import parity_findings  # noqa: E402
from ci_bench.processes.protocol import Task  # noqa: E402
from ci_bench.processes.resident import explain  # noqa: E402
from ci_bench.records.comparison import Parity  # noqa: E402
from ci_bench.records.config import RunOptions  # noqa: E402
from ci_bench.records.results import Outcome, Role, Status  # noqa: E402
from ci_bench.suites.contract import StageKind  # noqa: E402
from ci_bench.suites.shared.planning.layouts import Layout  # noqa: E402
from ci_bench.suites.shared.worker.sharing import alike_draws, differing_parts, drawn_by  # noqa: E402
from ci_bench.suites.training_loss.layouts import (  # noqa: E402
    USUAL_PLAN,
    own_share,
    planned,
    share_of,
)
from ci_bench.suites.training_loss.network import build_model  # noqa: E402
from ci_bench.suites.training_loss.options import TrainingOptions, parse  # noqa: E402
from ci_bench.suites.training_loss.plan import SUITE  # noqa: E402
from ci_bench.worker.ranked import fact_of, given_bytes  # noqa: E402
from processes import carrying  # noqa: E402

HUNG_S = 24.0
"""A quarter of it is what ranks wait for each other."""
pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    with layout_parity.opened(tmp_path_factory.mktemp("layouts")) as bench:
        yield bench


def named(name: str, **options: object) -> Trial:
    """A trial of the benchmark, in 24 steps."""
    trial = next(trial for trial in (*RIGHT, *FAULTS) if trial.name == name)
    return replace(trial, options={"epochs": 3, **trial.options, **options})


@pytest.mark.parametrize("name", ["ddp, accumulated over 2", "fsdp", "tensor", "pipeline"])
def test_a_right_layout_trains_as_one_process_does(bench, name: str) -> None:
    outcome = verify(named(name), bench)
    assert not outcome.is_flagged, outcome.words
    assert outcome.finding.steps == 24
    assert outcome.score < 3


def test_four_processes_hold_parity_and_what_each_saw_is_kept(bench) -> None:
    """Of the six rows of the last batch two ranks have one, which are two parts all the same: all call the same collectives."""
    trial = Trial(
        name="four",
        layout={"layout": "fsdp", "accumulate": 2},
        options={"processes": 4, "epochs": 2, "evaluation": True, "evaluation_rows": 40},
    )
    ended = bench.run(trial.case, stage_of(trial.case, StageKind.VERIFY))
    traces = {trace.role: trace for trace in evidence_of(ended).parity.traces}
    assert traces["candidate"].accuracy == pytest.approx(traces["reference"].accuracy, abs=0.05), (
        "of the gathered weights"
    )
    candidate, reference = traces["candidate"].ranks, traces["reference"].ranks
    assert (candidate.own_rows, len(candidate.loss), len(candidate.loss[0])) == (True, 4, 16)
    for own, expected in zip(candidate.loss, reference.loss, strict=True):
        assert own == pytest.approx(expected, rel=1e-4)
    assert len({*candidate.loss}) == 4, "each rank has rows of its own"
    assert len({*candidate.grad_norm}) == 1, "all have the same gradients"


MODE = {"layout": "ddp", "backend": "inductor", "optimize_ddp": False}
INTERLEAVED = {**PARTS, "schedule": "interleaved_1f1b", "stages": 2}


def test_groups_of_processes_and_schedules_hold_parity_in_four_processes(bench) -> None:
    """Of the rows of a group one process says what they cost, from those of its ranks."""
    layouts = ["hsdp", {"layout": "fsdp_tensor", "accumulate": 2}, INTERLEAVED]
    options = {**ENTRY, **DEEP, "num_samples": 40, "epochs": 2, "processes": 4, "perturbations": 2}
    (case,) = SUITE.plan({**options, "layouts": layouts})
    parity = evidence_of(bench.run(case, stage_of(case, StageKind.VERIFY))).parity
    findings = parity_findings(parity)
    assert [finding.arm for finding in findings] == [*case.arms[1:]]
    assert all(finding.verdict.holds for finding in findings), findings
    sharing = {trace.arm: trace.ranks for trace in parity.traces if trace.role is Role.CANDIDATE}[
        "fsdp_tensor+accumulate-2"
    ]
    assert (sharing.sharing, sharing.loss[0], sharing.loss[2]) == (
        2,
        sharing.loss[1],
        sharing.loss[3],
    )
    assert sharing.loss[0] != sharing.loss[2]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("context by hand", ""),
        ("context by torch", ""),
        ("context without the others", "by the loss at step 0"),
    ],
    ids=["by-hand", "by-torch", "without-the-others"],
)
def test_context_parallelism_is_held_against_one_process(bench, name: str, said: str) -> None:
    outcome = verify(named(name), bench)
    assert outcome.is_flagged is bool(said), outcome.words
    assert said in outcome.words


def test_what_torch_has_no_attention_for_is_skipped_with_the_reason(bench) -> None:
    (trial,) = SKIPPED
    outcome = verify(trial, bench)
    assert outcome.status is Status.SKIPPED
    assert "torch's context parallelism has no fused attention for cpu here" in outcome.reason


def test_a_right_layout_with_dropout_is_judged_over_seeds(bench) -> None:
    outcome = verify(named("ddp, with dropout (over seeds)", seeds=3), bench)
    assert (outcome.status, outcome.failed) == (Status.OK, ()), outcome.words
    assert outcome.finding.tier == "statistical"
    assert outcome.finding.verdict is Parity.EQUIVALENT, outcome.finding.detail
    assert "without dropout, in fp32" in outcome.finding.detail


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_sync left on", "all 2 ranks first, by the gradient norm at step 0"),
        ("same shard on all ranks", "rank 1 of 2 first, by the loss at step 0"),
        ("gradients summed", "all 2 ranks first, by the gradient norm at step 0"),
        ("one rank's learning rate", "rank 1 of 2 first, by the loss at step 1"),
        ("a stale bucket", "all 2 ranks first, by the gradient norm at step 1"),
        ("a dropped last batch", "at step 7"),
        ("a parameter left out of FSDP", "at step 0"),
        ("norm clipped per shard", "all 2 ranks first, by the gradient norm at step 0"),
        ("a tensor-parallel bias added twice", "all 2 ranks first, by the loss at step 0"),
        ("a pipeline that drops a micro-batch", "all 2 ranks first, by the loss at step 0"),
        ("a checkpoint without the optimizer's state", "at step 8"),
        (
            "dropout alike on all ranks",
            "rank 1 draws the same masks as another rank, although its rows differ",
        ),
    ],
)
def test_injected_fault_names_rank_and_step(bench, name: str, said: str) -> None:
    outcome = verify(named(name, epochs=3), bench)
    assert outcome.status is Status.OK, outcome.reason
    assert outcome.is_flagged
    assert said in outcome.words


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("die", Status.CRASHED, "rank 1 of 2 was ended by SIGKILL"),
        ("crash", Status.CRASHED, "rank 1 of 2 was ended by SIGSEGV"),
        ("leave", Status.FAILED, "rank 1 of 2 left early, with exit code 0 and without a word"),
        ("exits", Status.FAILED, "rank 1 of 2 failed: SystemExit: 3"),
        (
            "memory",
            Status.OUT_OF_MEMORY,
            "rank 1 of 2 failed: RuntimeError: DefaultCPUAllocator: can't allocate memory",
        ),
        ("raises", Status.FAILED, "rank 1 of 2 failed: ValueError: the rows of this rank are bad"),
        ("orphan", Status.CRASHED, "rank 1 of 2 was ended by SIGKILL"),
        ("hang", Status.TIMEOUT, "rank 1 of 2 hangs: the others gave up waiting ("),
    ],
)
def test_a_rank_that_fails_is_named_with_all_logs_and_nothing_is_left(
    bench, name: str, status: Status, said: str
) -> None:
    case = Trial(name=name, layout=f"{GALLERY}{name}").case
    ended = bench.run(case, stage_of(case, StageKind.VERIFY), limit_s=HUNG_S)
    found, reason = explain(ended, limit_s=HUNG_S)
    assert (found, said in reason) == (status, True), reason
    assert "--- rank 0 ---" in ended.log_tail
    assert ended.log_tail.partition("--- rank 1 ---")[2].strip()
    assert len(carrying(str(bench.folder), within_s=5.0)) == 1, "the launch's server alone"


def test_next_case_runs_after_failed_rank(bench) -> None:
    verify(Trial(name="die", layout=f"{GALLERY}die"), bench)
    assert not verify(Trial(name="after", layout="ddp", options={"epochs": 2}), bench).is_flagged


def timed(
    bench, tmp_path: Path, layouts: list, blocks: int = 2, *, looks: bool = False, **entry: object
):
    """A case's turns: each arm twice a block; with `looks` those of the last block are refereed."""
    (case,) = SUITE.plan({**ENTRY, **entry, "layouts": layouts})
    options = RunOptions(
        device="cpu", threads=1, stage_timeout_s=120.0, warmup_s=0.3, sample_s=0.02
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ended = None
    for kind in (StageKind.PREPARE, StageKind.TIME):
        stage = next(stage for stage in SUITE.stages(case) if stage.kind is kind)
        task = Task(
            launch=0,
            device="cpu",
            options=options,
            scratch=str(scratch),
            worker=SUITE.worker,
            case=case,
            stage=stage,
        )
        if kind is StageKind.PREPARE:
            bench.launcher.run(task, timeout_s=120.0, on_answer=lambda _: None)
            continue
        with bench.launcher.begin(task, timeout_s=120.0, on_answer=lambda _: None) as worker:
            ended = taken_turns(worker, len(case.arms), blocks=blocks, looks=looks)
    assert explain(ended, limit_s=120.0)[0] is Status.OK, ended.log_tail
    return evidence_of(ended)


def test_a_step_is_the_slowest_ranks_and_skew_is_shown(bench, tmp_path: Path) -> None:
    """Rank 1 works 20 ms longer: so does the step, and so much is the skew."""
    evidence = timed(bench, tmp_path, ["ddp", f"{GALLERY}slow_rank"])
    series = {(metric.name, metric.arm): metric.launches[0].values for metric in evidence.metrics}
    slow = f"{GALLERY}slow_rank"
    assert min(series["step_time", slow]) > 0.02
    assert series["rank_skew", slow][0] > 0.01
    assert series["collective_time", slow][0] < 0.5 * series["step_time", slow][0]
    assert series["scaling_efficiency", "ddp"][0] > 0
    assert evidence.facts["ranks_ddp"].count("rank ") == 2
    gradients = sum(weights.numel() for weights in Net().parameters())
    assert series["collective_bytes", "ddp"] == (4 * gradients,), "fp32, each once"
    assert "gloo:all_reduce 1 x, " in evidence.facts["collectives_ddp"]
    assert f" ms, {4 * gradients:,} bytes" in evidence.facts["collectives_ddp"]
    assert {check.outcome for check in evidence.checks if check.name == "replicas"} == {
        Outcome.PASS
    }


REDUCE = "gloo:all_reduce"


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        (REDUCE, [([[10, 3], [4]], ["float", "c10::BFloat16"]), ([[2]], ["double"])], 120 + 8 + 16),
        (REDUCE, [([[]], ["long int"])], 8),
        ("nccl:all_reduce", [([[10]], ["float"]), ([], [])], 40),
        ("gloo:barrier", [([], [])], 0),
        ("nccl:all_reduce", [([], [])], None),
        (REDUCE, [([[10]], ["c10::Float8_e4m3fn"])], None),
        (REDUCE, [([[10], [4]], ["float"])], None),
    ],
    ids=[
        "tensors of calls",
        "one number",
        "a GPU's second event",
        "a barrier",
        "no tensor",
        "another type",
        "a type is missing",
    ],
)
def test_bytes_of_a_collective_are_those_that_a_rank_gives_or_unknown(
    name, given, expected
) -> None:
    assert given_bytes(name, given) == expected


def test_replicas_that_drift_apart_while_timed_fail(bench, tmp_path: Path) -> None:
    evidence = timed(bench, tmp_path, [f"{GALLERY}no_sync"], blocks=1)
    (check,) = [check for check in evidence.checks if check.name == "replicas"]
    assert check.outcome is Outcome.FAIL
    assert "weights are not those of rank 0: rank 1: embed.weight" in check.detail


def test_timed_steps_of_groups_are_refereed_and_their_replicas_have_to_be_the_same(
    bench, tmp_path: Path
) -> None:
    """Rank 3 holds what rank 1 holds, of groups of two; one part of a weight drifts there by a millionth a step."""
    evidence = timed(
        bench, tmp_path, ["hsdp", "fsdp_tensor", f"{MESHES}drifting"], looks=True, processes=4
    )
    checks = {check.arm: check for check in evidence.checks if check.name == "replicas"}
    for layout in ("hsdp", "fsdp_tensor"):
        assert checks[layout].outcome is Outcome.PASS, checks[layout]
        assert refereed(evidence)[layout].outcome is Outcome.PASS, refereed(evidence)[layout]
    drifting = checks[f"{MESHES}drifting"]
    assert drifting.outcome is Outcome.FAIL
    assert drifting.detail.startswith(
        "after the timed steps weights are not those of rank 1: rank 3: head.weight; fails in rank"
    )


def test_only_ranks_that_hold_the_same_part_are_compared() -> None:
    """Of four ranks, which hold halves of the first tensor and all of the second one."""
    names, halves = ["half", "whole"], [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    same = [[5.0, 9.0], [6.0, 9.0], [5.0, 9.0], [6.0, 9.0]]
    assert differing_parts(names, halves, same) == {}
    apart = [[5.0, 9.0], [6.0, 9.0], [5.0, 9.0], [7.0, 8.0]]
    assert differing_parts(names, halves, apart) == {(1, 3): ["half"], (0, 3): ["whole"]}


def refereed(evidence):
    """By arm, how its timed calls were judged."""
    return {check.arm: check for check in evidence.checks if check.name == "refereed"}


ACCUMULATED, COMPILED = (
    {"layout": "ddp", "accumulate": 2},
    {"layout": "ddp", "backend": "aot_eager"},
)


@pytest.mark.parametrize(
    ("layouts", "options"),
    [
        ([ACCUMULATED, COMPILED, "fsdp", "tensor"], {}),
        (["fsdp"], {"optimizer": "AdamW", "lr": 0.005}),
        (["ddp"], {"precision": "bf16"}),
    ],
    ids=["sgd", "adamw", "bf16"],
)
def test_timed_steps_of_right_layouts_are_refereed_against_one_process(
    bench, tmp_path: Path, layouts, options
) -> None:
    checks = refereed(timed(bench, tmp_path, layouts, looks=True, **options))
    assert {arm: check.outcome for arm, check in checks.items()} == dict.fromkeys(
        checks, Outcome.PASS
    ), checks
    assert len(checks) == 1 + len(layouts)


@pytest.mark.parametrize("name", ["replays", "tires", "stale_loss", "syncs_early"])
def test_what_one_rank_did_not_compute_in_the_timed_step_is_refused_by_name(
    bench, tmp_path: Path, name: str
) -> None:
    """All of them agree in their first calls, which is all that a verification would see of some."""
    checks = refereed(timed(bench, tmp_path, [f"{GALLERY}{name}", "ddp"], looks=True))
    assert checks["ddp"].outcome is Outcome.PASS, checks
    check = checks[f"{GALLERY}{name}"]
    assert check.outcome is Outcome.FAIL, check
    assert "a timed call on fresh inputs" in check.detail


def test_stages_of_a_pipeline_are_not_refereed_and_say_why(bench, tmp_path: Path) -> None:
    checks = refereed(
        timed(bench, tmp_path, [layout_parity.PIPELINE], looks=True, **layout_parity.PIPELINED)
    )
    (check,) = [check for arm, check in checks.items() if arm != "eager"]
    assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True)
    assert "none of which has the whole model" in check.detail


def test_memory_is_that_of_the_rank_that_holds_most(bench) -> None:
    case = Trial(name="memory", layout="ddp").case
    evidence = evidence_of(bench.run(case, stage_of(case, StageKind.ALONE)))
    assert {"peak_anonymous", "memory_growth"} <= {metric.name for metric in evidence.metrics}
    assert evidence.facts[fact_of("memory", "ddp")].startswith("rank 0: peak_anonymous ")
    assert "; rank 1: peak_anonymous " in evidence.facts[fact_of("memory", "ddp")]


def test_what_a_rank_drew_is_told_by_its_seed_where_others_have_more_rows() -> None:
    with torch.random.fork_rng():
        drawn = []
        for seed, rows in ((7, 3), (7, 4), (8, 4)):
            torch.manual_seed(seed)
            torch.rand(rows)
            drawn.append([[drawn_by("cpu", even=even)] for even in (True, False)])
    (state, by_seed), (longer, alike), (_, other) = drawn
    assert state != longer, "as many numbers are not as many rows"
    assert by_seed == alike != other


def test_ranks_of_a_group_have_its_rows_and_its_masks() -> None:
    layout, batch = Layout(layout="fsdp_tensor"), {"labels": torch.arange(6)}
    shares = [own_share(layout, batch, SimpleNamespace(rank=rank, count=4)) for rank in range(4)]
    assert [share.batch["labels"].tolist() for share in shares] == [
        [0, 1, 2],
        [0, 1, 2],
        [3, 4, 5],
        [3, 4, 5],
    ]
    assert alike_draws([[1.0], [1.0], [2.0], [2.0]], sharing=2) == []
    assert alike_draws([[1.0], [1.0], [1.0], [2.0]], sharing=2) == [2]
    assert alike_draws([[1.0], [1.0], [2.0], [2.0]]) == [1, 3]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_shares_are_all_rows_in_order_and_weigh_as_one_batch(count: int, size: int) -> None:
    batch = {"labels": torch.arange(size), "x": torch.arange(float(size))}
    shares = [share_of(batch, rank, count) for rank in range(count)]
    counted = [share.batch["labels"] for share in shares if share.weight]
    assert torch.cat(counted).tolist() == list(range(size))
    assert sum(share.weight for share in shares) / count == pytest.approx(1.0)
    mean = sum(share.weight * float(share.batch["x"].mean()) for share in shares) / count
    assert mean == pytest.approx(float(batch["x"].mean()))


def test_the_usual_plan_splits_attention_and_feed_forward_parts_and_nothing_else() -> None:
    bert = dict(planned(build_model(TrainingOptions(), seed=0), USUAL_PLAN))
    layer = "bert.encoder.layer.0."
    assert {
        name.removeprefix(layer): style for name, style in bert.items() if name.startswith(layer)
    } == {
        **dict.fromkeys(
            ("attention.self.query", "attention.self.key", "attention.self.value"), "colwise"
        ),
        "attention.output.dense": "rowwise",
        "intermediate.dense": "colwise",
        "output.dense": "rowwise",
    }
    assert not [name for name in bert if not name.startswith("bert.encoder.")]
    assert len(dict(planned(Net(), USUAL_PLAN))) == 12
    assert dict(planned(Net(), {"*.blocks.1.up_proj": "colwise"})) == {
        "blocks.1.up_proj": "colwise"
    }
    assert rows("train", 3)["tokens"].shape == (3, 8)


def test_the_plan_is_a_case_for_each_number_of_processes() -> None:
    cases = SUITE.plan(
        {**ENTRY, "layouts": ["ddp", {"layout": "fsdp", "accumulate": 2}], "processes": [2, 4]}
    )
    assert [case.id for case in cases] == [
        f"training_loss/tiny[processes={count},precision=fp32]" for count in (2, 4)
    ]
    assert cases[0].arms == ("eager", "ddp", "fsdp+accumulate-2")
    assert parse(cases[1].params).as_params() == cases[1].params
    stages = [(stage.kind, stage.arms, stage.processes) for stage in SUITE.stages(cases[1])]
    assert (StageKind.VERIFY, cases[1].arms, 4) in stages
    assert (StageKind.ALONE, ("eager",), 1) in stages


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"layouts": ["dpp"]},
            "layouts: 'dpp' is neither one of ddp, fsdp, tensor, pipeline, hsdp, fsdp_tensor nor an import path; did you mean 'ddp'?",
        ),
        ({"layouts": ["ddp", "ddp"]}, "layouts: ddp is listed twice"),
        ({"layouts": ["ddp"], "backend": "inductor"}, "layouts: replaces `backend`"),
        ({"layouts": ["ddp"], "batch_size": 3, "processes": 4}, "3 are too few for 4 processes"),
        ({"processes": 2}, "processes: says how many share a layout, and no `layouts` are listed"),
        ({"layouts": ["pipeline"]}, "pipeline needs `split`"),
        (
            {"layouts": ["ddp"], "precision": ["fp32", "amp_fp16"]},
            "precision amp_fp16 needs a loss scaler",
        ),
        (
            {"layouts": ["hsdp"]},
            "hsdp needs at least two groups of 2 processes (`inner`), but has 2; set `processes: 4`",
        ),
        ({"layouts": ["fsdp_tensor"], "processes": [4, 6]}, ""),
        (
            {"layouts": [{"layout": "fsdp_tensor", "inner": 4}], "processes": [8, 6]},
            "but has 6; set `processes: 8` or",
        ),
        (
            {"layouts": ["fsdp_tensor"], "batch_size": 1, "processes": 4},
            "1 are too few for 4 processes",
        ),
        ({"layouts": ["fsdp_tensor"], "batch_size": 2, "processes": 4}, ""),
        (
            {"layouts": [{"layout": "ddp", "inner": 4}]},
            "`inner` is of hsdp, fsdp_tensor, and ddp has none; leave it out there",
        ),
        (
            {"layouts": [{"layout": "fsdp", "schedule": "1f1b"}]},
            "`schedule` is of pipeline, and fsdp has none",
        ),
        (
            {"layouts": [{"layout": "tensor", "static_graph": True}]},
            "`static_graph` is of ddp, and tensor has none",
        ),
        (
            {"layouts": [{"layout": "ddp", "optimize_ddp": False}]},
            "`optimize_ddp` is of ddp that is compiled; add `backend: ind",
        ),
        (
            {"layouts": [{**MODE, "layout": "fsdp"}]},
            "`optimize_ddp` is of ddp, and fsdp has none; leave it out there",
        ),
        (
            {
                "layouts": [
                    MODE,
                    {**MODE, "optimize_ddp": True},
                    {**MODE, "optimize_ddp": "ddp_optimizer"},
                ]
            },
            "is listed twice",
        ),
        ({"layouts": [{"layout": "ddp", "backend": "inductor"}, MODE]}, ""),
        (
            {"layouts": [{**PARTS, "schedule": "1f1b", "accumulate": 2}], "processes": 4},
            "write `accumulate: 4` or more",
        ),
        ({"layouts": [{**PARTS, "schedule": "1f1b"}], "processes": 4}, ""),
        (
            {"layouts": [{**PARTS, "schedule": "looped_bfs"}]},
            "has several stages in each process; write `stages: 2` or more",
        ),
        (
            {"layouts": [{**PARTS, "stages": 2}]},
            "gpipe has one stage in each process; leave `stages` out, or take one of looped_bfs",
        ),
        (
            {"layouts": [{**INTERLEAVED, "accumulate": 5}], "batch_size": 10},
            "5 are not; write `accumulate: 4`, or another multiple",
        ),
        ({"layouts": [INTERLEAVED], "processes": 4}, ""),
        (
            {"layouts": [PARTS], "precision": "amp_bf16"},
            "pipeline has no autocast for precision amp_bf16; write `precision: bf16`",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_while_planning(options, said: str) -> None:
    """What fits is planned: the neighbours whose message is empty."""
    of_pipelines = {
        "num_samples": 160,
        "evaluation": False,
        "loss": "torch.nn.functional:cross_entropy",
    }
    entry = {**(of_pipelines if options.get("layouts") != ["pipeline"] else {}), **options}
    if not said:
        assert SUITE.plan(entry)
        return
    with pytest.raises(BadConfig) as refused:
        SUITE.plan(entry)
    assert said in str(refused.value)


def test_without_dropout_no_model_draws_random_numbers() -> None:
    """Neither a library's, which has it in its configuration and in functions, nor one of one's own."""
    for model in ({}, {"factory": f"{GALLERY}Net", "options": {"dropout": 0.5}}):
        for dropout in (True, False):
            (case,) = SUITE.plan(
                {**ENTRY, "layouts": ["ddp"], "model": model, "dropout": dropout, "loss": None}
            )
            net = build_model(parse(case.params), seed=0).train()
            inputs = (
                {"input_ids": torch.ones(2, 4, dtype=torch.long)}
                if not model
                else {"tokens": torch.ones(2, 8).long()}
            )
            torch.manual_seed(0)
            before = torch.get_rng_state()
            net(**inputs)
            assert torch.equal(before, torch.get_rng_state()) is not dropout, (model, dropout)


def test_facts_of_arms_have_names_that_documents_hold() -> None:
    assert (
        fact_of("ranks", "Mine.parallel:wrap+accumulate-2")
        == "ranks_mine_parallel_wrap_accumulate_2"
    )
    assert len(fact_of("collectives", "a" * 80)) == 60


def test_names_of_arms_tell_what_differs_from_the_defaults() -> None:
    assert Layout(layout="ddp").name == "ddp"
    assert (
        Layout(layout="fsdp", reshard=False, backend="aot_eager").name
        == "fsdp+no-reshard+aot_eager"
    )
    assert not Layout(layout="tensor").own_rows
    assert Layout(layout="hsdp", inner=4).name == "hsdp+inner-4"
    assert Layout(**INTERLEAVED).name == "pipeline+accumulate-4+interleaved_1f1b+stages-2"


def test_a_layout_without_later_options_is_stored_as_before_them() -> None:
    """So that it can be compared with the baselines of earlier versions."""
    (layout,) = Trial(name="ddp", layout="ddp").case.params["layouts"]
    assert {*layout} == {
        "layout",
        "accumulate",
        "static_graph",
        "reshard",
        "plan",
        "split",
        "backend",
    }
    (layout,) = Trial(name="deep", layout=INTERLEAVED, options=DEEP).case.params["layouts"]
    assert (layout["schedule"], layout["stages"], "inner" in layout) == (
        "interleaved_1f1b",
        2,
        False,
    )


def test_the_benchmark_has_sixty_right_runs_or_more_and_each_has_a_name_of_its_own() -> None:
    listed = [*items()]
    assert len({item.key for item in listed}) == len(listed)
    assert sum(not item.trial.wrong and item.trial not in SKIPPED for item in listed) >= 60
    assert all(
        SUITE.plan(
            {**ENTRY, **item.trial.options, "layouts": [item.trial.layout], "processes": item.count}
        )
        for item in listed
    )
