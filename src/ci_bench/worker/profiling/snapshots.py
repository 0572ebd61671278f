"""Torch's snapshot of a GPU's memory while an arm is opened and warms up.

It lists each allocation with the line that caused it. torch writes a snapshot as a pickle. Code of
a pull request could have written it, so no one should load it. The same value is kept as JSON
instead; docs/reports.md has the line that turns it into the file for torch's viewer. Recorded
before the looks that seconds come from, and not during those.
"""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ci_bench.records.profiles import MOST_REASON

MOST_BYTES, MOST_EVENTS, MOST_FRAMES = 1_000_000, 100_000, 16
"""Limits of the compressed file, of recorded events (the last count), of a stack (innermost)."""


class MemoryHistory:
    """Records from its creation until it is stored.

    Does nothing on the CPU, whose memory torch has no history of.
    """

    def __init__(self, device: str) -> None:
        """Prepare a snapshot; `note` is the reason if a GPU has none."""
        self.note = ""
        self._device = device
        self._records = device.startswith("cuda") and self._record("all")

    def keep(self, place: Path) -> None:
        """End recording, and write the file: as many of the last events as fit."""
        if not self._records:
            return
        import torch

        try:
            snapshot = torch.cuda.memory._snapshot(self._device)  # noqa: SLF001 - as torch documents it
            place.write_bytes(packed(snapshot))
        except (RuntimeError, OSError, TypeError, ValueError) as error:
            self._lack(error)
        self._records = False
        self._record(None)

    def _record(self, enabled: Literal["all"] | None) -> bool:
        import torch

        try:
            torch.cuda.memory._record_memory_history(  # noqa: SLF001 - as torch documents it
                enabled, stacks="python", max_entries=MOST_EVENTS, device=self._device
            )
        except (RuntimeError, AttributeError, TypeError) as error:
            self._lack(error)
            return False
        return True

    def _lack(self, error: Exception) -> None:
        self.note = (
            self.note or f"no memory snapshot: {type(error).__name__}: {error}"[:MOST_REASON]
        )


def packed(snapshot: Mapping[str, Any]) -> bytes:
    """Return a snapshot as compressed JSON of `MOST_BYTES` at most.

    Its first events are dropped if it would be longer.
    """
    traces = [[_shortened(event) for event in trace] for trace in snapshot.get("device_traces", ())]
    segments = [
        _shortened({**segment, "blocks": list(map(_shortened, segment.get("blocks", ())))})
        for segment in snapshot.get("segments", ())
    ]
    event_count = max(map(len, traces), default=0)
    while True:
        value = {
            **snapshot,
            "segments": segments,
            "device_traces": [
                trace[len(trace) - min(event_count, len(trace)) :] for trace in traces
            ],
        }
        content = gzip.compress(json.dumps(value, default=str).encode(), mtime=0)
        if len(content) <= MOST_BYTES:
            return content
        if event_count == 0:
            raise ValueError(
                f"it has {len(content):,} bytes without any event, more than {MOST_BYTES:,}"
            )
        event_count //= 2


def _shortened(value: Mapping[str, Any]) -> dict[str, Any]:
    return (
        {**value, "frames": list(value["frames"])[:MOST_FRAMES]}
        if value.get("frames")
        else dict(value)
    )
