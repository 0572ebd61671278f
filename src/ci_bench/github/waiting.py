"""Whether another try is worth it, and when: pure rules over one answer.

The signals are GitHub's: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api. A 403 is a rate limit
only if it says so; any other is a missing permission, and asking again changes nothing.
"""

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum

TRIES = 5
"""How often one request is sent at most."""
BACKOFF_S = 1.0
SECONDARY_S = 60.0
"""The least wait after a secondary limit that names none."""
MOST_BACKOFF_S = 30.0
_SECONDARY = re.compile(r"secondary rate limit|abuse detection", re.IGNORECASE)


class Trouble(StrEnum):
    """Why a request has to be sent again."""

    PRIMARY_LIMIT = "the rate limit is used up"
    SECONDARY_LIMIT = "a secondary rate limit"
    SERVER = "a server error"
    LOST = "no answer"

    @property
    def unclear(self) -> bool:
        """Whether the request may have done its work all the same."""
        return self in {Trouble.SERVER, Trouble.LOST}


def trouble_of(status: int, headers: Mapping[str, str], message: str) -> Trouble | None:
    """What is wrong with an answer that another try may mend; `None` for every other answer."""
    if status in {500, 502, 503, 504}:
        return Trouble.SERVER
    if status not in {403, 429}:
        return None
    if _SECONDARY.search(message):
        return Trouble.SECONDARY_LIMIT
    if headers.get("x-ratelimit-remaining", "").strip() == "0":
        return Trouble.PRIMARY_LIMIT
    return Trouble.SECONDARY_LIMIT if status == 429 or "retry-after" in headers else None  # noqa: PLR2004 - Too Many Requests


def wait_s(trouble: Trouble, headers: Mapping[str, str], *, tried: int, now: float, chance: float) -> float:
    """How long to wait after the `tried`-th try, in seconds. `chance`, from 0 to 1, spreads clients that failed together.

    What the server asks for comes first: ``retry-after``, then, of a used-up limit, ``x-ratelimit-reset``, read by the server's
    own clock.
    """
    named = _retry_after(headers, now)
    if named is not None:
        return named + chance
    if trouble is Trouble.PRIMARY_LIMIT:
        reset = _number(headers.get("x-ratelimit-reset"))
        return SECONDARY_S if reset is None else max(0.0, reset - _server_time(headers, now)) + 1.0 + chance
    doubled = 2.0 ** (tried - 1)
    if trouble is Trouble.SECONDARY_LIMIT:
        return SECONDARY_S * doubled + chance
    return min(BACKOFF_S * doubled, MOST_BACKOFF_S) * (1.0 + 0.5 * chance)


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """``retry-after`` in seconds: a number, or a date."""
    said = headers.get("retry-after")
    seconds = _number(said)
    if seconds is None and said:
        moment = _date(said)
        seconds = None if moment is None else moment - _server_time(headers, now)
    return None if seconds is None else max(0.0, seconds)


def _server_time(headers: Mapping[str, str], now: float) -> float:
    moment = _date(headers.get("date", ""))
    return now if moment is None else moment


def _date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):  # the last for a year of twenty digits
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _number(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"[ \t]*[0-9]{1,12}[ \t]*", text) else None
