"""What fuzzing found, each with the input that showed it: it is refused by name now."""

import json
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
from ci_bench.formats import catalogue
from ci_bench.formats.series import Unreadable
from ci_bench.github import client, http, server
from ci_bench.github.http import Answer, Trouble, wait_s
from ci_bench.github.server import Server, origin
from ci_bench.records.documents import Kind, schema
from ci_bench.records.faults import form_faults
from ci_bench.records.soundness import compiled_parts

HERE = Server(repository="o/r", token="x")  # noqa: S106 - nobody is asked
DEEP = "[" * 100_000
NO_ADDRESSES = ["http://[", "https://[::1", "//[", "http://\u2100.com"]
FAR = ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Mon, 99999999999999 Jan 2030 00:00:00 GMT"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DEEP, "nested too deep"),
        ('{"metrics": {"a": %s}}' % ("1" * 400), "not a finite number"),  # an integer that is no float
        ('{"metrics": {"a": %s}}' % ("[" * 900 + "]" * 900), "a list is not a finite number"),
    ],
)
def test_a_userbenchmark_that_is_deep_or_holds_a_huge_number_is_refused(text, reason):
    with pytest.raises(Unreadable, match=reason):
        catalogue.read(text, "userbenchmark")


def test_a_note_that_is_nested_deep_says_nothing(tmp_path):
    (tmp_path / OUTCOME).write_text(DEEP)
    assert absence(tmp_path) is None


@pytest.mark.parametrize("date", FAR)
def test_a_moment_that_no_clock_knows_is_no_reason_to_fall_over(date):
    assert wait_s(Trouble.SECONDARY_LIMIT, {"retry-after": date, "date": date}, tried=1, now=0.0, chance=0.0) == http.SECONDARY_S


@pytest.mark.parametrize("said", ["\x1e20", "20\x1c", "\x8520"])
def test_a_number_among_what_only_looks_like_spaces_is_none(said):
    """A pattern's white space is more than what `float` passes over."""
    assert wait_s(Trouble.SECONDARY_LIMIT, {"retry-after": said}, tried=1, now=0.0, chance=0.0) == http.SECONDARY_S
    assert wait_s(Trouble.SECONDARY_LIMIT, {"retry-after": " 20\t"}, tried=1, now=0.0, chance=0.0) == 20


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


@pytest.mark.parametrize(("planted", "content"), [("date", FAR[0]), ("address", "http://["), ("next", '<http://[>; rel="next"')])
def test_the_target_of_headers_sees_each_of_these(monkeypatch, planted, content):
    every = [f"{content}{' ' * number}".encode() for number in range(40)]  # of every status
    assert all(map(github_headers, every))
    if planted == "date":
        monkeypatch.setattr(http, "_date", lambda text: http.parsedate_to_datetime(text).timestamp() if text else None)
    for module in (http, client, server):
        monkeypatch.setattr(module, "parts_of", server.urlsplit)
    with pytest.raises((OverflowError, ValueError)):
        list(map(github_headers, every))


def test_a_redirect_to_what_is_no_address_is_an_answer_that_makes_no_sense():
    request = http.Request(method="GET", url="https://api.github.com/x")
    asker = http.Asker(HERE, patience_s=1.0, clock=client.Clock())
    answer = Answer(status=302, headers={"location": "http://["}, content=b"")
    with pytest.raises(GitHubOdd, match="an invalid URL"):
        asker._moved(request, answer)


@pytest.mark.parametrize(
    "content", [b"[:1]:443/repos/o/r" * 1000, b"https://api.github.com/" + b"x" * 60_000, b"//" + b"y" * 60_000]
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
    assert form_faults(raw, schema(Kind.RESULTS), lambda _, __: True) != form_faults(raw, schema(Kind.RESULTS))
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
