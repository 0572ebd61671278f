"""Figures that the tests of a card print when they end, as rows of the table in docs/internals/measurements.md ("A card, by its tests")."""

import time
from collections.abc import Callable

import pytest

ROWS: list[tuple[str, str]] = []

Figures = Callable[[str, str], None]
WARM_S = 0.5
"""How long a card works until it has its full clock: one at rest may have a sixth of it."""


@pytest.fixture
def figure() -> Figures:
    """Print a figure under its name in the table, with its unit."""
    return lambda name, value: ROWS.append((name, value))


@pytest.fixture
def _warm() -> None:
    """Let the card reach its full clock, so that durations can be compared with each other."""
    torch = pytest.importorskip("torch")
    torch.cuda.set_device(0)
    begun = time.perf_counter()
    while time.perf_counter() < begun + WARM_S:
        torch.cuda._sleep(1_000_000)
        torch.cuda.synchronize()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if ROWS:
        terminalreporter.section("figures of this card")
        for name, value in ROWS:
            terminalreporter.write_line(f"| {name} | {value} |")
