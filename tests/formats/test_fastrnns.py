"""The old tool's outputs, letter by letter, from a run of the suite `fastrnns`."""

import json
import math

import pytest

from ci_bench.formats.fastrnns import write_oss, write_pep, write_table
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

RUN = Run(
    id="1",
    started_at="2030-01-31T12:00:00Z",
    state=RunState.COMPLETE,
    config_digest="0",
    device="cpu",
)


def make_case(variant, reference="aten", suite="fastrnns", sizes="batch=3"):
    arms = tuple(dict.fromkeys((reference, variant)))
    case_id = f"{suite}/{variant}[{sizes}]"
    return Case(
        id=case_id,
        suite=suite,
        name=variant,
        params={"variant": variant},
        arms=arms,
        reference=reference,
    )


def make_metric(name, arm, *launches):
    taken = tuple(
        Launch(launch=index, values=values, warmup=(9.0,)) for index, values in enumerate(launches)
    )
    return Metric(
        name=name, arm=arm, unit=Unit.SECONDS, better=Better.LOWER, lane=Lane.WALL, launches=taken
    )


def make_row(case, *metrics, status=Status.OK):
    failure = (
        None if status is Status.OK else Failure(stage="time", arms=case.arms, reason="it broke")
    )
    return CaseResult(
        case=case, status=status, reproduce="ci-bench run", metrics=metrics, failure=failure
    )


def make_results(*rows):
    return Results(
        tool_version="1",
        run=RUN,
        source=Source(),
        environment=Environment(identity={}, condition={}),
        cases=rows,
    )


JIT = make_row(
    make_case("jit"),
    make_metric("forward_time", "aten", (9.0,)),
    make_metric("forward_time", "jit", (0.001, 0.002), (0.003,)),
    make_metric("backward_time", "jit", (0.010, 0.014), (0.012,)),
    make_metric("step_time", "jit", (0.5,)),
)
BOUND = make_row(
    make_case("cudnn_layernorm", "py_layernorm"),
    make_metric("forward_time", "cudnn_layernorm", (0.0327,)),
)
RESNET = make_row(
    make_case("resnet18_jit", "resnet18"),
    make_metric("forward_time", "resnet18_jit", (0.25,)),
    make_metric("backward_time", "resnet18_jit", (0.5,)),
)
VARIABLE = make_row(
    make_case("vl_py", "vl_aten"),
    make_metric("forward_time", "vl_py", (1.5, 2.5)),
    make_metric("backward_time", "vl_py", (4.0, 4.0)),
)
FAILED = make_row(make_case("jit_premul"), status=Status.FAILED)
SKIPPED = make_row(make_case("cudnn"), status=Status.SKIPPED)
RESULTS = make_results(RESNET, SKIPPED, JIT, FAILED, BOUND, VARIABLE)


def test_the_json_has_the_old_groups_and_means_in_milliseconds():
    text = write_oss(RESULTS).text
    assert text.count("\n") == 1
    assert json.loads(text) == {
        "vl_lstm": {"vl_py": 2000.0},
        "vl_lstm-backward": {"vl_py": 4000.0},
        "lstm": {"jit": pytest.approx(2.0), "cudnn_layernorm": pytest.approx(32.7)},
        "lstm-backward": {"jit": pytest.approx(12.0)},
        "resnet": {"resnet18_jit": 250.0},
        "resnet-backward": {"resnet18_jit": 500.0},
    }
    assert [*json.loads(text)] == [
        "vl_lstm",
        "vl_lstm-backward",
        "lstm",
        "lstm-backward",
        "resnet",
        "resnet-backward",
    ]


def test_the_lines_are_one_for_each_sample():
    lines = write_pep(make_results(JIT)).text.splitlines()
    assert (
        lines[0]
        == 'Caffe2Observer {"type": "NET", "metric": "lstm-jit", "unit": "ms", "value": "1.0"}'
    )
    assert (
        lines[3]
        == 'Caffe2Observer {"type": "NET", "metric": "lstm-backward-jit", "unit": "ms", "value": "10.0"}'
    )
    assert len(lines) == 6


TABLE = """\
Benchmarking LSTMs...
            name          avg_fwd          std_fwd         info_fwd          avg_bwd          std_bwd         info_bwd
             jit                2                1             None               12                2             None
      jit_premul           failed              nan             None           failed              nan             None
 cudnn_layernorm             32.7              nan             None     not measured              nan             None
"""


def test_the_table_is_the_old_one_with_a_row_for_what_failed():
    assert write_table(make_results(JIT, FAILED, BOUND)).text == TABLE


def test_columns_are_separated_as_asked():
    row = write_table(make_results(JIT), sep=",").text.splitlines()[2]
    assert [cell.strip() for cell in row.split(",")] == ["jit", "2", "1", "None", "12", "2", "None"]
    assert {len(cell) for cell in row.split(",")} == {16}


def test_a_long_name_is_cut_as_it_was():
    case = make_row(
        make_case("jit_layernorm_decom", "py_layernorm"),
        make_metric("forward_time", "jit_layernorm_decom", (1.0,)),
    )
    assert write_table(make_results(case)).text.splitlines()[2].startswith("jit_layernorm_de ")


def test_groups_come_in_the_old_order():
    titles = [
        line for line in write_table(RESULTS).text.splitlines() if line.startswith("Benchmarking")
    ]
    assert titles == [
        "Benchmarking variable-length sequence LSTMs...",
        "Benchmarking LSTMs...",
        "Benchmarking ResNets...",
    ]


def test_a_deviation_is_the_samples_own():
    fields = write_table(make_results(JIT)).text.splitlines()[2].split()
    assert float(fields[2]) == pytest.approx(math.sqrt(((1 - 2) ** 2 + 0 + (3 - 2) ** 2) / 2))


def test_cases_of_one_variant_are_told_apart():
    two = make_row(make_case("jit", sizes="batch=5"), make_metric("forward_time", "jit", (1.0,)))
    assert [*json.loads(write_oss(make_results(JIT, two)).text)["lstm"]] == [
        "jit[batch=3]",
        "jit[batch=5]",
    ]


def test_each_compiled_arm_of_a_variant_has_a_row():
    case = Case(
        id="fastrnns/compile[batch=3]", suite="fastrnns", name="compile", params={"variant": "compile"},
        arms=("aten", "inductor", "aot_eager"), reference="aten",
    )  # fmt: skip
    row = make_row(
        case,
        *(
            make_metric("forward_time", arm, (s,))
            for arm, s in (("aten", 9.0), ("inductor", 0.002), ("aot_eager", 0.004))
        ),
    )
    assert json.loads(write_oss(make_results(row)).text) == {
        "lstm": {"compile inductor": 2.0, "compile aot_eager": 4.0}
    }


def test_what_was_not_measured_is_in_no_json():
    both = (
        write_oss(make_results(FAILED, SKIPPED)).text
        + write_pep(make_results(FAILED, SKIPPED)).text
    )
    assert both == "{}\n"


def test_other_suites_are_left_out_by_name():
    other = make_row(make_case("reviews", suite="training_loss"))
    for write in (write_oss, write_pep, write_table):
        written = write(make_results(JIT, other))
        assert written.left_out == (other.case.id,)
        assert "reviews" not in written.text


def test_an_empty_run_is_an_empty_table():
    assert write_table(make_results()).text == ""
