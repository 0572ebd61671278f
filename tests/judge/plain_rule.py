"""The sequential rule in plain Python, case by case and figure by figure, as the docstrings of `sequential` and `Rule` have it.

Only what is shared by all cases comes from `noise`: the factor of the guard, and the prior that
cases without a history share.
"""

import math
import statistics
from types import SimpleNamespace

import numpy as np
from scipy.special import stdtrit

from ci_bench.judge.times import noise, sequential

POWER_QUANTILE = 1.2815515655446004
INCONCLUSIVE, UNCHANGED = 0, 2


def quantile(level, freedom):
    """Student's t; degrees of freedom count in eighths, from 1 to 2000."""
    return (
        math.nan
        if math.isnan(freedom)
        else float(stdtrit(max(math.floor(min(freedom, 2000.0) * 8) / 8, 1.0), level))
    )


def replay(d, within, learned, rule):
    """What the rule says of each case [cases, launches], as a list."""
    cases = [
        SimpleNamespace(code=INCONCLUSIVE, active=True, stop=0, told=None, row=row)
        for row in range(len(d))
    ]
    for case in cases:
        case.known = math.isfinite(learned.spread[case.row]) and learned.freedom[case.row] >= 4
        case.bound = float(np.broadcast_to(learned.bound, len(d))[case.row])
        case.tau, case.margin = (
            float(np.broadcast_to(one, len(d))[case.row]) for one in (rule.tau, rule.margin)
        )
    for number, look in enumerate(rule.looks):
        before = (0, *rule.looks)[number]
        going = [
            case for case in cases if case.active and np.isfinite(d[case.row][before:look]).any()
        ]
        if not going:
            continue
        for case in going:
            case.stop = look
        columns = np.arange(d.shape[1])[None] < np.array([case.stop for case in cases])[:, None]
        masked = np.where(columns, d, np.nan)
        factor = float(noise.inflation(masked, np.where(columns, within, np.nan), learned)[0])
        for case in cases:
            figures_of(case, masked[case.row])
        cold = [case for case in cases if not case.known and case.count >= rule.cold_launches]
        early = [
            case
            for case in cases
            if not case.known and rule.cold_unchanged <= case.count < rule.cold_launches
        ]
        priors = {id(case): shared_prior(among) for among in (cold, early) for case in among}
        strayed = max(float(np.ravel(learned.excursions)[0]), strayed_today(cases, learned, factor))
        for case in going:
            case.strayed = strayed
            usual = (
                (usual_spread(within[case.row][:look]), sequential.COLD_FREEDOM)
                if case in early
                else (0.0, 0.0)
            )
            case.told = weighed(
                case,
                usually(case, learned, factor),
                priors.get(id(case)),
                usual,
                worth(case, cases, learned, factor),
            )
            case.inflation = factor
            rest = without_shifts(masked, case, rule.alpha * rule.alpha_shares[number])
            decide(case, rest, rule, number, rule.gating or len(d), early=case in early)
    return [answer(case, rule, rule.gating or len(d)) for case in cases]


def usual_spread(within):
    """0.7 %, or half of the usual spread inside the launches so far."""
    there = [float(value) for value in within if math.isfinite(value)]
    return (
        max(sequential.COLD_SPREAD, sequential.COLD_SHARE * statistics.median(there))
        if there
        else sequential.COLD_SPREAD
    )


def figures_of(case, row):
    case.values = [float(value) for value in row if math.isfinite(value)]
    case.count = len(case.values)
    case.mean = sum(case.values) / case.count if case.values else math.nan
    case.squares = sum((value - case.mean) ** 2 for value in case.values)


def strayed_today(cases, learned, factor):
    """The share of launches that are more than five spreads from the median of their case, half of its launches at most."""
    strayed, launches = 0.002 * 50, 50
    for case in cases:
        spread = float(learned.spread[case.row]) * factor
        if case.count > 1 and math.isfinite(spread):
            middle = statistics.median(case.values)
            strayed += min(
                sum(abs(value - middle) > 5 * spread for value in case.values), case.count // 2
            )
            launches += case.count
    return strayed / launches


def more_than(most, launches, share):
    """The chance that more than `most` of so many launches stray to one side."""
    return sum(
        math.comb(launches, strays) * (share / 2) ** strays * (1 - share / 2) ** (launches - strays)
        for strays in range(most + 1, launches + 1)
    )


def shared_prior(cold):
    variances = np.array([case.squares / max(case.count - 1, 1) for case in cold])
    spread, freedom = noise.moderated(variances, np.array([case.count - 1.0 for case in cold]))
    return float(spread), float(freedom)


def usually(case, learned, factor):
    """The variance within a run that the history says, a tenth of the whole at least; NaN without a history."""
    whole = float(learned.spread[case.row]) ** 2
    return max(whole - case.bound**2, 0.1 * whole) * factor**2 if case.known else math.nan


def contradicts(case, learned, factor):
    return case.squares > 9 * usually(case, learned, factor) * max(case.count - 1, 1)


