"""Output files of a run: found, checked to be new, and read.

An older file does not describe the run.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ci_bench.formats import catalogue, training_events, training_log
from ci_bench.formats.series import Reading, Unreadable
from ci_bench.formats.tool_files import MAX_BYTES
from ci_bench.suites.command.options import OUTPUT_VARIABLE, PLACE, STDOUT, Losses
from ci_bench.suites.command.process import CommandPlace, show_tail
from ci_bench.suites.command.selecting import BadOutput

MOST_FILES = 100
_LOSS = re.compile(rb"loss", re.IGNORECASE)

_Stamp = tuple[int, int, int]


@dataclass(kw_only=True, slots=True)
class Output:
    """The output of a run: `named` by the user, or the file `own` that the run was given."""

    named: str | None
    own: Path
    place: CommandPlace
    before: dict[Path, _Stamp] = field(default_factory=dict)

    def remember(self) -> None:
        """List the files that exist before a run."""
        self.own.unlink(missing_ok=True)
        self.before = {file: _stamp(file) for file in self._candidates()}

    def files(self) -> list[Path]:
        """Return the files that the run wrote.

        Raises:
            BadOutput: no file is found, or too many.
        """
        candidates = self._candidates()
        fresh = [file for file in candidates if self.before.get(file) != _stamp(file)]
        if len(fresh) > MOST_FILES:
            raise BadOutput(
                f"{self.named}: {len(fresh)} files were written; at most {MOST_FILES} are read"
            )
        if fresh:
            return fresh
        if candidates:
            raise BadOutput(
                f"{self.named}: this file existed before the run, and the run did not write it"
            )
        if self.named is None:
            raise BadOutput(
                f"the command wrote nothing to {OUTPUT_VARIABLE} (or {PLACE}); or say where it"
                " writes, with `output`"
            )
        raise BadOutput(f"{self.named}: the command wrote no such file in {self.place.cwd}")

    def _candidates(self) -> list[Path]:
        if self.named is None:
            return [self.own] if self.own.is_file() else []
        if self.named == STDOUT:
            return [self.place.stdout] if self.place.stdout.is_file() else []
        matches = (
            self.place.cwd.glob(self.named)
            if not Path(self.named).is_absolute()
            else iter([Path(self.named)])
        )
        return sorted(file for file in matches if file.is_file())


def _stamp(file: Path) -> _Stamp:
    with suppress(OSError):
        status = file.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return 0, 0, 0


def read_output(output: Output, form: str) -> Reading:
    """Read the run's output, in the given or the detected format.

    Raises:
        BadOutput: it is missing, cannot be read, or two files name the same series.
    """
    try:
        readings = [_read(file, form, output) for file in output.files()]
    except BadOutput:
        show_tail(output.place)
        raise
    merged = replace(
        readings[0],
        series=tuple(series for reading in readings for series in reading.series),
        failed=tuple(absent for reading in readings for absent in reading.failed),
        skipped=tuple(absent for reading in readings for absent in reading.skipped),
    )
    return merged if len(readings) == 1 else _unique(merged)


def read_losses(output: Output, losses: Losses) -> training_log.Log:
    """Read the steps that the run wrote, by rank.

    Several text files are read as one, in the order of their names.

    Raises:
        BadOutput: the output is missing, or cannot be read.
    """
    try:
        files = output.files()
        try:
            return read_steps(files, losses)
        except (Unreadable, OSError) as error:
            raise _refused(files[0], output, losses.format, error) from error
    except BadOutput:
        show_tail(output.place)
        raise


def find_losses(output: Output, losses: Losses) -> Output:
    """Return the output that holds a run's steps.

    That is standard output if none is named and the run wrote nothing else.

    Raises:
        BadOutput: standard output has losses that cannot be read.
    """
    stdout = output.place.stdout
    if output.named is not None or output.own.is_file() or not stdout.is_file():
        return output
    printed = replace(output, named=STDOUT)
    try:
        read_steps([stdout], losses)
    except (Unreadable, OSError) as error:
        if not _LOSS.search(_bytes(stdout)):
            return output
        show_tail(output.place)
        why = _refused(stdout, printed, losses.format, error)
        raise BadOutput(f"the command wrote nothing to {OUTPUT_VARIABLE}, and {why}") from error
    return printed


def read_steps(files: Sequence[Path], losses: Losses) -> training_log.Log:
    """Read the steps of a training from files, by rank.

    Raises:
        Unreadable: the files cannot be used.
        OSError: a file cannot be opened.
    """
    content = _bytes(files[0])
    form = training_events.form_of(content) if losses.format == catalogue.AUTO else losses.format
    if form not in training_events.FORMATS:
        text = "\n".join(catalogue.decode(_bytes(file)) for file in files)
        return training_log.read(text, losses.names, losses.format)
    # wandb/latest-run is a link to a run in the same folder.
    once = {file.resolve(): file for file in reversed(files)}
    read = [
        training_events.File(folder=str(file.parent), name=file.name, content=_bytes(file))
        for file in once.values()
    ]
    return training_log.Log(ranks=training_events.read(read, losses.names, form))


def _read(file: Path, form: str, output: Output) -> Reading:
    try:
        return catalogue.read(catalogue.decode(_bytes(file)), form)
    except (Unreadable, OSError) as error:
        raise _refused(file, output, form, error) from error


def _bytes(file: Path) -> bytes:
    """Read at most a byte more than the limit."""
    with file.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _refused(file: Path, output: Output, form: str, error: Exception) -> BadOutput:
    where = (
        "standard output"
        if output.named == STDOUT
        else file.name
        if output.named
        else OUTPUT_VARIABLE
    )
    tried = "" if form == catalogue.AUTO else f" as {form}"
    return BadOutput(f"{where} cannot be read{tried}: {error}")


def _unique(reading: Reading) -> Reading:
    labels = [series.label for series in reading.series]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise BadOutput(f"two of the files that were written have a series {twice!r}")
    return reading
