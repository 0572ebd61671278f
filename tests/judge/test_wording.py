"""The words and figures of reasons, at the places where they change."""

import math

import pytest

from ci_bench.judge.times.paired import TimeAnswer, reason
from ci_bench.judge.wording import (
    change,
    change_size,
    count_of,
    interval_text,
    percent,
    quantity,
    shortened,
)
from ci_bench.records.comparison import Interval, Pair, Summary, Verdict
from ci_bench.records.results import Better, Unit


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.00123, "0.12 %"),
        (0.00994, "0.99 %"),
        (0.01, "1 %"),
        (0.0234, "2.3 %"),
        (-0.123, "12.3 %"),
        (0.5, "50 %"),
        (0.999, "99.9 %"),
        (9999.99, "999999 %"),
        (1e4, "1e+06 %"),
        (123456.0, "over 1,000,000 %"),
    ],
)
def test_shares(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.0, Unit.SECONDS, "1 s"),
        (0.9999, Unit.SECONDS, "999.9 ms"),
        (12.3456, Unit.SECONDS, "12.35 s"),
        (1024**2, Unit.BYTES, "1 MiB"),
        (1024**2 - 1, Unit.BYTES, "1048575 bytes"),
        (3.5 * 1024**2, Unit.BYTES, "3.5 MiB"),
        (1234567, Unit.COUNT, "1.23457e+06"),
        (12.3456, Unit.PER_SECOND, "12.35/s"),
        (1.98e9, Unit.HERTZ, "1.98 GHz"),
        (1000.0, Unit.JOULES, "1 kJ"),
        (999.0, Unit.JOULES, "999 J"),
        (0.00001, Unit.JOULES, "0.01 mJ"),
    ],
)
def test_quantities(value, unit, text):
    assert quantity(value, unit) == text


@pytest.mark.parametrize(
    ("speedup", "unit", "better", "text"),
    [
        (0.8, Unit.SECONDS, Better.LOWER, "25 % slower"),
        (1.25, Unit.SECONDS, Better.LOWER, "20 % faster"),
        (0.5, Unit.BYTES, Better.LOWER, "100 % more"),
        (2.0, Unit.COUNT, Better.LOWER, "50 % fewer"),
        (1.25, Unit.PER_SECOND, Better.HIGHER, "25 % higher"),
        (0.8, Unit.PER_SECOND, Better.HIGHER, "20 % lower"),
    ],
)
def test_changes(speedup, unit, better, text):
    assert change(speedup, unit, better) == text


def test_intervals_and_counts():
    assert (
        interval_text(Interval(low=0.9, high=1.23456, level=0.95)) == "95 % interval 0.900 to 1.235"
    )
    assert (
        interval_text(Interval(low=0.0, high=2.8e26, level=0.95))
        == "95 % interval 0.000 to over 1,000,000"
    )
    assert percent(5.36e63) == "over 1,000,000 %"
    assert [
        count_of(number, noun) for number, noun in ((1, "case"), (2, "case"), (0, "launch"))
    ] == [
        "1 case",
        "2 cases",
        "0 launches",
    ]


def pair(speedup, base=None, head=None):
    sides = [
        None if value is None else Summary(median=value, samples=1, launches=1)
        for value in (base, head)
    ]
    return Pair(
        metric="m",
        arm="a",
        unit=Unit.COUNT,
        better=Better.LOWER,
        verdict=Verdict.UNCHANGED,
        reason="",
        threshold=0.0,
        base=sides[0],
        head=sides[1],
        speedup=speedup,
    )


@pytest.mark.parametrize(
    ("one", "size"),
    [
        (pair(2.0), math.log(2)),
        (pair(0.5), math.log(2)),
        (pair(None, 0.0, 3.0), math.inf),
        (pair(None, 3.0, 0.0), math.inf),
        (pair(None, 0.0, 0.0), 0.0),
        (pair(None, None, 3.0), 0.0),
        (pair(None, 3.0, None), 0.0),
        (pair(None), 0.0),
    ],
)
def test_the_size_of_a_change(one, size):
    assert change_size(one) == pytest.approx(size)


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [("it broke", 8, "it broke"), ("it broke, twice", 12, "it broke…"), ("abcdefgh", 5, "abcd…")],
)
def test_words_stay_whole(text, most, shown):
    assert shortened(text, most) == shown


@pytest.mark.parametrize(
    ("needed", "launches", "told"),
    [
        (
            9.0,
            8,
            "; only changes above 3 % would show; 2 % (twice the threshold) would take about 9 launches",
        ),
        (8.0, 8, "; too close to the threshold of 1 %, or its launches disagree"),
        (None, 8, "; no number of launches would show 2 % (twice the threshold)"),
        (
            16.0,
            8,
            "; only changes above 3 % would show; 2 % (twice the threshold) would take about 16 launches",
        ),
        (
            16.5,
            8,
            "; only changes above 3 % would show; 2 % (twice the threshold) would take more than 16 launches",
        ),
    ],
)
def test_what_would_tell_an_open_case(needed, launches, told):
    answer = TimeAnswer(
        verdict=Verdict.INCONCLUSIVE,
        speedup=0.99,
        interval=Interval(low=0.98, high=1.0, level=0.95),
        launches=launches,
        resolvable=0.03,
        needed=needed,
        threshold=0.01,
        margin=0.02,
        calibrated=True,
    )
    assert reason(answer, Unit.SECONDS, Better.LOWER, 5).endswith(told)
