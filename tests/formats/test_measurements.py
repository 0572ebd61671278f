"""ci-bench's own small JSON: the reader and the schema accept and refuse the same."""

import copy
import json
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator

from ci_bench.formats import catalogue
from ci_bench.formats.series import Absent, Unreadable
from ci_bench.records.results import Better

SCHEMA = json.loads(files("ci_bench").joinpath("schemas", "measurements.json").read_text())
VALID = {
    "kind": "measurements",
    "schema_version": 1,
    "tool": "kernels 1.2",
    "series": [
        {"name": "matmul", "unit": "ms", "better": "lower", "values": [1.5, 1.25]},
        {"name": "matmul", "measure": "memory", "unit": "MiB", "better": "lower", "value": 12},
        {
            "name": "decode",
            "unit": "tokens/s",
            "better": "higher",
            "derived": True,
            "runs": [[1.0, 2.0], [3.0]],
            "warmups": [[9.0], []],
        },
    ],
    "failed": [{"name": "broken", "reason": "no such device"}],
    "skipped": [{"name": "large", "reason": "needs 80 GB"}],
}


def changed(path, value):
    document = copy.deepcopy(VALID)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return document


def test_the_schema_is_sound() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"] == "https://ci-bench.dev/schemas/measurements-1.json"


def test_everything_is_read() -> None:
    reading = catalogue.read(json.dumps(VALID))
    matmul, memory, decode = reading.series
    assert (matmul.label, matmul.values, matmul.unit, matmul.better) == (
        "matmul",
        (1.5, 1.25),
        "ms",
        Better.LOWER,
    )
    assert (memory.label, memory.values) == ("matmul memory", (12.0,))
    assert (decode.runs, decode.warmups, decode.derived, decode.better) == (
        ((1.0, 2.0), (3.0,)),
        ((9.0,), ()),
        True,
        Better.HIGHER,
    )
    assert reading.failed == (Absent(benchmark="broken", reason="no such device"),)
    assert reading.skipped == (Absent(benchmark="large", reason="needs 80 GB"),)
    assert reading.tool == "kernels 1.2"


def test_a_minimal_document_is_valid_and_read() -> None:
    minimal = {
        "kind": "measurements",
        "schema_version": 1,
        "series": [{"name": "a", "unit": "s", "better": "lower", "value": 1}],
    }
    assert Draft202012Validator(SCHEMA).is_valid(minimal)
    assert catalogue.read(json.dumps(minimal)).series[0].values == (1.0,)


SERIES = ("series", 0)
INVALID = [
    (("kind",), "results", "'results' is not 'measurements'"),
    (("kind",), ..., "'kind' is missing"),
    (("schema_version",), 2, "2 is not 1"),
    (("schema_version",), True, "true is not 1"),
    (("schema_version",), ..., "'schema_version' is missing"),
    (("series",), {}, "a mapping is not a list"),
    (("series",), ..., "'series' is missing"),
    (("serie",), [], "$.serie: unknown field; did you mean 'series'?"),
    ((*SERIES, "nmae"), "x", "$.series[0].nmae: unknown field; did you mean 'name'?"),
    ((*SERIES, "name"), 5, "5 is not a text"),
    ((*SERIES, "name"), "  ", "'  ' is not a text"),
    ((*SERIES, "unit"), ..., "'unit' is missing"),
    ((*SERIES, "better"), ..., "'better' is missing"),
    ((*SERIES, "better"), "faster", "'faster' is neither 'lower' nor 'higher'"),
    ((*SERIES, "derived"), "yes", "'yes' is neither true nor false"),
    ((*SERIES, "value"), 1.0, "it needs one of value, values, runs, and has value and values"),
    ((*SERIES, "values"), ..., "it needs one of value, values, runs, and has none"),
    ((*SERIES, "values"), [], "a list of numbers is empty"),
    ((*SERIES, "values"), [1.0, "2"], "$.series[0].values[1]: '2' is not a finite number"),
    ((*SERIES, "values"), [1.0, None], "null is not a finite number"),
    ((*SERIES, "values"), 1.0, "1.0 is not a list"),
    (("series", 2, "runs"), [[1.0], []], "a list of numbers is empty"),
    (("series", 2, "runs"), [1.0], "1.0 is not a list"),
    (("failed", 0, "reason"), ..., "'reason' is missing"),
    (("failed", 0, "why"), "x", "unknown field"),
]


@pytest.mark.parametrize(
    ("path", "value", "complaint"), INVALID, ids=[complaint for *_, complaint in INVALID]
)
def test_reader_and_schema_refuse_the_same(path, value, complaint) -> None:
    document = changed(path, value)
    assert not Draft202012Validator(SCHEMA).is_valid(document) or value is True, (
        "True is 1 for a schema's const"
    )
    with pytest.raises(Unreadable) as error:
        catalogue.read(json.dumps(document), "measurements")
    assert complaint in str(error.value)


def test_warmups_have_to_fit_their_runs() -> None:
    """No schema can say this."""
    with pytest.raises(Unreadable, match="1 lists of warm-ups for 2 runs"):
        catalogue.read(json.dumps(changed(("series", 2, "warmups"), [[1.0]])))
