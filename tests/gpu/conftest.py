"""Figures that the tests of a card print when they end, as rows of the table in docs/measurements.md ("A card, by its tests")."""

from collections.abc import Callable

import pytest

ROWS: list[tuple[str, str]] = []

Figures = Callable[[str, str], None]


@pytest.fixture
def figure() -> Figures:
    """Print a figure under its name in the table, with its unit."""
    return lambda name, value: ROWS.append((name, value))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if ROWS:
        terminalreporter.section("figures of this card")
        for name, value in ROWS:
            terminalreporter.write_line(f"| {name} | {value} |")
