"""When another try is worth it, and how long to wait: one table over GitHub's signals."""

import pytest
from fake_github import date

from ci_bench.github.http import MOST_BACKOFF_S, SECONDARY_S, Trouble, trouble_of, wait_s

NOW = 1_800_000_000.0
SECONDARY = (
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
)
ABUSE = "You have triggered an abuse detection mechanism."

TROUBLES = {
    "success": (200, {}, "", None),
    "403 plain": (403, {}, "Resource not accessible by integration", None),
    "403 with limits left": (
        403,
        {"x-ratelimit-remaining": "4999"},
        "Must have admin rights",
        None,
    ),
    "403 used up": (
        403,
        {"x-ratelimit-remaining": "0"},
        "API rate limit exceeded",
        Trouble.PRIMARY_LIMIT,
    ),
    "403 secondary without header": (403, {}, SECONDARY, Trouble.SECONDARY_LIMIT),
    "403 secondary in its old words": (403, {}, ABUSE, Trouble.SECONDARY_LIMIT),
    "403 secondary, with limits left": (
        403,
        {"x-ratelimit-remaining": "12"},
        SECONDARY,
        Trouble.SECONDARY_LIMIT,
    ),
    "403 retry-after": (403, {"retry-after": "3"}, "slow down", Trouble.SECONDARY_LIMIT),
    "429 used up": (429, {"x-ratelimit-remaining": "0"}, "", Trouble.PRIMARY_LIMIT),
    "429 retry-after": (429, {"retry-after": "7"}, "", Trouble.SECONDARY_LIMIT),
    "429 bare": (429, {}, "", Trouble.SECONDARY_LIMIT),
    "500": (500, {}, "", Trouble.SERVER),
    "502": (502, {}, "", Trouble.SERVER),
    "503": (503, {}, "", Trouble.SERVER),
    "504": (504, {}, "", Trouble.SERVER),
    "501": (501, {}, "", None),
    "401": (401, {}, "Bad credentials", None),
    "404": (404, {}, "Not Found", None),
    "422": (422, {}, "Validation Failed", None),
}
WAITS = {
    "the first backoff": (Trouble.SERVER, {}, 1, 1.0),
    "the third backoff": (Trouble.LOST, {}, 3, 4.0),
    "the most that is backed off": (Trouble.LOST, {}, 20, MOST_BACKOFF_S),
    "what the server asks for": (Trouble.SERVER, {"retry-after": "9"}, 1, 9.0),
    "seconds until the reset": (
        Trouble.PRIMARY_LIMIT,
        {"x-ratelimit-reset": str(int(NOW + 40))},
        1,
        41.0,
    ),
    "a reset that is over": (
        Trouble.PRIMARY_LIMIT,
        {"x-ratelimit-reset": str(int(NOW - 40))},
        1,
        1.0,
    ),
    "a reset by the server's own clock": (
        Trouble.PRIMARY_LIMIT,
        {"x-ratelimit-reset": str(int(NOW + 3600 + 40)), "date": date(NOW + 3600)},
        1,
        41.0,
    ),
    "a used-up limit that names no reset": (Trouble.PRIMARY_LIMIT, {}, 1, SECONDARY_S),
    "a secondary limit": (Trouble.SECONDARY_LIMIT, {}, 1, SECONDARY_S),
    "a secondary limit again": (Trouble.SECONDARY_LIMIT, {}, 2, 2 * SECONDARY_S),
    "a secondary limit that names a wait": (
        Trouble.SECONDARY_LIMIT,
        {"retry-after": "11"},
        3,
        11.0,
    ),
    "a date": (Trouble.SECONDARY_LIMIT, {"retry-after": date(NOW + 25)}, 1, 25.0),
    "a date by the server's own clock": (
        Trouble.SECONDARY_LIMIT,
        {"retry-after": date(NOW + 925), "date": date(NOW + 900)},
        1,
        25.0,
    ),
    "a date that has passed": (Trouble.SECONDARY_LIMIT, {"retry-after": date(NOW - 25)}, 1, 0.0),
    "nonsense": (Trouble.SERVER, {"retry-after": "soon"}, 1, 1.0),
    "a negative wait": (Trouble.SERVER, {"retry-after": "-5"}, 1, 1.0),
}


@pytest.mark.parametrize(
    ("status", "headers", "message", "trouble"), TROUBLES.values(), ids=TROUBLES
)
def test_what_may_be_tried_again(status, headers, message, trouble):
    assert trouble_of(status, headers, message) == trouble


@pytest.mark.parametrize(("trouble", "headers", "tried", "expected"), WAITS.values(), ids=WAITS)
def test_how_long_to_wait(trouble, headers, tried, expected):
    assert wait_s(trouble, headers, tried=tried, now=NOW, chance=0.0) == pytest.approx(expected)


def test_clients_that_failed_together_come_back_apart():
    early, late = (
        wait_s(Trouble.SERVER, {}, tried=3, now=NOW, chance=chance) for chance in (0.0, 1.0)
    )
    assert (early, late) == (4.0, 6.0)
