"""What fuzzing found, each with the input that showed it: it is refused by name now."""

import json
from dataclasses import replace
from random import Random

import pytest
from benchmarks.fuzz_mutator import Herd
from benchmarks.fuzz_readers import Harmful
from benchmarks.fuzz_surroundings import github_headers
from benchmarks.fuzz_targets import TARGETS
from hypothesis import given, settings
from hypothesis import strategies as st

from ci_bench.commands.baseline_files import OUTCOME, absence
from ci_bench.errors import GitHubOdd
from ci_bench.formats import catalogue, measurements
from ci_bench.formats.catalogue import WRITERS
from ci_bench.formats.exporting import from_reading
from ci_bench.formats.github_action_benchmark import read_action_history
from ci_bench.formats.importing import import_results
from ci_bench.formats.series import Reading, Series, Unreadable
from ci_bench.github import client, http, server
from ci_bench.github.http import HttpAnswer, Trouble, wait_s
from ci_bench.github.server import GithubServer, origin
from ci_bench.judge.times.calibration import fingerprint
from ci_bench.records.documents import Kind, schema, to_json, validate
from ci_bench.records.faults import form_faults
from ci_bench.records.results import Better, Run, RunState
from ci_bench.records.soundness import compiled_parts

HERE = GithubServer(repository="o/r", token="x")  # noqa: S106 - nobody is asked
DEEP = "[" * 100_000
NO_ADDRESSES = ["http://[", "https://[::1", "//[", "http://\u2100.com"]
FAR = ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Mon, 99999999999999 Jan 2030 00:00:00 GMT"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DEEP, "nested too deep"),
        (
            '{"metrics": {"a": %s}}' % ("1" * 400),
            "not a finite number",
        ),  # an integer that is no float
        ('{"metrics": {"a": %s}}' % ("[" * 900 + "]" * 900), "a list is not a finite number"),
    ],
)
def test_a_userbenchmark_that_is_deep_or_holds_a_huge_number_is_refused(text, reason):
    with pytest.raises(Unreadable, match=reason):
        catalogue.read(text, "userbenchmark")


def own(**series):
    rows = [{"name": "a", "unit": "s", "better": "lower", **series}]
    return json.dumps({"kind": "measurements", "schema_version": 1, "series": rows})


@pytest.mark.parametrize("to", WRITERS)
@pytest.mark.parametrize(
    "values", [[0.0], [0, 0.0], [1e-320], [-1.0, 1.0], [1e300, 1e300], [5e-324, 1e308]]
)
def test_zeros_and_extremes_are_written(values, to):
    text = WRITERS[to](from_reading(catalogue.read(own(values=values)))).text
    assert "Infinity" not in text
    assert "NaN" not in text


def test_a_run_of_pyperf_without_values_is_none():
    runs = [{"values": []}, {"values": [2.0]}, {"warmups": [[1, 3.0]]}]
    found = catalogue.read(
        json.dumps({"version": "1.0", "metadata": {"name": "a"}, "benchmarks": [{"runs": runs}]})
    )
    assert found.series[0].runs == ((2.0,),)


def test_runs_without_numbers_are_not_written():
    series = Series(
        benchmark="a", unit="s", better=Better.LOWER, runs=((), (1.0,)), warmups=((5.0,), (6.0,))
    )
    empty = replace(series, benchmark="b", runs=((),), warmups=())
    written = measurements.write(from_reading(Reading(series=(series, empty))))
    (only,) = catalogue.read(written.text).series
    assert (only.runs, only.warmups, written.left_out) == (((1.0,),), ((6.0,),), ("b",))


@pytest.mark.parametrize("name", ["", " ", "\n"])
def test_a_benchmark_without_a_name_is_refused(name):
    rows = {name: {"latency": {"value": 1.0}}, "a": {"latency": {"value": 1.0}}}
    with pytest.raises(Unreadable, match="a benchmark has no name"):
        catalogue.read(json.dumps(rows))
    with pytest.raises(Unreadable, match="a benchmark has no name"):
        catalogue.read("dev,name,batch_size,accuracy\n,,0,pass\n,a,1,pass\n")


