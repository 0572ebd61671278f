"""Simulated timings: noise as GPU runs show it, both arms interleaved in ABBA turns.

Owns the noise models and the samples drawn from them. It knows no rule: what is made of the samples
is in `anchors` and `verdict_quality`. All sizes are in per cent of the time, and samples are
logarithms in per cent: ``100 ln(seconds)``. The same seed gives the same samples; nothing here
reads a clock.

Models: per launch and arm a constant offset (normal, and a fixed one with a probability); per
sample an AR(1) series, a state that is entered and left within the launch, spikes of exponential
size; and what both arms share at the same instant: an Ornstein-Uhlenbeck drift, a warm-up ramp,
clock steps, a state of the GPU that lasts for minutes.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Generator = np.random.Generator

SLOT_S = 0.05
"""Seconds that one sample takes."""

CASE_SPREAD = 0.3
"""Cases of one class differ: white and launch noise are scaled by ``exp(N(0, 0.3))``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """One class of cases; all figures without another unit are in per cent of the time.

    Each sample has AR(1) noise (`white`, `rho`) and spikes, each launch and arm an offset
    (`launch`, `mode`); both arms share the drift.
    """

    name: str
    """The name of the class."""
    share: float
    """The probability of the class (0..1)."""
    white: float
    """The standard deviation of the noise of a sample."""
    rho: float
    """The correlation of successive samples."""
    launch: float
    """The standard deviation of the offset of each launch and arm."""
    spike_share: float
    """The probability of a spike in a sample (0..1)."""
    spike: float
    """The mean height of a spike."""
    drift: float
    """The standard deviation of the drift that both arms share."""
    drift_s: float
    """The time constant of that drift (s)."""
    mode_share: float = 0.0
    """The probability that a launch of an arm is in the slow mode (0..1)."""
    mode: float = 0.0
    """The offset of the slow mode."""
    enter: float = 0.0
    """The probability per sample of entering the sticky state within a launch (0..1)."""
    leave: float = 1.0
    """The probability per sample of leaving it (0..1)."""
    sticky: float = 0.0
    """The height of that state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A set of classes, and the noise on top of them that all cases have."""

    name: str
    """The name of the model in the table."""
    classes: tuple[Noise, ...]
    """The classes of cases."""
    today: float = 1.0
    """The factor on white and launch noise of the judged launches against the history."""
    day_spread: float = 0.0
    """The spread of that factor from day to day."""
    ramp: float = 0.0
    """The mean height of a warm-up that both arms share (per cent)."""
    ramp_s: float = 1.0
    """The time constant of the warm-up (s)."""
    ramp_own: float = 0.0
    """The share of `ramp` that each process has separately."""
    step: float = 0.0
    """The standard deviation of a clock step at a random instant of a launch (per cent)."""
    step_share: float = 0.0
    """The probability that a launch has a clock step (0..1)."""
    slow: float = 0.0
    """The height of a slow state of the GPU (per cent)."""
    dwell_s: float = 1.0
    """The mean time in that state, and between its visits (s)."""
    slow_noise: float = 1.0
    """The factor on the noise in that state."""
    stray_share: float = 0.0
    """The probability that a launch of one arm is displaced (0..1)."""
    stray: float = 0.0
    """The displacement, in standard deviations of the launch noise."""
    bound: float = 0.0
    """The share of launch variance that all launches of a run share, as by autotuning (0..1)."""
    skewed: bool = False
    """True if the offsets of launches have a long tail upwards (exponential)."""
    fresh: bool = False
    """True if no launch of the history meets a mode."""
    creep: float = 0.0
    """The standard deviation of each process's own drift during a launch (per cent)."""
    effects: "Effects | None" = None
    """Offsets of head that samples do not show; `None` for none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    """Offsets of head against base, in per cent, that the samples inside a launch do not show.

    Each is drawn today; those in the history as well only where `learned` is set.
    """

    noisier_share: float = 0.0
    """The share of cases whose launches scatter more widely today."""
    noisier: float = 1.0
    """The factor on the scatter of those cases."""
    case_bound: float = 0.0
    """The sd of an offset of each case and run."""
    common_bound: float = 0.0
    """The sd of an offset of each run that all cases share."""
    slow: float = 0.0
    """The slowdown of one side of a launch, in `slow_share` of the launches."""
    slow_share: float = 0.0
    """The share of the launches of each side that are slower by `slow`."""
    offset: float = 0.0
    """A true difference of each case, of random sign; below the threshold, it must not count."""
    rho: float = 0.0
    """The correlation of successive launches of a case."""
    grid: float = 0.0
    """The distance between neighbouring values of a clock or a printed figure."""
    learned: bool = False
    """True if the history has these offsets, too."""


QUIET = Noise(
    name="quiet",
    share=0.30,
    white=0.3,
    rho=0.3,
    launch=0.1,
    spike_share=0.002,
    spike=10,
    drift=0.1,
    drift_s=30,
)
BOOST = Noise(
    name="boost",
    share=0.35,
    white=0.8,
    rho=0.5,
    launch=0.3,
    spike_share=0.01,
    spike=15,
    drift=0.7,
    drift_s=30,
)
DISPATCH = Noise(
    name="dispatch",
    share=0.15,
    white=2.5,
    rho=0.5,
    launch=0.8,
    spike_share=0.03,
    spike=20,
    drift=1.0,
    drift_s=60,
)
BIMODAL = Noise(
    name="bimodal",
    share=0.10,
    white=0.8,
    rho=0.5,
    launch=0.3,
    spike_share=0.01,
    spike=15,
    drift=0.5,
    drift_s=30,
    mode_share=0.2,
    mode=3,
    enter=0.02,
    leave=0.05,
    sticky=4,
)
HEAVY = Noise(
    name="heavy",
    share=0.10,
    white=1.0,
    rho=0.3,
    launch=0.4,
    spike_share=0.05,
    spike=30,
    drift=0.5,
    drift_s=30,
)

CLASSES = (QUIET, BOOST, DISPATCH, BIMODAL, HEAVY)

MIX = Setting(name="mix", classes=CLASSES)
"""The five classes that the rule was shaped on, other seeds."""

NOISIER = (
    Setting(name="mix, noise x1.5", classes=CLASSES, today=1.5),
    Setting(name="mix, noise x2", classes=CLASSES, today=2.0),
)
"""Today noisier than what was learned."""

HELD_OUT = (
    Setting(name="warm-up ramp", classes=CLASSES, ramp=4, ramp_s=1.5, ramp_own=0.1),
    Setting(name="clock steps", classes=CLASSES, day_spread=0.25, step=3, step_share=0.2),
    Setting(name="two-state GPU", classes=CLASSES, slow=8, dwell_s=120),
    Setting(name="two-state GPU, noisy", classes=CLASSES, slow=8, dwell_s=120, slow_noise=2),
    Setting(name="stray launches", classes=CLASSES, stray_share=0.05, stray=6),
)
"""Models on which nothing was chosen. After they were scored for the first time, `Rule.suspect`
went from 1.0 to 1.5.
"""

UNSEEN = (
    Setting(name="skewed launches", classes=CLASSES, skewed=True),
    Setting(name="creeping processes", classes=CLASSES, creep=1.0),
)
"""Models that were written after the last change of the rule."""

BOUND = Setting(name="run-bound offsets", classes=CLASSES, bound=0.3)
"""Launches of a run that are not independent: what `noise.run_share` was added for."""

MODE_SHARE, MODE, SPIKE_SHARE = 0.05, 8.0, 0.25
_UNSTEADY = replace(
    HELD_OUT[0],
    step=3,
    step_share=0.2,
    slow=8,
    dwell_s=120,
    slow_noise=2,
    stray_share=0.05,
    stray=6,
)
SLOWER_AT_TIMES = tuple(replace(noise, mode_share=MODE_SHARE, mode=MODE) for noise in CLASSES)

RARE = (
    Setting(name="slow mode in few launches", classes=SLOWER_AT_TIMES),
    Setting(
        name="spikes in a quarter of the samples",
        classes=tuple(replace(noise, spike_share=SPIKE_SHARE) for noise in CLASSES),
    ),
    replace(_UNSTEADY, name="everything at once", today=1.3, day_spread=0.3, bound=0.1, creep=1.0),
    Setting(name="slow mode that is new today", classes=SLOWER_AT_TIMES, fresh=True),
)
"""Kinds of noise that few launches show: an autotuner that errs in one launch of twenty, of either
arm and in every case; spikes that reach into what is left after trimming; all of the above
together; and modes that no launch of the history has met.
"""

_STEADY = tuple(
    replace(noise, white=0.01, launch=0.01, spike_share=0.0, drift=0.0, mode_share=0.0, sticky=0.0)
    for noise in CLASSES
)
"""Cases whose samples agree, so that a coarse clock shows the same value again and again."""

HELD_BACK = (
    *(
        Setting(name=name, classes=CLASSES, effects=effects)
        for name, effects in (
            ("10 % of cases x3 today", Effects(noisier_share=0.1, noisier=3)),
            ("50 % of cases x3 today", Effects(noisier_share=0.5, noisier=3)),
            ("10 % of cases x10 today", Effects(noisier_share=0.1, noisier=10)),
            ("case offsets of runs 0.3 %, learned", Effects(case_bound=0.3, learned=True)),
            ("case offsets of runs 0.5 %, learned", Effects(case_bound=0.5, learned=True)),
            ("case offsets of runs 0.8 %, learned", Effects(case_bound=0.8, learned=True)),
            ("case offsets of runs 0.5 %, new", Effects(case_bound=0.5)),
            ("common offset of runs 0.5 %, new", Effects(common_bound=0.5)),
            ("common offset of runs 1 %, new", Effects(common_bound=1.0)),
            ("whole launches 3 % slow, new", Effects(slow=3, slow_share=0.2)),
            ("whole launches 3 % slow, learned", Effects(slow=3, slow_share=0.2, learned=True)),
            ("whole launches 8 % slow, new", Effects(slow=8, slow_share=0.2)),
            ("each case off by 0.5 %", Effects(offset=0.5)),
            ("each case off by 0.8 %", Effects(offset=0.8)),
            ("launches correlate by 0.5", Effects(rho=0.5, learned=True)),
        )
    ),
    Setting(
        name="clock of 2 %, off by 0.2 %", classes=_STEADY, effects=Effects(grid=2, offset=0.2)
    ),
    Setting(
        name="clock of 10 %, off by 0.2 %", classes=_STEADY, effects=Effects(grid=10, offset=0.2)
    ),
)
"""Noise that broke a promise when it was first tried. Offsets "of runs" belong to a build: another
launch does not average them away. An alarm on a case whose build is off by more than the threshold
is right about the build (`Suite.builds`).
"""

BELOW_TWO = tuple(
    Setting(name=name, classes=CLASSES, effects=effects)
    for name, effects in (
        ("each case off by 1 %", Effects(offset=1.0)),
        ("each case off by 1.6 %", Effects(offset=1.6)),
        ("case offsets of runs 1 %, new", Effects(case_bound=1.0)),
    )
)
"""Differences just below a threshold of 2 %, as those above are below 1 %. Later models come last:
a model's place seeds it.
"""

SETTINGS = (MIX, *NOISIER, *HELD_OUT, *UNSEEN, BOUND, *RARE, *HELD_BACK, *BELOW_TWO)


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """The cases of many runs; `kind` and `scale` are [runs, cases].

    `kind` is the index of the class and `scale` the case's own factor.

    `builds` is how much slower head's build is than base's, in per cent: the same in each launch of
    a run; set when today's launches are drawn.
    """

    setting: Setting
    kind: NDArray[np.intp]
    scale: Floats
    builds: Floats


def draw_suite(rng: Generator, setting: Setting, runs: int, cases: int) -> Suite:
    """Draw the cases of `runs` runs, each of a class by its share."""
    shares = np.array([noise.share for noise in setting.classes])
    kind = rng.choice(len(shares), size=(runs, cases), p=shares / shares.sum())
    scale = np.exp(CASE_SPREAD * rng.standard_normal((runs, cases)))
    return Suite(setting=setting, kind=kind, scale=scale, builds=np.zeros((runs, cases)))


def draw_launches(
    rng: Generator, suite: Suite, launches: int, samples: int, *, day: int = 0
) -> tuple[Singles, Singles]:
    """Draw samples of base and head [runs, cases, launches, samples], without a true change.

    With `day`, history is drawn: so many launches in a row are of one run, each run of another day,
    at the noise that was learned. Without, all launches are of today's run, and `Suite.builds` is
    set.
    """
    shape = (*suite.kind.shape, launches)
    scale = suite.scale[..., None] * _day_factor(rng, suite.setting, shape, day)
    rows = _Rows.of(suite, np.broadcast_to(scale, shape))
    order = _turns(rng, rows.count, samples)
    shared, noisier = _shared(rng, suite.setting, rows, 2 * samples)
    sides, bound = [], []
    for arm in (0, 1):
        at = order[:, arm]
        series = _draw_own(rng, rows, samples) * np.take_along_axis(noisier, at, axis=1)
        offset, common = _offsets(
            rng, suite.setting, rows, day or launches, modes=not (day and suite.setting.fresh)
        )
        bound.append(common.reshape(shape)[..., :1])
        series += offset[:, None] + np.take_along_axis(shared, at, axis=1)
        if suite.setting.ramp:
            height = rng.exponential(
                suite.setting.ramp * suite.setting.ramp_own, (rows.count, 1)
            ).astype(np.float32)
            series += height * np.exp(-SLOT_S / suite.setting.ramp_s * at).astype(np.float32)
        if suite.setting.creep:
            slope = suite.setting.creep * rng.standard_normal((rows.count, 1), dtype=np.float32)
            series += slope * (at / (2 * samples)).astype(np.float32)
        sides.append(series.reshape(*shape, samples))
    if not day:
        suite.builds[...] = np.sum(bound[1] - bound[0], axis=-1)
    return (
        _with_effects(rng, suite, (sides[0], sides[1]), day)
        if suite.setting.effects
        else (sides[0], sides[1])
    )


def _with_effects(
    rng: Generator, suite: Suite, sides: tuple[Singles, Singles], day: int
) -> tuple[Singles, Singles]:
    """Return the samples with the `Effects` of the setting.

    These are offsets of whole launches on head, then the grid of the clock on both.
    """
    effects, base, head = suite.setting.effects, *sides
    if effects is None:
        return sides
    runs, cases, launches, samples = head.shape
    offset = _of_builds(rng, effects, head.shape[:3], day)
    here = not day or effects.learned
    if not day:
        suite.builds[...] += offset[..., 0]
    if effects.slow and here:
        slow = rng.random((2, runs, 1, launches)) < effects.slow_share
        offset += effects.slow * (slow[0].astype(np.float64) - slow[1])
    scale = _launch_spread(suite, samples)
    if effects.noisier_share and not day:
        noisy = rng.random((runs, cases, 1)) < effects.noisier_share
        more = np.sqrt(effects.noisier**2 - 1)
        offset += noisy * more * scale[..., None] * rng.standard_normal(offset.shape)
    if effects.rho and here:
        path = rng.standard_normal(offset.shape)
        for launch in range(1, launches):
            path[..., launch] = (
                effects.rho * path[..., launch - 1]
                + np.sqrt(1 - effects.rho**2) * path[..., launch]
            )
        offset += 2 * scale[..., None] * path
    head = head + offset[..., None].astype(np.float32)
    if effects.grid:
        phase = effects.grid * rng.random((runs, cases, 1, 1), dtype=np.float32)
        base, head = (_on_grid(side + phase, effects.grid) for side in (base, head))
    return base, head


def _of_builds(rng: Generator, effects: Effects, shape: tuple[int, ...], day: int) -> Floats:
    """Return the offsets of the builds of each run, for each case and launch."""
    (runs, cases, launches), offset = shape, np.zeros(shape)
    together, here = day or launches, not day or effects.learned
    if effects.case_bound and here:
        offset += effects.case_bound * np.repeat(
            rng.standard_normal((runs, cases, launches // together)), together, axis=-1
        )
    if effects.common_bound and here:
        offset += effects.common_bound * np.repeat(
            rng.standard_normal((runs, 1, launches // together)), together, axis=-1
        )
    if effects.offset:
        # Bound to the code: the same signs come back in the history only if one run has them.
        signs = np.where(rng.random((runs, cases, 1)) < 0.5, -1.0, 1.0)  # noqa: PLR2004 - a coin
        offset += 0.0 if day else effects.offset * signs
    return offset


def _on_grid(values: Singles, step: float) -> Singles:
    return np.asarray(np.float32(step) * np.round(values / np.float32(step)), dtype=np.float32)


def _launch_spread(suite: Suite, samples: int) -> Floats:
    """Return about the sd of the log-ratio of one launch of each case, without modes.

    It is [runs, cases].
    """
    table = {
        name: np.array([getattr(noise, name) for noise in suite.setting.classes])[suite.kind]
        for name in ("white", "rho", "launch")
    }
    inside = table["white"] * np.sqrt((1 + table["rho"]) / (1 - table["rho"]) / samples)
    return np.asarray(
        suite.scale * np.sqrt(2 * (table["launch"] ** 2 + inside**2)), dtype=np.float64
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    """One row per case and launch: the fields of its `Noise` as columns."""

    count: int
    column: dict[str, Singles]

    @classmethod
    def of(cls, suite: Suite, scale: Floats) -> "_Rows":
        kind = np.broadcast_to(suite.kind[..., None], scale.shape).ravel()
        names = [field.name for field in fields(Noise) if field.name not in {"name", "share"}]
        table = {
            name: np.array(
                [getattr(noise, name) for noise in suite.setting.classes], dtype=np.float32
            )
            for name in names
        }
        column = {name: values[kind] for name, values in table.items()}
        factor = scale.ravel().astype(np.float32)
        return cls(
            count=len(kind),
            column={
                **column,
                "white": column["white"] * factor,
                "launch": column["launch"] * factor,
            },
        )


def _day_factor(rng: Generator, setting: Setting, shape: tuple[int, ...], day: int) -> Floats:
    runs, _, launches = shape
    days = rng.standard_normal((runs, 1, launches // day if day else 1))
    return (1.0 if day else setting.today) * np.exp(
        setting.day_spread * np.repeat(days, day or 1, axis=-1)
    )


def _turns(rng: Generator, rows: int, samples: int) -> NDArray[np.intp]:
    """Return the slots of each arm [rows, 2, samples].

    Blocks are ABBA or BAAB by coin; a lone pair is in random order.
    """
    slots = np.arange(2 * samples)
    first = np.isin(slots % 4, (0, 3)) if samples > 1 else slots == 0
    both = np.stack([slots[first], slots[~first]])
    return np.where(rng.random((rows, 1, 1)) < 0.5, both, both[::-1])  # noqa: PLR2004 - a coin


def _draw_own(rng: Generator, rows: _Rows, samples: int) -> Singles:
    """Draw the noise of each sample of one arm: AR(1), spikes, and the in-launch state."""
    noise = rng.standard_normal((samples, rows.count), dtype=np.float32)
    noise[1:] *= np.sqrt(1 - rows.column["rho"] ** 2)
    for step in range(1, samples):
        noise[step] += rows.column["rho"] * noise[step - 1]
    noise *= rows.column["white"]
    hit = np.nonzero(
        rng.random((samples, rows.count), dtype=np.float32) < rows.column["spike_share"]
    )
    noise[hit] += rows.column["spike"][hit[1]] * rng.standard_exponential(
        len(hit[0]), dtype=np.float32
    )
    sticky = np.nonzero(rows.column["sticky"])[0]
    enter, leave = rows.column["enter"][sticky], rows.column["leave"][sticky]
    noise[:, sticky] += rows.column["sticky"][sticky] * _two_state(rng, enter, leave, samples)
    return np.ascontiguousarray(noise.T)


def _two_state(rng: Generator, enter: Singles, leave: Singles, steps: int) -> NDArray[np.bool_]:
    """Draw a stationary two-state Markov chain per column: [steps, columns]."""
    draws = rng.random((steps, len(enter)), dtype=np.float32)
    inside = np.empty(draws.shape, dtype=np.bool_)
    inside[0] = draws[0] < enter / (enter + leave)
    for step in range(1, steps):
        inside[step] = np.where(inside[step - 1], draws[step] >= leave, draws[step] < enter)
    return inside


def _offsets(
    rng: Generator, setting: Setting, rows: _Rows, together: int, *, modes: bool
) -> tuple[Singles, Singles]:
    """Draw the constant of each launch of one arm, and the part that belongs to the run.

    `together` launches in a row are of one run, with `modes` some are slower.
    """
    bound = np.zeros(rows.count, dtype=np.float32)
    offset = (
        rng.standard_exponential(rows.count, dtype=np.float32) - 1
        if setting.skewed
        else rng.standard_normal(rows.count)
    )
    offset = offset.astype(np.float32)
    if setting.bound:
        common = np.repeat(rng.standard_normal(rows.count // together, dtype=np.float32), together)
        bound = np.float32(np.sqrt(setting.bound)) * common * rows.column["launch"]
        offset = (
            np.float32(np.sqrt(1 - setting.bound)) * offset
            + np.float32(np.sqrt(setting.bound)) * common
        )
    offset *= rows.column["launch"]
    offset += rows.column["mode"] * (
        modes & (rng.random(rows.count, dtype=np.float32) < rows.column["mode_share"])
    )
    if setting.stray_share:
        stray = rng.random(rows.count, dtype=np.float32) < setting.stray_share
        offset += setting.stray * rows.column["launch"] * stray
    return np.asarray(offset, dtype=np.float32), bound


def _shared(rng: Generator, setting: Setting, rows: _Rows, slots: int) -> tuple[Singles, Singles]:
    """Draw the drift that both arms share, and the factor on their own noise then.

    Both are [rows, slots].
    """
    decay = np.exp(-SLOT_S / rows.column["drift_s"])
    path = rng.standard_normal((slots, rows.count), dtype=np.float32) * rows.column["drift"]
    path[1:] *= np.sqrt(1 - decay**2)
    for slot in range(1, slots):
        path[slot] += decay * path[slot - 1]
    factor = np.ones((1, 1), dtype=np.float32)
    time_s = SLOT_S * np.arange(slots, dtype=np.float32)[:, None]
    if setting.ramp:
        path += rng.exponential(setting.ramp, rows.count).astype(np.float32) * np.exp(
            -time_s / setting.ramp_s
        )
    if setting.step_share:
        height = (
            setting.step
            * rng.standard_normal(rows.count)
            * (rng.random(rows.count) < setting.step_share)
        )
        path += np.where(
            np.arange(slots)[:, None] >= rng.integers(slots, size=rows.count), height, 0
        ).astype(np.float32)
    if setting.slow:
        chance = np.full(rows.count, SLOT_S / setting.dwell_s, dtype=np.float32)
        slow = _two_state(rng, chance, chance, slots)
        path += np.float32(setting.slow) * slow
        factor = np.where(slow, np.float32(setting.slow_noise), np.float32(1))
    return np.ascontiguousarray(path.T), np.ascontiguousarray(np.broadcast_to(factor, path.shape).T)
