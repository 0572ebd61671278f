"""What a lease brings counts if it is what was leased, measured of the same code on an identical machine; the whole is one run."""

from dataclasses import replace
from pathlib import Path

import pytest
from paired_builders import simulate

from ci_bench.errors import BadDocument, BadInput, CannotResume, CannotWrite
from ci_bench.fleet.coordinator import EarlierLeases, LeaseOutcome, Refused
from ci_bench.fleet.journal import FileJournal
from ci_bench.fleet.merging import RunPair
from ci_bench.fleet.protocol import EndedLease, LeaseOrder
from ci_bench.fleet.protocol import FleetLease as Leased
from ci_bench.fleet.session import Session
from ci_bench.judge.times.sequential import SequentialRule
from ci_bench.records.config import Config, RunOptions
from ci_bench.records.results import Lease, Loss, RunState, SideName, Source, Status

CODE = Source(commit="0" * 40, dirty=False)
PLANNED = simulate(0, cases=3, launches=1)[1]
RUN = replace(PLANNED.run, id="whole", config_digest="c")
ROWS = tuple(replace(row, metrics=(), status=Status.NOT_RUN) for row in PLANNED.cases)
IDS = tuple(row.case.id for row in ROWS)


def brought(number, *, seed=None, cases=IDS, attempt=1, launches=1, slot="GPU-a"):
    base, head = simulate(number if seed is None else seed, cases=3, launches=launches)
    run = replace(
        head.run,
        id=f"lease-{number}-{attempt}",
        started_at=f"2026-02-01T00:00:{number:02}Z",
        config_digest="c",
        asked={"filter": cases},
        lease=Lease(run="whole", number=number, attempt=attempt),
    )
    sides = [
        replace(
            side,
            run=run,
            source=CODE,
            cases=tuple(row for row in side.cases if row.case.id in cases),
            environment=replace(side.environment, condition={"gpu_uuid": slot}),
        )
        for side in (head, base)
    ]
    return RunPair(name=f"lease {number}", head=sides[0], base=sides[1])


def session_of(**pairs):
    """`pairs` by folder."""

    def read(folder):
        found = pairs[folder.name]
        if isinstance(found, Exception):
            raise found
        return found

    return Session(
        run=RUN,
        config=Config(entries=(), run=RunOptions(device="cpu")),
        rule=SequentialRule(),
        rows=ROWS,
        sources=dict.fromkeys(SideName, CODE),
        read=read,
        known=lambda _: None,
    )


def ended(number, *, folder, cases=IDS, attempt=1):
    lease = Leased(number=number, cases=cases, first=0, launches=1, expected_s=1.0)
    return EndedLease(
        order=LeaseOrder(lease=lease, attempt=attempt, slot="n0"),
        began_s=0.0,
        ended_s=1.0,
        folder=Path(folder),
    )


def both(pair, **changes):
    return replace(pair, head=replace(pair.head, **changes), base=replace(pair.base, **changes))


OTHER_MACHINE = replace(
    PLANNED.environment, identity={"gpu": "H100", "torch": "2.13"}, condition={"gpu_uuid": "GPU-b"}
)
LIES = {
    "other cases": (brought(1, cases=IDS[:1]), "it returned other cases than were leased"),
    "more launches": (brought(1, launches=2), "it returned other launches than were leased"),
    "another lease": (brought(2), "its documents are of"),
    "an earlier attempt": (brought(1, attempt=2), "its documents are of"),
    "a merged document": (both(brought(1), parts=("x",)), "its documents are of"),
    "another configuration": (both(brought(1), run=replace(brought(1).head.run, config_digest="d")), "another configuration"),
    "other code": (both(brought(1), source=replace(CODE, commit="1" * 40)), f"it measured {'1' * 40} as head"),
    "changed code": (both(brought(1), source=replace(CODE, dirty=True)), "uncommitted changes"),
    "another machine": (both(brought(1), environment=OTHER_MACHINE), "machines are not identical: gpu is 'H100', not 'H200'"),
}  # fmt: skip


