"""JSON of other tools, as Python's parser takes it and as our documents can hold it."""

import pytest

from ci_bench.formats.parsing import parse_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\ud83db"', "a?b"),
        (r'"\uDE00"', "?"),
        (r'"\ud83d\ud83d\ude00"', "?\U0001f600"),
        (r'"\ud83d\ude00\ude00"', "\U0001f600?"),
        (r'"\\\ud83d"', "\\?"),
        (r'"\ud83d\\ude00"', "?\\ude00"),
        (r'{"\ud83d": ["\ud83d"]}', {"?": ["?"]}),
    ],
)
def test_half_a_surrogate_pair_is_replaced(text, value):
    assert parse_json(text).value == value


@pytest.mark.parametrize(
    ("text", "value"), [(r'"\ud83d\ude00"', "\U0001f600"), (r'"\\ud83d"', r"\ud83d"), (r'"\\\\ude00"', r"\\ude00")]
)
def test_a_pair_and_an_escaped_backslash_stay(text, value):
    assert parse_json(text).value == value


def test_many_backslashes_take_no_longer_than_their_number():
    text = '"' + r"\\" * 200_000 + r'\ud83d"'
    assert parse_json(text).value == "\\" * 200_000 + "?"
