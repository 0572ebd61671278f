"""Records of runs, made up: a machine, a moment, a commit, a value for each series."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from ci_bench.judge.times.calibration import fingerprint
from ci_bench.records.history import Entry, History, HistoryMachine, Points
from ci_bench.records.results import Better, Lane, Unit

H200 = {"device": "cuda", "gpu": "NVIDIA H200", "torch": "2.13.0", "driver": "570.1"}
START = datetime(2030, 1, 1, tzinfo=UTC)


def commit(number: int) -> str:
    return f"{number + 1:07x}".ljust(40, "0")


def record(
    number: int,
    *,
    series: int = 3,
    identity: Mapping[str, object] = H200,
    value: float | None = None,
    **entry,
) -> History:
    """The record of run `number`."""
    given = {
        "commit": commit(number),
        "branch": "main",
        "url": f"https://github.com/o/r/actions/runs/{number}",
        **entry,
    }
    at = (START + timedelta(hours=number)).isoformat(timespec="seconds")
    return History(
        tool_version="1.0",
        machines=(HistoryMachine(fingerprint=fingerprint(identity), identity=dict(identity)),),
        runs=(Entry(id=f"run-{number}", at=at, machine=0, tool_version="1.0", **given),),
        series=tuple(
            points(
                f"fake/case-{index}",
                (0,),
                (0.01 * (index + 1) + number * 1e-6 if value is None else value,),
            )
            for index in range(series)
        ),
    )


def points(case: str, runs: Sequence[int], values: Sequence[float], **fields) -> Points:
    standard = {
        "suite": case.partition("/")[0],
        "metric": "step_time",
        "arm": "eager",
        "unit": Unit.SECONDS,
    }
    standard |= {
        "better": Better.LOWER,
        "lane": Lane.WALL,
        "errors": (0.002,) * len(runs),
        **fields,
    }
    return Points(case=case, runs=tuple(runs), values=tuple(values), **standard)


def whole(
    values: Sequence[float],
    *,
    identities: Sequence[Mapping[str, object]] = (H200,),
    machines: Sequence[int] = (),
    **fields,
):
    """A history of one series with these values; `machines` says which identity each run had."""
    places = list(machines) or [0] * len(values)
    runs = tuple(
        Entry(
            id=f"run-{number}",
            at=(START + timedelta(hours=number)).isoformat(timespec="seconds"),
            machine=places[number],
            tool_version="1.0",
            commit=commit(number),
            url=f"https://github.com/o/r/actions/runs/{number}",
        )
        for number in range(len(values))
    )
    known = tuple(
        HistoryMachine(fingerprint=fingerprint(identity), identity=dict(identity))
        for identity in identities
    )
    return History(
        tool_version="1.0",
        machines=known,
        runs=runs,
        series=(points("fake/one", range(len(values)), values, **fields),),
    )


def ids(history: History) -> list[str]:
    return [run.id for run in history.runs]
