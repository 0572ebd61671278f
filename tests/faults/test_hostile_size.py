"""Twenty megabytes that were made to be slow or large: no reader takes more than 10 seconds or 1 GB on any of them."""

import json
import zlib
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from benchmarks.fuzz_targets import EXAMPLES, RENDERERS, TARGETS
from weighing import Limit, weigh

SIZE = 20_000_000
LIMIT = Limit(cpu_s=10.0, grown_bytes=1_000_000_000)
RESULTS = json.loads((EXAMPLES / "results.json").read_text())


def filled(unit, *, start=b"", end=b""):
    return start + unit * ((SIZE - len(start) - len(end)) // len(unit)) + end


def many_samples():
    """A sound document: nothing but samples."""
    metric = {**RESULTS["cases"][0]["metrics"][0]}
    launch = metric["launches"][0]
    values = [0.0123456] * 95_000
    metric["launches"] = [
        {**launch, "launch": number, "values": values, "blocks": [], "warmup": []}
        for number in range(20)
    ]
    case = {**RESULTS["cases"][0], "metrics": [metric], "checks": [], "parity": None, "blocks": []}
    return json.dumps({**RESULTS, "cases": [case]}).encode()


def many_cases():
    """Sound rows, whose ids come twice."""
    row = json.dumps(RESULTS["cases"][-1])
    whole = json.dumps({**RESULTS, "cases": "HERE"})
    return whole.replace(
        '"HERE"', "[" + ",".join([row] * ((SIZE - len(whole)) // (len(row) + 1))) + "]"
    ).encode()


def a_metric_many_times():
    case = RESULTS["cases"][0]
    metric = json.dumps({**case["metrics"][0], "launches": []})
    whole = json.dumps({**RESULTS, "cases": [{**case, "metrics": "HERE"}]})
    return whole.replace(
        '"HERE"', "[" + ",".join([metric] * (SIZE // (len(metric) + 1))) + "]"
    ).encode()


def bomb():
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for name in ("results.json", "base/results.json"):
            archive.writestr(name, b" " * 1_000_000_000)
    return packed.getvalue()


def packed(content):
    compressor = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return compressor.compress(content) + compressor.flush()


JSON = {
    "deep": lambda: filled(b"["),
    "deep objects": lambda: filled(b'{"a":'),
    "empty lists": lambda: filled(b"[],", start=b'{"kind":"results","cases":[', end=b"[]]}"),
    "empty objects": lambda: filled(
        b"{},", start=b'{"kind":"results","schema_version":1,"cases":[', end=b"{}]}"
    ),
    "short keys": lambda: (
        b'{"kind":"results","schema_version":1'
        + b"".join(b',"%x":1' % n for n in range(1_700_000))
        + b"}"
    ),
    "one key again and again": lambda: filled(b'"a":1,', start=b"{", end=b'"b":1}'),
    "a long number": lambda: filled(b"9", start=b'{"kind":', end=b"}"),
    "many numbers": lambda: filled(b"1,", start=b'{"kind":"results","cases":[', end=b"1]}"),
    "infinities": lambda: filled(
        b"1e999,", start=b'{"kind":"results","schema_version":1,"cases":[', end=b"1]}"
    ),
    "a long text": lambda: filled(b"x", start=b'{"kind":"', end=b'"}'),
    "escapes": lambda: filled(
        b"\\ud800", start=b'{"kind":"results","schema_version":1,"tool_version":"', end=b'"}'
    ),
    "a text that is no text": lambda: filled(b"\xff"),
    "many samples": many_samples,
    "many rows": many_cases,
    "a metric many times": a_metric_many_times,
}
YAML = {
    "aliases of aliases": lambda: (
        b"a0: &a0 [x]\n"
        + b"".join(
            b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 100)
        )
    ),
    "flow": lambda: filled(b"[", start=b"a: "),
    "long key": lambda: filled(b"x", end=b": 1"),
}
OTHER = {
    "lines": lambda: filled(b'{"benchmark":{"name":"a"}}\n'),
    "commas": lambda: filled(b",", start=b"dev,name,batch_size,speedup\n"),
    "packed": lambda: packed(b"[" * 300_000_000),
    "javascript": lambda: filled(b"[", start=b"window.BENCHMARK_DATA = "),
}
PLAN = (
    *(
        ("results", how)
        for how in ("deep", "empty lists", "short keys", "one key again and again", "escapes")
    ),
    *(
        ("results", how)
        for how in ("infinities", "many samples", "many rows", "a metric many times")
    ),
    *(
        (name, "deep objects")
        for name in (
            "comparison",
            "calibration",
            "kind of a document",
            "GitHub's event",
            "worker's answers",
        )
    ),
    *(("config", how) for how in ("aliases of aliases", "flow")),
    *(("artifact", how) for how in ("bomb", "entries")),
    ("history", "packed"),
    ("config of plugins", "aliases of aliases"),
    *(
        ("format auto", how)
        for how in ("short keys", "many numbers", "commas", "packed", "javascript")
    ),
)
NO_FILES = {*RENDERERS, "GitHub's headers"}
FURTHER = (
    {name for name in TARGETS if not name.startswith("format ")}
    - NO_FILES
    - {name for name, _ in PLAN}
)
"""Readers for which nothing is made to measure."""
MADE = {
    **JSON,
    **YAML,
    **OTHER,
    "bomb": bomb,
    "entries": lambda: filled(b"PK\x01\x02" + b"\0" * 42, start=b"PK\x03\x04"),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Each input is made once."""
    folder, made = tmp_path_factory.mktemp("inputs"), {}

    def find(how):
        if how not in made:
            made[how] = folder / str(len(made))
            made[how].write_bytes(MADE[how]())
        return made[how]

    return find


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how"), [*PLAN, *((name, "deep objects") for name in sorted(FURTHER))]
)
def test_no_input_of_20_mb_takes_a_reader_long_or_much(inputs, name, how):
    weight = weigh(name, inputs(how))
    assert weight.beyond(LIMIT) == []
    assert weight.accepted is (how == "many samples")


def test_each_input_is_for_a_reader_that_is_there():
    assert {name for name, _ in PLAN} | NO_FILES <= {*TARGETS}
    assert FURTHER.isdisjoint(name for name, _ in PLAN)
