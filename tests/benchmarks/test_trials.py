"""The corpus of cheats and honest programs: sound, large enough, and read from real gates as it should be."""

import ast
from collections import Counter

import pytest
from benchmarks.corpus import Program
from benchmarks.trials import all_programs, gate, groups, make_repository, read

from benchmarks import trials

PROGRAM = Program(name="p", suite="command", entry="", case="/p", base={}, cheats=True)


def test_the_corpus_is_large_and_sound() -> None:
    programs = all_programs()
    kinds = Counter(program.cheats for program in programs)
    assert kinds[True] >= 30
    assert kinds[False] >= 60
    assert not [
        name for name, count in Counter(program.name for program in programs).items() if count > 1
    ]
    for program in programs:
        for text in (*program.base.values(), *program.head.values()):
            ast.parse(text)
    idle = [
        one.name
        for one in programs
        if one.suite == "command" and {**one.base, **one.head} == one.base
    ]
    assert idle == [], "head changes nothing"


def test_cheats_and_honest_programs_share_no_gate() -> None:
    found = list(groups(all_programs(), 10))
    assert max(map(len, found)) <= 10
    assert all(len({(one.suite, one.cheats) for one in group}) == 1 for group in found)


def comparison(*findings):
    listed = [
        {"severity": severity, "rule": rule, "case": case} for severity, rule, case in findings
    ]
    return {
        "cases": [{"id": "command/p[x=1]"}, {"id": "command/pq"}],
        "judgement": {"findings": listed},
    }


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([], "passes"),
        ([("warn", "disturbed", "command/p[x=1]")], "passes"),
        ([("warn", "check_unknown", "command/p[x=1]")], "warned"),
        ([("fail", "regressed", "command/p[x=1]")], "refused"),
        ([("fail", "regressed", "command/pq")], "passes"),
    ],
)
def test_a_program_is_read_by_its_own_findings(findings, verdict) -> None:
    result = read(PROGRAM, 0, comparison(*findings))
    assert result.verdict == verdict
    assert result.is_right is (verdict != "passes")


def test_a_program_without_a_case_is_wrong() -> None:
    assert not read(PROGRAM, 3, None).is_right
    assert not read(
        PROGRAM, 0, {"cases": [{"id": "command/pq"}], "judgement": {"findings": []}}
    ).is_right


KINDS = {
    "command": ("daemon", "leaves_a_server"),
    "functions": ("one_per_cent", "softmax_by_hand"),
    "torchbench": ("backend_replays", "backend_interpreter"),
}


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("suite", sorted(KINDS))
def test_a_trial_of_each_kind(tmp_path, monkeypatch, suite) -> None:
    """One cheat and one honest program, in gates of their own."""
    monkeypatch.setenv("CI_BENCH_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("CI_BENCH_NOISE", str(tmp_path / "noise"))
    monkeypatch.setattr(trials, "RUN", trials.RUN.replace("max_launches: 5", "max_launches: 2"))
    programs = {program.name: program for program in all_programs()}
    for name in KINDS[suite]:
        make_repository(tmp_path / name, [programs[name]])
        result = read(programs[name], *gate(tmp_path / name, tmp_path / f"out-{name}"))
        assert result.is_right, (result, (tmp_path / f"{name}.log").read_text()[-2000:])
