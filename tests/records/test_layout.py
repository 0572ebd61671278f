"""How the JSON of a document lies on its lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_bench.records.documents import many_lines, one_line

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(VALUES)
def test_the_same_is_read_from_many_lines_as_from_one(value):
    assert one_line(json.loads(many_lines(value))) == one_line(value)


@given(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
def test_a_value_alone_is_written_as_the_encoder_writes_it(value):
    assert many_lines(value) == one_line(value)


def test_a_line_for_each_field_and_for_each_list_of_numbers():
    lines = many_lines({"name": "a", "empty": {}, "rows": [{"values": [1, 2.5]}, [3, None]]})
    assert lines.splitlines() == [
        "{",
        ' "name": "a",',
        ' "empty": {},',
        ' "rows": [',
        "  {",
        '   "values": [1, 2.5]',
        "  },",
        "  [3, null]",
        " ]",
        "}",
    ]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("write", [one_line, many_lines])
def test_a_number_that_is_not_finite_is_refused(write, number):
    for value in (number, {"value": number}, {"values": [1.0, number]}):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write(value)
