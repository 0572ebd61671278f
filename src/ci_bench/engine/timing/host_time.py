"""The host's clock, held from before benched code is imported: what that does to the module `time` changes no measurement.

Tools that freeze or mock time replace `time.perf_counter` wherever they find it by its identity; a `partial` is another object.
"""

import time
from collections.abc import Callable
from functools import partial

perf_counter: Callable[[], float] = partial(time.perf_counter)
"""Seconds since some moment; monotonic."""