class TestAccept:
    @pytest.mark.parametrize("what", sorted(LIES))
    def test_what_was_not_leased_is_refused_and_its_slot_is_at_fault(self, what):
        pair, words = LIES[what]
        session = session_of(good=brought(0), bad=pair)
        session.accept(ended(0, folder="good"))
        with pytest.raises(Refused, match=words) as refusal:
            session.accept(ended(1, folder="bad"))
        assert refusal.value.at_fault
        assert len(session.pairs) == 1

    @pytest.mark.parametrize(
        "cut",
        [
            both(brought(1), run=replace(brought(1).head.run, state=RunState.PARTIAL)),
            replace(brought(1), base=None),
        ],
    )
    def test_what_was_ended_before_its_time_is_lost_without_blame(self, cut):
        """A lease that was killed, or ran out of time, has written what it had: its slot may measure on."""
        session = session_of(good=brought(0), cut=cut)
        session.accept(ended(0, folder="good"))
        with pytest.raises(Refused, match="its documents are not whole") as refusal:
            session.accept(ended(1, folder="cut"))
        assert not refusal.value.at_fault
        assert len(session.pairs) == 1

    def test_a_document_that_cannot_be_read_is_lost_without_blame(self):
        with pytest.raises(Refused, match="cut short") as refusal:
            session_of(bad=BadDocument("the file is cut short")).accept(ended(0, folder="bad"))
        assert not refusal.value.at_fault

    def test_the_honest_neighbour_counts(self):
        session = session_of(a=brought(0), b=brought(1, slot="GPU-b"), c=brought(2, cases=IDS[1:]))
        session.accept(ended(0, folder="a"))
        session.accept(ended(1, folder="b"))
        session.accept(ended(2, folder="c", cases=IDS[1:]))
        assert len(session.pairs) == 3

    def test_how_long_cases_took_is_known_from_then_on(self):
        pair = brought(0)
        taken = zip(pair.head.cases, (7.0, None, 5.0), strict=True)
        first, second, third = (replace(row, duration_s=seconds) for row, seconds in taken)
        session = session_of(
            a=replace(
                pair, head=replace(pair.head, cases=(first, second, replace(third, metrics=())))
            )
        )
        session.launch_s.update({IDS[0]: 1.0, IDS[1]: 3.0})
        session.accept(ended(0, folder="a"))
        assert session.launch_s == {IDS[0]: 14.0, IDS[1]: 3.0}, "both sides"


class TestResuming:
    def test_what_counted_counts_again_and_what_cannot_be_read_any_more_is_out_again(self):
        session = session_of(a=brought(0), b=BadDocument("the file is cut short"), c=brought(2))
        delivered = [ended(number, folder=name) for number, name in enumerate("abc")]
        earlier = session.take_up(
            EarlierLeases(delivered=delivered, losses=(), out=(), next_number=3)
        )
        assert [one.order.lease.number for one in earlier.delivered] == [0, 2]
        assert [order.lease.number for order in earlier.out] == [1]
        assert len(session.pairs) == 2

    @pytest.mark.parametrize(
        ("pair", "cases", "words"),
        [
            (
                both(brought(0), run=replace(brought(0).head.run, config_digest="d")),
                IDS,
                "another configuration",
            ),
            (
                both(brought(0), source=replace(CODE, commit="1" * 40)),
                IDS,
                f"it measured {'1' * 40} as head",
            ),
            (brought(0), (*IDS, "of/another/plan"), "other cases than were leased"),
        ],
    )
    def test_a_run_of_something_else_is_not_resumed(self, pair, cases, words):
        earlier = EarlierLeases(
            delivered=[ended(0, folder="a", cases=cases)], losses=(), out=(), next_number=1
        )
        with pytest.raises(
            CannotResume,
            match=f"lease 0 of the interrupted run .*{words}.*omit --resume to start over",
        ):
            session_of(a=pair).take_up(earlier)


