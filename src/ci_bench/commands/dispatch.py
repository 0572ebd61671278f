"""Which function acts on which command, and the kind of settings that it takes. Imported once a command line is understood."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ci_bench.commands import converting, measuring, preparing, reading, rendering
from ci_bench.commands.trend import bisecting, history
from ci_bench.commands.trusted import publishing
from ci_bench.settings import (
    Bisecting,
    Comparing,
    Converting,
    Examining,
    Fastrnns,
    Listing,
    Measuring,
    Publishing,
    Settings,
    Showing,
    Trend,
    Validating,
)

_Kind = TypeVar("_Kind", bound=Settings)


@dataclass(frozen=True, slots=True)
class Command(Generic[_Kind]):
    """One command: the kind of settings that its flags become, and what acts on them."""

    kind: type[_Kind]
    act: Callable[[_Kind], int]

    def __call__(self, flags: argparse.Namespace, environ: Mapping[str, str], folder: Path) -> int:
        """Act on these flags, in this environment and folder; returns the exit code."""
        return self.act(self.kind.of(flags, environ, folder))


COMMANDS: Mapping[str, Command[Any]] = {
    "run": Command(Measuring, measuring.run),
    "gate": Command(Measuring, measuring.gate),
    "setup": Command(Measuring, preparing.setup),
    "compare": Command(Comparing, reading.compare),
    "report": Command(Showing, rendering.report),
    "show": Command(Showing, rendering.show),
    "validate": Command(Validating, reading.validate),
    "list": Command(Listing, reading.list_cases),
    "convert": Command(Converting, converting.convert),
    "fastrnns": Command(Fastrnns, measuring.fastrnns),
    "calibrate": Command(Measuring, measuring.calibrate),
    "publish": Command(Publishing, publishing.publish),
    "history": Command(Trend, history.history),
    "bisect": Command(Bisecting, bisecting.bisect),
    "announce": Command(Publishing, publishing.announce),
    "fetch-baseline": Command(Publishing, publishing.fetch_baseline),
    "fetch-config": Command(Publishing, publishing.fetch_config),
    "selftest": Command(Examining, measuring.selftest),
    "doctor": Command(Examining, measuring.doctor),
}
