"""Samples of a launch are kept as bytes, and nobody who reads them notices."""

import copy
import math
import pickle
import sys
from array import array
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_bench.records.results import Launch, has_samples, samples_of
from ci_bench.records.samples import FLOAT_BYTES

FLOATS = st.lists(st.floats(allow_nan=False), max_size=40).map(tuple)
SIXTEEN = tuple(0.02 + place / 3000 for place in range(16))


@given(FLOATS)
def test_what_is_read_is_what_was_written_to_the_bit(values: tuple[float, ...]) -> None:
    launch = Launch(launch=0, values=values)
    assert [value.hex() for value in launch.values] == [value.hex() for value in values]
    assert launch == Launch(launch=0, values=values)
    assert hash(launch) == hash(Launch(launch=0, values=values))
    assert (launch == Launch(launch=0, values=(*values, 1.0))) is False


def test_no_number_stays_none() -> None:
    assert all(map(math.isnan, Launch(launch=0, values=(math.nan,) * 5).values))


@pytest.mark.parametrize("values", [(), (3,), (3, 4, 5, 6, 7), (2**2000,) * 5, tuple("abcde")])
def test_what_does_not_begin_with_a_float_is_kept_as_it_is(values: tuple[object, ...]) -> None:
    kept = Launch(launch=0, values=values).values  # type: ignore[arg-type] # as a caller may that is wrong
    assert kept == values
    assert [*map(type, kept)] == [*map(type, values)]


def test_a_launch_can_be_copied_replaced_and_written() -> None:
    launch = Launch(launch=1, values=SIXTEEN, warmup=(0.5,), blocks=tuple(range(16)))
    assert (
        pickle.loads(pickle.dumps(launch))  # noqa: S301 - ours
        == copy.deepcopy(launch)
        == replace(launch, steady=None)
        == launch
    )
    assert replace(launch, values=SIXTEEN[:3]).values == SIXTEEN[:3]
    plain = msgspec.to_builtins(launch)
    assert tuple(plain["values"]) == SIXTEEN
    assert msgspec.convert(plain, Launch) == launch


def test_bytes_of_many_launches_are_their_samples() -> None:
    one, two = samples_of([Launch(launch=0, values=SIXTEEN), Launch(launch=1, values=(1.5, 2))])
    assert one == b"".join(as_bytes(value) for value in SIXTEEN)
    assert two == as_bytes(1.5) + as_bytes(2.0)
    assert len(one) == len(SIXTEEN) * FLOAT_BYTES


@pytest.mark.parametrize("values", [SIXTEEN, SIXTEEN[:1], (0.0,), (0.0,) * 5, (0,), (math.nan,)])
def test_any_sample_of_any_launch_is_one(values: tuple[float, ...]) -> None:
    empty = Launch(launch=0, values=())
    assert has_samples([empty, Launch(launch=1, values=values)])
    assert not has_samples([empty, empty])
    assert not has_samples([])


def as_bytes(value: float) -> bytes:
    """A float as this machine has it, by another way than the module's."""
    return array("d", [value]).tobytes()


def test_it_takes_a_third_of_the_memory() -> None:
    launch = Launch(launch=0, values=SIXTEEN)
    held = vars(Launch)["values"].held_of(launch)
    assert (
        sys.getsizeof(held) * 3
        < sys.getsizeof(SIXTEEN) + sum(map(sys.getsizeof, SIXTEEN)) + FLOAT_BYTES
    )
