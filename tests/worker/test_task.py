"""The lines between parent and worker: what was written is read, and nothing else."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
from fake_suite import SUITE

from ci_bench.processes.protocol import (
    Answer,
    Task,
    WorkerFault,
    decode_answer,
    decode_task,
    encode,
)
from ci_bench.processes.resident import Answers
from ci_bench.records.config import RunOptions
from ci_bench.records.events import Progress
from ci_bench.records.results import Better, Lane, Launch, Metric, Unit
from ci_bench.suites.contract import Cache, Evidence, Stage, StageKind
from ci_bench.worker import worker

CASE = SUITE.plan({"name": "one", "arms": ["plain", "other"]})[0]
STAGE = Stage(kind=StageKind.ALONE, arms=("other",), launches=None, cache=Cache.COLD)
TASK = Task(
    launch=1,
    device="cpu",
    options=RunOptions(threads=2),
    scratch="/s",
    worker="w",
    case=CASE,
    stage=STAGE,
    environ={"A": "b"},
)


def _evidence(value: float) -> Evidence:
    taken = Launch(launch=0, values=(value,), warmup=(1.0,), blocks=(0,), steady=True)
    metric = Metric(
        name="m",
        arm="plain",
        unit=Unit.SECONDS,
        better=Better.LOWER,
        lane=Lane.WALL,
        launches=(taken,),
    )
    return Evidence(metrics=(metric,))


ANSWERS = [
    Answer(progress=Progress(arm="plain", done=1, total=2)),
    Answer(evidence=_evidence(0.5)),
    Answer(evidence=Evidence()),
    Answer(fault=WorkerFault(kind="failed", message="line\nbreak \ud800 ✗")),
    Answer(
        environment={
            "identity": {"a": 1, "b": None, "c": "x", "d": True, "e": 0.5},
            "condition": {},
        }
    ),
]


@pytest.mark.parametrize(
    "task", [TASK, Task(launch=0, device="auto", options=RunOptions(), scratch="/s")]
)
def test_a_task_is_read_as_it_was_written(task: Task) -> None:
    assert decode_task(encode(task)) == task


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_one_line_and_is_read_as_it_was_written(answer: Answer) -> None:
    line = encode(answer)
    assert line.count(b"\n") == 1
    assert decode_answer(line) == answer


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_not_sent(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(Answer(evidence=_evidence(value)))


GARBAGE = [
    b"", b"\n", b"garbage", b"\x00\xff\xfe", b"null", b"1", b"[]", b'"fault"', b"{}", b'{"fault": null}', b'{"other": 1}',
    b'{"fault": {"kind": "failed"}}', b'{"fault": {"kind": 1, "message": "x"}}', b'{"progress": {"arm": "a", "done": NaN, "total": 1}}',
    b'{"progress": {"arm": "a", "done": 1e999, "total": 1}}', b'{"environment": {"identity": {"a": 1e999}}}', b'{"progress": {"arm": "a", "done": 1, "total": 2}',
    b'{"fault": {"kind": "a", "message": "b"}, "evidence": {}}', b'{"evidence": {"metrics": [1]}}', b'{"evidence": []}',
    b'{"environment": {"identity": {"a": [1]}}}', b'{"environment": {"identity": {"a": 1e999}}}', b'{"fault": {"kind": "a", "message": "b"}} {}',
    b'{"progress": {"arm": "a", "done": ' + b"9" * 5000 + b', "total": 1}}', b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("line", GARBAGE)
def test_anything_else_is_refused_and_only_counted(line: bytes) -> None:
    with pytest.raises((ValueError, msgspec.ValidationError, RecursionError)):
        decode_answer(line)
    answers = Answers(lambda _: pytest.fail("not an answer"))
    answers.feed(line.replace(b"\n", b"") + b"\n")
    assert (answers.garbled, answers.kept) == (1, [])


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_answers_are_put_together_wherever_they_were_cut(size: int) -> None:
    seen = []
    answers = Answers(seen.append)
    stream = b"".join(map(encode, ANSWERS))
    for start in range(0, len(stream), size):
        answers.feed(stream[start : start + size])
    answers.finish()
    assert seen == ANSWERS
    assert answers.kept == ANSWERS[1:]  # progress is passed on, not kept
    assert (answers.garbled, answers.flooded) == (0, False)


def test_a_line_without_its_end_is_garbled() -> None:
    answers = Answers(lambda _: None)
    answers.feed(encode(ANSWERS[0])[:-1])
    answers.finish()
    assert (answers.garbled, answers.kept) == (1, [])


@pytest.mark.parametrize("graphs", [False, True])
def test_a_suite_is_told_whether_its_steps_will_be_captured(graphs, monkeypatch, tmp_path) -> None:
    seen = []

    def open_workload(_case, context):
        seen.append(context.cuda_graph)
        return SimpleNamespace(verify=lambda _arms: Evidence())

    monkeypatch.setitem(
        sys.modules, "suite_that_looks", SimpleNamespace(open_workload=open_workload)
    )
    stage = Stage(kind=StageKind.VERIFY, arms=("eager",))
    options = RunOptions(cuda_graph=graphs)
    task = Task(
        launch=0,
        device="cpu",
        options=options,
        scratch=str(tmp_path),
        worker="suite_that_looks",
        case=CASE,
        stage=stage,
    )
    assert worker._answer(task, None).evidence is not None
    assert seen == [graphs]


@pytest.mark.parametrize(("kind", "happened"), [
    (StageKind.TIME, ["heap", "opened"]),
    (StageKind.EXPLAIN, ["heap", "opened"]),
    (StageKind.ALONE, ["opened"]),
    (StageKind.VERIFY, ["opened"]),
])  # fmt: skip
def test_the_heap_is_kept_where_steps_are_timed_and_not_where_memory_is_weighed(
    kind, happened, monkeypatch, tmp_path
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(worker, "keep_heap", lambda: seen.append("heap"))
    monkeypatch.setattr(worker, "_gather", lambda *_, **__: Evidence())
    opening = SimpleNamespace(open_workload=lambda *_: seen.append("opened"))
    monkeypatch.setitem(sys.modules, "suite_that_looks", opening)
    stage = Stage(kind=kind, arms=("eager",))
    task = replace(TASK, scratch=str(tmp_path), worker="suite_that_looks", stage=stage)
    assert worker._answer(task, None).evidence is not None
    assert seen == happened


def test_a_task_holds_nothing_but_plain_json() -> None:
    assert json.loads(encode(TASK))["environ"] == {"A": "b"}
