"""What a runner reads: outputs that can't be forged, a summary that fits, a log without commands in it."""

import re

import pytest

from ci_bench.errors import CannotWrite
from ci_bench.github import workflow
from ci_bench.github.clipping import clipped, clipped_line, shortened, utf8_bytes, utf16_units
from ci_bench.github.workflow import LogLevel, append_summary, command, defused, outputs_text

RUNNERS_LIMIT = 1_048_576


def runner_reads(text):
    """Outputs as the runner reads them: `name<<delimiter`, lines, the delimiter alone on a line (FileCommandManager.cs)."""
    lines = text.split("\n")
    found, index = {}, 0
    while index < len(lines) - 1:
        name, _, delimiter = lines[index].partition("<<")
        end = lines.index(delimiter, index + 1)
        found[name] = "\n".join(lines[index + 1 : end])
        index = end + 1
    return found


HOSTILE = {
    "lines": "a\nb\n",
    "another output": "x\nverdict=passed",
    "a heredoc": "x\nEOF\nverdict<<EOF\npassed\nEOF",
    "a delimiter that looks like ours": "x\nci_bench_00000000000000000000000000000000\nverdict<<x",
    "carriage returns": "x\r\nverdict=passed\rverdict=passed",
    "empty": "",
    "unicode": "µ€😀",
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_a_value_cannot_become_another_output(value):
    text = outputs_text({"report": value, "verdict": "failed"})
    expected = value.replace("\r\n", "\n").replace("\r", "\n")
    assert runner_reads(text) == {"report": expected, "verdict": "failed"}


def test_a_delimiter_that_the_value_holds_is_drawn_again(monkeypatch):
    draws = iter(["aa", "aa", "bb"])
    monkeypatch.setattr(workflow.secrets, "token_hex", lambda _: next(draws))
    text = outputs_text({"report": "x\nci_bench_aa\nverdict=passed"})
    assert text.startswith("report<<ci_bench_bb\n")


def test_delimiters_are_never_the_same():
    delimiters = re.findall("<<(.*)", outputs_text(dict.fromkeys(["a", "b", "c"], "x")))
    assert len({*delimiters}) == 3


def test_a_long_output_is_cut_below_the_jobs_limit():
    (value,) = runner_reads(outputs_text({"report": "😀" * 600_000})).values()
    assert utf16_units(value) == workflow.OUTPUT_LIMIT
    assert {*value} == {"😀"}


# Summary


def test_a_summary_is_appended_to_what_is_there(tmp_path):
    path = tmp_path / "summary.md"
    assert append_summary(path, "# one")
    assert append_summary(path, "# two\n")
    assert path.read_text() == "# one\n\n# two\n"


@pytest.mark.parametrize("line", ["x" * 99, "€" * 33], ids=["one byte", "three bytes"])
@pytest.mark.parametrize("before", [0, 400_000])
def test_a_summary_that_the_runner_would_drop_is_cut(tmp_path, line, before):
    path = tmp_path / "summary.md"
    path.write_bytes(b"y" * before)
    whole = (f"{line}\n" * 11_000)[: RUNNERS_LIMIT + 1]
    assert not append_summary(path, whole)
    assert before < path.stat().st_size <= 1_000_000
    assert path.read_text().rstrip().endswith("artifact._")


def test_a_full_summary_is_left_as_it_is(tmp_path):
    path = tmp_path / "summary.md"
    path.write_bytes(b"y" * 999_990)
    assert not append_summary(path, "# one more")
    assert path.stat().st_size == 999_990


def test_a_summary_that_cannot_be_written_is_an_error_with_its_path(tmp_path):
    with pytest.raises(CannotWrite, match="nowhere"):
        append_summary(tmp_path / "nowhere" / "summary.md", "# one")


# Commands

LIVE = re.compile(r"(?m)^\s*::[a-z-]+[^\n]*::|##\[")
"""What the runner takes for a command: the new form at the start of a line, the old one anywhere
(ActionCommand.cs).
"""
COMMANDS = {
    "an output": "::set-output name=verdict::passed",
    "after spaces": "  \t::error::x",
    "in the second line": "words\n::add-mask::0",
    "the old form": "case ##[set-output name=verdict]passed",
    "the old form at the start": "##[error]x",
    "after a carriage return": "words\r::stop-commands::x",
    "after both": "words\r\n::stop-commands::x",
    "behind a terminal sequence": "\x1b[2K::error::x",
    "behind a title of the terminal": "\x1b]0;title\x07::error::x",
    "within a terminal sequence": "#\x1b[0m#[error]x",
    "behind a bell": "\x07::error::x",
    "behind an escape of eight bits": "\x9b::error::x",
    "behind a form feed": "\x0c::error::x",
    "behind a wide space": "\u3000::error::x",
    "thrice": "###[[error]x ::error:: ##[##[",
}


@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS)
def test_what_is_printed_is_no_command(text):
    assert (
        LIVE.search(text.replace("\r", "\n")) or "\x1b" in text or "\x07" in text or "\x9b" in text
    )
    assert not LIVE.search(defused(text))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", defused(text))


def test_harmless_text_stays_as_it_is():
    text = "std::vector and #1 [x]\n\ttabs, µ, 100 %"
    assert defused(text) == text


def test_a_command_keeps_its_message_in_one_line():
    line = command(
        LogLevel.WARNING, "100 % slower\n::set-output name=verdict::passed", title="a: b, c\n"
    )
    assert (
        line
        == "::warning title=a%3A b%2C c%0A::100 %25 slower%0A\u200b::set-output name=verdict::passed"
    )


def test_a_long_message_is_cut_to_what_the_runner_keeps():
    assert len(command(LogLevel.ERROR, "x" * 10_000, title="t")) < 4096


# Clipping

FENCED = "intro\n\n```\n" + "log\n" * 100 + "```\n\nend\n"
FOLDED = "intro\n\n<details><summary>more</summary>\n\n" + "row\n" * 100 + "\n</details>\n"


@pytest.mark.parametrize("size", [utf16_units, utf8_bytes])
@pytest.mark.parametrize("text", ["x\n" * 500, "€\n" * 500, "😀\n" * 500, FENCED, FOLDED])
def test_clipping_keeps_to_every_limit(text, size):
    for limit in (0, 1, 60, 61, 100, 200, size(text) - 1):
        assert size(clipped(text, limit, size)) <= limit
    assert clipped(text, size(text), size) == text


def test_what_is_cut_open_is_closed():
    assert clipped(FENCED, 200, utf16_units).count("```") == 2
    assert clipped(FOLDED, 250, utf16_units).count("</details>") == 1
    assert "Cut here" in clipped(FOLDED, 250, utf16_units)


def test_a_fold_within_a_fence_is_no_fold():
    text = "````\n<details>\n```\n" + "x\n" * 100
    assert "</details>" not in clipped(text, 120, utf16_units)
    assert clipped(text, 120, utf16_units).count("````") == 2


def test_a_line_is_cut_between_characters():
    assert clipped_line("a  b\nc", 10) == "a b c"
    assert clipped_line("😀" * 9, 10) == "😀😀😀😀…"
    assert shortened("a😀", 2) == "a"