def worth(case, cases, learned, factor):
    """Degrees of freedom that a history counts for a change, and that it counts more for no change."""
    if not case.known:
        return 0.0, 0.0
    if contradicts(case, learned, factor):
        return min(1.0, float(learned.freedom[case.row])), 0.0
    judged = sum(other.known and other.count > 1 for other in cases)
    others = max(sum(contradicts(other, learned, factor) for other in cases) - 1 - judged // 100, 0)
    most = max(6.0 - 2.0 * others, 1.0)
    own = min(float(learned.freedom[case.row]), most)
    return own, min(float(learned.freedom[case.row]), 2 * most) - own


def weighed(case, history, prior, usual, worth):
    """Mean, spread of one launch, degrees of freedom, launches; `usual` is one more spread with degrees of freedom."""
    variance, freedom = math.nan, math.nan
    if case.known:
        variance, freedom = history, worth[0]
    elif prior:
        variance, freedom = prior[0] ** 2, prior[1]
    total = freedom + usual[1] + max(case.count - 1, 0)
    energy = (0.0 if freedom == 0 else freedom * variance) + usual[1] * usual[0] ** 2 + case.squares
    within = max(energy / total, 1e-10) if total > 0 else math.nan
    pooled, share = math.sqrt(within + case.bound**2), case.bound**2 / (within + case.bound**2)
    return SimpleNamespace(
        mean=case.mean, spread=pooled, share=share, freedom=total, more=worth[1], count=case.count
    )


def error(case, launches):
    return case.told.spread * math.sqrt((1 - case.told.share) / launches + case.told.share)


def beta_of_a_look(rule):
    """Equal shares, each 22 % at least: looks at a growing mean are much alike."""
    return rule.beta * max(1 / len(rule.looks), 0.22)


def without_shifts(masked, case, chance):
    """A case's launches without those shifts of most cases that matter to it and do not repeat."""
    columns = [[float(value) for value in column if math.isfinite(value)] for column in masked.T]
    least = max(10, np.isfinite(masked).any(axis=1).sum() / 2)
    shifts = [statistics.median(column) if len(column) >= least else math.nan for column in columns]
    found = [shift for shift in shifts if math.isfinite(shift)]
    if len(found) > 1:
        error = max(statistics.stdev(found) / math.sqrt(len(found)), 1e-5)
        if abs(statistics.mean(found)) > float(stdtrit(len(found) - 1, 1 - chance)) * error:
            return case.values
    row = masked[case.row]
    taken = [shift if abs(shift) > case.tau / 2 else 0.0 for shift in shifts]
    return [
        float(value - shift)
        for value, shift in zip(row, taken, strict=True)
        if math.isfinite(value)
    ]


def decide(case, rest, rule, number, gating, *, early):
    told, look = case.told, rule.looks[number]
    words = [
        word(case, values, rule, number, gating, early=early) for values in (case.values, rest)
    ]
    case.code = words[0] if words[0] == words[1] else INCONCLUSIVE
    size, own = abs(told.mean), error(case, told.count)
    lenient = quantile(1 - beta_of_a_look(rule), told.freedom + told.more)
    if early and case.code == INCONCLUSIVE:
        told.spread = told.freedom = own = math.nan
    suspect = size > (rule.suspect if look < rule.regular else rule.suspect_late) * own
    reachable = look < rule.regular and lenient * error(case, rule.regular) < case.margin
    worthwhile = look < rule.patience or suspect or reachable or not math.isfinite(own)
    case.active = case.code == INCONCLUSIVE and worthwhile


def word(case, values, rule, number, gating, *, early):
    told = case.told
    mean, own = sum(values) / len(values) if values else math.nan, error(case, told.count)
    lenient = quantile(1 - beta_of_a_look(rule), told.freedom + told.more)
    chance = rule.alpha * rule.alpha_shares[number] / gating
    if abs(mean) > quantile(1 - chance, told.freedom) * own and abs(mean) > case.tau:
        return (
            int(math.copysign(1, mean))
            if not early and recurs(case, values, rule, chance)
            else INCONCLUSIVE
        )
    return UNCHANGED if abs(mean) + lenient * own < case.margin else INCONCLUSIVE


def recurs(case, values, rule, chance):
    by_chance = next(
        k
        for k in range(1, case.count + 1)
        if k == case.count or more_than(k, case.count, case.strayed) <= chance
    )
    return shows_without(case, values, 1, rule.recurrence) and shows_without(
        case, values, by_chance, rule.confirmation
    )


def shows_without(case, values, dropped, level):
    if dropped == case.count:
        return False
    sign = math.copysign(1, sum(values))
    rest = sorted(sign * value for value in values)[: case.count - dropped]
    return sum(rest) / len(rest) > quantile(level, case.told.freedom) * error(case, len(rest))


def answer(case, rule, gating):
    told = case.told or SimpleNamespace(mean=math.nan, spread=math.nan, freedom=math.nan, count=0)
    case.told = told
    own = error(case, max(told.count, 1)) if case.stop else math.nan
    half = (
        quantile((1 + rule.level) / 2, told.freedom) * own
        if case.stop and math.isfinite(own)
        else math.nan
    )
    reach = math.nan
    if math.isfinite(told.spread):
        reach = (
            quantile(1 - rule.alpha * max(rule.alpha_shares) / gating, told.freedom)
            + POWER_QUANTILE
        ) * told.spread
    following = dict(zip((0, *rule.looks), (*rule.looks, 0), strict=True))
    return {
        "code": case.code,
        "mean": told.mean,
        "error": own,
        "low": told.mean - half,
        "high": told.mean + half,
        "resolvable": max(reach * own / told.spread, case.tau)
        if math.isfinite(reach)
        else math.nan,
        "needed": needed(case, reach, rule.alpha * max(rule.alpha_shares) / gating),
        "launches": told.count,
        "next_look": following[case.stop] if case.active else 0,
        "inflation": case.inflation if case.stop else math.nan,
        "calibrated": case.known,
    }


def needed(case, reach, chance):
    """The least number of launches, 2 or more, whose `resolvable` is no more than the margin and that can't all have strayed."""
    if not math.isfinite(reach):
        return math.nan
    share = case.told.share
    if reach * math.sqrt(share) >= case.margin:
        return math.inf
    least = next(n for n in range(2, 10**6) if (case.strayed / 2) ** n <= chance)
    return next(
        n for n in range(least, 10**6) if reach * math.sqrt((1 - share) / n + share) <= case.margin
    )
