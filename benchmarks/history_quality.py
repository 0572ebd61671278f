"""Measures how well changes in a history are found, its store's size, and its page's speed.

``python -m benchmarks.history_quality --json history_quality.json [--otava PYTHON] [--chromium
PATH]``

*Series*: 2,000 runs with 1 % noise, white or following itself (AR(1), rho = 0.4). Of the null
series nothing changes; others have a step of 2 % for the worse, or drift by 4 % over 1,000 runs, or
wiggle: an Ornstein-Uhlenbeck path of 0.5 % and 300 runs.

*False series*: null series in which a finished history of 2,000 runs shows any change. *Watching*:
null series that ever raise an alarm when all runs so far are looked at after each run, 2,000 times;
an alarm costs one paired run of two commits, which settles it. *Seen within 10*: steps of which an
alarm tells, at the right place (within ten runs), after three to ten runs.

*Contenders*: a plain threshold of 2 % on the last value against the mean of the ten before; Otava's
rule, by its own package in an environment of its own (``pip install apache-otava``) where `--otava`
names its interpreter, with its defaults and with a least magnitude of 1 %.

*Store*: 2,000 runs of 200 metrics, one record each, compacted; against the bound that `compaction`
states. *Page*: written from that store; the time that Chromium takes from its navigation to a page
that is ready.

``--drifts N`` prints how often a drift is reported, of steps and of drifts.

``--thresholds`` prints what the scan's table of thresholds was made from.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.history_store import generated, written
from benchmarks.otava import otavas_places
from benchmarks.tables import publish, render
from ci_bench.history.compaction import BYTES_PER_RUN, BYTES_PER_VALUE
from ci_bench.judge.times.noise import Floats
from ci_bench.judge.times.trend import (
    EDGE,
    LEVEL,
    MOST_POINTS,
    TrendStep,
    find_steps,
    look,
    scan,
    threshold,
    winsorised,
    with_drifts,
)
from ci_bench.records.results import Better

RUNS, METRICS = 2_000, 200
NOISE, STEP, RHO = 0.01, 0.02, 0.4
LEAST = 0.01
WITHIN = 10
WATCHED = 300
"""Runs of the present stretch that watching looks back on in this simulation; more would only make
it slower.
"""
_SEED = 20_300_101
_OTAVA_SERIES = 40
_SIZES = (8, 9, 10, 12, 16, 20, 30, 40, 60, 100, 200, 400, 800)

_MOST_DRAWS = 1_000_000
"""Enough to count two hundred beyond `LEVEL`."""

Finder = Callable[[Floats], Sequence[int]]
"""From one series [points] to the places of its changes."""


def noise(rng: np.random.Generator, series: int, points: int, rho: float) -> Floats:
    """Return noise of one standard deviation [series, points]."""
    draws = rng.standard_normal((series, points))
    if rho:
        for point in range(1, points):
            draws[:, point] = rho * draws[:, point - 1] + np.sqrt(1 - rho**2) * draws[:, point]
    return np.asarray(draws, dtype=np.float64)


def ours(values: Floats) -> list[int]:
    """Return the places of changes by the scan, and by slopes."""
    return [step.place for step in changes(np.log(values))]


def plain(values: Floats) -> list[int]:
    """Return the places at which a value is 2 % above the mean of the ten before."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    before = (sums[10:-1] - sums[:-11]) / 10
    return [int(place) + 10 for place in np.flatnonzero(values[10:] > before * (1 + STEP))]


class Otava:
    """Otava's own package, behind another interpreter."""

    def __init__(self, python: Path, least: float) -> None:
        """Remember the interpreter; nothing is started yet."""
        self._python, self._least = python, least

    def places(self, every: Sequence[Floats]) -> list[list[int]]:
        """Return the places of changes in each series."""
        return otavas_places([(values.tolist(), self._least) for values in every], self._python)


def false_series(rng: np.random.Generator, rho: float, series: int, find: Finder) -> float:
    """Return the share of null series in which a finished history shows a change."""
    every = np.exp(NOISE * noise(rng, series, RUNS, rho))
    return float(np.mean([bool(find(values)) for values in every]))


def seen_within(rng: np.random.Generator, rho: float, series: int) -> float:
    """Return the share of steps that raise an alarm within `WITHIN` runs.

    The history is looked at after each run.
    """
    before = 1_000
    every = np.exp(NOISE * noise(rng, series, before + WITHIN, rho))
    every[:, before:] *= 1 + STEP
    detected = np.zeros(series, dtype=np.bool_)
    for after in range(EDGE, WITHIN + 1):
        for row in np.flatnonzero(~detected):
            alarm = look(
                every[row, : before + after].tolist(), better=Better.LOWER, least=LEAST
            ).alarm
            detected[row] = alarm is not None and abs(alarm.place - before) <= WITHIN
    return float(detected.mean())


