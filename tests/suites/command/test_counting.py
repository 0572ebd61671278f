"""Instructions of a command: by stand-ins of the tools, by callgrind where it is installed, and what is said where they are not."""

import os
import shutil
import stat
from dataclasses import replace

import pytest
from command_builders import QUICK, judge, measure, measure_here, verdicts

from ci_bench.errors import BadConfig
from ci_bench.records.config import Policy
from ci_bench.records.results import Outcome, SideName, Status
from ci_bench.suites.command import INSTRUCTIONS
from ci_bench.suites.command.counting import NotCounted, count, read_callgrind, read_perf
from ci_bench.suites.command.options import Counting, parse
from ci_bench.suites.command.process import CommandPlace
from ci_bench.suites.registry import find_metrics

ENTRY = {"name": "work", "command": ["true"]}

# What `perf stat -x,` writes: value, unit, event, time it ran, share of the time. It counts what
# the command's file says.
PERF = """#!/bin/sh
while [ "$1" != -- ]; do [ "$1" = -o ] && told=$2; shift; done; shift
"$@" || exit $?
echo "# started on" > $told; echo >> $told
echo "$(cat ${COUNTS:-/nowhere} 2>/dev/null || echo 1000000),,instructions:u,1203,100.00,," >> $told
"""
VALGRIND = """#!/bin/sh
for word; do case $word in --callgrind-out-file=*) told=${word#*=};; -*) ;; *) break;; esac; shift; done
"$@" || exit $?
for process in 1 2; do printf 'events: Ir\\nsummary: 7\\ntotals: 500\\n' > "$(dirname $told)/counts.$process"; done
"""
OUT_OF_REACH = PERF.replace(
    "$(cat ${COUNTS:-/nowhere} 2>/dev/null || echo 1000000)", "<not supported>"
)
FORBIDDEN = "#!/bin/sh\necho 'Error:' >&2\necho 'Access to performance monitoring is limited' >&2\nexit 255\n"


