"""Several runs of one plan become one: nothing counts twice, nothing that differs is mixed, and the verdict is that of one machine."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from judge_builders import result
from paired_builders import calibrated, paired, simulate

from ci_bench.cli import main
from ci_bench.errors import CannotMerge
from ci_bench.fleet.merging import RunPair, merge
from ci_bench.judge.times.sequential import SequentialRule
from ci_bench.records import documents
from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Policy
from ci_bench.records.results import (
    Check,
    Failure,
    Lease,
    Loss,
    Outcome,
    RunState,
    Source,
    Status,
    WorkflowRun,
)

CODE = Source(commit="0" * 40, dirty=False)
PAST = calibrated(cases=3)


def pair(name, *, seed=1, slot="GPU-a", source=CODE, **options):
    """One run on one device."""
    base, head = simulate(seed, cases=3, **{"launches": 2, **options})
    run = replace(head.run, id=name, started_at=f"2026-02-01T00:00:{seed:02}Z", config_digest="c")
    condition = {"gpu_uuid": slot} if slot else {}
    sides = (
        replace(
            side,
            run=run,
            source=source,
            measured_s=10.0,
            environment=replace(side.environment, condition=condition),
        )
        for side in (head, base)
    )
    head, base = sides
    return RunPair(name=name, head=head, base=base)


def only(of, wanted, *, name):
    """A run with some of another's launches, as if another machine had taken the rest."""

    def cut(side):
        rows = (
            replace(
                row,
                metrics=tuple(
                    replace(m, launches=tuple(x for x in m.launches if x.launch in wanted))
                    for m in row.metrics
                ),
            )
            for row in side.cases
        )
        return replace(side, cases=tuple(rows), run=replace(side.run, id=name))

    return RunPair(name=name, head=cut(of.head), base=cut(of.base))


def judged(of, rule=None, threshold=None):
    policy = Policy(default_threshold=threshold)
    return paired(of.base, of.head, policy=policy, calibration=PAST, rule=rule or SequentialRule())


def verdicts(of):
    return [(one.id, one.verdict, one.pairs) for one in judged(of).cases]


def launches_of(of):
    return [
        [launch.launch for launch in metric.launches]
        for row in of.head.cases
        for metric in row.metrics
    ]


class TestOneVerdict:
    @pytest.mark.parametrize("slower", [None, {(1, "step_time", "inductor"): 1.05}])
    def test_launches_of_two_runs_on_one_device_are_judged_as_those_of_one(self, slower):
        whole = pair("whole", launches=6, slower=slower)
        merged = merge([only(whole, {0, 3, 4}, name="a"), only(whole, {1, 2, 5}, name="b")])
        assert verdicts(merged) == verdicts(whole)
        assert launches_of(merged) == launches_of(whole)
        assert any(verdict is Verdict.REGRESSED for _, verdict, _ in verdicts(merged)) == (
            slower is not None
        )

    def test_one_run_stays_as_it_is(self):
        one = pair("a")
        assert merge([one]) == one

    def test_several_devices_widen_what_is_known(self):
        """The same samples, once as of one device, once of three that differ in what they do to head."""
        runs = [
            pair(name, seed=seed, slower={(None, "step_time", None): by})
            for seed, (name, by) in enumerate([("a", 1.0), ("b", 1.02), ("c", 0.98)])
        ]
        apart = [
            replace(run, head=_on(run.head, slot), base=_on(run.base, slot))
            for run, slot in zip(runs, ("A", "B", "C"), strict=True)
        ]
        together, several = (judged(merge(each), threshold=0.01) for each in (runs, apart))
        assert (together.pairing.devices, several.pairing.devices) == (1, 3)
        widths = [
            [
                pair.interval.high - pair.interval.low
                for case in of.cases
                for pair in case.pairs
                if pair.metric == "step_time"
            ]
            for of in (together, several)
        ]
        assert np.mean(np.array(widths[1]) / widths[0]) > 1.2

    def test_what_one_device_alone_shows_is_not_called_a_regression(self):
        """Half of the launches are 6 % slower: enough on one device, not where they are those of one of two."""
        runs = [
            pair("a", seed=1, launches=4),
            pair("b", seed=2, launches=4, slower={(0, "step_time", "eager"): 1.08}),
        ]
        apart = [
            runs[0],
            replace(runs[1], head=_on(runs[1].head, "B"), base=_on(runs[1].base, "B")),
        ]
        word = next(
            one.verdict
            for one in judged(merge(apart)).cases[0].pairs
            if (one.metric, one.arm) == ("step_time", "eager")
        )
        assert word is not Verdict.REGRESSED
        both = [
            pair(name, seed=seed, slot=name, launches=4, slower={(0, "step_time", "eager"): 1.08})
            for seed, name in enumerate("ab")
        ]
        word = next(
            one.verdict
            for one in judged(merge(both)).cases[0].pairs
            if (one.metric, one.arm) == ("step_time", "eager")
        )
        assert word is Verdict.REGRESSED