def watched(rng: np.random.Generator, rho: float, series: int) -> float:
    """Return the share of null series that ever raise an alarm for the worse in `RUNS` looks."""
    every = NOISE * noise(rng, series, RUNS, rho)
    alarmed = np.zeros(series, dtype=np.bool_)
    for end in range(20, RUNS + 1):
        part = every[:, max(0, end - WATCHED) : end]
        scanned = scan(winsorised(part))
        hot = np.flatnonzero((scanned.score > threshold(part.shape[1])) & ~alarmed)
        for row in hot:
            place = scanned.place[row]
            jump = np.median(part[row, place:]) - np.median(part[row, :place])
            alarmed[row] = jump >= np.log1p(LEAST)
    return float(alarmed.mean())


def drifting(rng: np.random.Generator, kind: str, series: int) -> tuple[float, float]:
    """Return the shares of drifting series that show any change, and of those that show a drift."""
    every = NOISE * noise(rng, series, RUNS, 0.0)
    if kind == "drift":
        every += np.clip((np.arange(RUNS) - 500) / 1_000, 0, 1) * np.log(1.04)
    else:
        every += 0.005 * noise(rng, series, RUNS, float(np.exp(-1 / 300)))
    by_series = [changes(values) for values in every]
    changed = [steps for steps in by_series if steps]
    return len(changed) / series, (
        float(np.mean([any(step.until is not None for step in steps) for steps in changed]))
        if changed
        else 0.0
    )


def changes(values: Floats) -> tuple[TrendStep, ...]:
    """Return steps and drifts of one series on a logarithmic scale."""
    return with_drifts(values, find_steps(values, least=np.log1p(LEAST)), least=np.log1p(LEAST))


def stepped(points: int, *steps: tuple[int, float]) -> Floats:
    """Return logarithms with these steps, each before a place and so high."""
    return np.asarray(
        sum(
            (np.log1p(size) * (np.arange(points) >= place) for place, size in steps),
            np.zeros(points),
        )
    )


def sloped(points: int, first: int, last: int, per_run: float) -> Floats:
    """Return logarithms that drift from one place to another, by so much a run."""
    return np.asarray(np.log1p(per_run) * np.clip(np.arange(points) - first, 0, last - first))


STEPS: Mapping[str, Floats] = {
    "nothing, 20 runs": stepped(20),
    "nothing, 40 runs": stepped(40),
    "nothing, 100 runs": stepped(100),
    "nothing, 400 runs": stepped(400),
    "a step of 2 %, 60 runs": stepped(60, (30, 0.02)),
    "a step of 5 %, 100 runs": stepped(100, (60, 0.05)),
    "a step of 10 %, 200 runs": stepped(200, (100, 0.10)),
    "steps of 2 % and 2 %, 20 runs apart, of 100": stepped(100, (40, 0.02), (60, 0.02)),
    "steps of 3 % and 3 %, 10 runs apart, of 200": stepped(200, (95, 0.03), (105, 0.03)),
    "steps of 5 % and 5 %, 20 runs apart, of 100": stepped(100, (40, 0.05), (60, 0.05)),
    "5 % up and back, 20 runs apart, of 100": stepped(100, (40, 0.05), (60, 1 / 1.05 - 1)),
}
DRIFTS: Mapping[str, Floats] = {
    "a staircase: 3 % three times, every 30 runs, of 120": stepped(
        120, *((30 * number, 0.03) for number in (1, 2, 3))
    ),
    "a staircase: 3 % five times, every 15 runs, of 120": stepped(
        120, *((20 + 15 * number, 0.03) for number in range(5))
    ),
    "0.3 % a run over all of 40": sloped(40, 0, 39, 0.003),
    "0.3 % a run over 40 of 100": sloped(100, 30, 70, 0.003),
    "0.1 % a run over 60 of 100": sloped(100, 20, 80, 0.001),
    "0.5 % a run over 20 of 60": sloped(60, 20, 40, 0.005),
    "4 % over 1,000 of 2,000": sloped(2_000, 500, 1_500, np.expm1(np.log(1.04) / 1_000)),
}


