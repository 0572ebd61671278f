"""Results are held against what was asked for: whichever field that matters is another one, it is refused by its name."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_builders import judged, peak, result, results

from ci_bench.judge.compare import compare
from ci_bench.judge.policy.binding import Commits, Expected, differences, scope
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Machine, Policy, Rule, Severity
from ci_bench.records.declarations import Declaration
from ci_bench.records.results import Due, Environment, Source, Status, WorkflowRun

HEAD, MERGE, BASE = ("a" * 40, "b" * 40, "c" * 40)
WORKFLOW = WorkflowRun(repository="octo-org/octo-repo", run=4711, attempt=2)
DUE = Due(checks=("finite",), times=("step_time",), parity=True)
IDENTITY = {"device": "cuda", "gpu": "NVIDIA H200", "torch": "2.13"}
ROWS = tuple(
    replace(
        row,
        case=replace(row.case, params={"batch": 64, "sizes": (1, 2)}, details=("forward_time",)),
    )
    for row in (
        result(peak(1.0), id=f"s/{name}", arms=("eager", "inductor"), due=DUE)
        for name in ("a", "b", "c")
    )
)
OWN = result(peak(1.0), id="mine/x")
CASES = tuple(row.case for row in ROWS)


def declared(*cases, field="plugins.mine.cases"):
    """What is declared of cases of the suite ``mine``: ids, a number, or `None`."""
    return Declaration(
        suite="mine", field=field, cases=cases[0] if isinstance(cases[0], int | None) else cases
    )


EXPECTED = Expected(
    cases=CASES,
    foreign=(declared("mine/x"),),
    config_digest="d" * 64,
    device="auto",
    machine=Machine(device="cuda", gpu="h200"),
    workflow=WORKFLOW,
    head=Commits(accepted=(HEAD, MERGE), words="the head of the pull request"),
    base=Commits(accepted=(BASE,), words="head's first parent"),
    tool_version="1",
)


def side(commit, *rows, **run):
    made = results(*(rows or (*ROWS, OWN)), identity=IDENTITY)
    own = replace(made.run, device="auto", config_digest="d" * 64, workflow=WORKFLOW, **run)
    return replace(made, run=own, source=Source(commit=commit, dirty=False))


RIGHT = {"head": side(MERGE), "base": side(BASE)}
TEXT = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=30)
SHA = st.text("0123456789abcdef", min_size=40, max_size=40)


def in_run(name):
    return lambda made, value: replace(made, run=replace(made.run, **{name: value}))


def in_workflow(name):
    return lambda made, value: replace(
        made, run=replace(made.run, workflow=replace(made.run.workflow, **{name: value}))
    )


def in_case(name):
    def change(made, value):
        index, value = value
        row = made.cases[index]
        rows = [*made.cases]
        rows[index] = replace(row, case=replace(row.case, **{name: value}))
        return replace(made, cases=tuple(rows))

    return change


def in_identity(name):
    return lambda made, value: replace(
        made, environment=Environment(identity={**IDENTITY, name: value}, condition={})
    )


def rows_of(made, value):
    return replace(made, cases=value)


def at(values):
    """The place of a planned case, and what its field becomes."""
    return st.tuples(st.integers(0, len(ROWS) - 1), values)


KEPT = st.lists(st.sampled_from(ROWS), unique_by=lambda row: row.case.id, max_size=len(ROWS) - 1)
FIELDS = {
    "source.commit": (
        lambda made, value: replace(made, source=Source(commit=value)),
        SHA | st.none(),
    ),
    "run.workflow": (in_run("workflow"), st.none()),
    "run.workflow.repository": (
        in_workflow("repository"),
        TEXT.map(lambda name: f"octo-org/{name}"),
    ),
    "run.workflow.run": (in_workflow("run"), st.integers(0, 10**18)),
    "run.workflow.attempt": (in_workflow("attempt"), st.integers(1, 1000)),
    "run.config_digest": (in_run("config_digest"), TEXT),
    "run.device": (in_run("device"), st.sampled_from(["cpu", "cuda", "cuda:1"])),
    "environment.identity.device": (in_identity("device"), st.sampled_from(["cpu", "mps", None])),
    "environment.identity.gpu": (in_identity("gpu"), TEXT | st.none()),
    "case.id": (in_case("id"), at(TEXT.map(lambda name: f"s/{name}!"))),
    "case.suite": (in_case("suite"), at(TEXT)),
    "case.name": (in_case("name"), at(TEXT)),
    "case.params": (
        in_case("params"),
        at(st.dictionaries(TEXT, st.integers() | TEXT | st.booleans(), max_size=3)),
    ),
    "case.arms": (in_case("arms"), at(st.lists(TEXT, max_size=3).map(tuple))),
    "case.reference": (in_case("reference"), at(TEXT)),
    "case.due": (
        in_case("due"),
        at(st.builds(Due, checks=st.lists(TEXT, max_size=2).map(tuple), parity=st.booleans())),
    ),
    "case.details": (in_case("details"), at(st.lists(TEXT, max_size=2).map(tuple))),
    "missing cases": (rows_of, KEPT.map(lambda kept: (*kept, OWN))),
    "missing cases of a plugin": (rows_of, st.just(ROWS)),
    "surplus cases": (
        rows_of,
        TEXT.map(lambda name: (*ROWS, OWN, result(peak(1.0), id=f"{name}0/x"))),
    ),
    "surplus cases of a plugin": (
        rows_of,
        TEXT.map(lambda name: (*ROWS, OWN, result(peak(1.0), id=f"mine/{name}0"))),
    ),
}
OF_THE_PAIR = {
    "run.id": (in_run("id"), TEXT),
    "run.started_at": (in_run("started_at"), st.just("2026-01-02T00:00:00Z")),
    "run.asked": (in_run("asked"), st.just({"threads": ("1",)})),
}
ANY = st.one_of(
    *(
        st.tuples(st.sampled_from(["head", "base"]), st.just(name), values)
        for name, (_, values) in FIELDS.items()
    ),
    *(
        st.tuples(st.just("base"), st.just(name), values)
        for name, (_, values) in OF_THE_PAIR.items()
    ),
)


@settings(max_examples=1000, deadline=None)
@given(ANY)
def test_any_one_field_that_is_another_is_refused_by_its_name(drawn):
    name, field, value = drawn
    changed = ({**FIELDS, **OF_THE_PAIR}[field][0])(RIGHT[name], value)
    if changed == RIGHT[name]:
        return
    sides = {**RIGHT, name: changed}
    found = {difference.field for difference in differences(sides["head"], sides["base"], EXPECTED)}
    wanted = "cases" if "cases" in field or field == "case.id" else field
    own = {
        one.removeprefix("base.") for one in found if one.startswith("base.") == (name == "base")
    }
    assert any(one.endswith(wanted) for one in own), (drawn, found)


def test_another_device_than_the_machines_is_refused_where_the_configuration_leaves_it_open():
    (found,) = differences(
        in_identity("device")(side(HEAD), "cpu"), None, replace(EXPECTED, base=None)
    )
    assert (found.field, "has to be cuda" in found.message) == ("environment.identity.device", True)


def test_a_numbered_device_asks_for_its_kind():
    made = in_identity("device")(in_run("device")(side(HEAD), "cuda:1"), "cpu")
    (found,) = differences(
        made, None, replace(EXPECTED, base=None, device="cuda:1", machine=Machine())
    )
    assert (found.field, "has to be cuda;" in found.message) == (
        "environment.identity.device",
        True,
    )


def test_what_was_asked_for_is_not_refused():
    assert differences(RIGHT["head"], RIGHT["base"], EXPECTED) == ()
    assert differences(side(HEAD), None, replace(EXPECTED, base=None)) == ()
    assert (
        scope(RIGHT["head"], EXPECTED).narrowed == scope(RIGHT["head"], EXPECTED).undeclared == ()
    )


NEIGHBOURS = {
    "another order of the cases": (side(HEAD, OWN, *reversed(ROWS)), {}),
    "a repository in other letters": (
        in_workflow("repository")(side(HEAD), "Octo-Org/octo-repo"),
        {},
    ),
    "any device where the configuration leaves it open": (
        in_identity("device")(side(HEAD), "cpu"),
        {"machine": Machine()},
    ),
    "one of several devices of a kind": (
        in_run("device")(side(HEAD), "cuda:1"),
        {"device": "cuda:1", "machine": Machine()},
    ),
    "another order of a case's parameters": (
        in_case("params")(side(HEAD), (0, {"sizes": (1, 2), "batch": 64})),
        {},
    ),
    "a plugin's cases by their number": (side(HEAD), {"foreign": (declared(1),)}),
    "a plugin's cases that nobody declared": (side(HEAD), {"foreign": (declared(None),)}),
    "no case came to its end": (
        replace(
            side(HEAD, *(replace(row, status=Status.FAILED) for row in (*ROWS, OWN))),
            environment=Environment(identity={}, condition={}),
        ),
        {},
    ),
}


@pytest.mark.parametrize(("made", "fields"), NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_honest_neighbours_are_not_refused(made, fields):
    assert differences(made, None, replace(EXPECTED, **fields)) == ()


FIRST, SECOND = "suites.mine[0].cases", "suites.mine[1].cases"
OF_TWO_ENTRIES = {
    "ids of both": (
        (declared("mine/x", field=FIRST), declared("mine/y", field=SECOND)),
        ("mine/x", "mine/y"),
    ),
    "numbers of both": (
        (declared(1, field=FIRST), declared(2, field=SECOND)),
        ("mine/x", "mine/y", "mine/z"),
    ),
    "ids of one, a number of the other": (
        (declared("mine/x", field=FIRST), declared(1, field=SECOND)),
        ("mine/x", "mine/y"),
    ),
    "ids of one, nothing of the other": (
        (declared("mine/x", field=FIRST), declared(None, field=SECOND)),
        ("mine/x", "mine/y"),
    ),
    "a number of one, nothing of the other": (
        (declared(1, field=FIRST), declared(None, field=SECOND)),
        ("mine/x", "mine/y"),
    ),
}
WRONG = {
    "one of the ids is missing": ("ids of both", ("mine/x",), "'mine/y' missing", (FIRST, SECOND)),
    "one is too many for the ids": (
        "ids of both",
        ("mine/x", "mine/y", "mine/z"),
        "'mine/z' too many",
        (FIRST, SECOND),
    ),
    "too few for the numbers": (
        "numbers of both",
        ("mine/x", "mine/y"),
        "2 of the suite mine, and",
        (FIRST, SECOND),
    ),
    "too many for the numbers": (
        "numbers of both",
        ("mine/w", "mine/x", "mine/y", "mine/z"),
        "4 of the suite mine, and",
        (FIRST, SECOND),
    ),
    "another in the place of an id": (
        "ids of one, a number of the other",
        ("mine/y", "mine/z"),
        "'mine/x' missing",
        (FIRST,),
    ),
    "too many besides the ids": (
        "ids of one, a number of the other",
        ("mine/x", "mine/y", "mine/z"),
        "2 of the suite mine besides those that are named, and",
        (SECOND,),
    ),
    "an id is missing where anything may be there": (
        "ids of one, nothing of the other",
        ("mine/y",),
        "'mine/x' missing",
        (FIRST,),
    ),
    "too few where anything may be there": (
        "a number of one, nothing of the other",
        (),
        "0 of the suite mine, and",
        (FIRST,),
    ),
}


def of_mine(*ids):
    return side(HEAD, *ROWS, *(result(peak(1.0), id=name) for name in ids))


@pytest.mark.parametrize(("foreign", "ids"), OF_TWO_ENTRIES.values(), ids=OF_TWO_ENTRIES)
def test_entries_of_one_suite_declare_together(foreign, ids):
    assert differences(of_mine(*ids), None, replace(EXPECTED, foreign=foreign)) == ()


@pytest.mark.parametrize(("declaring", "ids", "said", "places"), WRONG.values(), ids=WRONG)
def test_what_entries_declare_together_is_not_there(declaring, ids, said, places):
    foreign, _ = OF_TWO_ENTRIES[declaring]
    found = differences(of_mine(*ids), None, replace(EXPECTED, foreign=foreign))
    assert {one.field for one in found} == {"cases"}
    (told,) = [one.message for one in found if said in one.message]
    assert [place for place in (FIRST, SECOND) if f"`{place}`" in told] == [*places]


def test_a_filter_takes_declared_cases_away_and_adds_none():
    ids, number = declared("mine/x", "mine/y", field=FIRST), declared(2, field=SECOND)
    filtered = side(
        HEAD,
        result(peak(1.0), id="mine/x1"),
        result(peak(1.0), id="mine/x"),
        asked={"filter": ("mine/x",)},
    )
    assert differences(filtered, None, replace(EXPECTED, foreign=(ids, number))) == ()
    more = side(
        HEAD,
        *(result(peak(1.0), id=f"mine/x{n}") for n in range(3)),
        OWN,
        asked={"filter": ("mine/x",)},
    )
    (found,) = differences(more, None, replace(EXPECTED, foreign=(ids, number)))
    assert found.message.startswith("3 of the suite mine besides those that are named")


def test_what_is_not_declared_is_told_by_its_field():
    expected = replace(
        EXPECTED, foreign=(declared(None), declared(None, field=FIRST), declared(1, field=SECOND))
    )
    plugin, entry = scope(side(HEAD), expected).undeclared
    assert plugin.startswith("cases of `plugins.mine` are planned only by head's tree")
    assert entry.startswith("cases of `suites.mine[0]` are planned only by head's tree")
    assert entry.endswith(
        "as `suites.mine[0].cases`: `ci-bench list --declare` prints what to write"
    )


def test_a_filter_is_no_difference_and_a_finding():
    made = side(HEAD, ROWS[0], asked={"filter": ("s/a",), "launches": ("1",)})
    expected = replace(EXPECTED, foreign=())
    assert differences(made, None, expected) == ()
    filtered, launches = scope(made, expected).narrowed
    assert filtered.startswith(
        "the workflow measured only 1 of 3 cases (--filter s/a); allow it by `policy.severities.narrowed`"
    )
    assert launches.startswith(
        "the workflow set --launches 1, which the configuration does not say"
    )
    assert [
        one.field
        for one in differences(side(HEAD, ROWS[1], asked={"filter": ("s/a",)}), None, expected)
    ] == [
        "cases",
        "cases",
    ]


def test_requested_filters_are_no_finding():
    made = side(HEAD, ROWS[0], asked={"filter": ("s/a",)})
    expected = replace(EXPECTED, foreign=(), filters=("s/a",))
    assert scope(made, expected).narrowed == ()
    for other in (("s/b",), ("s/a", "s/b"), ()):
        assert len(scope(made, replace(expected, filters=other)).narrowed) == 1


def test_an_empty_filter_takes_nothing_away():
    """Results may hold any list: no cases chosen by no filter would be green."""
    expected = replace(EXPECTED, foreign=(declared(2),))
    found = differences(side(HEAD, ROWS[0], asked={"filter": ()}), None, expected)
    assert any("missing" in one.message for one in found)
    assert any(one.message.startswith("0 of the suite mine, and") for one in found)
    every = side(
        HEAD,
        *(result(peak(1.0), id=f"s/{number}") for number in range(10_000)),
        asked={"filter": ("s/",)},
    )
    assert (
        len(
            differences(
                every,
                None,
                replace(expected, cases=tuple(row.case for row in every.cases), foreign=()),
            )
        )
        == 0
    )


def test_a_filter_that_is_an_id_is_that_case():
    """As `planning.plan` reads it: not each case whose id contains it."""
    longer = replace(ROWS[1].case, id=f"{ROWS[0].case.id}_long")
    expected = replace(EXPECTED, foreign=(), cases=(ROWS[0].case, longer))
    made = side(HEAD, ROWS[0], asked={"filter": (ROWS[0].case.id,)})
    assert differences(made, None, expected) == ()
    assert len(differences(side(HEAD, ROWS[0], asked={"filter": ("s/",)}), None, expected)) == 1


def test_a_base_that_is_named_and_is_the_right_one_is_no_finding():
    """As the workflow of a merge queue does, whose base no clone knows."""
    assert scope(side(HEAD, asked={"base": (BASE,)}), EXPECTED).narrowed == ()
    assert scope(side(HEAD, asked={"base": (HEAD,)}), EXPECTED).narrowed != ()


def test_a_plugins_cases_are_as_many_as_are_declared():
    more = replace(EXPECTED, foreign=(declared(2),))
    (found,) = differences(side(HEAD), None, more)
    assert (found.field, "1 of the suite mine, and" in found.message) == ("cases", True)
    assert differences(side(HEAD, *ROWS, asked={"filter": ("s/",)}), None, more) == (), (
        "a filter may leave fewer"
    )


def test_a_case_is_of_the_suite_that_its_id_names():
    """Else anything would pass as a case of a suite whose cases nobody has declared."""
    stray = replace(OWN, case=replace(OWN.case, id="s/d"))
    (found,) = differences(
        side(HEAD, *ROWS, stray), None, replace(EXPECTED, foreign=(declared(None),))
    )
    assert found.field == "cases[3].case.suite"


def test_both_sides_have_the_same_cases_where_nobody_declared_them():
    other = replace(OWN, case=replace(OWN.case, id="mine/y"))
    (found,) = differences(
        side(HEAD), side(BASE, *ROWS, other), replace(EXPECTED, foreign=(declared(None),))
    )
    assert (found.field, found.message) == (
        "base.cases",
        "are not head's: 'mine/x' missing; 'mine/y' too many",
    )


def test_no_commit_is_right_where_none_is_known():
    unknown = replace(
        EXPECTED, base=Commits(accepted=(), words="this event does not tell the branch")
    )
    (found,) = differences(RIGHT["head"], RIGHT["base"], unknown)
    assert found.field == "base.source.commit"
    assert "this event does not tell the branch" in found.message


def test_changes_that_no_commit_holds_are_a_finding():
    made = replace(side(HEAD), source=Source(commit=HEAD, dirty=True))
    assert scope(made, EXPECTED).narrowed == (
        "head was measured with changes that no commit holds: measure a clean checkout",
    )


def test_the_policy_decides_what_narrowing_does():
    made = side(HEAD, result(peak(1.0, 1.0), id="mine/x"), asked={"threads": ("1",)})
    expected = replace(EXPECTED, foreign=(declared(None),))
    plain = judged(made, made)
    assert plain.judgement.met, "what is asked for by hand is nobody's business"

    def told(policy):
        found = compare(
            base=made,
            head=made,
            policy=policy,
            mode=BaselineMode.FILE,
            absence=None,
            tool_version="1",
            scope=scope(made, expected),
        ).judgement
        return found.met, [
            (one.rule, one.severity)
            for one in found.findings
            if one.rule in {Rule.NARROWED, Rule.CASES_UNDECLARED}
        ]

    warned = (Rule.CASES_UNDECLARED, Severity.WARN)
    assert told(Policy()) == (False, [(Rule.NARROWED, Severity.FAIL), warned])
    rest = {rule: Severity.NOTE for rule in Rule if rule is not Rule.CASES_UNDECLARED}
    assert told(Policy(severities=rest)) == (True, [warned, (Rule.NARROWED, Severity.NOTE)])


@pytest.mark.parametrize(("kept", "said"), [(ROWS[1:], "1 case that"), (ROWS[2:], "2 cases that")])
def test_what_is_missing_is_counted(kept, said):
    found = differences(side(HEAD, *kept, OWN), None, EXPECTED)
    assert found[0].message.startswith(said)


def test_planned_cases_are_none_of_those_that_an_entry_of_their_suite_declares():
    of_tree = Declaration(suite="s", field="suites.s[1].cases", cases=1)
    more = side(HEAD, *ROWS, result(peak(1.0), id="s/tree"))
    assert differences(more, None, replace(EXPECTED, foreign=(of_tree,))) == ()


def test_words_of_a_refusal_say_what_to_do_where_it_helps():
    run, attempt = (
        next(iter(differences(in_workflow(name)(side(HEAD), 1), None, EXPECTED)))
        for name in ("run", "attempt")
    )
    assert ("another attempt" in run.message, "another attempt" in attempt.message) == (False, True)
    other = replace(side(HEAD), run=replace(side(HEAD).run, config_digest="e" * 64))
    (same_version,) = differences(other, None, EXPECTED)
    (newer,) = differences(other, None, replace(EXPECTED, tool_version="2"))
    assert (
        "reads it otherwise" in same_version.message,
        "reads it otherwise" in newer.message,
    ) == (False, True)
