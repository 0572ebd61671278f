"""Catalogue of every format by name, and the detection of a text's format."""

import codecs
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ci_bench.formats import (
    asv,
    bencher,
    criterion,
    dynamo_csv,
    flat_csv,
    github_action_benchmark,
    go_bench,
    google_benchmark,
    hyperfine,
    jmh,
    measurements,
    nvbench,
    optimum_benchmark,
    oss_benchmark,
    pyperf,
    pytest_benchmark,
    pytest_codspeed,
    userbenchmark,
    vitest,
)
from ci_bench.formats.exporting import Export, Written
from ci_bench.formats.parsing import MAX_NAME, Node, parse_json
from ci_bench.formats.recognising import renamed, with_stable_names
from ci_bench.formats.series import Absent, Reading, Unreadable
from ci_bench.formats.tool_files import MAX_BYTES
from ci_bench.formats.unread import PACKED, appearance, is_bracketed
from ci_bench.records.faults import show
from ci_bench.records.spelling import nearest

AUTO = "auto"
MAX_SERIES = 10_000
MAX_VALUES = 2_000_000
_GZIP = b"\x1f\x8b"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Byte order marks that PowerShell's ``>`` writes first."""
_ZEROS_SOUGHT = 40
"""Bytes at the beginning in which zeros are counted: every second one of UTF-16 is zero."""


@dataclass(frozen=True, slots=True)
class _Format:
    """Functions to parse, detect and read a format.

    `in_text` detects a text that is not JSON.
    """

    read: Callable[[Node], Reading]
    matches: Callable[[Node], bool]
    parse: Callable[[str], Node] = parse_json
    in_text: Callable[[str], bool] | None = None


def _never(_: Node) -> bool:
    """Match nothing: for formats that only their name selects."""
    return False


_FORMATS: Mapping[str, _Format] = {
    measurements.KIND: _Format(measurements.read, measurements.matches),
    "pytest-benchmark": _Format(pytest_benchmark.read, pytest_benchmark.matches),
    "pytest-codspeed": _Format(pytest_codspeed.read, pytest_codspeed.matches),
    "google-benchmark": _Format(google_benchmark.read, google_benchmark.matches),
    "pyperf": _Format(pyperf.read, pyperf.matches),
    "hyperfine": _Format(hyperfine.read, hyperfine.matches),
    "asv": _Format(asv.read, asv.matches),
    "nvbench": _Format(nvbench.read, nvbench.matches),
    "optimum-benchmark": _Format(optimum_benchmark.read, optimum_benchmark.matches),
    "oss-benchmark": _Format(oss_benchmark.read, oss_benchmark.matches, oss_benchmark.parse),
    "github-action-benchmark": _Format(
        github_action_benchmark.read_store,
        github_action_benchmark.matches_store,
        github_action_benchmark.parse_store,
        lambda text: text.lstrip().startswith(github_action_benchmark.PREFIX),
    ),
    "customSmallerIsBetter": _Format(github_action_benchmark.read_smaller, _never),
    "customBiggerIsBetter": _Format(github_action_benchmark.read_bigger, _never),
    "dynamo-csv": _Format(
        lambda node: dynamo_csv.read(str(node.value)),
        _never,
        lambda text: Node(text, "$"),
        dynamo_csv.matches,
    ),
    "jmh": _Format(jmh.read, jmh.matches),
    "criterion": _Format(criterion.read, criterion.matches, oss_benchmark.parse),
    "vitest": _Format(vitest.read, vitest.matches),
    "userbenchmark": _Format(userbenchmark.read, userbenchmark.matches),
    "go-bench": _Format(
        lambda node: go_bench.read(str(node.value)),
        _never,
        lambda text: Node(text, "$"),
        go_bench.matches,
    ),
    "bmf": _Format(bencher.read, bencher.matches),
}
"""Formats in the order in which they are tried: those with the surest detection come first."""

READABLE = tuple(_FORMATS)