def _on(side, slot):
    return replace(side, environment=replace(side.environment, condition={"gpu_uuid": slot}))


class TestNothingTwice:
    def test_any_order_gives_the_same(self):
        runs = [pair(name, seed=seed, slot=name) for seed, name in enumerate("abc")]
        first = merge(runs)
        assert all(merge(order) == first for order in permutations(runs))

    def test_a_document_given_twice_changes_nothing(self):
        runs = [pair(name, seed=seed, slot=name) for seed, name in enumerate("ab")]
        assert merge([*runs, replace(runs[0], name="again")]) == merge(runs)

    def test_a_merged_document_and_one_of_its_runs_are_the_merged_one(self):
        runs = [pair(name, seed=seed, slot=name) for seed, name in enumerate("ab")]
        merged = merge(runs)
        assert merge([merged, runs[1]]) == merged

    def test_a_merged_document_takes_a_further_run(self):
        runs = [pair(name, seed=seed, slot=name) for seed, name in enumerate("abc")]
        again = merge([merge(runs[:2]), runs[2]])
        assert verdicts(again) == verdicts(merge(runs))
        assert {part.run.id for part in again.head.parts} == {"a", "b", "c"}

    def test_launches_are_numbered_with_every_device_early(self):
        merged = merge([pair(name, seed=seed, slot=name) for seed, name in enumerate("ab")])
        assert launches_of(merged)[0] == [0, 1, 2, 3]
        assert [(one.part, one.number) for one in merged.head.cases[0].origins] == [
            (0, 0),
            (1, 0),
            (0, 1),
            (1, 1),
        ]

    def test_the_same_launch_with_other_samples_is_a_conflict(self):
        one, other = pair("a", seed=1), pair("a", seed=1, noise=2.0)
        with pytest.raises(CannotMerge, match=r"launch 0 of s/c0 in run a has other samples"):
            merge([one, replace(other, name="b")])

    def test_a_run_whose_checks_were_touched_up_is_a_conflict(self):
        one = pair("a")
        rows = (
            replace(
                one.head.cases[0],
                checks=(Check(name="finite", arm="eager", outcome=Outcome.PASS, detail=""),),
            ),
        )
        touched = replace(one, name="b", head=replace(one.head, cases=(*rows, *one.head.cases[1:])))
        with pytest.raises(CannotMerge, match="of the same run, a, and differ"):
            merge([one, touched])

    def test_the_longer_of_two_documents_of_one_run_counts(self):
        whole = pair("a", launches=4)
        early = only(whole, {0, 1}, name="a")
        cut = replace(early.head.run, state=RunState.PARTIAL)
        assert (
            merge([replace(_both(early, run=cut), whole={"s/c0": 2, "s/c1": 2, "s/c2": 2}), whole])
            == whole
        )

    def test_two_merged_documents_that_overlap_are_refused(self):
        runs = [pair(name, seed=seed, slot=name) for seed, name in enumerate("abc")]
        with pytest.raises(CannotMerge, match="merge the run's original folders"):
            merge([merge(runs[:2]), merge(runs[1:])])

    def test_of_two_attempts_at_a_lease_the_first_that_ended_counts(self):
        lost, late, other = (
            _leased(pair(name, seed=seed, slot=name), number, attempt)
            for seed, (name, number, attempt) in enumerate([("a", 0, 1), ("b", 0, 2), ("c", 1, 1)])
        )
        merged = merge([lost, late, other])
        assert [part.run.id for part in merged.head.parts] == ["a", "c"]
        cut = replace(
            lost,
            head=replace(lost.head, run=replace(lost.head.run, state=RunState.PARTIAL)),
            whole={},
        )
        assert [part.run.id for part in merge([cut, late, other]).head.parts] == ["b", "c"]

    def test_two_runs_that_say_they_are_one_attempt_are_refused(self):
        with pytest.raises(CannotMerge, match="are both attempt 1"):
            merge([_leased(pair(name, seed=seed), 0, 1) for seed, name in enumerate("ab")])


def _leased(of, number, attempt):
    run = replace(of.head.run, lease=Lease(run="fleet", number=number, attempt=attempt))
    return replace(of, head=replace(of.head, run=run), base=replace(of.base, run=run))


