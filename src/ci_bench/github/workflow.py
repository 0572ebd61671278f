"""Interface to a job's runner: outputs, the summary, commands in the log.

Texts in, texts and files out.

Everything that a job prints is searched for commands, so text from outside is defused before it is
printed. https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

import logging
import re
import secrets
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from ci_bench.errors import CannotWrite
from ci_bench.github.clipping import clipped, shortened, utf8_bytes

logger = logging.getLogger(__name__)

SUMMARY_LIMIT = 1_000_000
"""Bytes. Beyond 1,048,576 the runner drops the whole summary; it counts what earlier parts of the
step have written.
"""
OUTPUT_LIMIT = 100_000
"""UTF-16 units of one output. All outputs of a job may have 1 MB together."""
COMMAND_LIMIT = 4_000
"""Characters of one message in the log's annotations; the runner keeps 4,096."""
_OUTPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_ZERO_WIDTH_SPACE = "\u200b"
_TERMINAL = re.compile(
    r"\x1b(?:\[[0-?]*["
    r" -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|.)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


class LogLevel(StrEnum):
    """The commands that annotate a run."""

    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"


def outputs_text(outputs: Mapping[str, str]) -> str:
    """Format text to append to the file GITHUB_OUTPUT.

    Each value ends at a random word that it does not hold, so it can't end early.
    """
    parts = []
    for name, value in outputs.items():
        assert _OUTPUT.fullmatch(name), name  # noqa: S101 - names are our own
        text = _value(value)
        delimiter = _delimiter(text)
        parts.append(f"{name}<<{delimiter}\n{text}\n{delimiter}\n")
    return "".join(parts)


def _value(text: str) -> str:
    """Shorten a text, and remove carriage returns, which the runner takes for line ends."""
    return shortened(text.replace("\r\n", "\n").replace("\r", "\n"), OUTPUT_LIMIT)


def _delimiter(value: str) -> str:
    while True:
        delimiter = f"ci_bench_{secrets.token_hex(16)}"
        if delimiter not in value:
            return delimiter


def append(path: Path, text: str) -> None:
    """Append to one of the runner's files.

    Never replaces it: the runner holds the file itself. Raises `CannotWrite`.
    """
    try:
        with path.open("ab") as stream:
            stream.write(text.encode("utf-8", "replace"))
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written: {error.strerror or error}") from error


def append_summary(path: Path, text: str) -> bool:
    """Append the part that still fits to GITHUB_STEP_SUMMARY; return whether that was all.

    Raises `CannotWrite`.
    """
    try:
        used = path.stat().st_size if path.exists() else 0
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be read: {error.strerror or error}") from error
    start = "\n" if used else ""
    addition = f"{start}{text}" if text.endswith("\n") else f"{start}{text}\n"
    fitting = clipped(addition, SUMMARY_LIMIT - used, utf8_bytes)
    append(path, fitting)
    return fitting == addition


def command(level: LogLevel, message: str, *, title: str) -> str:
    """Return a line for the log that annotates the run."""
    return (
        f"::{level}"
        f" title={_property(defused(title))}::{_data(shortened(defused(message), COMMAND_LIMIT))}"
    )


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def defused(text: str) -> str:
    """Return text that can be printed in a job: it has no command, and does not move the cursor.

    ``::name::`` is a command at the start of a line, the old form ``##[name]`` anywhere in it.
    """
    body = _TERMINAL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    broken = body.replace("##[", f"##{_ZERO_WIDTH_SPACE}[")
    return re.sub(r"(?m)^(\s*)::", rf"\1{_ZERO_WIDTH_SPACE}::", broken)
