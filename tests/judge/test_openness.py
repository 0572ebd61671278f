"""Which cases need more launches: exactly those that the rule would look at again, and none for ever."""

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import launches, metric, peak, result, results
from paired_builders import NOW, calibrated, device_clock, paired, pairs_of, simulate

from ci_bench.judge.times.sequential import SequentialRule, adaptive, fixed
from ci_bench.judge.times.stopping import next_look, still_open
from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Policy
from ci_bench.records.results import Better, Status, Unit

RULE = SequentialRule()


@pytest.fixture(scope="module")
def calibration():
    return calibrated()


def cut(side, number):
    """The document as it is after so many launches."""
    cases = []
    for case in side.cases:
        kept = (
            replace(one, launches=tuple(x for x in one.launches if x.launch < number))
            for one in case.metrics
        )
        cases.append(replace(case, metrics=tuple(kept)))
    return replace(side, cases=tuple(cases))


def ask_cases(base, head, done, *, calibration=None, rule=RULE, policy=None):
    return still_open(
        base,
        head,
        policy=policy or Policy(),
        calibration=calibration,
        launches_done=done,
        rule=rule,
        now=NOW,
    )


def ask_metrics(base, head, done, *, calibration=None, rule=RULE, policy=None):
    return {
        case: one.metrics
        for case, one in ask_cases(
            base, head, done, calibration=calibration, rule=rule, policy=policy
        ).items()
    }


def ask(base, head, done, **options):
    return frozenset(ask_metrics(base, head, done, **options))


def names(*numbers):
    return frozenset(f"s/c{number}" for number in numbers)


@pytest.mark.parametrize(
    ("done", "look"),
    [(0, 1), (1, 2), (4, 6), (5, 6), (6, 8), (7, 8), (8, 12), (15, 16), (16, 0), (99, 0)],
)
def test_the_next_look(done, look):
    assert next_look(done, RULE) == look


def test_before_the_first_look_every_case_is_open():
    base, head = simulate(1, launches=2)

    assert ask(cut(base, 0), cut(head, 0), 0) == names(*range(6))
    assert ask(base, head, 2, rule=fixed(3)) == names(*range(6))


def test_without_a_calibration_what_looks_changed_takes_more_than_four_launches():
    base, head = simulate(1, launches=8, slower={(1, "step_time", "eager"): 1.2})

    assert ask(cut(base, 1), cut(head, 1), 1) == names(*range(6))
    assert all(names(1) <= ask(cut(base, n), cut(head, n), n) for n in (2, 3, 4))
    assert ask(cut(base, 4), cut(head, 4), 4) < names(*range(6))
    assert names(1).isdisjoint(ask(cut(base, 6), cut(head, 6), 6))


def test_a_quiet_machine_is_done_after_a_few_launches(calibration):
    base, head = simulate(2, launches=16)

    assert ask(cut(base, 4), cut(head, 4), 4, calibration=calibration) == frozenset()