def test_a_unit_that_is_no_utf_8_is_written():
    export = from_reading(catalogue.read(own(unit="\ud800 s\n", value=1.0)))
    assert all(write(export).text.encode() for write in WRITERS.values())


@pytest.mark.parametrize("name", ["\u00e9", "\ud800"])
def test_a_name_without_letters_is_a_case_that_documents_hold(name):
    found = sound(catalogue.read(json.dumps({name: {"latency": {"value": 1.0}}})))
    assert [row.case.name for row in found.cases] == ["_"]


def test_a_version_that_is_no_utf_8_is_a_version():
    row = [[1.0], [], "\ud800"]
    raw = {
        "version": 2,
        "result_columns": ["result", "params", "version"],
        "results": {"suite.time_a": row},
    }
    assert sound(catalogue.read(json.dumps(raw))).cases[0].case.body


def sound(reading):
    """The results that are made of a reading, which their own reader takes."""
    at = "2026-01-01T00:00:00+00:00"
    run = Run(
        id="x",
        started_at=at,
        finished_at=at,
        state=RunState.COMPLETE,
        config_digest="x",
        device="cpu",
    )
    results = import_results({"x": reading}, run=run, tool_version="1").results
    assert validate(to_json(results), Kind.RESULTS) == ()
    return results


def test_a_stores_value_beyond_any_measurement_is_left_out():
    commit = {"commit": {"id": "a" * 40}, "date": 1574927127603, "tool": "customBiggerIsBetter"}
    benches = [{"name": "a", "unit": "tokens/s", "value": value} for value in (1e308, 5.0)]
    store = f"window.BENCHMARK_DATA = {json.dumps({'lastUpdate': 1, 'entries': {'s': [{**commit, 'benches': benches}]}})}"
    history, left_out = read_action_history(store, tool_version="1", fingerprint=fingerprint)
    assert validate(to_json(history), Kind.HISTORY) == ()
    assert "s/a is 1e+308, which is too large for a measurement" in left_out[0]


def test_a_note_that_is_nested_deep_says_nothing(tmp_path):
    (tmp_path / OUTCOME).write_text(DEEP)
    assert absence(tmp_path) is None


@pytest.mark.parametrize("date", FAR)
def test_a_moment_that_no_clock_knows_is_no_reason_to_fall_over(date):
    assert (
        wait_s(
            Trouble.SECONDARY_LIMIT,
            {"retry-after": date, "date": date},
            tried=1,
            now=0.0,
            chance=0.0,
        )
        == http.SECONDARY_S
    )


@pytest.mark.parametrize("said", ["\x1e20", "20\x1c", "\x8520"])
def test_a_number_among_what_only_looks_like_spaces_is_none(said):
    """A pattern's white space is more than what `float` passes over."""
    assert (
        wait_s(Trouble.SECONDARY_LIMIT, {"retry-after": said}, tried=1, now=0.0, chance=0.0)
        == http.SECONDARY_S
    )
    assert (
        wait_s(Trouble.SECONDARY_LIMIT, {"retry-after": " 20\t"}, tried=1, now=0.0, chance=0.0)
        == 20
    )


@pytest.mark.parametrize("pid", ["1" + "0" * 900, "-3", "4194304", "1.5", "[]"])
def test_a_lock_whose_holder_is_no_process_says_nothing_of_it(pid):
    """A number of nine hundred digits was a message of its own."""
    held = TARGETS["lock of a device"].feed
    assert not held(f'{{"pid": {pid}, "since": "2026-01-01T00:00:00"}}'.encode())
    assert held(b'{"pid": 17, "since": "2026-01-01T00:00:00"}')


@pytest.mark.parametrize("url", NO_ADDRESSES)
def test_what_is_no_address_is_nobodys(url):
    assert origin(url)[1] == ""
    assert not HERE.owns(url)