def slow_or_sudden(rng: np.random.Generator, series: int) -> list[dict[str, str]]:
    """Return the share of each kind of series that shows a drift, on either noise."""
    rows = []
    for planted in (STEPS, DRIFTS):
        for name, levels in planted.items():
            number = min(series, 400_000 // len(levels))
            row = {"planted": name, "series": f"{number:,}"}
            for words, rho in (("white", 0.0), ("AR(0.4)", RHO)):
                every = levels + NOISE * noise(rng, number, len(levels), rho)
                share = np.mean(
                    [any(step.until is not None for step in changes(values)) for values in every]
                )
                row[f"drift said, {words}"] = f"{100 * share:.2f} %"
            rows.append(row)
    row = {
        "planted": f"nothing, looked at after every {_LOOK}th of {RUNS:,} runs",
        "series": f"{series // _LOOKS:,}",
    }
    for words, rho in (("white", 0.0), ("AR(0.4)", RHO)):
        row[f"drift said, {words}"] = f"{100 * ever_drifting(rng, rho, series // _LOOKS):.2f} %"
    return [*rows, row]


_LOOK, _LOOKS = 10, 20


def ever_drifting(rng: np.random.Generator, rho: float, series: int) -> float:
    """Return the share of null series in which any look at the newest runs shows a drift.

    A look takes the newest `WATCHED` runs.
    """
    every = NOISE * noise(rng, series, RUNS, rho)
    parts = (
        [row[max(0, end - WATCHED) : end] for end in range(_LOOK, RUNS + 1, _LOOK)] for row in every
    )
    return float(
        np.mean(
            [
                any(step.until is not None for part in looks for step in changes(part))
                for looks in parts
            ]
        )
    )


def contenders(rng: np.random.Generator, python: Path | None) -> list[dict[str, str]]:
    """Return the rows of false series, and of steps that a finished history shows."""
    rows = [_row("ci-bench", lambda every: [ours(values) for values in every], rng, 600, 300)]
    rows.append(
        _row(
            "2 % above the last ten",
            lambda every: [plain(values) for values in every],
            rng,
            200,
            200,
        )
    )
    if python is not None:
        for name, least in (("Otava, defaults", 0.0), ("Otava, least magnitude 1 %", LEAST)):
            rows.append(_row(name, Otava(python, least).places, rng, _OTAVA_SERIES, _OTAVA_SERIES))
    return rows


def _row(
    name: str,
    find: Callable[[Sequence[Floats]], Sequence[Sequence[int]]],
    rng: np.random.Generator,
    null: int,
    steps: int,
) -> dict[str, str]:
    """Return a rule's row of false series on both kinds of noise, and of steps.

    Steps count if the history shows them within ten runs, ten runs after them.
    """
    shares = []
    for rho in (0.0, RHO):
        every = np.exp(NOISE * noise(rng, null, RUNS, rho))
        shares.append(np.mean([bool(places) for places in find(list(every))]))
    every = np.exp(NOISE * noise(rng, steps, 1_000 + WITHIN, 0.0))
    every[:, 1_000:] *= 1 + STEP
    hits = np.mean(
        [any(abs(place - 1_000) <= WITHIN for place in places) for places in find(list(every))]
    )
    white, following = (f"{100 * share:.1f} % of {null}" for share in shares)
    answer = {"rule": name, "false series, white": white, "false series, AR(0.4)": following}
    return {**answer, "2 % step, 10 runs on": f"{100 * hits:.1f} % of {steps}"}


def page_opens(page: Path, chromium: str) -> tuple[float, float]:
    """Return seconds from navigation until the page is ready, and of its main thread.

    The second are seconds of the processor.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        opened = browser.new_page(viewport={"width": 1280, "height": 900})
        session = opened.context.new_cdp_session(opened)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        began = time.perf_counter()
        opened.goto(page.as_uri())
        opened.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
        took = time.perf_counter() - began
        metrics = {
            metric["name"]: metric["value"]
            for metric in session.send("Performance.getMetrics")["metrics"]
        }
        browser.close()
    return round(took, 2), round(metrics["TaskDuration"], 2)


def thresholds(rng: np.random.Generator) -> list[dict[str, str]]:
    """Return the score that white noise exceeds with probability `LEVEL`.

    It is from the tail of simulated scores; the row has AR(0.4)'s share beyond, too.
    """
    rows = []
    for points in _SIZES:
        draws = max(12_000, min(_MOST_DRAWS, 20_000_000 // points))
        white, following = (_scores(rng, draws, points, rho) for rho in (0.0, RHO))
        beyond = np.mean(following > threshold(points))
        rows.append(
            {
                "points": str(points),
                "white": f"{_tail(white):.2f}",
                "in use": f"{threshold(points):.2f}",
                "AR(0.4) beyond": f"{100 * beyond:.2f} %",
            }
        )
    return rows


def _scores(rng: np.random.Generator, draws: int, points: int, rho: float) -> Floats:
    size = max(200, 400_000 // points)
    parts = [
        scan(winsorised(noise(rng, size, points, rho))).score for _ in range(-(-draws // size))
    ]
    return np.sort(np.concatenate(parts))


def _tail(scores: Floats) -> float:
    """Return the score beyond which the share is `LEVEL`.

    It is counted, or from a parabola through the share's logarithm over the last three per cent.
    """
    if len(scores) >= _MOST_DRAWS:
        return float(np.quantile(scores, 1 - LEVEL))
    first = int(0.97 * len(scores))
    beyond = np.log(1 - (np.arange(first, len(scores) - 5) + 0.5) / len(scores))
    fit = np.polyfit(scores[first:-5], beyond, 2) - np.array([0.0, 0.0, np.log(LEVEL)])
    roots = [
        float(root.real)
        for root in np.roots(fit)
        if abs(root.imag) < 1e-9 and root.real > scores[first]  # noqa: PLR2004
    ]
    return min(roots, default=float("nan"))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument(
        "--otava",
        type=Path,
        metavar="PYTHON",
        help="the interpreter of an environment with apache-otava",
    )
    parser.add_argument(
        "--chromium", metavar="PATH", help="measure how fast the page opens in this browser"
    )
    parser.add_argument(
        "--drifts",
        type=int,
        metavar="N",
        help="only say how often steps and drifts are told apart, N series each",
    )
    parser.add_argument(
        "--thresholds",
        action="store_true",
        help="only print what the table of thresholds is made from",
    )
    arguments = parser.parse_args(argv)
    rng = np.random.Generator(np.random.PCG64(_SEED))
    if arguments.thresholds:
        publish(render("Thresholds of the scan", thresholds(rng)), {}, arguments.json)
        return 0
    if arguments.drifts:
        rows = slow_or_sudden(rng, arguments.drifts)
        publish(
            render(f"Drifts and steps, {100 * NOISE:.0f} % noise", rows),
            {"drifts": rows},
            arguments.json,
        )
        return 0
    text, figures = _all(rng, arguments)
    publish(text, figures, arguments.json)
    return 0


def _all(
    rng: np.random.Generator, arguments: argparse.Namespace
) -> tuple[str, Mapping[str, object]]:
    rules = contenders(rng, arguments.otava)
    shares = {
        f"2 % step seen within {WITHIN} runs, white": seen_within(rng, 0.0, 400),
        f"2 % step seen within {WITHIN} runs, AR(0.4)": seen_within(rng, RHO, 200),
        f"null series that ever alarm in {RUNS:,} looks, white": watched(rng, 0.0, METRICS),
        f"null series that ever alarm in {RUNS:,} looks, AR(0.4)": watched(rng, RHO, METRICS),
    }
    for kind, words in (("drift", "4 % drift over 1,000 runs"), ("wiggle", "wiggling by 0.5 %")):
        changed, slow = drifting(rng, kind, METRICS)
        shares |= {f"{words}: shown as changed": changed, f"{words}: of those, called slow": slow}
    store = _store(rng, arguments.chromium)
    parts = [
        render(f"Finished histories of {RUNS:,} runs with {100 * NOISE:.0f} % noise", rules),
        render(
            "Watching",
            [{"what": name, "share": f"{100 * share:.1f} %"} for name, share in shares.items()],
        ),
        render(
            f"Store and page of {RUNS:,} runs of {METRICS} metrics",
            [{"what": name, "figure": f"{value:,}"} for name, value in store.items()],
        ),
    ]
    return "\n".join(parts), {
        "rules": rules,
        "shares": shares,
        "store": store,
        "most_points": MOST_POINTS,
    }


def _store(rng: np.random.Generator, chromium: str | None) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        values = np.exp(NOISE * noise(rng, METRICS, RUNS, 0.0))
        values[::10, RUNS // 2 :] *= 1 + STEP
        figures = written(generated(values), Path(folder) / "store", Path(folder) / "trend.html")
        figures["bound, bytes"] = BYTES_PER_VALUE * RUNS * METRICS + BYTES_PER_RUN * RUNS
        if chromium:
            opens, busy = page_opens(Path(folder) / "trend.html", chromium)
            figures |= {"page opens, s": opens, "of that, the page's main thread, s": busy}
    return figures


if __name__ == "__main__":
    sys.exit(main())
