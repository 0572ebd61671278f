"""Launches of one run on several identical devices: the variance between them, and its effect.

Base and head of a launch are measured on one device, so effects of the device on both cancel in
their ratio. The remainder is a random effect of device and case. Launches on one device share it,
and more launches don't average it away. Owns its size, how many devices contribute to a mean, and
whether a change shows without any single one of them. The rule that uses it is in `sequential`.

Arrays are [..., cases, launches]; NaN stands for a launch that wasn't run, and slots are small
numbers, below 0 if unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ci_bench.judge.times.noise import Floats
from ci_bench.records.results import Results

USUAL, USUAL_WEIGHT = 0.25, 20.0
"""The variance between devices, relative to that of a launch, that is assumed, and how many degrees
of freedom that weighs.
"""

_STEPS = 8

Slots = np.ndarray[tuple[int, ...], np.dtype[np.intp]]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceLayout:
    """Distribution of the launches of each case over devices."""

    own: Floats
    """Launches of a case on the device of each launch, itself included: [..., cases, launches]."""
    means: Floats
    """Mean log-ratio of these launches: [..., cases, launches]."""
    count: Floats
    """Launches that ran: [..., cases]."""
    devices: Floats
    """Devices that ran them: [..., cases]."""
    mean: Floats
    """Mean log-ratio of all launches: [..., cases]."""
    concentration: Floats
    """``H = sum n_j^2 / r^2``, 1 with one device, 1/r with one per launch: [..., cases]."""


def layout(d: Floats, slots: Slots) -> DeviceLayout:
    """Compute the distribution of launches over devices; launches on unknown devices share one."""
    there = np.isfinite(d)
    values = np.where(there, d, 0.0)
    slots = np.broadcast_to(slots, d.shape)
    together = (
        (slots[..., :, None] == slots[..., None, :]) & there[..., :, None] & there[..., None, :]
    )
    sharing = together.sum(axis=-1).astype(np.float64)
    means = np.einsum("...ij,...j->...i", together, values) / np.maximum(sharing, 1.0)
    count = there.sum(axis=-1).astype(np.float64)
    least = np.maximum(count, 1.0)
    return DeviceLayout(
        own=np.where(there, sharing, np.nan),
        means=np.where(there, means, np.nan),
        count=count,
        devices=np.sum(1.0 / np.maximum(sharing, 1.0), axis=-1, where=there),
        mean=values.sum(axis=-1) / least,
        concentration=np.where(count > 0, sharing.sum(axis=-1) / least**2, 1.0),
    )


def between(lying: DeviceLayout, spread: Floats) -> Floats:
    """Return the variance between devices relative to ``spread^2`` of a launch: [..., cases].

    By the analysis of variance, ``E[SSB] = (J - 1) (s^2 + n0 g^2)`` with ``n0 = (r - sum n_j^2 / r)
    / (J - 1)`` (Searle, Casella & McCulloch, Variance Components, 1992, section 3.6). A case has
    too few devices to know its own ``g``, so all cases say it together, twice: as a share of each
    one's spread (and as if `USUAL_WEIGHT` degrees of freedom more had shown `USUAL`), and as one
    figure for all, each weighed by how well it knows, ``1 / (s^2 + n0 g^2)^2`` (Paule & Mandel
    1982, https://doi.org/10.6028/jres.087.022). The larger counts. One device shows nothing.
    """
    several = (lying.devices > 1.5) & np.isfinite(spread)  # noqa: PLR2004 - two or more
    variance = np.where(several, spread, 1.0) ** 2
    squares = np.where(several, np.nansum((lying.means - lying.mean[..., None]) ** 2, axis=-1), 0.0)
    freedom = np.where(several, np.round(lying.devices) - 1.0, 0.0)
    weight = np.where(several, lying.count * (1.0 - lying.concentration), 0.0)
    relative = np.sum(squares / variance - freedom, axis=-1) + USUAL * USUAL_WEIGHT
    share = np.maximum(relative / (np.sum(weight, axis=-1) + USUAL_WEIGHT), 0.0)[..., None]
    common = _common(squares, freedom, weight, variance)
    return np.asarray(
        np.maximum(share, common / np.where(several, spread, np.inf) ** 2), dtype=np.float64
    )


def _common(squares: Floats, freedom: Floats, weight: Floats, variance: Floats) -> Floats:
    """Return the variance between devices, one figure for all cases: [..., 1]."""
    each = weight / np.maximum(freedom, 1.0)
    estimate = np.zeros((*squares.shape[:-1], 1))
    for _ in range(_STEPS):
        trust = 1.0 / (variance + each * estimate) ** 2
        shown = np.sum(trust * each * (squares - freedom * variance), axis=-1, keepdims=True)
        total_weight = np.sum(trust * each * weight, axis=-1, keepdims=True)
        estimate = np.divide(
            np.maximum(shown, 0.0),
            total_weight,
            out=np.zeros_like(estimate),
            where=total_weight > 0,
        )
    return estimate


def least_without_one(lying: DeviceLayout) -> tuple[Floats, Floats]:
    """Return the mean, in its own direction, without the device that shows most of it.

    The second array holds the remaining launches. NaN if all launches are on one device. Both
    [..., cases].
    """
    remaining = lying.count[..., None] - lying.own
    total = lying.mean * lying.count
    rest = np.divide(
        total[..., None] - lying.own * lying.means,
        remaining,
        out=np.full(remaining.shape, np.nan),
        where=remaining > 0,
    )
    rest = np.where(np.isfinite(rest), rest * np.sign(lying.mean)[..., None], np.inf)
    place = rest.argmin(axis=-1)[..., None]
    least, launches = (
        np.take_along_axis(values, place, axis=-1)[..., 0] for values in (rest, remaining)
    )
    return np.where(np.isfinite(least), least, np.nan), launches


def slots_of(results: Results) -> Mapping[str, Mapping[int, int]]:
    """Return the device of each launch of each case, as a small number; empty with one device."""
    names = list(dict.fromkeys(part.slot for part in results.parts))
    if len(names) < 2:  # noqa: PLR2004 - with one device there is nothing between devices
        return {}
    places = [names.index(part.slot) for part in results.parts]
    return {
        row.case.id: {origin.launch: places[origin.part] for origin in row.origins}
        for row in results.cases
    }
