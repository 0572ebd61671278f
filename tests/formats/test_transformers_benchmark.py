"""The old CSV files and log: columns, sections and widths as transformers wrote them, figures from the results."""

import csv
import io
from dataclasses import replace

import pytest

from ci_bench.formats.transformers_benchmark import utilisation, write_files, write_log
from ci_bench.records.results import (
    Better,
    Case,
    CaseResult,
    Environment,
    Failure,
    Lane,
    Launch,
    Metric,
    Results,
    Run,
    RunState,
    Source,
    Status,
    Unit,
)

STAMP = 1732190400
IDENTITY = {"device": "cpu", "cpu": "A CPU", "python": "3.11.7", "torch": "2.13.0"}
CONDITION = {"transformers": "5.23.0", "memory_total_bytes": 16 << 30}
GPU = {**IDENTITY, "device": "cuda", "gpu": "NVIDIA A100", "gpu_memory_bytes": 80 << 30}
FACTS = {"model_flops_per_step": 3_000_000_000_000, "peak_flops_per_s": 312e12}


def metric(name, arm, *launches, unit=Unit.SECONDS):
    taken = tuple(Launch(launch=number, values=values) for number, values in enumerate(launches))
    return Metric(
        name=name, arm=arm, unit=unit, better=Better.LOWER, lane=Lane.WALL, launches=taken
    )


def row(
    name="bert",
    *,
    mode="inference",
    batch=8,
    length=128,
    arms=("eager", "inductor"),
    metrics=(),
    **more,
):
    params = {
        "mode": mode,
        "batch_size": batch,
        "sequence_length": length,
        "precision": "fp32",
        "attention": "auto",
    }
    params |= {
        "speed": True,
        "memory": True,
        "only_pretrain_model": False,
        **more.pop("params", {}),
    }
    case = Case(
        id=f"transformers/{name}[{mode},{batch},{length},{arms[-1]}]",
        suite="transformers",
        name=name,
        params=params,
        arms=arms,
        reference="eager",
    )
    return CaseResult(
        case=case,
        status=more.pop("status", Status.OK),
        reproduce="again",
        metrics=tuple(metrics),
        **more,
    )


def results(*rows, identity=IDENTITY, condition=CONDITION):
    return Results(
        tool_version="1",
        run=Run(
            id="r",
            started_at="2024-11-21T12:00:00+00:00",
            state=RunState.COMPLETE,
            config_digest="0",
            device="cpu",
        ),
        source=Source(),
        environment=Environment(identity=identity, condition=condition),
        cases=rows,
    )


TIMES = (
    metric("step_time", "eager", (0.010, 0.012, 0.050), (0.011,)),
    metric("step_time", "inductor", (0.0060004,)),
)
PEAKS = tuple(metric("peak_rss", arm, (3 << 20,), unit=Unit.BYTES) for arm in ("eager", "inductor"))


def table(written):
    return list(csv.reader(io.StringIO(written.text)))


def test_times_are_the_medians_of_the_launches_medians_with_all_digits():
    files = write_files(results(row(metrics=(*TIMES, *PEAKS))))
    assert table(files[f"inference_time_{STAMP}.csv"]) == [
        ["model", "batch_size", "sequence_length", "result"],
        ["bert", "8", "128", "0.0115"],
        ["bert (inductor)", "8", "128", "0.0060004"],
    ]


def test_files_are_those_that_have_something_to_say():
    inference, training = (
        row(metrics=(*TIMES, *PEAKS)),
        row(mode="training", metrics=TIMES, params={"memory": False}),
    )
    assert sorted(write_files(results(inference, training))) == [
        f"env_info_{STAMP}.csv",
        f"inference_memory_{STAMP}.csv",
        f"inference_time_{STAMP}.csv",
        f"log_{STAMP}.txt",
        f"train_time_{STAMP}.csv",
    ]
    assert sorted(write_files(results())) == [f"env_info_{STAMP}.csv", f"log_{STAMP}.txt"]


def test_two_runs_do_not_overwrite_each_other():
    later = replace(results().run, started_at="2024-11-21T12:00:01+00:00")
    assert not write_files(results()).keys() & write_files(replace(results(), run=later)).keys()


def test_memory_is_whole_mebibytes_of_what_both_arms_have():
    vram = metric("process_vram", "eager", (90 << 20,), unit=Unit.BYTES)
    files = write_files(results(row(metrics=(*PEAKS, vram), params={"speed": False})))
    assert [line[3] for line in table(files[f"inference_memory_{STAMP}.csv"])] == [
        "result",
        "3",
        "3",
    ]
    both = (vram, metric("process_vram", "inductor", ((91 << 20) + 5,), unit=Unit.BYTES))
    files = write_files(results(row(metrics=(*PEAKS, *both), params={"speed": False})))
    assert [line[3] for line in table(files[f"inference_memory_{STAMP}.csv"])] == [
        "result",
        "90",
        "91",
    ]


def test_what_is_not_plain_stands_behind_the_name():
    metrics = (metric("step_time", "eager", (1.0,)), metric("step_time", "export", (1.0,)))
    one = row(
        arms=("eager", "export"), metrics=metrics, params={"precision": "bf16", "attention": "sdpa"}
    )
    names = [
        line[0] for line in table(write_files(results(one))[f"inference_time_{STAMP}.csv"])[1:]
    ]
    assert names == ["bert (bf16, sdpa)", "bert (export, bf16, sdpa)"]


