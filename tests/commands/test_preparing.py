"""What is taken from base's own tree before anything is measured: by hand its policy, as on GitHub."""

from dataclasses import replace
from pathlib import Path

import pytest

from ci_bench.checkouts.sides import Side
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.loading import load
from ci_bench.commands.preparing import with_policy_of_base
from ci_bench.records.config import Rule, Severity
from ci_bench.records.results import SideName, Source

MINE = 'schema_version: 1\nsuites: {command: [{name: mine, command: "true"}]}\n'
LOOSE = MINE + "policy: {default_threshold: 100%, severities: {regressed: note}}\n"
BROKEN = MINE + "policy: {default_treshold: 1%}\n"


@pytest.fixture
def judged_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The severity of a regression, where head and base have these configurations."""

    def find(head: str, base: str | None, *, config: str | None = None) -> Severity:
        ours, theirs = tmp_path / "head", tmp_path / "base"
        for folder in (ours, theirs):
            folder.mkdir()
            (folder / ".git").mkdir()
        (ours / "ci-bench.yml").write_text(head)
        if base is not None:
            (theirs / "ci-bench.yml").write_text(base)
        monkeypatch.chdir(ours)
        settings = Measuring(environ={}, here=ours, config=Path(config) if config else None)
        side = Side(name=SideName.BASE, environ={}, folder=theirs, source=Source(commit="c" * 40))
        sides = (side, replace(side, name=SideName.HEAD, folder=ours))
        return with_policy_of_base(load(settings), settings, sides).policy.severity(
            Rule.REGRESSED, suite="command"
        )

    return find


def test_head_cannot_loosen_the_policy(judged_by, capsys):
    assert judged_by(LOOSE, MINE) is Severity.FAIL
    assert (
        "base's policy is used (commit cccccccccccc): this tree's is different"
        in capsys.readouterr().err
    )


def test_nor_with_its_file_named(judged_by):
    assert judged_by(LOOSE, MINE, config="ci-bench.yml") is Severity.FAIL


def test_base_may_be_the_looser_one(judged_by):
    assert judged_by(MINE, LOOSE) is Severity.NOTE


@pytest.mark.parametrize("base", [LOOSE, None, BROKEN], ids=["the same", "none", "broken"])
def test_else_the_trees_own_counts(judged_by, base, capsys):
    """What base does not say, or not in a way that this version reads, head's file says."""
    assert judged_by(LOOSE, base) is Severity.NOTE
    assert "base's policy is used" not in capsys.readouterr().err


def test_a_file_outside_is_for_both(judged_by, tmp_path):
    (tmp_path / "outside.yml").write_text(LOOSE)
    assert judged_by(MINE, MINE, config=str(tmp_path / "outside.yml")) is Severity.NOTE
