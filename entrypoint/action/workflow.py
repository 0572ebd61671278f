"""The runner's interface: commands in the log, and files for outputs and the summary.

Everything that a job prints is searched for commands. Output of the code under test is printed
through `Log`, which defuses it; and all that becomes an output is checked to be a plain word,
number, path or address.
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Callable

PREFIX = "│ "
"""A command counts only at the start of a line; so no line of the log starts with what was printed
there.
"""
_OLD_COMMAND = "##["
_BROKEN = "##\u200b["
_TERMINAL = re.compile(
    r"\x1b(?:\[[0-?]*["
    r" -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|.)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_LINE = 2_000
_MOST = 4_000_000
_SUMMARY = 1_000_000
_PLAIN = re.compile(r"[A-Za-z0-9 _./:?#=&%+,@~-]{0,500}")
_OUTPUT = re.compile(r"(?m)^(\w+)<<(ci_bench_[0-9a-f]{32})\n(.*?)\n\2$", re.DOTALL)


def say(text: str) -> None:
    """Print a line of our own into the job's log."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def annotate(level: str, message: str) -> None:
    """Annotate the run: ``notice``, ``warning`` or ``error``."""
    escaped = (
        defused(message)
        .replace(PREFIX, "")
        .replace("%", "%25")
        .replace("\r", "%0D")
        .replace("\n", "%0A")
    )
    say(f"::{level} title=ci-bench::{escaped[:4000]}")


def defused(text: str) -> str:
    """Return text from outside as lines that hold no command and do not move the cursor."""
    cleaned = _TERMINAL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).replace(
        _OLD_COMMAND, _BROKEN
    )
    return "\n".join(f"{PREFIX}{line[:_LINE]}" for line in cleaned.split("\n"))


@contextmanager
def without_commands() -> Iterator[None]:
    """Switch commands off during the block, with a word that the code under test cannot know."""
    word = secrets.token_hex(16)
    say(f"::stop-commands::{word}")
    try:
        yield
    finally:
        say(f"::{word}::")


class Log:
    """Output of the code under test: in a file, and defused in the job's log, both limited."""

    def __init__(
        self, file: BinaryIO, write: Callable[[str], object] = say, most: int = _MOST
    ) -> None:
        """Write lines by `write`; keep at most `most` bytes."""
        self._file, self._write, self._left, self._rest = file, write, most, b""

    def take(self, chunk: bytes) -> None:
        """Take a piece of output; whole lines are printed, an endless one in parts."""
        if self._left <= 0:
            return
        self._file.write(chunk[: self._left])
        self._file.flush()
        lines = (self._rest + chunk[: self._left]).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > 4 * _LINE:
            lines.append(self._rest)
            self._rest = b""
        self._left -= len(chunk)
        self._print(lines)
        if self._left <= 0:
            self._write(
                f"{PREFIX}(what follows is not shown: the code under test has printed too much)"
            )

    def finish(self) -> None:
        """Print what is left of the last line."""
        self._print([self._rest] if self._rest else [])
        self._rest = b""

    def _print(self, lines: list[bytes]) -> None:
        if lines:
            self._write(
                "\n".join(defused(line.rstrip(b"\r").decode("utf-8", "replace")) for line in lines)
            )


def set_outputs(values: Mapping[str, str]) -> None:
    """Set outputs of this step.

    A value that is not plain text is left out: outputs end up in other steps' scripts.
    """
    path = os.environ.get("GITHUB_OUTPUT")
    lines = [f"{name}={value}\n" for name, value in values.items() if _PLAIN.fullmatch(value)]
    if path:
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write("".join(lines))


def add_to_path(folder: Path) -> None:
    """Let the steps that follow find the programs of a folder."""
    path = os.environ.get("GITHUB_PATH")
    if path:
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(f"{folder}\n")


def read_outputs(path: Path) -> Mapping[str, str]:
    """Return the outputs that a container of ours has written."""
    if not path.exists():
        return {}
    return {
        name: value
        for name, _, value in _OUTPUT.findall(path.read_text(encoding="utf-8", errors="replace"))
    }


def append_summary(path: Path) -> None:
    """Add a container's page to the job's summary, as long as the runner would take it."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if target and path.exists():
        with Path(target).open("ab") as stream:
            stream.write(path.read_bytes()[:_SUMMARY])
