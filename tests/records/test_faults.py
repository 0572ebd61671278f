"""Faults: worded short, in the order of the document, and never without bound."""

from typing import Any

import pytest

from ci_bench.records.faults import (
    MAX_FAULTS,
    MAX_LINE,
    MAX_PATH,
    MAX_VALUE,
    Fault,
    capped,
    form_faults,
    oddities,
    ordered,
    schema_faults,
    show,
    step,
)


def test_no_fault_grows_beyond_its_line() -> None:
    assert len(str(Fault("$", "x" * 1000))) == MAX_LINE


def test_counting_ends_where_a_document_is_nothing_but_faults() -> None:
    faults = ordered(Fault(f"$[{index}]", "wrong") for index in range(5000))
    assert capped(faults).endswith("  and at least 950 more")


def test_the_tenth_comes_after_the_second_and_nothing_is_said_twice() -> None:
    faults = [Fault(f"$.cases[{index}]", "wrong") for index in (10, 2, 2)]
    assert [fault.path for fault in ordered(faults)] == ["$.cases[2]", "$.cases[10]"]


@pytest.mark.parametrize(
    ("count", "lines"), [(0, 0), (1, 1), (MAX_FAULTS, MAX_FAULTS), (MAX_FAULTS + 1, MAX_FAULTS + 1)]
)
def test_a_list_of_faults_is_capped(count: int, lines: int) -> None:
    assert len(capped(range(count)).splitlines()) == lines


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ("lr", "$.lr"),
        (3, "$[3]"),
        ("two words", "$['two words']"),
        ("a\nb", "$['a\\nb']"),
        ("", "$['']"),
    ],
)
def test_a_path_names_a_field_or_an_index(part: str | int, path: str) -> None:
    assert step("$", part) == path


def test_no_path_grows_without_bound() -> None:
    path = "$"
    for _ in range(100):
        path = step(path, "a" * 100)
    assert len(path) == MAX_PATH


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        ([1], "a list"),
        ({}, "a mapping"),
        ("a\x1b", "'a\\x1b'"),
        (1.5, "1.5"),
    ],
)
def test_a_value_is_shown_on_one_line(value: Any, shown: str) -> None:
    assert show(value) == shown


def test_a_long_value_is_shown_in_part() -> None:
    assert len(show("x" * 1000)) == MAX_VALUE + 2
    assert len(show(10**200)) == MAX_VALUE + 1


def test_what_json_forbids_is_said_once() -> None:
    form = {"type": "object", "properties": {"a": {"type": "number", "maximum": 5}}}
    assert form_faults({"a": float("inf")}, form) == (
        Fault("$.a", "inf is not a finite number; an unknown value is null"),
    )
    assert [fault.path for fault in oddities({"a": [1, float("nan")]}, "$")] == ["$.a[1]"]


@pytest.mark.parametrize(
    ("value", "form", "message"),
    [
        (True, {"type": "integer"}, "true is not a whole number"),
        (1.0, {"type": "integer"}, "1.0 is not a whole number"),
        ("a\n", {"type": "string", "pattern": "^a$"}, "'a\\n' does not have the form ^a$"),
        (
            [1, -1],
            {"type": "array", "items": {"type": "number", "minimum": 0}},
            "-1 is less than 0",
        ),
        ([1, 1], {"uniqueItems": True}, "an item comes twice"),
        (3, {"anyOf": [{"type": "string"}, {"type": "null"}]}, "3 is not text"),
    ],
)
def test_a_broken_schema_is_worded(value: Any, form: dict[str, Any], message: str) -> None:
    assert [fault.message for fault in schema_faults(value, form)] == [message]
