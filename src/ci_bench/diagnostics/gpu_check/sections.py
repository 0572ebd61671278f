"""The sections of `ci-bench doctor --gpu`: questions, time limits, and figures' meanings.

Needs no torch. A section passes if the engine's assumption holds, fails if figures of this card
would be wrong, and is unknown if it was inconclusive. Figures are in seconds, bytes, joules, watts
and MHz, as their names show.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ci_bench.judge.wording import percent, quantity
from ci_bench.records.results import Outcome, Unit

Figures = Mapping[str, float | str | None]

RESOLUTION_S = 5e-6
"""The coarsest useful resolution.

It makes 100 µs known to five per cent, the least that the clock accepts.
"""
FENCE_S = 1e-3
WARM_UP_S = 10.0
"""The default of `run.warmup_s`, when warm-up gives up waiting for a steady state."""
SLOWED = 0.05
"""The largest accepted slowdown of steps next to another resident process."""
COLDER = 0.95
"""The least time of a call with a cold cache, as a share of a hot one.

Below it the call was not timed right.
"""
CLOCKS_APART = 0.02
PEAK_SPREAD = 0.005
"""The threshold of `peak_allocated`."""
ROUNDING = 1e-4
"""Sums that differ by more from call to call differ by more than the order of their terms."""
CHOICE = 0.02
MICROSECONDS_BELOW_S = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class SectionResult:
    """The statement of a section's figures, and its meaning here, or the remedy."""

    outcome: Outcome
    found: str
    means: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One section. `limit_s` is how long it may take, start of its process included."""

    name: str
    asks: str
    limit_s: float
    judge: Callable[[Figures], SectionResult]


def _seconds(value: float) -> str:
    return (
        f"{1e6 * value:.3g} µs" if value < MICROSECONDS_BELOW_S else quantity(value, Unit.SECONDS)
    )


def _number(figures: Figures, name: str) -> float:
    """Return a figure.

    Raises KeyError or ValueError if it is missing: then the probe is at fault.
    """
    return float(figures[name] or 0.0)


def _device(figures: Figures) -> SectionResult:
    statement = (
        f"{figures['gpu']}, {_number(figures, 'memory_bytes') / 2**30:.0f} GiB, torch"
        f" {figures['torch']}, {figures['toolkit']}"
    )
    if figures.get("monitor_trouble"):
        means = (
            f"{figures['monitor_trouble']}: throttling, other processes and energy will not be"
            " noticed"
        )
        return SectionResult(outcome=Outcome.UNKNOWN, found=statement, means=means)
    statement += f", driver {figures['driver']}"
    if figures.get("exclusive"):
        means = (
            f"it is in {figures['exclusive']}: base and head are measured one after the other,"
            " which is slower and less sure"
        )
        return SectionResult(outcome=Outcome.UNKNOWN, found=statement, means=means)
    command = figures.get("keep_loaded")
    means = (
        f"the driver unloads between processes, and each first one waits for it: run `{command}` as"
        " root"
        if command
        else ""
    )
    return SectionResult(outcome=Outcome.PASS, found=statement, means=means)


def _events(figures: Figures) -> SectionResult:
    step_s = _number(figures, "resolution_s")
    statement = f"events have a resolution of {_seconds(step_s)}"
    if step_s > RESOLUTION_S:
        return SectionResult(
            outcome=Outcome.FAIL,
            found=statement,
            means="device times of short steps and of parts are coarse on this card",
        )
    return SectionResult(
        outcome=Outcome.PASS, found=statement, means="parts of a step are timed from 100 µs on"
    )


def _fence(figures: Figures) -> SectionResult:
    fence_s = _number(figures, "fence_s")
    statement = f"waiting for an idle GPU takes {_seconds(fence_s)}"
    if fence_s > FENCE_S:
        means = (
            "other work keeps the host or the GPU busy, or the container is throttled: short steps"
            " will be timed wrongly"
        )
        return SectionResult(outcome=Outcome.FAIL, found=statement, means=means)
    return SectionResult(
        outcome=Outcome.PASS,
        found=statement,
        means=f"samples are at least {_seconds(1000 * fence_s)} long",
    )


def _ramp(figures: Figures) -> SectionResult:
    ramp_s, first = _number(figures, "ramp_s"), _number(figures, "first_ratio")
    statement = (
        f"after a pause the first steps take {first:.3g} times as long, and {_seconds(ramp_s)} pass"
        " until they are steady"
    )
    if ramp_s >= WARM_UP_S:
        means = (
            "clocks do not settle within run.warmup_s: lock them (nvidia-smi --lock-gpu-clocks), or"
            " raise it"
        )
        return SectionResult(outcome=Outcome.FAIL, found=statement, means=means)
    return SectionResult(outcome=Outcome.PASS, found=statement, means="warm-up covers that")


def _hand_over(figures: Figures) -> SectionResult:
    if figures.get("refused"):
        means = "base and head are measured one after the other, which is slower and less sure"
        return SectionResult(
            outcome=Outcome.UNKNOWN,
            found=f"a second process can't use the GPU: {figures['refused']}",
            means=means,
        )
    alone_s, first_s, later_s = (
        _number(figures, name) for name in ("alone_s", "first_s", "later_s")
    )
    statement = (
        f"with two processes on the GPU the first step of a turn takes {_seconds(first_s)}, later"
        f" ones {_seconds(later_s)}"
    )
    if later_s > alone_s * (1 + SLOWED):
        means = (
            f"alone they take {_seconds(alone_s)}: a second process that only waits slows them down"
            " (MPS, or other work?)"
        )
        return SectionResult(outcome=Outcome.FAIL, found=statement, means=means)
    return SectionResult(
        outcome=Outcome.PASS,
        found=statement,
        means="base and head can stay on the GPU and take turns",
    )


def _flush(figures: Figures) -> SectionResult:
    if figures["hot_s"] is None or figures["cold_s"] is None:
        statement = "a call with a cold cache is too short for events on this card"
        return SectionResult(
            outcome=Outcome.UNKNOWN, found=statement, means="run.flush_l2 could not be checked here"
        )
    hot_s, cold_s, flushes = (_number(figures, name) for name in ("hot_s", "cold_s", "flushes"))
    statement = (
        f"with the L2 cache overwritten before it a call takes {cold_s / hot_s:.3g} times as long"
        " as without"
    )
    if cold_s < COLDER * hot_s:
        return SectionResult(
            outcome=Outcome.FAIL,
            found=statement,
            means="run.flush_l2 would time calls wrongly on this card",
        )
    return SectionResult(
        outcome=Outcome.PASS,
        found=statement,
        means=f"run.flush_l2 takes {flushes:.0f} flushes a call here",
    )


def _clocks(figures: Figures) -> SectionResult:
    heavy, light = _number(figures, "products_mhz"), _number(figures, "copies_mhz")
    if not heavy or not light:
        means = "a speedup caused by clocks cannot be distinguished from one caused by code"
        return SectionResult(
            outcome=Outcome.UNKNOWN, found="the driver reports no clocks", means=means
        )
    statement = f"the GPU runs at {heavy:.0f} MHz under products, at {light:.0f} MHz under copies"
    if figures.get("harmful"):
        means = (
            f"it was slowed down ({figures['harmful']}): cool it, or look after its power; such"
            " blocks are measured again"
        )
        return SectionResult(outcome=Outcome.FAIL, found=statement, means=means)
    if abs(heavy / light - 1) > CLOCKS_APART:
        means = (
            "part of a speedup between arms may be clocks: see `sm_clock`, or lock them (nvidia-smi"
            " --lock-gpu-clocks)"
        )
        return SectionResult(outcome=Outcome.PASS, found=statement, means=means)
    return SectionResult(
        outcome=Outcome.PASS, found=statement, means="arms are compared at one clock"
    )


def _capture(figures: Figures) -> SectionResult:
    if figures.get("refused"):
        means = "run.cuda_graph has no effect here: steps are called plainly"
        return SectionResult(
            outcome=Outcome.UNKNOWN,
            found=f"no CUDA graph can be captured: {figures['refused']}",
            means=means,
        )
    ratio = _number(figures, "replay_ratio")
    statement = f"a captured step replays in {ratio:.3g} times its time"
    if not figures.get("right"):
        return SectionResult(
            outcome=Outcome.FAIL,
            found=f"{statement}, and computes something else",
            means="do not use run.cuda_graph here",
        )
    if not figures.get("noticed"):
        means = "a step that waits for the GPU was still captured: do not use run.cuda_graph here"
        return SectionResult(outcome=Outcome.FAIL, found=statement, means=means)
    after = (
        "the worker is then replaced"
        if figures.get("spoilt")
        else "the process then continues without graphs"
    )
    return SectionResult(
        outcome=Outcome.PASS,
        found=statement,
        means=f"a step that can't be captured is noticed; {after}",
    )


def _peaks(figures: Figures) -> SectionResult:
    low, high, due = (
        _number(figures, name) for name in ("lowest_bytes", "highest_bytes", "due_bytes")
    )
    statement = (
        f"{high / 2**20:.1f} MiB at most where {due / 2**20:.1f} are due, over five repetitions"
        f" {percent(high / low - 1)} apart"
    )
    if high > low * (1 + PEAK_SPREAD) or not due <= high <= 1.05 * due:
        return SectionResult(
            outcome=Outcome.FAIL,
            found=statement,
            means="differences in peak memory at the threshold are not detectable here",
        )
    return SectionResult(outcome=Outcome.PASS, found=statement, means="peak memory is exact")


def _atomics(figures: Figures) -> SectionResult:
    kinds, spread = _number(figures, "distinct"), _number(figures, "apart")
    statement = (
        f"{kinds:.0f} different sums in 20 calls of the same scattered addition, {spread:.1e} apart"
    )
    if spread > ROUNDING:
        return SectionResult(
            outcome=Outcome.FAIL,
            found=statement,
            means="more than the order of additions explains: is the memory sound?",
        )
    means = (
        "the order of additions differs from call to call: parity allows for it"
        if kinds > 1
        else "such sums are the same here"
    )
    return SectionResult(outcome=Outcome.PASS, found=statement, means=means)


def _caches(figures: Figures) -> SectionResult:
    shared, fresh = _number(figures, "shared_ratio"), _number(figures, "fresh_ratio")
    statement = (
        f"recompiled, the same code takes up to {fresh:.3g} times as long; from a shared cache up"
        f" to {shared:.3g} times"
    )
    if fresh > 1 + CHOICE and fresh > shared:
        means = (
            "autotuning chooses differently from time to time: that is why a run keeps its choices"
            " for both sides"
        )
        return SectionResult(outcome=Outcome.PASS, found=statement, means=means)
    return SectionResult(
        outcome=Outcome.PASS, found=statement, means="recompiling chooses the same kernels"
    )


def _energy(figures: Figures) -> SectionResult:
    if figures.get("why"):
        return SectionResult(
            outcome=Outcome.UNKNOWN,
            found=str(figures["why"]),
            means="run.energy_s gives no figure on this card",
        )
    watts, period_s = _number(figures, "watts"), _number(figures, "period_s")
    statement = f"{watts:.0f} W under load; the counter moves every {_seconds(period_s)}"
    return SectionResult(
        outcome=Outcome.PASS,
        found=statement,
        means=f"run.energy_s: {max(0.5, 20 * period_s):.2g} tells energy to one per cent",
    )


def _unchanged(figures: Figures) -> SectionResult:
    wrong, doubts, undecided, metrics = (
        _number(figures, name) for name in ("wrong", "doubts", "undecided", "metrics")
    )
    statement = (
        f"the same code against itself: of {metrics:.0f} metrics {metrics - wrong - undecided:.0f}"
        " unchanged"
    )
    statement += "".join(
        f", {count:.0f} {word}"
        for count, word in ((undecided, "undecided"), (wrong, "changed"))
        if count
    )
    cost = (
        f"changes of {percent(_number(figures, 'resolvable'))} can be found in 8 launches, of which"
        " each takes a small case "
    )
    means = f"{cost}{_seconds(_number(figures, 'launch_s'))}" if figures.get("resolvable") else ""
    if wrong:
        return SectionResult(
            outcome=Outcome.FAIL,
            found=statement,
            means="this machine reports unchanged code as changed: do not gate on it",
        )
    if doubts:
        return SectionResult(
            outcome=Outcome.UNKNOWN,
            found=statement,
            means=f"{doubts:.0f} blocks were disturbed: {figures['doubt']}; {means}",
        )
    if undecided > metrics / 2:
        return SectionResult(
            outcome=Outcome.UNKNOWN,
            found=statement,
            means="it is noisy: stop other work on it, lock its clocks, try again",
        )
    return SectionResult(outcome=Outcome.PASS, found=statement, means=means)


UNCHANGED = Section(
    name="unchanged",
    asks="is unchanged code reported as unchanged?",
    limit_s=180.0,
    judge=_unchanged,
)
"""The section that runs the whole engine, in separate processes."""
SECTIONS: tuple[Section, ...] = (
    Section(
        name="device", asks="which GPU is it, and can it be monitored?", limit_s=30.0, judge=_device
    ),
    Section(name="events", asks="what is the resolution of events?", limit_s=20.0, judge=_events),
    Section(name="fence", asks="what does waiting for the GPU cost?", limit_s=20.0, judge=_fence),
    Section(name="ramp", asks="how long do clocks rise after a pause?", limit_s=30.0, judge=_ramp),
    Section(name="hand_over", asks="can two processes take turns?", limit_s=30.0, judge=_hand_over),
    Section(
        name="flush", asks="are calls with a cold cache timed right?", limit_s=20.0, judge=_flush
    ),
    Section(name="clocks", asks="do arms run at the same clocks?", limit_s=20.0, judge=_clocks),
    Section(
        name="capture",
        asks="do CUDA graphs replay, and is a failed capture noticed?",
        limit_s=30.0,
        judge=_capture,
    ),
    Section(name="peaks", asks="is peak memory exact?", limit_s=20.0, judge=_peaks),
    Section(
        name="atomics",
        asks="how much do sums differ if their order varies?",
        limit_s=20.0,
        judge=_atomics,
    ),
    Section(name="energy", asks="does it count energy?", limit_s=20.0, judge=_energy),
    Section(
        name="caches", asks="does recompiling choose other kernels?", limit_s=150.0, judge=_caches
    ),
    UNCHANGED,
)
NAMES = tuple(section.name for section in SECTIONS)
