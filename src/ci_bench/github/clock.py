"""Time, as an argument: what waits can be tested without waiting."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass


def _chance() -> float:
    return secrets.randbelow(1000) / 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Seconds since the epoch, seconds that never go backwards, sleeping, and a share from 0 to 1 to spread waits with."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = _chance