REFUSED = {
    "another commit": (lambda one: _both(one, source=replace(CODE, commit="1" * 40)), "head is commit 1111111111, not 0000000000"),
    "uncommitted changes": (lambda one: _both(one, source=replace(CODE, dirty=True)), "uncommitted changes"),
    "no repository": (lambda one: _both(one, source=Source()), "without a git checkout"),
    "another configuration": (lambda one: _both(one, run=replace(one.head.run, config_digest="d")), "different configurations"),
    "another flag": (lambda one: _both(one, run=replace(one.head.run, asked={"threads": ("2",)})), "different configurations or flags"),
    "another version": (lambda one: _both(one, tool_version="2"), "measured by ci-bench 2 and"),
    "another GPU": (
        lambda one: _both(one, environment=replace(one.head.environment, identity={"gpu": "H100", "torch": "2.13"})),
        "machines are not identical: gpu is 'H100', not 'H200'",
    ),
    "nothing seen": (lambda one: _both(one, environment=replace(one.head.environment, identity={})), "one run measured nothing"),
    "no base": (lambda one: replace(one, base=None), "one has base's results"),
    "other options": (lambda one: _planned(one, {"lr": 1}), "planned with other options, s/c0 first"),
    "a case less": (lambda one: _both(one, cases=one.head.cases[1:], of_base=one.base.cases[1:]), "planned in only one of the two, s/c0 first"),
    "base of another run": (lambda one: replace(one, base=replace(one.base, run=replace(one.base.run, id="x"))), "of different runs"),
    "base of another machine": (
        lambda one: replace(one, base=replace(one.base, environment=replace(one.base.environment, identity={"gpu": "x"}))),
        "base and head were measured on different machines",
    ),
}  # fmt: skip


def _both(one, *, of_base=None, **changes):
    ours = {**changes, "cases": of_base} if of_base is not None else changes
    return replace(one, head=replace(one.head, **changes), base=replace(one.base, **ours))


def _planned(one, params):
    def changed(side):
        return (
            replace(side.cases[0], case=replace(side.cases[0].case, params=params)),
            *side.cases[1:],
        )

    return replace(
        one,
        head=replace(one.head, cases=changed(one.head)),
        base=replace(one.base, cases=changed(one.base)),
    )


class TestWhatDiffersIsNotMixed:
    @pytest.mark.parametrize("what", sorted(REFUSED))
    def test_it_is_refused_by_name(self, what):
        change, words = REFUSED[what]
        with pytest.raises(CannotMerge, match=words):
            merge([pair("a", seed=1), change(pair("b", seed=2, slot="GPU-b"))])

    def test_labels_are_no_identity(self):
        """What a machine is called, and the number of its device, may differ; what was measured of it may not."""
        other = pair("b", seed=2, slot="GPU-b")
        named = _both(
            other, run=replace(other.head.run, device="cuda:3", asked={"device": ("cuda:3",)})
        )
        assert len(merge([pair("a", seed=1), named]).head.parts) == 2

    def test_filters_that_complete_each_other_are_one_plan(self):
        legs = []
        for name, rows in (("a", slice(0, 2)), ("b", slice(2, 3))):
            leg = pair(name, seed=1, slot=name)
            asked = {"filter": tuple(row.case.id for row in leg.head.cases[rows])}
            leg = _both(
                leg,
                run=replace(leg.head.run, asked=asked),
                cases=leg.head.cases[rows],
                of_base=leg.base.cases[rows],
            )
            legs.append(leg)
        merged = merge(legs)
        assert [row.case.id for row in merged.head.cases] == ["s/c0", "s/c1", "s/c2"]
        assert merged.head.run.asked == {"filter": ("s/c0", "s/c1", "s/c2")}

    def test_nothing_is_nothing(self):
        with pytest.raises(CannotMerge, match="nothing to merge"):
            merge([])


