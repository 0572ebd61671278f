"""A case is measured on every slot of a fleet, and each slot that a gate could not use is named with the reason."""

from dataclasses import replace
from pathlib import Path

import pytest
from paired_builders import simulate
from scripted_fleet import ScriptedFleet

from ci_bench.cli import main
from ci_bench.errors import BadDocument, CannotPlace, ExitCode
from ci_bench.fleet.journal import FileJournal
from ci_bench.fleet.merging import RunPair
from ci_bench.fleet.trial import try_slots
from ci_bench.records.results import Failure, Lease, SideName, Source, Status

CASE = "s/c0"
NAMES = ("n0", "n1", "n2")
CODE = Source(commit="0" * 40, dirty=False)


class Fleet(ScriptedFleet):
    """Documents lie in a folder that is called as the slot; no call waits longer than it may."""

    def finished(self, timeout_s):
        if self.running and self.running[0][0] > self.now + timeout_s:
            self.now += timeout_s
            return []
        return [
            replace(each, folder=each.folder and Path(each.order.slot))
            for each in super().finished(timeout_s)
        ]


def brought(number, **changes):
    base, head = simulate(number, cases=1, launches=1)
    run = replace(
        head.run,
        id=f"lease-{number}",
        config_digest="c",
        lease=Lease(run="trial", number=number, attempt=1),
    )
    sides = {
        name: replace(
            side,
            run=run,
            source=CODE,
            environment=replace(side.environment, condition={"gpu_uuid": f"GPU-{number}"}),
            **changes,
        )
        for name, side in (("head", head), ("base", base))
    }
    return RunPair(name=f"lease {number}", **sides)


def try_all(
    *, fate=lambda _order, _number: "ok", limit_s=100.0, seconds=lambda _: 5.0, **documents
):
    """`documents` by slot, in place of sound ones."""
    pairs = {name: brought(number) for number, name in enumerate(NAMES)} | documents

    def read(folder):
        if isinstance(pairs[folder.name], Exception):
            raise pairs[folder.name]
        return pairs[folder.name]

    fleet = Fleet(names=NAMES, seconds=seconds, fate=fate)
    tried = try_slots(fleet, CASE, run="trial", read=read, clock=fleet.clock, limit_s=limit_s)
    return {each.slot.name: each.trouble for each in tried}, tried


def both(pair, **changes):
    return replace(pair, head=replace(pair.head, **changes), base=replace(pair.base, **changes))


def test_slots_that_can_measure_say_how_long_it_took_and_on_what():
    troubles, tried = try_all()
    assert set(troubles.values()) == {""}
    assert [each.took_s for each in tried] == [5.0, 5.0, 5.0]
    assert tried[0].identity == brought(0).head.environment.identity


OTHER = replace(brought(1).head.environment, identity={"gpu": "H100", "torch": "2.13"})
SAME_GPU = replace(brought(1).head.environment, condition={"gpu_uuid": "GPU-0"})
FAILED = tuple(
    replace(
        row,
        status=Status.OUT_OF_MEMORY,
        failure=Failure(stage="time", arms=(), reason="40 GiB asked for"),
    )
    for row in brought(1).head.cases
)
BAD = {
    "of another kind": (both(brought(1), environment=OTHER), "machines are not identical: gpu is"),
    "on the GPU of another": (
        both(brought(1), environment=SAME_GPU),
        "it measures on the GPU of n0",
    ),
    "out of memory": (both(brought(1), cases=FAILED), "s/c0 ended out_of_memory: 40 GiB asked for"),
    "of another lease": (brought(2), "its documents are not those of its lease"),
    "of one side": (replace(brought(1), base=None), "its documents are not those of its lease"),
    "of no case": (both(brought(1), cases=()), "it returned other cases than were leased"),
    "unreadable": (BadDocument("results.json: cut short"), "results.json: cut short"),
    "of other code": (both(brought(1), source=replace(CODE, commit="1" * 40)), "head is commit"),
}


@pytest.mark.parametrize("what", list(BAD))
def test_a_slot_that_a_gate_could_not_use_is_named_and_its_neighbours_are_not(what):
    pair, words = BAD[what]
    troubles, _ = try_all(n1=pair)
    assert words in troubles["n1"]
    assert (troubles["n0"], troubles["n2"]) == ("", "")


