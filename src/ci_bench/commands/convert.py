"""The command that converts a results document, or another tool's file, to another format."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ci_bench.command_line.settings import Converting
from ci_bench.commands.inputs import results_path
from ci_bench.commands.output import say, tell
from ci_bench.commands.sides import is_results, read_side
from ci_bench.errors import BadInput, ExitCode
from ci_bench.formats import oss_benchmark
from ci_bench.formats.catalogue import WRITERS, decode, read
from ci_bench.formats.exporting import (
    Export,
    Exporter,
    Files,
    Written,
    from_reading,
    from_results,
    one_file,
)
from ci_bench.formats.series import Unreadable
from ci_bench.formats.tool_files import read_content
from ci_bench.records import documents
from ci_bench.records.documents import write_text
from ci_bench.records.spelling import nearest
from ci_bench.suites.registry import find_exporters

SHOWN = 10
RESULTS = "results"


def convert(settings: Converting) -> int:
    """Read a document in one format, write it in another, and report what that cannot hold.

    `output` is a file, or a folder if a format has several files; `None` for stdout.

    Raises:
        BadInput: the document cannot be read, or the format is unknown or holds nothing of it.
    """
    if settings.to == RESULTS:
        return _to_results(settings)
    path = results_path(settings.document) if settings.document.is_dir() else settings.document
    content = read_content(path)
    if settings.source in {"auto", RESULTS} and is_results(content):
        files = _from_results(path, settings.to)
    else:
        files = _from_reading(path, content, settings.source, settings.to)
    _write(files, settings.output, settings.to)
    return int(ExitCode.OK)


def _to_results(settings: Converting) -> int:
    """Write another tool's file as a results document, which `compare` and `show` read.

    A folder of such files has one file for each launch.
    """
    side = read_side("document", (settings.document,), settings.source)
    for line in side.notes:
        tell(line)
    _write(one_file(Written(text=documents.text_of(side.results))), settings.output, settings.to)
    return int(ExitCode.OK)


def _from_results(path: Path, to: str) -> Files:
    exporters = _exporters()
    if to not in {*WRITERS, *exporters}:
        raise _unknown(to, (*WRITERS, *exporters))
    results = documents.read_results(path)
    if to in exporters:
        return exporters[to](results)
    return {"": _render_export(WRITERS[to], from_results(results), path, to)}


def _from_reading(path: Path, content: bytes, source: str, to: str) -> Files:
    if to in _exporters():
        raise BadInput(f"--to {to}: this format needs a results document, which {path} is not")
    if to not in WRITERS:
        raise _unknown(to, (*WRITERS, RESULTS))
    try:
        export = from_reading(read(decode(content), source))
        return {"": _render_export(WRITERS[to], export, path, to)}
    except Unreadable as error:
        raise BadInput(f"{path}: {error}") from error


def _render_export(
    write: Callable[[Export], Written], export: Export, path: Path, to: str
) -> Written:
    written = write(export)
    if len(written.left_out) >= len(export.series) and not export.failed:
        raise BadInput(
            f"{path}: {to} can hold none of its {len(export.series)} series (docs/formats.md lists"
            " what it holds)"
        )
    return written


def _unknown(to: str, formats: Sequence[str] | Mapping[str, object]) -> BadInput:
    return BadInput(f"--to {to}: no such format{nearest(to, sorted(formats))}")


def _exporters() -> Mapping[str, Exporter]:
    """Return the formats that need a results document: each suite's own, and one for all suites."""
    return {**find_exporters(), "oss-benchmark": oss_benchmark.write}


def _write(files: Files, output: Path | None, to: str) -> None:
    """Write to stdout, or to a file if one is named; several files go into a folder."""
    if not any(written.text.strip() for written in files.values()):
        raise BadInput(f"--to {to}: this document has no results of that suite")
    if output is None and len(files) > 1:
        raise BadInput(f"--to {to} writes {len(files)} files; name a folder for them with --output")
    for name, written in files.items():
        if output is None:
            say(written.text)
        else:
            target = output / name if name else output
            write_text(written.text, target)
            tell(f"wrote {target}")
    if left_out := list(
        dict.fromkeys(label for written in files.values() for label in written.left_out)
    ):
        more = f" and {len(left_out) - SHOWN} more" if len(left_out) > SHOWN else ""
        tell(f"left out, since {to} cannot hold it: {', '.join(left_out[:SHOWN])}{more}")
