"""Every example in schemas/examples: the valid ones are read, and each invalid one is refused for the fault planted in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ci_bench.configuration.accepting import load_accepted
from ci_bench.configuration.config import load_config
from ci_bench.errors import BadDocument
from ci_bench.records.documents import (
    document_kind,
    read_calibration,
    read_comparison,
    read_history,
    read_results,
    to_json,
    write,
)

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"
READERS: dict[str, Callable[[Path], Any]] = {
    "results": read_results,
    "comparison": read_comparison,
    "calibration": read_calibration,
    "history": read_history,
    "config": load_config,
    "accepted": load_accepted,
}

FAULTS = [
    ("array.json", "$", "a list is not a mapping, and a results document is one"),
    ("calibration_fingerprint.json", "$.fingerprint", "'md5:0' does not have the form"),
    (
        "calibration_huge_ratio.json",
        "$.series[0].ratios",
        "a ratio beyond 20, too large for a measured logarithm",
    ),
    (
        "calibration_huge_spread.json",
        "$.series[0].within",
        "a spread beyond 20, too large for a measured logarithm",
    ),
    ("calibration_negative_spread.json", "$.series[0].within[0]", "-0.1 is less than 0"),
    (
        "calibration_no_moment.json",
        "$.runs[0].at",
        "'2030-13-45T12:00:00Z' is not a moment of time",
    ),
    (
        "calibration_no_such_run.json",
        "$.series[0].runs",
        "names a run that is not one of the 2 in $.runs",
    ),
    ("calibration_same_run.json", "$.runs[1]", "'2030-01-29.1' is there already"),
    ("calibration_same_series.json", "$.series[2]", "is there already"),
    ("calibration_too_many.json", "$.series[0].ratios", "201 of at most 200 items"),
    (
        "calibration_uneven.json",
        "$.series[0]",
        "3 ratios, 2 within and 3 runs: the lists belong together",
    ),
    ("calibration_unordered_runs.json", "$.series[0].runs", "is not in the order of $.runs"),
    ("comparison_bad_level.json", "$.cases[0].pairs[0].interval.level", "95 is not less than 1"),
    ("comparison_exit_code.json", "$.judgement.exit_code", "17 is not one of 0, 1, 3, 4"),
    (
        "comparison_newer_version.json",
        "$.schema_version",
        "schema_version 7 was written by a newer ci-bench; this one reads 1",
    ),
    ("comparison_no_samples.json", "$.cases[0].pairs[0].base.samples", "0 is less than 1"),
    (
        "comparison_outputs_verdict.json",
        "$.cases[0].outputs.verdict",
        "'equal' is not one of bitwise, within_rounding",
    ),
    (
        "comparison_same_case.json",
        "$.cases[1]",
        "'training_loss/reviews[backend=inductor,precision=fp32]' is there already, as $.cases[0]",
    ),
    (
        "comparison_same_pair.json",
        "$.cases[0].pairs[1]",
        "('step_time', 'inductor') is there already, as $.cases[0].pairs[0]",
    ),
    (
        "comparison_unexplained_absence.json",
        "$.absence",
        "text where base is null, and null where it is not",
    ),
    ("comparison_unknown_rule.json", "$.judgement.findings[0].rule", "did you mean 'regressed'?"),
    (
        "comparison_unknown_verdict.json",
        "$.cases[0].verdict",
        "'faster' is not one of improved, unchanged, regressed, suspected, inconclusive, incomparable, new, removed, failed, skipped",
    ),
    ("comparison_zero_speedup.json", "$.cases[0].pairs[0].speedup", "0 is not more than 0"),
    ("deep.json", "", "nested too deep; ci-bench did not write this file"),
    ("empty.json", "", "the file is empty; look at the log of the run that should have written it"),
    ("history_address.json", "$.runs[0].url", "'javascript:alert(1)' does not have the form"),
    (
        "history_huge_value.json",
        "$.series[0].values",
        "a value beyond 1e+300, too large for a measurement",
    ),
    ("history_no_moment.json", "$.runs[0].at", "'2030-13-45T12:00:00Z' is not a moment of time"),
    ("history_no_such_machine.json", "$.runs[1].machine", "1 is not one of the 1 in $.machines"),
    (
        "history_no_such_run.json",
        "$.series[0].runs",
        "names a run that is not one of the 2 in $.runs",
    ),
    ("history_same_machine.json", "$.machines[1]", "is there already"),
    ("history_same_run.json", "$.runs[1]", "('2030-01-31.1', 0) is there already"),
    ("history_same_series.json", "$.series[1]", "is there already"),
    (
        "history_uneven.json",
        "$.series[0]",
        "2 runs, 3 values and 2 errors: the lists belong together",
    ),
    (
        "history_unordered_runs.json",
        "$.series[0].runs",
        "is not in the order of $.runs, or names a run twice",
    ),
    ("history_zero_time.json", "$.series[0].values", "a time or a rate that is not above 0"),
    ("not_json.json", "", "1:1: not JSON: Expecting value"),
    ("not_utf8.json", "", "not UTF-8 at byte 11; ci-bench did not write this file"),
    ("null.json", "$", "null is not a mapping, and a results document is one"),
    ("results_accuracy_percent.json", "$.cases[0].parity.traces[1].accuracy", "75 is more than 1"),
    (
        "results_arm_twice.json",
        "$.cases[0].case.arms[2]",
        "'eager' is there already, as $.cases[0].case.arms[0]",
    ),
    ("results_array_for_object.json", "$.cases[0].case.params", "a list is not a mapping"),
    ("results_bad_arm.json", "$.cases[0].metrics[0].arm", "'eager arm' does not have the form"),
    (
        "results_bad_id.json",
        "$.cases[0].case.id",
        "'training_loss/<img src=x>' does not have the form",
    ),
    ("results_bool_number.json", "$.cases[0].metrics[0].calls", "true is not a whole number"),
    ("results_duplicate_key.json", "$.tool_version", "the field comes twice"),
    ("results_extra_field.json", "$.cases[0].stauts", "unknown field; did you mean 'status'?"),
    ("results_fraction_count.json", "$.cases[0].metrics[0].calls", "1.5 is not a whole number"),
    (
        "results_hole_named_only.json",
        "$.cases[0].parity.traces[1].non_finite",
        "loss[1] is not null in its series",
    ),
    (
        "results_hole_unnamed.json",
        "$.cases[0].parity.traces[1].loss[0]",
        "null without an entry in non_finite",
    ),
    (
        "results_huge_integer.json",
        "$.cases[0].metrics[0].launches[0].values[0]",
        "100000000000000000000000000000000000000000000000000000000000… is not a finite number; an unknown value is null",
    ),
    (
        "results_infinite_exponent.json",
        "$.cases[0].duration_s",
        "inf is not a finite number; an unknown value is null",
    ),
    (
        "results_infinity.json",
        "$.cases[0].duration_s",
        "inf is not a finite number; an unknown value is null",
    ),
    ("results_local_time.json", "$.run.started_at", "'2030-01-31 12:00' does not have the form"),
    ("results_long_string.json", "$.tool_version", "61 of at most 60 characters"),
    ("results_missing_field.json", "$.cases[0].reproduce", "missing"),
    (
        "results_nan.json",
        "$.cases[0].metrics[0].launches[0].values[1]",
        "nan is not a finite number; an unknown value is null",
    ),
    ("results_negative_duration.json", "$.cases[0].duration_s", "-1.5 is not more than 0"),
    (
        "results_negative_infinity.json",
        "$.cases[0].parity.traces[1].loss[0]",
        "-inf is not a finite number; an unknown value is null",
    ),
    (
        "results_negative_sample.json",
        "$.cases[0].metrics[0].launches[0].values[2]",
        "-0.01 is less than 0",
    ),
    (
        "results_nested_fact.json",
        "$.environment.identity.gpu",
        "a mapping is not text or a number or true or false or null",
    ),
    (
        "results_newer_version.json",
        "$.schema_version",
        "schema_version 2 was written by a newer ci-bench; this one reads 1",
    ),
    (
        "results_newline_id.json",
        "$.cases[0].case.id",
        "'training_loss/reviews\\n' does not have the form",
    ),
    ("results_no_kind.json", "$.kind", "missing; it should be 'results'"),
    (
        "results_null_sample.json",
        "$.cases[0].metrics[0].launches[0].values[2]",
        "null is not a number",
    ),
    (
        "results_null_status.json",
        "$.cases[0].status",
        "null is not one of ok, failed, timeout, out_of_memory, crashed, skipped, not_run",
    ),
    (
        "results_profile_kind.json",
        "$.cases[0].profiles[0].rows[2].kind",
        "'gremlin' is not one of operator, kernel, python",
    ),
    (
        "results_profile_negative.json",
        "$.cases[0].profiles[0].rows[0].seconds",
        "-0.0012 is less than 0",
    ),
    ("results_object_for_array.json", "$.cases", "a mapping is not a list"),
    (
        "results_one_disagreement.json",
        "$.cases[0].parity.traces[1].disagreements",
        "1 of at least 2 items",
    ),
    ("results_outputs_arm.json", "$.cases[0].outputs.arm", "'jit' is not one of the case's arms"),
    ("results_outputs_digest.json", "$.cases[0].outputs.digest", "'md5:0' does not have the form"),
    (
        "results_outputs_error.json",
        "$.cases[0].outputs.beside.worst[0].error",
        "-1.0 is less than 0",
    ),
    ("results_other_kind.json", "$.kind", "'comparison' is not 'results'"),
    (
        "results_same_case.json",
        "$.cases[1]",
        "'training_loss/reviews[backend=inductor,precision=fp32]' is there already, as $.cases[0]",
    ),
    (
        "results_same_launch.json",
        "$.cases[0].metrics[0].launches[1]",
        "0 is there already, as $.cases[0].metrics[0].launches[0]",
    ),
    (
        "results_same_metric.json",
        "$.cases[0].metrics[1]",
        "('step_time', 'eager') is there already, as $.cases[0].metrics[0]",
    ),
    ("results_surrogate.json", "$.source.branch", "holds half of a surrogate pair"),
    (
        "results_text_number.json",
        "$.cases[0].metrics[0].launches[0].values[2]",
        "'0.01' is not a number",
    ),
    ("results_truncated.json", "", "33:20: not JSON: Expecting value; the file is cut short"),
    (
        "results_uneven_blocks.json",
        "$.cases[0].metrics[0].launches[0].blocks",
        "1 blocks for 3 values",
    ),
    (
        "results_uneven_trace.json",
        "$.cases[0].parity.traces[1]",
        "4 steps of loss, and 3 of grad_norm",
    ),
    (
        "results_unknown_arm.json",
        "$.cases[0].metrics[0].arm",
        "'cudnn' is not one of the case's arms",
    ),
    (
        "results_unknown_reference.json",
        "$.cases[0].case.reference",
        "'cudnn' is not one of the case's arms",
    ),
    (
        "results_unknown_status.json",
        "$.cases[0].status",
        "'okay' is not one of ok, failed, timeout, out_of_memory, crashed, skipped, not_run; did you mean 'ok'?",
    ),
    ("results_version_0.json", "$.schema_version", "0 is not 1"),
    ("results_version_text.json", "$.schema_version", "'1' is not 1"),
    (
        "results_wrong_unit.json",
        "$.cases[0].metrics[0].unit",
        "'ms' is not one of s, bytes, count, 1/s, Hz, J; did you mean 's'?",
    ),
    ("results_zero_duration.json", "$.cases[0].duration_s", "0 is not more than 0"),
    (
        "results_zero_time.json",
        "$.cases[0].metrics[0].launches[0].values",
        "0 is not a time; a sample that is unknown is left out",
    ),
]
"""File, JSON path (empty where the file as a whole is refused), and words of the message."""


@pytest.mark.parametrize("path", sorted((EXAMPLES / "valid").iterdir()), ids=lambda path: path.name)
def test_a_valid_example_is_read(path: Path) -> None:
    assert READERS[document_kind(path)](path)


@pytest.mark.parametrize("name", ["results.json", "comparison.json", "calibration.json"])
def test_an_example_comes_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    source = EXAMPLES / "valid" / name
    document = READERS[name.removesuffix(".json")](source)
    write(document, tmp_path / name)
    assert (tmp_path / name).read_bytes() == source.read_bytes()
    assert to_json(document)["kind"] in name


@pytest.mark.parametrize(("name", "path", "words"), FAULTS)
def test_an_invalid_example_is_refused_for_its_one_fault(name: str, path: str, words: str) -> None:
    reader = READERS.get(name.partition("_")[0], read_results)
    with pytest.raises(BadDocument) as caught:
        reader(EXAMPLES / "invalid" / name)
    first, *faults = str(caught.value).splitlines()
    assert name in first
    if path:
        assert [fault.strip() for fault in faults] == [faults[0].strip()], "one fault was planted"
        assert faults[0].startswith(f"  {path}: ")
    assert words in (faults[0] if path else first)


def test_the_table_names_every_invalid_example() -> None:
    files = {path.name for path in (EXAMPLES / "invalid").glob("*.json")}
    assert files == {name for name, _, _ in FAULTS}
