"""Steps of a history that an entry accepted: of what was merged with the step, within its bound, until its last day."""

import os
import subprocess
from dataclasses import replace

import pytest
from history_builders import whole

from ci_bench.command_line.settings import TrendSettings
from ci_bench.commands.trend.intended import without_intended
from ci_bench.configuration.accepting import with_entry
from ci_bench.history.alarms import alarms_of, told
from ci_bench.history.lines import lines_of
from ci_bench.records.acceptance import Accepted, AcceptedChange, Direction
from ci_bench.records.config import Policy, Severity

ENTRY = AcceptedChange(
    kind=Accepted.METRIC,
    case="fake/*",
    metric="step_time",
    direction=Direction.HIGHER,
    bound="12%",
    reason="a feature",
    author="ann",
    pull_request=7,
    expires="2030-02-01",
)


class Repository:
    """A clone; each commit has these entries in its file."""

    def __init__(self, folder):
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words):
        identity = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
        made = subprocess.run(
            ["git", *identity, *words], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return made.stdout.strip()

    def commit(self, subject, *entries):
        text = b"schema_version: 1\n"
        for one in entries:
            text = with_entry(text, one).encode()
        (self.folder / "ci-bench-accepted.yml").write_bytes(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", subject)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def alarm_of(repository, before, after, *, step=1.1):
    """The alarm of twenty runs whose time changes by a factor, from one commit to another."""
    values = [0.01 * (1 + 0.001 * (n % 3)) * (step if n >= 14 else 1.0) for n in range(20)]
    history = whole(values)
    runs = tuple(
        replace(run, commit=after if n >= 14 else before) for n, run in enumerate(history.runs)
    )
    lines = lines_of(replace(history, runs=runs), least=lambda _: 0.01)
    settings = TrendSettings(environ=os.environ, here=repository.folder, action="check")
    (alarm,) = without_intended(settings, alarms_of(lines, Policy()))
    return alarm


def test_a_step_that_came_with_its_entry_is_intended(repository):
    alarm = alarm_of(repository, repository.commit("before"), repository.commit("after", ENTRY))
    assert alarm.severity is Severity.NOTE
    assert "intended: accepted up to 12% by ann for pull request 7 (a feature)" in told(
        [alarm], lines=1, runs=20
    )


def test_an_entry_that_came_before_its_pull_request_is_named_by_the_merge(repository):
    before = repository.commit("accept", ENTRY)
    assert (
        alarm_of(repository, before, repository.commit("Cache more (#7)", ENTRY)).severity
        is Severity.NOTE
    )
    assert (
        alarm_of(
            repository, before, repository.commit("Merge pull request #7 from x/y", ENTRY)
        ).severity
        is Severity.NOTE
    )


def test_a_removed_entry_still_explains_its_step(repository):
    before, after = repository.commit("before"), repository.commit("after", ENTRY)
    repository.commit("tidy")
    assert alarm_of(repository, before, after).severity is Severity.NOTE


OPEN = {
    "a bound that is exceeded": replace(ENTRY, bound="8%"),
    "a value that is exceeded": replace(ENTRY, bound=0.0105),
    "an entry that had expired": replace(ENTRY, expires="2029-12-31"),
    "another metric": replace(ENTRY, metric="peak_allocated"),
    "another case": replace(ENTRY, case="fake/two"),
    "another direction": replace(ENTRY, direction=Direction.LOWER),
    "outputs": replace(ENTRY, kind=Accepted.OUTPUTS, metric=None, direction=None, bound=1e9),
}


@pytest.mark.parametrize("entry", OPEN.values(), ids=OPEN)
def test_another_entry_explains_nothing(repository, entry):
    alarm = alarm_of(repository, repository.commit("before"), repository.commit("after", entry))
    assert (alarm.severity, alarm.confirmed) == (Severity.FAIL, None)


def test_a_later_step_is_another_change(repository):
    before = repository.commit("earlier", ENTRY)
    for subject in ("after", "Cache more (#70)", "as in (#7) before"):
        assert (
            alarm_of(repository, before, repository.commit(subject, ENTRY)).severity
            is Severity.FAIL
        )


def test_commits_that_the_clone_lacks_explain_nothing(repository):
    after = repository.commit("after", ENTRY)
    assert alarm_of(repository, "a" * 40, "b" * 40).severity is Severity.FAIL
    assert alarm_of(repository, None, after).severity is Severity.FAIL
    assert alarm_of(repository, "--output=x", after).severity is Severity.FAIL


def test_a_broken_file_explains_nothing(repository):
    before = repository.commit("before")
    repository.commit("after", ENTRY)
    (repository.folder / "ci-bench-accepted.yml").write_text("schema_version: 1\nall: true\n")
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--message", "broken")
    assert (
        alarm_of(repository, before, repository.git("rev-parse", "HEAD")).severity is Severity.FAIL
    )