def test_the_first_slot_may_be_the_odd_one():
    odd = both(brought(0), environment=replace(OTHER, condition={"gpu_uuid": "GPU-0"}))
    troubles, _ = try_all(n0=odd)
    assert "not identical" in troubles["n0"]
    assert (troubles["n1"], troubles["n2"]) == ("", "")


@pytest.mark.parametrize(
    ("story", "words"),
    [
        ("lost", "the worker was killed"),
        ("full", "No space left on device"),
        ("dies", "slot n1 is gone"),
    ],
)
def test_a_slot_that_brings_nothing_says_why(story, words):
    troubles, _ = try_all(fate=lambda order, _: story if order.slot == "n1" else "ok")
    assert troubles == {"n0": "", "n1": words, "n2": ""}


def test_a_slot_that_hangs_is_not_waited_for_for_ever():
    troubles, _ = try_all(seconds=lambda order: 5.0 if order.slot != "n1" else 500.0, limit_s=100.0)
    assert troubles == {"n0": "", "n1": "no answer for 100 s", "n2": ""}


def test_where_nothing_came_back_every_slot_says_so():
    troubles, _ = try_all(fate=lambda *_: "lost")
    assert set(troubles.values()) == {"the worker was killed"}


def test_a_fleet_without_slots_is_said():
    with pytest.raises(CannotPlace, match="no slot"):
        try_slots(
            Fleet(names=[], seconds=lambda _: 1.0),
            CASE,
            run="trial",
            read=None,
            clock=lambda: 0.0,
            limit_s=1.0,
        )


def test_the_command_lists_slots_and_measures_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fleet", "status", "local:cuda:0,cuda:1"]) == ExitCode.OK
    assert capsys.readouterr().out == "cuda:0\ncuda:1\n2 slot(s)\n"
    assert list(tmp_path.iterdir()) == []
    assert main(["fleet", "status", "lokal"]) == ExitCode.BAD_INPUT
    assert "choose from local" in capsys.readouterr().err


@pytest.mark.parametrize("bad", ["", "n1"])
def test_the_command_fails_unless_every_slot_can_measure(bad, capsys, tmp_path, monkeypatch):
    from ci_bench.commands import fleet as command

    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "out" / "fleet" / "leases"
    kept.mkdir(parents=True)
    engine = Fleet(
        names=NAMES,
        seconds=lambda _: 5.0,
        fate=lambda order, _: "full" if order.slot == bad else "ok",
    )
    runs = []
    monkeypatch.setattr(
        command, "open_engine", lambda settings, run, *_: runs.append(run) or engine
    )
    monkeypatch.setattr(
        command, "read_pair", lambda folder: of_order(engine, folder.name, runs[0].id)
    )
    code = main(
        [
            "fleet",
            "test",
            "local:n0,n1,n2",
            "--config",
            "quickstart",
            "--prepared",
            "sides",
            "-o",
            "out",
        ]
    )
    said, wrong = capsys.readouterr()
    assert code == (ExitCode.MEASURING_FAILED if bad else ExitCode.OK), wrong
    assert f"{2 if bad else 3} of 3 slot(s) can measure one gate" in said
    assert "n0: can measure; its lease took 5 s\n" in said
    assert ("n1: No space left on device" in said) is bool(bad)
    assert engine.closed
    assert kept.exists(), "an output folder's gate is not touched"
    with FileJournal(file=kept.with_name("journal.jsonl"), leases=kept).held():
        assert (
            main(["fleet", "test", "local:n0,n1,n2", "--prepared", "sides", "-o", "out"])
            == ExitCode.BAD_INPUT
        )
    assert "another gate measures on a fleet with this folder" in capsys.readouterr().err
    assert len(runs) == 1


def of_order(engine, slot, run):
    """Sound documents of whatever was leased to a slot."""
    (order,) = (order for order in engine.orders if order.slot == slot)
    pair = brought(order.lease.number)
    lease = Lease(run=run, number=order.lease.number, attempt=1)
    rows = {
        name: tuple(
            replace(row, case=replace(row.case, id=order.lease.cases[0])) for row in side.cases
        )
        for name, side in zip((SideName.HEAD, SideName.BASE), pair.sides, strict=True)
    }
    head, base = (
        replace(side, cases=rows[name], run=replace(side.run, lease=lease))
        for name, side in zip((SideName.HEAD, SideName.BASE), pair.sides, strict=True)
    )
    return replace(pair, head=head, base=base)
