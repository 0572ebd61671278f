"""The badge in the form of shields.io's endpoint."""

import pytest
from report_builders import ENDINGS

from ci_bench.report.summary import badge

EXPECTED = {
    "passed": ("passing, 1 improved", "brightgreen"),
    "regressed": ("1 regressed", "red"),
    "no_baseline": ("failing", "red"),
    "incomparable": ("failing", "red"),
    "parity_broken": ("4 failing", "red"),
    "failed_cases": ("3 failing", "red"),
    "paired": ("1 regressed", "red"),
    "common_shift": ("1 failing", "red"),
    "explained": ("2 regressed", "red"),
    "several_modes": ("passing", "brightgreen"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_badge_says_how_it_ended(ending: str) -> None:
    made = badge(ENDINGS[ending]())
    assert (made["message"], made["color"]) == EXPECTED[ending]
    assert made["isError"] == (made["color"] == "red")
    assert set(made) == {"schemaVersion", "label", "message", "color", "isError"}
    assert (made["schemaVersion"], made["label"]) == (1, "ci-bench")
