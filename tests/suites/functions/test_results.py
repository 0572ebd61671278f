"""What calls return is compared by value, whatever kind it is, or refused by the name of its kind."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import io
import pathlib
import uuid
import warnings
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from ci_bench.records.results import Outcome  # noqa: E402
from ci_bench.suites.functions import results  # noqa: E402
from ci_bench.suites.functions.drawing import BadBenchmark  # noqa: E402
from ci_bench.suites.functions.results import named_outputs  # noqa: E402
from ci_bench.suites.shared.worker.numerics import FP32_EPSILON, agree  # noqa: E402

pytestmark = pytest.mark.engine

X = torch.arange(1.0, 13.0).reshape(3, 4)


@dataclasses.dataclass
class Guarded:
    logits: object
    risk: object = None
    name: str = "x"
    cache: object = dataclasses.field(default=None, compare=False)


class Pair(NamedTuple):
    first: object
    second: int


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Equal:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value

    __hash__ = None


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a

    def __eq__(self, other):
        return self.a == other.a

    def __hash__(self):
        return hash(self.a)


def nested(rows):
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def masked(values, mask):
    return numpy.ma.masked_array(numpy.array(values), mask=mask)


with warnings.catch_warnings(action="ignore"):  # torch warns of these once in a process
    BY_ROWS = X.to_sparse_csr()
    QUANTISED = tuple(torch.quantize_per_tensor(s * X, 0.1, 0, torch.qint8) for s in (1, 1, 2))
    NESTED = tuple(torch.nested.nested_tensor([X[0], s * X[1, :3]]) for s in (1, 1, 2))


def sparse(indices, values, shape):
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)


SPARSE_HUGE = (1 << 20, 1 << 20)
PAIRS = {
    "text": ("ab", "ab", "ac"),
    "longer text": ("ab", "ab", "abc"),
    "text and bytes": ("ab", "ab", b"ab"),
    "empty text": ("", "", "a"),
    "lone surrogates": ("\ud800", "\ud800", "\ud801"),
    "bytes": (b"\0\1", b"\0\1", b"\0\2"),
    "bytearray": (bytearray(3), bytes(3), bytes(4)),
    "memoryview": (memoryview(b"abc"), b"abc", b"abd"),
    "bool": (True, True, False),
    "whole number": (3, 3, 4),
    "long whole number": (2**90, 2**90, 2**90 + 1),
    "number": (0.1 + 0.2, 0.3, 0.3001),
    "complex": (1 + 2j, 1 + 2j, 1 - 2j),
    "numbers": ([1.0, 2.0], (1.0, 2.0), [1.0, 2.1]),
    "more numbers": ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0, 3.0]),
    "list of text": (["a", "b"], ("a", "b"), ["a", "c"]),
    "many texts": (
        [str(n) for n in range(500)],
        [str(n) for n in range(500)],
        [*map(str, range(499)), "no"],
    ),
    "many mixed": ([(n, str(n), n / 3) for n in range(99)],) * 2
    + ([(n, str(n), n / 3 + 0.01 * (n == 50)) for n in range(99)],),
    "many, a count": ([(n, str(n)) for n in range(99)],) * 2
    + ([(n + (n == 7), str(n)) for n in range(99)],),
    "empty list": ([], [], [1]),
    "mapping": ({"a": X, "b": "y"}, {"b": "y", "a": X}, {"a": X, "b": "z"}),
    "mapping without order": ({"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}, {"a": 2.0, "b": 1.0}),
    "keys of two types": ({1: 1.0, "1": 2.0}, {1: 1.0, "1": 2.0}, {1: 2.0, "1": 2.0}),
    "none in a mapping": ({"a": X, "cache": None}, {"a": X}, {"a": 2 * X}),
    "long key": ({"k" * 900: 1.0}, {"k" * 900: 1.0}, {"k" * 899 + "j": 1.0}),
    "set": ({3, 1, 2}, {1, 2, 3}, {1, 2, 4}),
    "set of text": ({"a", "b"}, {"b", "a"}, {"a", "c"}),
    "set of pairs": ({(1, "a"), (2, "b")}, {(2, "b"), (1, "a")}, {(2, "a"), (1, "b")}),
    "frozenset of numbers": (
        frozenset({0.3, 1.0}),
        frozenset({0.1 + 0.2, 1.0}),
        frozenset({0.4, 1.0}),
    ),
    "keys": ({"a": 1}.keys(), {"a"}, {"b"}),
    "deque": (collections.deque([1, 2]), [1, 2], [2, 1]),
    "counter": (collections.Counter("aab"), {"a": 2, "b": 1}, {"a": 1, "b": 2}),
    "named tuple": (Pair(X, 3), Pair(X.clone(), 3), Pair(X, 4)),
    "dataclass": (Guarded(X, 1.0), Guarded(X.clone(), 1.0), Guarded(X, 2.0)),
    "dataclass, its text": (Guarded(X, name="x"), Guarded(X, name="x"), Guarded(X, name="z")),
    "dataclass, what it does not compare": (Guarded(X), Guarded(X, cache="warm"), Guarded(-X)),
    "enumeration": (Color.RED, Color.RED, Color.BLUE),
    "object with equality": (Equal(X), Equal(X.clone()), Equal(X + 1)),
    "object within": ([Equal(1)], [Equal(1)], [Equal(2)]),
    "object with slots": (Slotted("a"), Slotted("a"), Slotted("b")),
    "decimal": (decimal.Decimal("1.5"), decimal.Decimal("1.5"), decimal.Decimal("1.6")),
    "fraction": (fractions.Fraction(1, 3), fractions.Fraction(2, 6), fractions.Fraction(1, 4)),
    "date": (dt.date(2026, 1, 2), dt.date(2026, 1, 2), dt.date(2026, 1, 3)),
    "time": (dt.timedelta(1), dt.timedelta(hours=24), dt.timedelta(2)),
    "path": (
        pathlib.PurePosixPath("a/b"),
        pathlib.PurePosixPath("a//b"),
        pathlib.PurePosixPath("a/c"),
    ),
    "uuid": (uuid.UUID(int=5), uuid.UUID(int=5), uuid.UUID(int=6)),
    "range": (range(3), range(3), range(4)),
    "type of torch": (torch.float32, torch.float32, torch.float16),
    "size": (X.shape, X.clone().shape, X.T.shape),
    "array": (X.numpy(), X.numpy().copy(), X.numpy() + 1),
    "array of bools": (numpy.array([True]), numpy.array([True]), numpy.array([False])),
    "array of text": (numpy.array(["a", "b"]), numpy.array(["a", "b"]), numpy.array(["a", "c"])),
    "array of objects": (numpy.array(["a", None, 2.0], dtype=object),) * 2
    + (numpy.array(["a", None, 3.0], dtype=object),),
    "array of times": (numpy.array(["2026-01-01"], "M8[D]"),) * 2
    + (numpy.array(["2026-01-02"], "M8[D]"),),
    "array with fields": tuple(
        numpy.array([(1, v)], dtype=[("a", "i4"), ("b", "f4")]) for v in (1.0, 1.0, 2.0)
    ),
    "array, masked": (
        masked([1.0, 2.0], [0, 1]),
        masked([1.0, 9.0], [0, 1]),
        masked([1.0, 2.0], [1, 0]),
    ),
    "array, read backwards": (X.numpy()[::-1], X.numpy()[::-1].copy(), X.numpy()),
    "array of wide floats": tuple(numpy.array([v], dtype="longdouble") for v in (1.0, 1.0, 2.0)),
    "array of the other order": (
        numpy.array([1.0], ">f4"),
        numpy.array([1.0], "<f4"),
        numpy.array([2.0], ">f4"),
    ),
    "scalar of numpy": (numpy.float32(1.5), numpy.array(1.5, "f4"), numpy.float32(2.5)),
    "sparse": (X.to_sparse(), X.clone().to_sparse(), (X * (X > 1)).to_sparse()),
    "sparse, explicit zeros": (
        (0 * X).to_sparse(),
        sparse([[0], [0]], [0.0], (3, 4)),
        X.to_sparse(),
    ),
    "sparse, twice": (
        sparse([[0, 0]], [1.0, 2.0], (3,)),
        sparse([[0]], [3.0], (3,)),
        sparse([[1]], [3.0], (3,)),
    ),
    "sparse by rows": (X.to_sparse_csr(), X.to_sparse_csr(), (2 * X).to_sparse_csr()),
    "sparse by columns": (X.to_sparse_csc(), X.to_sparse_csc(), (2 * X).to_sparse_csc()),
    "sparse by blocks": tuple((s * X).to_sparse_bsr((1, 2)) for s in (1, 1, 2)),
    "sparse and huge": tuple(sparse([[5], [7]], [v], SPARSE_HUGE) for v in (1.0, 1.0, 2.0)),
    "sparse and huge, elsewhere": tuple(sparse([[5], [p]], [1.0], SPARSE_HUGE) for p in (7, 7, 8)),
    "jagged": (nested([X[0], X[1, :3]]), nested([X[0], X[1, :3]]), nested([X[0, :3], X[1]])),
    "nested": NESTED,
    "quantised": QUANTISED,
    "eight bits": tuple((s * X).to(torch.float8_e4m3fn) for s in (1, 1, 2)),
    "whole, of sixteen bits": tuple((s * X).to(torch.uint16) for s in (1, 1, 2)),
    "needs a gradient": ((X.clone().requires_grad_() * 2), X * 2, X * 3),
    "conjugate": ((X + 1j).conj(), X - 1j, X + 1j),
    "packed rows": tuple(
        torch.nn.utils.rnn.pack_padded_sequence(s * X[None], [3], batch_first=True)
        for s in (1, 1, 2)
    ),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_values_are_compared_by_kind(kind) -> None:
    value, same, other = (
        {name: one.detach() for name, one in named_outputs(given).items()} for given in PAIRS[kind]
    )
    alike, apart = (
        agree(seen, truth=None, runs=[value], epsilon=FP32_EPSILON) for seen in (same, other)
    )
    assert alike.outcome is Outcome.PASS, alike.detail
    assert apart.outcome is Outcome.FAIL, apart.detail
    assert all(len(name) < 200 for name in value)


def looped():
    value = []
    value.append(value)
    return value


class Plain:
    pass


class Locked:
    def __init__(self):
        self.inner = iter(())

    def __eq__(self, other):
        return True

    __hash__ = None

    def __reduce_ex__(self, protocol):
        raise TypeError("no")


async def later():
    return 1


REFUSED = {
    "plain object": (Plain, "a Plain, which defines no equality"),
    "object in a list": (lambda: [1.0, Plain()], "a Plain, which defines no equality"),
    "distribution": (
        lambda: torch.distributions.Normal(X, 1.0),
        "a Normal, which defines no equality",
    ),
    "model": (lambda: torch.nn.Linear(2, 2), "a Linear, which defines no equality"),
    "function": (lambda: looped, "a function, which defines no equality"),
    "object": (object, "a object, which defines no equality"),
    "lambda": (lambda: lambda: 1, "a function, which defines no equality"),
    "open file": (io.StringIO, "a StringIO, which computes only when it is read"),
    "module": (lambda: numpy, "a module, which defines no equality"),
    "class": (lambda: Plain, "a type, which defines no equality"),
    "generator": (
        lambda: (n for n in range(3)),
        "a generator, which computes only when it is read",
    ),
    "iterator": (lambda: map(str, range(3)), "a map, which computes only when it is read"),
    "what holds itself": (looped, "a list that contains itself"),
    "what cannot be taken apart": (Locked, "a Locked, which cannot be taken apart (TypeError)"),
    "set of tensors": (lambda: {X}, "a set of tensors, which has no order"),
    "no values": (lambda: torch.empty(2, device="meta"), "a tensor on the meta device"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_others_are_refused_by_kind(kind) -> None:
    make, words = REFUSED[kind]
    with pytest.raises(BadBenchmark) as caught:
        named_outputs(make())
    assert words in str(caught.value)
    assert "return" in str(caught.value).removeprefix("returns")


def test_a_coroutine_is_refused() -> None:
    waiting = later()
    with pytest.raises(BadBenchmark, match="a coroutine, which computes only when it is read"):
        named_outputs(waiting)
    waiting.close()


def test_nothing_has_no_outputs() -> None:
    assert named_outputs(None) == {}
    assert list(named_outputs((X, None))) == ["output: 0"]


def test_many_values_have_few_names() -> None:
    found = named_outputs(
        {f"k{n}": {"a": n, "b": str(n), "c": n / 7} for n in range(3000)} | {"t": X}
    )
    assert len(found) == 4, list(found)
    assert results.MOST_NAMED < 3000


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (X, 0),
        ([X.clone().requires_grad_(), X, "text"], 1),
        (Guarded(X.clone().requires_grad_()), 1),
        ({"a": (X.clone().requires_grad_(),)}, 1),
    ],
)
def test_gradients_are_of_what_needs_one(value, count) -> None:
    assert len(results.differentiable(value)) == count
