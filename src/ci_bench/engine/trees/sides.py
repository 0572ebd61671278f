"""A side: one commit of the user's code, ready to be measured.

Owns the value only. How the two trees come to be is in `worktrees`, how they are measured in turns in `runner`.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ci_bench.records.case import SideName
from ci_bench.records.results import Source


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side of a run: where its code lies, and how its workers are started.

    `folder` is the working folder of its workers and the root of relative paths; `None` is the folder of the caller. `python` is
    the interpreter, whose environment holds the side's own packages layered over the engine's. `environ` is all that workers
    see. `failure` says why the side cannot be measured at all, where its set-up failed; every case of it then ends so.
    """

    name: SideName
    environ: Mapping[str, str]
    folder: Path | None = None
    python: Path = field(default_factory=lambda: Path(sys.executable))
    source: Source = Source()  # noqa: RUF009 - frozen, so it can be shared
    failure: str | None = None
