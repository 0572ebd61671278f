"""Calibration documents come back as they were; what no schema can say of them is found; names in both places agree."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_builders import CALIBRATION

from ci_bench.errors import BadDocument
from ci_bench.records.calibration import (
    LARGEST_RATIO,
    Calibration,
    PastRun,
    PastSeries,
    calibration_faults,
)
from ci_bench.records.documents import (
    Kind,
    document_kind,
    read_calibration,
    schema,
    validate,
    write,
)


def test_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    write(CALIBRATION, path)

    assert read_calibration(path) == CALIBRATION
    assert document_kind(path) is Kind.CALIBRATION


@pytest.mark.parametrize(
    ("form", "hint"),
    [(None, Calibration), ("past_run", PastRun), ("past_series", PastSeries)],
    ids=["whole", "run", "series"],
)
def test_the_schema_has_the_fields_of_the_dataclass(form: str | None, hint: type) -> None:
    text = schema(Kind.CALIBRATION)
    node = text if form is None else text["$defs"][form]

    assert [*node["properties"]] == [field.name for field in dataclasses.fields(hint)]
    newer = {"gate"}
    assert {*node["required"]} == {*node["properties"]} - newer, (
        "documents from before it was there are read"
    )


def test_a_sound_one_has_no_faults() -> None:
    assert [*calibration_faults(CALIBRATION)] == []


lists = st.lists(st.floats(-30, 30), max_size=4)
numbers = st.lists(st.integers(0, 3), max_size=4)


@given(ratios=lists, within=st.lists(st.none() | st.floats(0, 30), max_size=4), runs=numbers)
def test_faults_are_found_exactly_where_they_are(ratios, within, runs) -> None:
    series = dataclasses.replace(
        CALIBRATION.series[0], ratios=tuple(ratios), within=tuple(within), runs=tuple(runs)
    )
    sound = (
        len(ratios) == len(within) == len(runs)
        and all(abs(one) <= LARGEST_RATIO for one in ratios)
        and all(one is None or one <= LARGEST_RATIO for one in within)
        and all(run < 2 for run in runs)
        and runs == sorted(runs)
    )

    assert (not [*calibration_faults(dataclasses.replace(CALIBRATION, series=(series,)))]) is sound


def test_a_document_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"kind": "results"}')

    with pytest.raises(BadDocument, match="'results' is not 'calibration'"):
        read_calibration(path)
    assert validate({"kind": "calibration"}, Kind.CALIBRATION)
