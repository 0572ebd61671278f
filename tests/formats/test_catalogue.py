"""What holds for every format: hostile texts end in a clear error, and the right format is found."""

import gzip
import json
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from ci_bench.formats import catalogue, measurements, tool_files
from ci_bench.formats.exporting import from_reading
from ci_bench.formats.series import Series, Unreadable

DATA = Path(__file__).parent / "data"
OWN = {"kind": "measurements", "schema_version": 1}


def own(*series, **more):
    defaults = {"name": "a", "unit": "s", "better": "lower", "value": 1.0}
    return json.dumps({**OWN, "series": [{**defaults, **one} for one in series], **more})


FORMS = {
    "asv-0.6.6.json": "asv",
    "google_benchmark-1.7.1.json": "google-benchmark",
    "google_benchmark-1.9.5.json": "google-benchmark",
    "hyperfine-1.15.0.json": "hyperfine",
    "hyperfine-1.15.0-failing.json": "hyperfine",
    "pyperf-2.10.0.json": "pyperf",
    "pyperf-2.10.0-memory.json": "pyperf",
    "pytest_benchmark-5.3.1.json": "pytest-benchmark",
    "pytest_codspeed-4.5.0.json": "pytest-codspeed",
    "nvbench-form-1.0.0.json": "nvbench",
    "optimum_benchmark-form.json": "optimum-benchmark",
    "dynamo-form-performance.csv": "dynamo-csv",
    "dynamo-form-accuracy.csv": "dynamo-csv",
    "dynamo-form-expected.csv": "dynamo-csv",
    "github_action_benchmark-form-data.js": "github-action-benchmark",
    "bencher-form.json": "bmf",
    "oss_benchmark-form.json": "oss-benchmark",
    "oss_benchmark-form-lines.json": "oss-benchmark",
    "oss_benchmark-form-runner-lines.json": "oss-benchmark",
    "jmh-form.json": "jmh",
    "criterion-form.json": "criterion",
    "vitest-form.json": "vitest",
    "userbenchmark-form.json": "userbenchmark",
    "go_bench-form.txt": "go-bench",
}


@pytest.mark.parametrize(("file", "form"), FORMS.items())
def test_the_format_of_a_file_is_found(file, form) -> None:
    text = catalogue.decode((DATA / file).read_bytes())
    assert catalogue.read(text) == catalogue.read(text, form)


def test_no_file_of_the_data_is_forgotten_above() -> None:
    files = {path.name for path in DATA.iterdir()} - {
        "README.md",
        "github_action_benchmark-form-custom.json",
    }
    assert files == {*FORMS}


@pytest.mark.parametrize("file", FORMS)
@pytest.mark.parametrize("form", catalogue.READABLE)
def test_a_file_read_as_something_else_is_refused_and_never_breaks_the_reader(file, form) -> None:
    """Whatever is read as whatever: an answer, or a complaint; no other exception."""
    text = catalogue.decode((DATA / file).read_bytes())
    if FORMS[file] == form:
        return
    with suppress(Unreadable):
        found = catalogue.read(text, form)
        assert found.series
        assert all(isinstance(one, Series) for one in found.series)


def mutations(text):
    """A value of another kind in place of each value, one at a time."""
    raw = json.loads(text)

    def walk(value, path):
        yield path
        children = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value[:3])
            if isinstance(value, list)
            else ()
        )
        for key, child in children:
            yield from walk(child, (*path, key))

    for path in walk(raw, ()):
        for odd in (None, True, -1, "", [], {}, [None], {"": None}, [[]], 10**400):
            changed = json.loads(text)
            if not path:
                yield json.dumps(odd)
                continue
            holder = changed
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = odd
            yield json.dumps(changed)


@pytest.mark.parametrize(
    "file",
    [
        file
        for file in FORMS
        if file.endswith(".json") and "lines" not in file and "criterion" not in file
    ],
)
def test_no_value_of_another_kind_breaks_a_reader(file) -> None:
    text = catalogue.decode((DATA / file).read_bytes())
    refused = 0
    for count, changed in enumerate(mutations(text)):
        if count % 7 and count > 200:
            continue
        try:
            catalogue.read(changed, FORMS[file])
        except Unreadable:
            refused += 1
    assert refused > 30


HOSTILE = [
    ("", "it is empty"),
    ("  \n", "it is empty"),
    ("[" * 100_000, "nested too deep"),
    ('{"a":' * 100_000, "nested too deep"),
    (own({"value": 1.0}).replace("1.0", "1e999"), "$.series[0].value: inf is not a finite number"),
    (own({"value": 1.0}).replace("1.0", "NaN"), "$.series[0].value: nan is not a finite number"),
    (own({"value": 1.0}).replace("1.0", "-Infinity"), "-inf is not a finite number"),
    (own({"value": 1.0}).replace("1.0", "9" * 400), "is not a finite number"),
    (own({"value": 1.0}).replace("1.0", "9" * 10_000), "an integer has too many digits"),
    (own({"value": 1.0}).replace("1.0", "true"), "true is not a finite number"),
    (own({}, {"value": 2.0}), "two series have the same name, 'a'"),
    (own({"name": "a\n b"}, {"name": "a b"}), "two series have the same name, 'a b'"),
    (
        own({}).replace('"name": "a"', '"name": "a", "name": "b"'),
        "an object has the field 'name' twice",
    ),
    (own({"name": "x" * 5000}), "a text of 5,000 characters"),
    (own({"name": ""}), "'' is not a text"),
    (own({})[:-5], "not JSON"),
    (own({})[:-5], "the text is cut short"),
    (own(), "it contains no benchmark"),
    ("hello", "it is neither JSON nor a text that is read; it begins with 'hello'"),
    ("[1, 2]", "of no known form"),
    ("{}", "of no known form"),
    ("null", "of no known form"),
    ('"text"', "of no known form"),
    (own(*({"name": str(number)} for number in range(10_001))), "10,001 series; at most 10,000"),
    (
        own({"values": [1.0] * 1_000_001}, {"name": "b", "values": [1.0] * 1_000_001}).replace(
            '"value": 1.0, ', ""
        ),
        "2,000,002 numbers",
    ),
]


