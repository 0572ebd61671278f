"""Runs Apache Otava, in an environment of its own, over series on standard input.

The input is `[[[value, ...], least magnitude], ...]`. Answers on standard output with the places of
the change points of each series, by Otava's defaults (window 50, p 0.001). It is started by `otava`
with another interpreter, so it imports nothing of ours.
"""

import json
import sys
from importlib import import_module

WINDOW, LARGEST_P = 50, 0.001


def main() -> None:
    """Read, analyse, answer."""
    compute_change_points = import_module(
        "otava.analysis"
    ).compute_change_points  # of the other environment, not of ours
    series = json.load(sys.stdin)
    places = [
        [
            int(point.index)
            for point in compute_change_points(
                values, window_len=WINDOW, max_pvalue=LARGEST_P, min_magnitude=least
            )[0]
        ]
        for values, least in series
    ]
    json.dump(places, sys.stdout)


if __name__ == "__main__":
    main()