class TestTheWhole:
    def test_the_rule_is_asked_with_all_that_was_measured(self):
        session = session_of()
        assert session.still_open(1) == ()
        session.pairs = [brought(0)]
        assert set(session.still_open(1)) == {*IDS}, (
            "one launch of an unknown machine decides nothing"
        )

    def test_every_case_has_a_row_and_losses_are_evidence(self):
        session = session_of()
        session.pairs = [brought(0, cases=IDS[:1]), brought(1, cases=IDS[:1])]
        losses = (Loss(lease=2, attempt=1, slot="n1", reason="slot n1 is gone"),)
        outcome = LeaseOutcome(
            delivered=(), losses=losses, given_up={IDS[2]: "lost 3 time(s)"}, device_s=1.0
        )
        head = session.results(outcome, "2026-02-01T01:00:00Z")[SideName.HEAD]
        assert [row.case.id for row in head.cases] == list(IDS)
        assert [row.status for row in head.cases] == [Status.OK, Status.NOT_RUN, Status.NOT_RUN]
        assert [row.failure and row.failure.reason for row in head.cases] == [
            None,
            "no lease measured it",
            "lost 3 time(s)",
        ]
        assert (head.run.id, head.run.state, head.losses) == ("whole", RunState.COMPLETE, losses)

    def test_where_nothing_came_back_nothing_is_claimed(self):
        outcome = LeaseOutcome(
            delivered=(), losses=(), given_up=dict.fromkeys(IDS, "no slot is left"), device_s=0.0
        )
        base = session_of().results(outcome, "2026-02-01T01:00:00Z")[SideName.BASE]
        assert {row.status for row in base.cases} == {Status.NOT_RUN}
        assert dict(base.environment.identity) == {}


class TestJournal:
    def test_what_was_written_is_read_and_a_line_that_was_cut_never_happened(self, tmp_path):
        journal = FileJournal(file=tmp_path / "journal.jsonl", leases=tmp_path)
        journal.start("whole", "2026-02-01T00:00:00Z")
        first, second, third = (ended(number, folder=f"{number}-1") for number in range(3))
        for one in (first, second, third):
            journal.begun(one.order)
        journal.delivered(first)
        journal.lost(Loss(lease=1, attempt=1, slot="n0", reason="gone"), 7.5)
        whole = journal.file.read_text()
        journal.delivered(third)
        journal.file.write_text(journal.file.read_text()[:-5])
        run, at, earlier = journal.read()
        assert (run, at) == ("whole", "2026-02-01T00:00:00Z")
        assert [one.order for one in earlier.delivered] == [first.order]
        assert earlier.delivered[0].folder == tmp_path / "0-1"
        assert [loss.reason for loss in earlier.losses] == ["gone"]
        assert list(earlier.out) == [third.order]
        assert earlier.next_number == 3
        assert earlier.lost_s == 7.5
        assert whole.count("\n") == 6

    def test_a_run_that_was_killed_twice_is_resumed_twice(self, tmp_path):
        """The second coordinator writes on where the first one's last line was cut off, by a kill or a full disk."""
        journal = FileJournal(file=tmp_path / "journal.jsonl", leases=tmp_path)
        journal.start("whole", "2026-02-01T00:00:00Z")
        first, second = (ended(number, folder=f"{number}-1") for number in range(2))
        journal.begun(first.order)
        journal.delivered(first)
        journal.file.write_text(journal.file.read_text()[:-5])
        assert journal.read()[2].delivered == []
        journal.take_up()
        journal.begun(second.order)
        journal.delivered(second)
        earlier = journal.read()[2]
        assert [one.order for one in earlier.delivered] == [second.order]
        assert [*earlier.out] == [first.order]

    def test_a_run_that_begins_finds_no_documents_of_another_one(self, tmp_path):
        journal = FileJournal(file=tmp_path / "journal.jsonl", leases=tmp_path / "leases")
        journal.start("whole", "2026-02-01T00:00:00Z")
        left = journal.folder(ended(0, folder="x").order)
        for folder in (left, journal.leases / "of-mine"):
            folder.mkdir(parents=True)
        (left / "results.json").touch()
        journal.take_up()
        assert left.exists(), "one that is resumed does"
        journal.start("another", "2026-02-01T01:00:00Z")
        assert [path.name for path in journal.leases.iterdir()] == ["of-mine"]
        (journal.leases / "1-1").touch()
        with pytest.raises(CannotWrite, match="1-1: cannot be written"):
            journal.start("a third", "2026-02-01T02:00:00Z")

    def test_of_two_coordinators_with_one_folder_the_second_is_refused(self, tmp_path):
        journal = FileJournal(file=tmp_path / "fleet" / "journal.jsonl", leases=tmp_path)
        refused = pytest.raises(
            BadInput, match="fleet: another gate measures on a fleet with this folder"
        )
        with journal.held(), refused, journal.held():
            pass
        with journal.held():
            pass
        (tmp_path / "file").touch()
        with (
            pytest.raises(CannotWrite),
            replace(journal, file=tmp_path / "file" / "journal.jsonl").held(),
        ):
            pass