@pytest.mark.parametrize(
    ("text", "complaint"), HOSTILE, ids=[complaint for _, complaint in HOSTILE]
)
def test_a_hostile_text_is_a_clear_error(text, complaint) -> None:
    with pytest.raises(Unreadable) as error:
        catalogue.read(catalogue.decode(text.encode()))
    assert complaint in str(error.value)
    assert len(str(error.value)) < 600, "a message repeats little of what a stranger wrote"


def test_a_hundred_megabytes_are_not_parsed() -> None:
    content = b'{"kind": "measurements", "series": [' + b"1," * 50_000_000
    tracemalloc.start()
    with pytest.raises(Unreadable, match="larger than 67,108,864 bytes"):
        catalogue.decode(content)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_a_small_file_that_unpacks_to_a_large_one_is_not_unpacked_whole() -> None:
    bomb = gzip.compress(b" " * 300_000_000, compresslevel=9)
    tracemalloc.start()
    with pytest.raises(Unreadable, match="larger than"):
        catalogue.decode(bomb)
    assert tracemalloc.get_traced_memory()[1] < 3 * tool_files.MAX_BYTES
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"\xff\xfe{", "not UTF-8 at byte 0"), (b"\x1f\x8bno", "cannot be unpacked")],
)
def test_bytes_that_are_no_text_are_refused(content, complaint) -> None:
    with pytest.raises(Unreadable, match=complaint):
        catalogue.decode(content)


def test_what_gzip_packed_and_what_begins_with_a_mark_is_read() -> None:
    text = own({})
    assert catalogue.read(catalogue.decode(gzip.compress(text.encode()))).series[0].label == "a"
    assert catalogue.read(catalogue.decode(b"\xef\xbb\xbf" + text.encode())).series[0].label == "a"


def test_an_unknown_format_is_named_with_the_nearest() -> None:
    with pytest.raises(Unreadable, match="unknown format 'pyper'; did you mean 'pyperf'"):
        catalogue.read("{}", "pyper")


def test_names_are_on_one_line_and_can_be_shown() -> None:
    (series,) = catalogue.read(
        own({"name": "two\nlines \u202e\ud800 end", "measure": "peak\tmemory"})
    ).series
    assert (series.benchmark, series.measure) == ("two lines ?? end", "peak memory")


def test_half_a_surrogate_is_no_fault_of_the_document() -> None:
    odd = json.loads(own({})) | {"tool": "\ud800"}
    assert catalogue.read(json.dumps(odd)).tool == "?"
    raw = json.loads((DATA / "asv-0.6.6.json").read_text())
    raw["params"]["machine"] = "box \ud800"
    assert catalogue.read(json.dumps(raw)).machine["machine"] == "box ?"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"a\ud83db", "a?b"),
        (r"\uDE00", "?"),
        (r"\ud83d\ud83d\ude00", "?\U0001f600"),
        (r"\ud83d\ude00\ude00", "\U0001f600?"),
        (r"\\\ud83d", "\\?"),
        (r"\ud83d\\ude00", "?\\ude00"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\\ud83d", r"\ud83d"),
        (r"\\\\ude00", r"\\ude00"),
    ],
)
def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_stays(text, value) -> None:
    whole = own({"name": "NAME"})
    assert catalogue.read(whole.replace("NAME", text)).series[0].benchmark == value
    assert (
        catalogue.read(
            json.dumps(json.loads(own({})) | {"tool": "NAME"}).replace("NAME", text)
        ).tool
        == value
    )


def test_a_series_of_several_runs_has_one_typical_value() -> None:
    series = Series(
        benchmark="a", runs=((1.0, 2.0, 9.0), (4.0,), (3.0, 3.0)), unit="s", better=None
    )
    assert (series.values, series.typical) == ((1.0, 2.0, 9.0, 4.0, 3.0, 3.0), 3.0)


def test_deep_texts_are_refused_whatever_the_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        with pytest.raises(Unreadable):
            catalogue.read("[" * 4_000 + "]" * 4_000)
    finally:
        sys.setrecursionlimit(limit)


def dynamo_row(name: str, accuracy: str) -> str:
    return f"dev,name,batch_size,accuracy\ncuda,good,4,pass\ncuda,{name},4,{accuracy}\n"


def test_a_reason_of_any_length_is_written_so_that_it_is_read_again() -> None:
    reading = catalogue.read(dynamo_row("bad", f"fail {'x' * 5000}"), "dynamo-csv")
    text = measurements.write(from_reading(reading)).text
    (failed,) = catalogue.read(text, "measurements").failed
    assert failed.reason == f"fail {'x' * 1994}…"


def test_a_name_that_no_document_may_have_is_refused_in_every_form() -> None:
    (absent,) = catalogue.read(dynamo_row("n", "fail"), "dynamo-csv").failed
    added = len(absent.benchmark) - 1  # the batch size is part of the name
    with pytest.raises(Unreadable, match=r"'n{40}'… is a name of 2,001 characters; at most 2,000"):
        catalogue.read(dynamo_row("n" * (2001 - added), "fail"), "dynamo-csv")
    assert catalogue.read(dynamo_row("n" * (2000 - added), "fail"), "dynamo-csv").failed