def test_only_the_noisy_case_goes_on(calibration):
    base, head = simulate(3, launches=16)
    loud_base, loud_head = simulate(4, launches=16, noise=6.0)
    mixed = [
        replace(side, cases=(loud.cases[0], *side.cases[1:]))
        for side, loud in ((base, loud_base), (head, loud_head))
    ]

    assert ask(*(cut(side, 3) for side in mixed), 3, calibration=calibration) == names(0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rule", [RULE, adaptive(8)], ids=["16", "8"])
def test_what_is_closed_has_its_verdict_and_keeps_it(calibration, seed, rule):
    """Taking launches only where asked gives the same verdicts as taking all of them."""
    slower = {(1, "step_time", None): 1.02, (2, "step_time", "eager"): 1.05}
    whole = simulate(seed, launches=16, noise=2.0, slower=slower, singles=False)
    taken = [cut(side, 0) for side in whole]
    going, done = names(*range(6)), 0
    while going:
        done += 1
        longer = [cut(side, done) for side in whole]
        taken = [
            replace(
                side,
                cases=tuple(
                    more if more.case.id in going else old
                    for old, more in zip(side.cases, long.cases, strict=True)
                ),
            )
            for side, long in zip(taken, longer, strict=True)
        ]
        if done == next_look(done - 1, rule):
            going = ask(*taken, done, calibration=calibration, rule=rule)
    assert done <= rule.looks[-1]
    live, later = (
        pairs_of(paired(*documents, calibration=calibration, rule=rule))
        for documents in (taken, whole)
    )
    assert {key: pair.verdict for key, pair in live.items()} == {
        key: pair.verdict for key, pair in later.items()
    }


def test_between_two_looks_the_answer_is_that_of_the_look_before(calibration):
    base, head = (cut(side, 7) for side in simulate(5, launches=16, noise=3.0))

    assert ask(base, head, 7, calibration=calibration) == ask(
        cut(base, 6), cut(head, 6), 6, calibration=calibration
    )


def test_after_the_last_look_nothing_is_open():
    base, head = simulate(6, launches=16, noise=20.0)

    assert ask(base, head, 16) == ask(base, head, 99) == frozenset()
    assert ask(cut(base, 3), cut(head, 3), 3, rule=fixed(3)) == frozenset()


@pytest.mark.parametrize(
    ("ratio", "done", "worse"),
    [
        pytest.param(1.2, 1, 5, id="slower-called-from-six-launches-on"),
        pytest.param(1.2, 4, 2, id="slower-two-more"),
        pytest.param(1.2, 5, 1, id="slower-between-two-looks"),
        pytest.param(1.0, 1, 0, id="unchanged"),
        pytest.param(1 / 1.2, 1, 0, id="faster-fails-nothing"),
    ],
)
def test_an_open_case_says_how_many_launches_decide_what_looks_worse(ratio, done, worse):
    base, head = simulate(
        1, launches=8, slower={(1, "step_time", "eager"): ratio, (1, "step_time", None): ratio}
    )
    cases = ask_cases(cut(base, done), cut(head, done), done)

    assert (cases["s/c1"].worse if "s/c1" in cases else 0) == worse
    assert not any(one.worse for name, one in cases.items() if name != "s/c1")


def test_with_a_calibration_the_next_look_decides(calibration):
    base, head = simulate(
        1,
        launches=8,
        noise=4.0,
        slower={(1, "step_time", "eager"): 1.06, (1, "step_time", None): 1.06},
    )
    cases = {
        done: ask_cases(cut(base, done), cut(head, done), done, calibration=calibration)
        for done in (1, 2)
    }

    assert [cases[done]["s/c1"].worse for done in cases] == [1, 1]


@pytest.mark.parametrize("kept", [1, 2])
def test_a_case_without_a_usable_launch_is_not_asked_for_again(calibration, kept):
    base, head = simulate(7, launches=3, noise=6.0)
    lost = replace(head, cases=(*cut(head, kept).cases[:1], *head.cases[1:]))

    assert "s/c0" in ask(cut(base, 2), cut(head, 2), 2, calibration=calibration)
    assert "s/c0" not in ask(cut(base, 3), lost, 3, calibration=calibration)
    assert "s/c1" in ask(cut(base, 3), lost, 3, calibration=calibration)


def test_a_launch_that_failed_everywhere_does_not_end_the_run(calibration):
    base, head = (
        replace(
            side,
            cases=tuple(
                replace(
                    case,
                    metrics=tuple(
                        replace(one, launches=(*one.launches[:1], *one.launches[2:]))
                        for one in case.metrics
                    ),
                )
                for case in side.cases
            ),
        )
        for side in simulate(8, launches=3, noise=6.0)
    )

    assert ask(base, head, 3, calibration=calibration)


def test_other_software_leaves_nothing_to_measure():
    base, head = simulate(9, launches=1)
    other = replace(head, environment=replace(head.environment, identity={"gpu": "A100"}))

    assert ask(base, head, 1)
    assert ask(base, other, 1) == frozenset()
    fields = tuple({*base.environment.identity, "gpu"})
    assert ask(base, other, 1, policy=Policy(compare_across=fields)) == ask(base, head, 1)


def of(*metrics, **fields):
    return results(result(*metrics, id="s/c0", **fields))


def turns(by, count=2):
    series = launches(*([by, 1.3 * by] * 5 for _ in range(count)))
    return metric(tuple(replace(one, blocks=tuple(i // 2 for i in range(10))) for one in series))


def read(*launched, name="step_time", **fields):
    """What a command said of itself, a list of values for each launch."""
    return metric(launches(*launched), name=name, **fields)


def test_whatever_gates_and_is_undecided_keeps_its_case_open():
    slower = [read([0.002] * 20, name="parse"), read([0.010] * 20, name="parse")]
    leaking = [
        read([1e6] * 5, name="heap", unit=Unit.BYTES),
        read([3e6] * 5, name="heap", unit=Unit.BYTES),
    ]
    singles = [
        read([2.0], name="score", unit=Unit.PER_SECOND, better=Better.HIGHER) for _ in range(2)
    ]

    assert ask(of(turns(1.0)), of(turns(1.1)), 2) == names(0)
    for before, after in (slower, leaking, singles):
        assert ask_metrics(of(before), of(after), 1) == {
            "s/c0": frozenset({(before.name, before.arm)})
        }
    assert (
        ask(of(turns(1.0), details=("step_time",)), of(turns(1.1), details=("step_time",)), 2)
        == frozenset()
    )
    assert ask(of(turns(1.0)), of(), 2) == frozenset()


def test_a_compilation_is_repeated_while_it_looks_slower_and_not_where_it_does_not():
    def compiled(*seconds):
        return of(read(*([one] for one in seconds), name="compile_cold"))

    assert ask(compiled(10.0), compiled(10.4), 1) == frozenset()
    assert ask(compiled(10.0), compiled(13.0), 1) == names(0)
    assert ask(compiled(10.0, 10.1, 9.9, 10.0), compiled(13.0, 13.1, 12.9, 13.2), 4) == frozenset()


@pytest.mark.parametrize(
    ("head", "goes_on"), [(1e9, False), (1.0002e9, False), (1.1e9, True), (0.9e9, True)]
)
def test_peaks_of_memory_that_agree_need_no_second_launch(head, goes_on):
    assert ask(of(peak(1e9)), of(peak(head)), 1) == (names(0) if goes_on else frozenset())


def test_a_peak_of_memory_waits_for_a_second_launch():
    assert ask(of(peak(1e9)), of(peak(2e9)), 1) == names(0)
    assert ask_cases(of(peak(1e9)), of(peak(2e9)), 1)["s/c0"].worse == 0


@pytest.mark.parametrize(
    ("base", "head", "goes_on"),
    [
        ([1e9] * 2, [1.08e9] * 2, True),
        ([1e9] * 4, [1.08e9] * 4, True),
        ([1e9] * 5, [1.08e9] * 5, False),
        ([1e9] * 2, [0.9e9] * 2, False),
        ([1e9] * 2, [1.001e9] * 2, False),
        ([1e9, 1.5e9], [1e9, 2e9], False),
        ([4e7, 4.09e7], [4.01e7, 4.08e7], True),
        ([4e7, 4.09e7, 4e7], [4.01e7, 4.08e7, 4e7], False),
        ([4e7, 4.11e7], [4.01e7, 4.08e7], False),
    ],
    ids=[
        "larger",
        "larger in four",
        "confirmed",
        "smaller",
        "within the threshold",
        "its launches differ",
        "by less than counts",
        "by less than counts in three",
        "by more than counts",
    ],
)
def test_five_launches_confirm_a_larger_peak(base, head, goes_on):
    """A peak with two values shows the same one twice on each side in many unchanged runs."""
    assert ask(of(peak(*base)), of(peak(*head)), len(base)) == (
        names(0) if goes_on else frozenset()
    )


def test_only_what_is_open_is_asked_for(calibration):
    """A case that goes on for one metric does not measure the others again."""
    base, head = simulate(2, launches=4, slower={(0, "compile_warm", None): 1.3})
    asked = ask_metrics(cut(base, 2), cut(head, 2), 2, calibration=calibration)

    assert asked["s/c0"] <= {
        ("compile_warm", "inductor"),
        ("step_time", "eager"),
        ("step_time", "inductor"),
    }
    assert all(
        "step_time" in {name for name, _ in own} or name == "s/c0" for name, own in asked.items()
    )


def test_the_devices_clock_keeps_nothing_open(calibration):
    plain = [cut(side, 2) for side in simulate(10, launches=2, noise=3.0)]
    both = [cut(side, 2) for side in simulate(10, launches=2, noise=3.0, extra=device_clock)]

    assert ask(*both, 2, calibration=calibration) == ask(*plain, 2, calibration=calibration)


def test_a_ledger_that_is_not_closed_yet_is_asked_about(calibration):
    """While the run goes on its rows have no final status."""
    sides = [
        replace(side, cases=tuple(replace(case, status=Status.NOT_RUN) for case in side.cases))
        for side in simulate(11, launches=1)
    ]

    assert ask(*sides, 1) == names(*range(6))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), done=st.integers(0, 16), noise=st.floats(0.3, 8.0))
def test_an_open_case_is_one_that_is_undecided(calibration, seed, done, noise):
    documents = [
        cut(side, done) for side in simulate(seed, cases=3, launches=16, noise=noise, singles=False)
    ]
    undecided = {
        f"s/c{key[0]}"
        for key, pair in pairs_of(paired(*documents, calibration=calibration)).items()
        if pair.verdict is Verdict.INCONCLUSIVE
    }

    if done in RULE.looks:
        assert ask(*documents, done, calibration=calibration) <= undecided


def test_it_is_quick():
    base, head = simulate(12, cases=100, launches=16, singles=False)
    start = time.process_time()
    for done in RULE.looks:
        ask(base, head, done)
    each_s = (time.process_time() - start) / len(RULE.looks)
    assert each_s < 0.2, "200 rows; some tens of milliseconds on a machine with nothing else to do"