@pytest.fixture
def place(tmp_path):
    """A place whose only tools are stand-ins."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "dirname", "true", "sleep"):
        (tools / name).symlink_to(shutil.which(name))
    (tmp_path / "case").mkdir()
    return CommandPlace(cwd=tmp_path, environ={"PATH": str(tools)}, folder=tmp_path / "case")


def install(place, name, text):
    path = place.cwd / "tools" / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def counted(place, asked=Counting.AUTO, argv=("true",), timeout_s=20.0):
    return count(argv, place, setting=asked, timeout_s=timeout_s, exit_codes=(0,))


def why_not(place, *given, **more):
    with pytest.raises(NotCounted) as caught:
        counted(place, *given, **more)
    return str(caught.value)


def test_perf_goes_first_and_callgrind_stands_in(place):
    install(place, "valgrind", VALGRIND)
    found = counted(place)
    assert (found.instructions, found.tool) == (1000, Counting.CALLGRIND), (
        "the sum of both processes"
    )
    install(place, "perf", PERF)
    assert (counted(place).instructions, counted(place).tool) == (1_000_000, Counting.PERF)
    assert counted(place, Counting.CALLGRIND).tool is Counting.CALLGRIND
    install(place, "perf", OUT_OF_REACH)
    assert counted(place).tool is Counting.CALLGRIND


def test_without_a_tool_that_works_the_reason_of_each_is_said(place):
    assert why_not(place) == "perf: it is not installed; callgrind: valgrind is not installed"
    assert why_not(place, Counting.PERF) == "perf: it is not installed"
    install(place, "perf", OUT_OF_REACH)
    assert "the processor's counter is out of reach (<not supported>)" in why_not(place)
    install(place, "perf", FORBIDDEN)
    assert why_not(place, Counting.PERF).startswith(
        "perf: it may not count here (Error:); see kernel.perf_event_paranoid"
    )


def test_a_command_that_does_not_repeat_itself_is_not_counted(place):
    install(place, "perf", PERF)
    moving = {**place.environ, "COUNTS": str(place.cwd / "counts")}
    add = (
        "sh",
        "-c",
        "echo $(($(cat $COUNTS || echo 1000000) + $STEP)) > $COUNTS.new; cat $COUNTS.new > $COUNTS",
    )
    near, far = (replace(place, environ={**moving, "STEP": step}) for step in ("4000", "8000"))
    (place.cwd / "counts").write_text("1000000")
    assert counted(near, argv=add).instructions == 1_004_000
    (place.cwd / "counts").write_text("1000000")
    assert (
        "counts 1,008,000 and 1,016,000 instructions in two runs of the same code, 0.8% apart"
        in why_not(far, argv=add)
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("sh", "-c", "exit 3"), "under perf .* exit code 3"),
        (("sleep", "9"), "was ended after 0.2 s"),
    ],
)
def test_a_run_that_goes_wrong_under_a_tool_is_no_count(place, argv, words):
    install(place, "perf", PERF)
    with pytest.raises(NotCounted, match=words):
        counted(place, argv=argv, timeout_s=0.2)


def test_what_the_tools_write_is_read():
    two_kinds = (
        "# x\n\n120,,cpu_core/instructions:u/,9,50.00,,\n30,,cpu_atom/instructions:u/,9,50.00,,\n"
    )
    assert read_perf(two_kinds) == 150
    with pytest.raises(NotCounted, match="nothing"):
        read_perf("")
    assert read_callgrind("events: Ir\nfn=(1) main\n0 9\nsummary: 12\ntotals: 13\n") == 13


def test_only_what_is_timed_itself_is_counted():
    assert parse({**ENTRY, "instructions": "auto"}).instructions is Counting.AUTO
    assert parse(ENTRY).instructions is Counting.NEVER
    for more in ({"format": "auto"}, {"losses": {}}):
        with pytest.raises(
            BadConfig,
            match="instructions: instructions are counted only of commands that are timed directly",
        ):
            parse({**ENTRY, **more, "instructions": "auto"})


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_callgrind_counts_what_a_command_and_its_children_do(place):
    """Six per cent more turns of a loop are about as many more instructions; the same loop is the same number."""
    place = replace(place, environ=os.environ)
    counts = {}
    for turns in (3000, 3180):
        loop = f"i=0; while [ $i -lt {turns} ]; do i=$((i + 1)); done"
        counts[turns] = counted(
            place, Counting.CALLGRIND, argv=("sh", "-c", f"sh -c '{loop}'; true")
        ).instructions
    assert counts[3000] > 1_000_000
    assert 1.02 < counts[3180] / counts[3000] < 1.07


@pytest.mark.parametrize(
    ("turns", "verdict"),
    [(1_008_000, "unchanged"), (1_030_000, "regressed"), (970_000, "improved")],
)
def test_three_per_cent_are_a_change_and_less_than_one_is_none(
    tmp_path, monkeypatch, turns, verdict
):
    trees = {}
    for side, count_of_side in ((SideName.BASE, 1_000_000), (SideName.HEAD, turns)):
        trees[side] = tmp_path / side
        trees[side].mkdir()
        (trees[side] / "counts").write_text(str(count_of_side))
    bring(tmp_path, monkeypatch, PERF)
    given = {
        "name": "work",
        "command": ["true"],
        "instructions": "perf",
        "env": {"COUNTS": "counts"},
    }
    results = measure(tmp_path, given, trees=trees, options=replace(QUICK, blocks=1))
    comparison = judge(results, Policy(metrics=find_metrics()))
    assert verdicts(comparison)[f"{INSTRUCTIONS.name} command"] == verdict


def bring(tmp_path, monkeypatch, perf):
    """A stand-in of perf that is found first."""
    (tmp_path / "perf").write_text(perf)
    (tmp_path / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def test_where_nothing_counts_the_case_is_whole_and_says_why(tmp_path, monkeypatch):
    bring(tmp_path, monkeypatch, OUT_OF_REACH)
    (row,) = measure_here(tmp_path, {"name": "work", "command": ["true"], "instructions": "perf"})
    assert row.status is Status.OK
    assert not [metric for metric in row.metrics if metric.name == INSTRUCTIONS.name]
    (check,) = [check for check in row.checks if check.name == INSTRUCTIONS.name]
    assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True)
    assert check.detail.startswith("not counted: perf: ")