WRITERS: Mapping[str, Callable[[Export], Written]] = {
    measurements.KIND: measurements.write,
    "csv": flat_csv.write,
    "pyperf": pyperf.write,
    "pytest-benchmark": pytest_benchmark.write,
    "google-benchmark": google_benchmark.write,
    "hyperfine": hyperfine.write,
    "bmf": bencher.write,
    "customSmallerIsBetter": github_action_benchmark.write_smaller,
    "customBiggerIsBetter": github_action_benchmark.write_bigger,
}


_WHAT_TO_DO = (
    f"what is read: {', '.join(READABLE)}; if it is one of these, name it with --from, otherwise"
    " write the numbers as `measurements` (docs/formats.md, Your own benchmark)"
)


def decode(content: bytes) -> str:
    """Return the text of a file, unpacked if gzip packed it.

    Raises:
        Unreadable: it is too large, empty, no UTF-8, or packed badly.
    """
    if content.startswith(_GZIP):
        content = _unpack(content)
    if len(content) > MAX_BYTES:
        raise Unreadable(
            f"larger than {MAX_BYTES:,} bytes, the most that is read; have the tool leave out raw"
            " samples"
        )
    if not content.strip():
        raise Unreadable("it is empty")
    if packed := next(
        (words for begin, words in PACKED.items() if content.startswith(begin)), None
    ):
        raise Unreadable(packed)
    return _text(content)


def _text(content: bytes) -> str:
    """Decode UTF-8, or the UTF-16 of PowerShell's ``>``, with or without a mark."""
    if content.startswith(_UTF16):
        try:
            return content.decode("utf-16")
        except UnicodeDecodeError as error:
            raise Unreadable(
                f"it begins as UTF-16 and is cut at byte {error.start}, and is not UTF-8 at byte 0;"
                " save it as UTF-8"
            ) from error
    zeros = content[:_ZEROS_SOUGHT].count(0)
    try:
        if 0 in content[:2] and zeros > _ZEROS_SOUGHT // 4:
            return content.decode("utf-16-le" if content[0] else "utf-16-be")
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not UTF-8 at byte {error.start}; save it as UTF-8") from error
    if zeros:
        raise Unreadable("it is binary; have the tool write JSON")
    return text


def _unpack(content: bytes) -> bytes:
    """Unpack at most one byte more than is read: a small file can hold a very large one.

    There may be several packed texts in a row.
    """
    unpacked = bytearray()
    while content and len(unpacked) <= MAX_BYTES:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            unpacked += member.decompress(content, MAX_BYTES + 1 - len(unpacked))
        except zlib.error as error:
            raise Unreadable(f"it cannot be unpacked: {error}") from error
        if not member.eof and len(unpacked) <= MAX_BYTES:
            raise Unreadable("it cannot be unpacked: it is cut short")
        content = member.unused_data.lstrip(b"\0")
    return bytes(unpacked)


def read(text: str, name: str = AUTO) -> Reading:
    """Read a text in a format, or in the one that it matches.

    Raises:
        Unreadable: it matches no known format, breaks the one that it should be in, has no
            benchmark, or names a series twice.
    """
    if name == AUTO:
        return _checked(_read_any(text))
    if name not in _FORMATS:
        raise Unreadable(f"unknown format {name!r}{nearest(name, READABLE)}")
    try:
        return replace(_checked(_FORMATS[name].read(_FORMATS[name].parse(text))), form=name)
    except Unreadable as error:
        raise Unreadable(f"{error}{_of_another_form(text, name)}") from error


def _of_another_form(text: str, name: str) -> str:
    """Return the end of a sentence about a file that was read in the wrong format.

    It is empty if the file matches no format.
    """
    try:
        form = _read_any(text).form
    except Unreadable:
        return ""
    return "" if form == name or name.startswith("custom") else f"; it looks like a file of {form}"


