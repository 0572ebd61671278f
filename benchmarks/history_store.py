"""A large made-up history for `history_quality`: stored, compacted, and shown on a page."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from ci_bench import __version__
from ci_bench.command_line.settings import TrendSettings
from ci_bench.commands.trend import history as commands
from ci_bench.history.compaction import compact
from ci_bench.history.store import FolderStore, file_of
from ci_bench.judge.times.calibration import fingerprint
from ci_bench.judge.times.noise import Floats
from ci_bench.records.forms import Fact
from ci_bench.records.history import Entry, History, HistoryMachine, Points
from ci_bench.records.results import Better, Lane, Unit

_START = datetime(2028, 1, 1, tzinfo=UTC)
_IDENTITY: dict[str, Fact] = {
    "device": "cuda",
    "gpu": "NVIDIA H200",
    "torch": "2.13.0",
    "driver": "570.1",
}
_HASH = 2_654_435_761

Answer = TypeVar("Answer")


def generated(values: Floats) -> Iterator[History]:
    """Return one record for each run of series [series, runs], as `history add` makes them."""
    machine = HistoryMachine(fingerprint=fingerprint(_IDENTITY), identity=_IDENTITY)
    for number in range(values.shape[1]):
        entry = Entry(
            id=f"{number * _HASH % 2**128:032x}",
            at=(_START + timedelta(hours=12 * number)).isoformat(timespec="seconds"),
            machine=0,
            tool_version=__version__,
            commit=f"{(number + 1) * _HASH**4 % 2**160:040x}",
            branch="main",
            dirty=False,
            url=f"https://github.com/owner/name/actions/runs/{9_000_000_000 + 977 * number}",
        )
        series = tuple(
            _points(index, float(value)) for index, value in enumerate(values[:, number])
        )
        yield History(tool_version=__version__, machines=(machine,), runs=(entry,), series=series)


def _points(index: int, value: float) -> Points:
    return Points(
        case=f"training_loss/reviews[backend=inductor,batch={index}]",
        suite="training_loss",
        metric="step_time",
        arm="inductor",
        unit=Unit.SECONDS,
        better=Better.LOWER,
        lane=Lane.WALL,
        runs=(0,),
        values=(float(f"{0.0123 * (index + 1) * value:.6g}"),),
        errors=(float(f"{0.003 * abs(value % 0.37):.2g}"),),
    )


def written(records: Iterator[History], folder: Path, page: Path) -> dict[str, float]:
    """Keep the records, compact them, write the page; sizes in bytes and times in seconds."""
    store = FolderStore(folder)
    for record in records:
        store.append(file_of(record))
    done, compacting = _timed(lambda: compact(store))
    settings = TrendSettings(
        environ=os.environ, here=Path.cwd(), action="page", store=folder, output=page
    )
    _, rendering = _timed(lambda: commands.page(settings))
    return {
        "records, bytes": done.bytes_before,
        "compacted, bytes": done.bytes_after,
        "compacting, s": compacting,
        "reading, looking through and writing the page, s": rendering,
        "page, bytes": page.stat().st_size,
    }


def _timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    began = time.perf_counter()
    return work(), round(time.perf_counter() - began, 2)
