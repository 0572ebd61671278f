"""docs/formats.md lists what there is, and its example is read."""

import json
import re
from pathlib import Path

from ci_bench.commands.convert import _exporters
from ci_bench.formats import catalogue

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text()
READING, WRITING = PAGE.split("## Writing")


def listed(text):
    """The names in the first column of a table."""
    cells = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)} - {"--to"}


def test_every_format_that_can_be_read_has_a_row() -> None:
    assert listed(READING) == {*catalogue.READABLE}


def test_every_format_that_can_be_written_has_a_row_or_is_named_as_a_suites_own() -> None:
    table, rest = WRITING.split("Formats of single suites", 1)
    assert listed(table) == {*catalogue.WRITERS}
    assert [name for name in _exporters() if f"`{name}`" not in rest] == []


def test_the_versions_seen_are_those_of_the_data() -> None:
    files = {path.stem for path in (Path(__file__).parent / "data").iterdir()}
    for tool, name in (
        ("pytest-benchmark", "pytest_benchmark"),
        ("hyperfine", "hyperfine"),
        ("pyperf", "pyperf"),
        ("asv", "asv"),
        ("pytest-codspeed", "pytest_codspeed"),
    ):
        (row,) = [line for line in READING.splitlines() if line.startswith(f"| `{tool}`")]
        assert f"{name}-{row.split('|')[-2].strip()}" in files


def test_the_example_is_read() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    reading = catalogue.read(example)
    assert [series.label for series in reading.series] == ["matmul", "matmul memory", "decode"]
    assert json.loads(example)["failed"][0]["name"] == reading.failed[0].benchmark