def _read_any(text: str) -> Reading:
    for name, candidate in _FORMATS.items():
        if candidate.in_text is not None and candidate.in_text(text):
            return replace(candidate.read(candidate.parse(text)), form=name)
    if not text.lstrip().startswith(("{", "[")):
        raise Unreadable(f"{appearance(text)}; {_WHAT_TO_DO}")
    try:
        root = oss_benchmark.parse(text)
    except Unreadable as error:
        if is_bracketed(text):
            raise Unreadable(f"{appearance(text)}; {_WHAT_TO_DO}") from error
        raise
    if form := _form_of(root):
        return replace(_FORMATS[form].read(root), form=form)
    if github_action_benchmark.matches_custom(root):
        return replace(
            github_action_benchmark.read_custom(root, better=None), form="github-action-benchmark"
        )
    first = next(root.items(), None) if isinstance(root.value, list) else None
    if not text.lstrip().startswith("[") and first is not None and (form := _form_of(first)):
        raise Unreadable(f"it holds several files of {form} in a row; put each in a separate file")
    raise Unreadable(f"{appearance(text)}; {_WHAT_TO_DO}")


def _form_of(root: Node) -> str | None:
    return next((name for name, candidate in _FORMATS.items() if candidate.matches(root)), None)


def _checked(reading: Reading) -> Reading:
    """Check the rules of every format: at least one series, not too many, and unique names."""
    if not reading.series and not reading.failed and not reading.skipped:
        raise Unreadable("; ".join(("it contains no benchmark", *reading.notes)))
    if len(reading.series) > MAX_SERIES:
        raise Unreadable(f"{len(reading.series):,} series; at most {MAX_SERIES:,} are read")
    if (count := sum(len(run) for series in reading.series for run in series.runs)) > MAX_VALUES:
        raise Unreadable(f"{count:,} numbers; at most {MAX_VALUES:,} are read")
    clean = with_stable_names(_on_one_line(reading))
    absent = (*clean.failed, *clean.skipped)
    if not all(entry.benchmark for entry in clean.series) or not all(
        entry.benchmark for entry in absent
    ):
        raise Unreadable("a benchmark has no name; give each benchmark its own name")
    _check_lengths(clean)
    times = Counter((series.benchmark, series.measure) for series in clean.series)
    if twice := next((key for key, count in times.items() if count > 1), None):
        raise Unreadable(
            f"two series have the same name, {show(' '.join(twice).strip())}; give each benchmark"
            " its own name"
        )
    return clean


def _check_lengths(reading: Reading) -> None:
    """Check what JSON limits where it is read, and other texts do not."""
    texts = [
        reading.tool,
        *(
            text
            for entry in reading.series
            for text in (entry.benchmark, entry.measure, entry.unit)
        ),
        *(entry.benchmark for entry in (*reading.failed, *reading.skipped)),
    ]
    if len(longest := max(texts, key=len)) > MAX_NAME:
        raise Unreadable(
            f"{show(longest[:40])}… is a name of {len(longest):,} characters; at most"
            f" {MAX_NAME:,} are allowed"
        )


def _on_one_line(reading: Reading) -> Reading:
    """Put names, units, reasons and facts on one line each; cut reasons that are too long."""
    benchmarks = [entry.benchmark for entry in reading.series] + [
        entry.benchmark for entry in (*reading.failed, *reading.skipped)
    ]
    names = {name: _one_line(name) for name in dict.fromkeys(benchmarks)}
    clean = renamed(reading, {name: line for name, line in names.items() if line != name})
    return replace(
        clean,
        tool=_one_line(clean.tool),
        machine={
            name: _one_line(fact) if isinstance(fact, str) else fact
            for name, fact in clean.machine.items()
        },
        series=tuple(
            replace(entry, measure=_one_line(entry.measure), unit=_one_line(entry.unit))
            for entry in clean.series
        ),
        failed=tuple(map(_with_short_reason, clean.failed)),
        skipped=tuple(map(_with_short_reason, clean.skipped)),
    )


def _with_short_reason(entry: Absent) -> Absent:
    line = _one_line(entry.reason)
    return replace(entry, reason=line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…")


def _one_line(text: str) -> str:
    """Put a name on one line, with nothing in it that cannot be shown."""
    words = " ".join(text.split())
    return "".join(character if character.isprintable() else "?" for character in words)