@pytest.mark.parametrize(
    ("planted", "content"),
    [("date", FAR[0]), ("address", "http://["), ("next", '<http://[>; rel="next"')],
)
def test_the_target_of_headers_sees_each_of_these(monkeypatch, planted, content):
    every = [f"{content}{' ' * number}".encode() for number in range(40)]  # of every status
    assert all(map(github_headers, every))
    if planted == "date":
        monkeypatch.setattr(
            http,
            "_date",
            lambda text: http.parsedate_to_datetime(text).timestamp() if text else None,
        )
    for module in (http, client, server):
        monkeypatch.setattr(module, "parts_of", server.urlsplit)
    with pytest.raises((OverflowError, ValueError)):
        list(map(github_headers, every))


def test_a_redirect_to_what_is_no_address_is_an_answer_that_makes_no_sense():
    request = http.HttpRequest(method="GET", url="https://api.github.com/x")
    asker = http.Asker(HERE, patience_s=1.0, clock=client.HttpClock())
    answer = HttpAnswer(status=302, headers={"location": "http://["}, content=b"")
    with pytest.raises(GitHubOdd, match="an invalid URL"):
        asker._moved(request, answer)


@pytest.mark.parametrize(
    "content",
    [
        b"[:1]:443/repos/o/r" * 1000,
        b"https://api.github.com/" + b"x" * 60_000,
        b"//" + b"y" * 60_000,
    ],
)
def test_however_long_a_redirect_is_what_is_said_of_it_can_be_read(monkeypatch, content):
    every = [content + b"z" * number for number in range(20)]  # of every status
    assert all(map(github_headers, every))
    monkeypatch.setattr(http, "clipped_line", lambda text, _: text)
    with pytest.raises(Harmful, match="a refusal of"):
        list(map(github_headers, every))


def test_a_page_of_more_items_than_any_server_gives_is_an_answer_that_makes_no_sense(monkeypatch):
    """Twenty megabytes of empty objects took fourteen seconds."""
    target, many = TARGETS["GitHub's answer"], ("[" + "{}," * client.MOST_ITEMS + "{}]").encode()
    assert not target.feed(many)
    assert target.feed(b"[" + many[4:])  # one less
    monkeypatch.setattr(client, "MOST_ITEMS", 10**9)
    assert target.feed(many)


@pytest.mark.parametrize("kind", [Kind.RESULTS, Kind.COMPARISON, Kind.HISTORY, Kind.CALIBRATION])
@settings(max_examples=100, deadline=None)
@given(number=st.integers(0, 2**32))
def test_passing_over_what_is_sound_finds_the_same_faults(kind, number):
    """Faults are found faster since the sound parts of a document are not looked into: they have to be the same ones."""
    content = Herd(TARGETS[str(kind)].seeds()).draw(Random(number))
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError):
        return
    assert form_faults(raw, schema(kind), PARTS[kind]) == form_faults(raw, schema(kind))


PARTS = {kind: compiled_parts(schema(kind)) for kind in Kind}


def test_a_part_that_is_wrongly_called_sound_would_be_noticed():
    raw = json.loads(TARGETS["results"].seeds()[0])
    raw["cases"][0]["case"]["id"] = 3
    assert form_faults(raw, schema(Kind.RESULTS), PARTS[Kind.RESULTS])
    assert form_faults(raw, schema(Kind.RESULTS), lambda _, __: True) != form_faults(
        raw, schema(Kind.RESULTS)
    )
    assert not PARTS[Kind.RESULTS]("elsewhere.json#/x", raw)


@pytest.mark.parametrize(
    "log",
    [
        b'"iter 0: loss 10.98, time 31.2ms\nstep: 1 loss: 0.81, a\n',  # a quotation mark that takes all lines for one cell
        b"a,loss\n" + b"1," * 200_000 + b"\n2,3\n",
        b"step,loss\n1\x00,2\n",
    ],
)
def test_a_log_that_is_almost_a_table_is_read_or_refused(log):
    TARGETS["losses of a training"].feed(log)
