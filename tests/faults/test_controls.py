"""What shows a fault would show it: the clock, the signals and the limits again, each with its protection taken out."""

import signal
from dataclasses import replace
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from fake_suite import FIXTURES, QUICK, FakeRun, fake_environ
from fake_time import StageClock
from fault_checks import INTERRUPTED, interrupt, is_crash_of, measured_truly, takes_at_least
from mutants import plant as plant_here
from planted_site import before, plant
from weighing import Limit, weigh

from ci_bench.processes import resident
from ci_bench.records.results import Status
from ci_bench.runner import side_run
from ci_bench.runner.budget import Budget

CLOCK = ("ci_bench.worker.fence", "return partial(time.perf_counter)")
TELLING = ("ci_bench.cli", "    gc.set_threshold(*SELDOM)\n")
DEAF = "".join(
    f"    signal.signal(signal.{name}, lambda *_: None)\n" for name in ("SIGINT", "SIGTERM")
)


@pytest.mark.parametrize(
    ("broken", "holds"),
    [
        (None, True),
        ("return lambda: time.perf_counter()", False),  # looked up whenever it is asked
    ],
    ids=["sound", "looked up"],
)
def test_a_clock_that_benched_code_can_reach_is_seen(tmp_path, broken, holds):
    site = plant(tmp_path / "site", *CLOCK, broken) if broken else ""
    run = FakeRun(
        tmp_path,
        replace(QUICK, stage_timeout_s=3.0),
        fake_environ(PYTHONPATH=before(site, FIXTURES)),
    )
    row = run.measure({"name": "frozen", "fault": "freeze_time"})["frozen"]
    assert measured_truly(row) is holds, row


def test_a_clock_that_one_assignment_slows_is_seen(tmp_path):
    site = plant(tmp_path / "site", *CLOCK, "return lambda: time.perf_counter()")
    environ = fake_environ(PYTHONPATH=before(site, FIXTURES), FAKE_STEP_S="0.05")
    row = FakeRun(tmp_path, QUICK, environ).measure(
        {"name": "slowed", "fault": "slow_every_clock"}
    )["slowed"]
    assert not takes_at_least(row, 0.049), row


def test_a_budget_that_does_not_look_at_the_clock_is_seen(tmp_path, monkeypatch):
    """The control of what a jump forwards does to the cases that are left."""
    monkeypatch.setattr(Budget, "fits", lambda *_: True)
    jumps = StageClock(lambda _: 1e9)
    run = FakeRun(tmp_path, replace(QUICK, budget_s=100.0), events=jumps, clock=jumps)
    rows = run.measure({"name": "first"}, {"name": "second"})
    assert [row.status for row in rows.values()] != [Status.OK, Status.NOT_RUN]


ENDINGS = {
    "sound": None,
    "a signal is no end": ("    if ended.code < 0:\n", "    if False:\n"),
    "its name is lost": ("return signal.Signals(-ended.code).name", "return None"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_signal_that_is_not_told_is_seen(tmp_path, monkeypatch, name):
    (tmp_path / "run").mkdir()
    if ENDINGS[name]:
        mutant = plant_here(resident, tmp_path, *ENDINGS[name])
        for function in ("explain", "signal_name"):
            monkeypatch.setattr(side_run, function, getattr(mutant, function))
    number = int(signal.SIGTERM)
    row = FakeRun(tmp_path / "run").measure(
        {"name": "one", "fault": f"signal:{number}", "at": "step"}
    )["one"]
    assert is_crash_of(row, number, "time") is (name == "sound"), row


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("is_deaf", [False, True], ids=["sound", "deaf"])
def test_a_handler_that_does_nothing_is_seen(place, tmp_path, number, is_deaf):
    site = plant(tmp_path / "planted", *TELLING, f"{TELLING[1]}{DEAF}") if is_deaf else ""
    ended = interrupt(
        place,
        number,
        limit_s=3.0 if is_deaf else 60.0,
        PYTHONPATH=before(site, place.site, FIXTURES),
    )
    assert ended.began
    assert ended.code == (None if is_deaf else INTERRUPTED), ended


SMALL = Limit(cpu_s=1.0, grown_bytes=200_000_000)
"""Of inputs that are as much smaller than those of 20 MB."""
UNPACKED_BYTES = 150_000_000


def bomb():
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr("results.json", b" " * UNPACKED_BYTES)
    return packed.getvalue()


def laughs():
    levels = "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 12)}]\n" for n in range(1, 6))
    return f"a0: &a0 [x]\n{levels}".encode()


def deep():
    """Flat, but so many fields that an object of them is large."""
    return (
        b'{"kind":"results","schema_version":1'
        + b"".join(b',"%x":1' % number for number in range(500_000))
        + b"}"
    )


READERS = {
    "artifact": (bomb, "ci_bench.github.archive", "            _check(entries, limits)\n", ""),
    "config": (laughs, "ci_bench.configuration.config", "or self.nodes > MAX_NODES:", "or False:"),
    "results": (deep, "ci_bench.records.documents", "MAX_FIELDS = 10_000", "MAX_FIELDS = 10**9"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_without_its_limit_is_seen(tmp_path, reader):
    make, *defect = READERS[reader]
    (tmp_path / "input").write_bytes(make())
    sound, broken = (
        weigh(reader, tmp_path / "input", site=site)
        for site in ("", plant(tmp_path / "site", *defect))
    )
    assert sound.beyond(SMALL) == []
    assert broken.beyond(SMALL) != []