class TestRows:
    def test_a_case_that_failed_on_one_device_failed(self):
        good, bad = pair("a", seed=1), pair("b", seed=2, slot="GPU-b")
        failed = replace(
            bad.head.cases[0],
            status=Status.CRASHED,
            failure=Failure(stage="time", arms=(), reason="it died"),
        )
        merged = merge(
            [good, replace(bad, head=replace(bad.head, cases=(failed, *bad.head.cases[1:])))]
        )
        row = merged.head.cases[0]
        assert (row.status, row.failure.reason) == (Status.CRASHED, "on gpu_uuid:GPU-b: it died")
        assert merged.base.cases[0].status is Status.OK

    def test_a_case_that_one_machine_did_not_come_to_is_that_of_the_other(self):
        good, short = pair("a", seed=1), pair("b", seed=2, slot="GPU-b")
        unrun = replace(
            result(id="s/c0", status=Status.NOT_RUN), case=good.head.cases[0].case, metrics=()
        )
        short = replace(
            short,
            head=replace(short.head, cases=(unrun, *short.head.cases[1:])),
            base=replace(short.base, cases=(unrun, *short.base.cases[1:])),
        )
        assert merge([good, short]).head.cases[0].status is Status.OK

    def test_the_worst_answer_of_a_check_counts(self):
        runs = []
        for seed, (name, outcome) in enumerate([("a", Outcome.PASS), ("b", Outcome.FAIL)]):
            one = pair(name, seed=seed, slot=name)
            checked = replace(
                one.head.cases[0],
                checks=(Check(name="finite", arm="eager", outcome=outcome, detail=name),),
            )
            runs.append(replace(one, head=replace(one.head, cases=(checked, *one.head.cases[1:]))))
        assert merge(runs).head.cases[0].checks[0].outcome is Outcome.FAIL

    def test_of_a_run_that_was_cut_off_whole_launches_count(self):
        cut = pair("b", seed=2, slot="GPU-b", launches=3)
        cut = replace(
            cut,
            head=replace(cut.head, run=replace(cut.head.run, state=RunState.PARTIAL)),
            whole={"s/c0": 1, "s/c1": 2},
        )
        merged = merge([pair("a", seed=1), replace(cut, base=replace(cut.base, run=cut.head.run))])
        counts = [len(row.origins) for row in merged.head.cases]
        assert counts == [3, 4, 2]
        assert merged.head.run.state is RunState.PARTIAL

    def test_time_adds_up_and_the_workflow_stays(self):
        runs = [pair(name, seed=seed, slot=name) for seed, name in enumerate("ab")]
        runs = [
            _both(
                one,
                run=replace(
                    one.head.run, workflow=WorkflowRun(repository="o/r", run=5, attempt=at + 1)
                ),
            )
            for at, one in enumerate(runs)
        ]
        head = merge(runs).head
        assert head.measured_s == 20.0
        assert head.run.workflow == WorkflowRun(repository="o/r", run=5, attempt=2)


def write(one, folder):
    documents.write(one.head, folder / "results.json")
    documents.write(one.base, folder / "base" / "results.json")
    return str(folder)


def test_the_comparison_says_how_much_a_fleet_lost():
    runs = [pair(name, seed=seed, slot=name) for seed, name in enumerate("ab")]
    losses = tuple(
        Loss(lease=number, attempt=1, slot="a", reason="<b>gone</b>") for number in range(3)
    )
    assert judged(merge(runs, losses=losses)).pairing.lost == 3
    assert judged(merge(runs)).pairing.lost == 0


class TestCommand:
    def test_it_writes_one_pair_and_one_verdict(self, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        runs = [
            pair(name, seed=seed, slot=name, launches=5, slower={(1, "step_time", None): 1.2})
            for seed, name in enumerate("ab")
        ]
        folders = [write(one, tmp_path / one.name) for one in runs]
        words = ["fleet", "merge", *folders, "--output", "out", "--noise", "noise"]
        assert main(words) == 1
        assert "2 run(s) on 2 identical devices" in capsys.readouterr().err
        merged = documents.read_results(tmp_path / "out" / "results.json")
        assert merged == merge(runs).head
        assert "Measured on 2 identical devices" in (tmp_path / "out" / "report.md").read_text()
        first = (tmp_path / "out" / "results.json").read_bytes()
        assert (
            main(
                [
                    "fleet",
                    "merge",
                    "out",
                    *reversed(folders),
                    "--output",
                    "twice",
                    "--noise",
                    "noise",
                ]
            )
            == 1
        )
        assert (tmp_path / "twice" / "results.json").read_bytes() == first

    def test_a_run_that_was_cut_off_needs_its_note(self, tmp_path, capsys):
        one = pair("a")
        cut = replace(one.head.run, state=RunState.PARTIAL)
        folder = write(_both(one, run=cut), tmp_path / "a")
        assert main(["fleet", "merge", folder, "--output", str(tmp_path / "out")]) == 2
        assert "its progress.json is missing" in capsys.readouterr().err

    def test_a_runs_own_folder_is_not_overwritten(self, tmp_path, capsys):
        folder = write(pair("a"), tmp_path / "a")
        assert main(["fleet", "merge", folder, "--output", folder]) == 2
        assert "this is the folder of a merged run" in capsys.readouterr().err

    def test_a_document_that_is_not_sound_is_refused(self, tmp_path, capsys):
        merged = merge([pair(name, seed=seed, slot=name) for seed, name in enumerate("ab")])
        lying = replace(merged.head, parts=merged.head.parts[:1])
        folder = write(replace(merged, head=lying), tmp_path / "a")
        assert main(["fleet", "merge", folder, "--output", str(tmp_path / "out")]) == 2
        assert "names a part that is not one of the 1" in capsys.readouterr().err
        untold = replace(
            merged.head, cases=tuple(replace(row, origins=()) for row in merged.head.cases)
        )
        folder = write(replace(merged, head=untold), tmp_path / "b")
        assert main(["fleet", "merge", folder, "--output", str(tmp_path / "out")]) == 2
        assert "does not say where launch 0 comes from" in capsys.readouterr().err