def test_the_eager_arm_beside_several_candidates_is_one_row():
    one = row(
        metrics=(metric("step_time", "eager", (1.0,)), metric("step_time", "inductor", (0.5,)))
    )
    two = row(
        arms=("eager", "export"),
        metrics=(metric("step_time", "eager", (2.0,)), metric("step_time", "export", (0.7,))),
    )
    lines = table(write_files(results(one, two))[f"inference_time_{STAMP}.csv"])[1:]
    assert [(line[0], line[3]) for line in lines] == [
        ("bert", "1.5"),
        ("bert (inductor)", "0.5"),
        ("bert (export)", "0.7"),
    ]


def test_what_failed_is_not_available_and_told_in_the_log():
    failure = Failure(
        stage="time", arms=("eager",), reason="CUDA out of memory.\n\x1b[31mTried 8 GiB"
    )
    broken = row("huge", arms=("eager",), status=Status.OUT_OF_MEMORY, failure=failure)
    files = write_files(results(row(metrics=TIMES), broken))
    assert ["huge", "8", "128", "N/A"] in table(files[f"inference_time_{STAMP}.csv"])
    (told,) = [
        line
        for line in files[f"log_{STAMP}.txt"].text.splitlines()
        if line.startswith("transformers/huge")
    ]
    assert told.endswith("out of memory: CUDA out of memory. [31mTried 8 GiB"), (
        "on one line, and nothing for a terminal to obey"
    )


LOG = """\

====================       INFERENCE - SPEED - RESULT       ====================
--------------------------------------------------------------------------------
          Model Name             Batch Size     Seq Length     Time in s
--------------------------------------------------------------------------------
             bert                    8              128            0.011
       bert (inductor)               8              128            0.006
             vit                     8               -            < 0.001
--------------------------------------------------------------------------------

====================      INFERENCE - MEMORY - RESULT       ====================
--------------------------------------------------------------------------------
          Model Name             Batch Size     Seq Length   Memory in MiB
--------------------------------------------------------------------------------
             bert                    8              128              3
       bert (inductor)               8              128              3
--------------------------------------------------------------------------------

====================        ENVIRONMENT INFORMATION         ====================
- transformers_version: 5.23.0
- framework: PyTorch
- use_torchscript: False
- framework_version: 2.13.0
- python_version: 3.11.7
- system: Linux
- cpu: A CPU
- architecture: 64bit
- date: 2024-11-21
- time: 12:00:00
- fp16: False
- use_multiprocessing: True
- only_pretrain_model: False
- cpu_ram_mb: 16384
- use_gpu: False
- use_tpu: False
"""


def test_the_log_is_laid_out_as_it_was():
    image = row(
        "vit",
        length=None,
        arms=("eager",),
        metrics=(metric("step_time", "eager", (0.0002,)),),
        params={"memory": False},
    )
    text = write_log(results(row(metrics=(*TIMES, *PEAKS)), image)).text
    assert [line.rstrip() for line in text.splitlines()] == LOG.splitlines()
    assert {len(line) for line in text.splitlines() if line.startswith("  ")} == {75, 77}, (
        "the head and the rows"
    )


def test_a_gpu_is_described_and_its_utilisation_added():
    log = write_log(
        results(row(metrics=TIMES, facts=FACTS), identity=GPU, condition={"gpu_power_limit_w": 400})
    ).text
    assert (
        "- gpu: NVIDIA A100\n- gpu_ram_mb: 81920\n- gpu_power_watts: 400\n- gpu_performance_state: N/A\n"
        in log
    )
    assert "- transformers_version: N/A" in log
    section = log.partition("INFERENCE - UTILISATION - RESULT")[2]
    assert "% of peak" in section
    assert f"{100 * 3e12 / 0.0115 / 312e12:.1f}" in section


@pytest.mark.parametrize("missing", FACTS)
def test_utilisation_is_unknown_where_anything_of_it_is(missing):
    known = row(metrics=TIMES, facts=FACTS)
    assert utilisation(known, "eager") == pytest.approx(3e12 / 0.0115 / 312e12)
    assert utilisation(replace(known, facts={**FACTS, missing: None}), "eager") is None
    assert utilisation(replace(known, metrics=()), "eager") is None


def test_sections_of_training_have_their_own_title():
    log = write_log(results(row(mode="training", metrics=TIMES, params={"memory": False}))).text
    assert "TRAIN - SPEED - RESULTS" in log
    assert "INFERENCE" not in log


def test_what_the_files_cannot_hold_is_listed():
    generation = row("gpt2", mode="generation", metrics=(metric("token_time", "eager", (0.1,)),))
    other = replace(row(metrics=TIMES), case=replace(row().case, suite="fastrnns"))
    compiled = row(metrics=(*TIMES, metric("graphs", "inductor", (1.0,), unit=Unit.COUNT)))
    left_out = write_log(results(generation, other, compiled)).left_out
    assert [label.rpartition(" ")[2] for label in left_out] == [
        "token_time",
        "step_time",
        "step_time",
        "graphs",
    ]
    assert "gpt2" not in write_log(results(generation)).text


def test_cases_of_both_kinds_are_said_to_be_so():
    half = row(metrics=TIMES, params={"precision": "fp16", "only_pretrain_model": True})
    assert "- fp16: True" in write_log(results(half)).text
    log = write_log(results(half, row(metrics=TIMES))).text
    assert "- fp16: some" in log
    assert "- only_pretrain_model: some" in log
    assert "- use_torchscript: True" in write_log(results(row(arms=("eager", "torchscript")))).text
