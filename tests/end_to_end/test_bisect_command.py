"""`ci-bench history bisect` and `history check --confirm` on real commits of a repository made here, measured by the suite `command`."""

import os

import pytest
from repositories import git, left_alone, new_repository

from ci_bench import cli
from ci_bench.command_line.settings import Settings
from ci_bench.commands.trend.bisect import remaining
from ci_bench.commands.trend.commits import git_here
from ci_bench.history.store import FolderStore, file_of
from ci_bench.judge.times.calibration import fingerprint
from ci_bench.records.history import Entry, History, HistoryMachine, Points
from ci_bench.records.results import Better, Lane, Unit

CONFIG = """schema_version: 1
run: {device: cpu, sampling: fixed, launches: 6, blocks: 1, sample_s: 0.001, warmup_s: 0.05, threads: 1}
setup: {commands: ["test ! -e broken"]}
suites:
  command:
    - {name: step, command: "sh measure.sh", format: measurements, output: stdout}
"""
MEASURE = """read cost < cost
set -- $(od -An -N2 -tu2 /dev/urandom)
value=$cost.00$(($1 % 10))
echo '{"kind": "measurements", "schema_version": 1, "series": [{"name": "work", "unit": "ms", "better": "lower", "value": '$value'}]}'
"""
"""What the commit's file says, with a jitter of a thousandth."""


@pytest.fixture
def history(tmp_path, monkeypatch):
    """Makes a repository of so many commits after the first, and is called with their numbers."""
    monkeypatch.setenv("CI_BENCH_NOISE", str(tmp_path / "noise"))
    monkeypatch.setenv("CI_BENCH_LOCKS", str(tmp_path / "locks"))

    def make(commits, slower, broken=()):
        repository = new_repository(tmp_path / "repository")
        repository.commit({"ci-bench.yml": CONFIG, "measure.sh": MEASURE, "cost": "10\n", "n": "0"})
        for number in range(1, commits + 1):
            (repository.top / "broken").unlink(missing_ok=True)
            files = {"n": str(number), "cost": "11\n" if number >= slower else "10\n"}
            repository.commit(
                files | ({"broken": ""} if number in broken else {}), f"commit {number}"
            )
        monkeypatch.chdir(repository.top)
        return repository

    return make


def bisect(capsys, tmp_path, *arguments):
    code = cli.main(["history", "bisect", *arguments, "--output", str(tmp_path / "out")])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.slow
@pytest.mark.engine
def test_a_planted_commit_among_64_is_found_in_at_most_eight_comparisons(history, capsys, tmp_path):
    repository = history(64, slower=37, broken={32})
    with left_alone(repository.top):
        code, out, said = bisect(capsys, tmp_path, "HEAD~64", "HEAD", "--filter", "command/step")
    assert code == 0, said
    assert "commit 37" in out
    assert "command/step work (command): 10 % worse" in out
    assert "it cannot be measured" in said, "commit 32 does not build, and was skipped"
    assert int(said.rpartition(" comparisons")[0].rpartition("\n")[2]) <= 8


def test_of_two_commits_that_halve_alike_the_newer_is_tried_first(history):
    """So that the same history is searched the same way, whatever the hashes of its commits are."""
    repository = history(8, slower=9)
    commits = git(repository.top, "rev-list", "--reverse", "HEAD").split()
    settings = Settings(environ=os.environ, here=repository.top)
    order = remaining(git_here(settings), commits[:1], commits[8], first_parent=False)
    assert [commits.index(commit) for commit in order] == [4, 5, 3, 6, 2, 7, 1, 8]
    assert remaining(
        git_here(settings), [commits[0], commits[3]], commits[4], first_parent=True
    ) == [commits[4]]


@pytest.mark.engine
def test_where_nothing_got_worse_there_is_nothing_to_look_for(history, capsys, tmp_path):
    history(2, slower=9)
    code, _, said = bisect(capsys, tmp_path, "HEAD~2", "HEAD")
    assert code == 3
    assert "BAD is not worse than GOOD" in said


def test_good_has_to_come_before_bad(history, capsys, tmp_path):
    history(2, slower=1)
    assert bisect(capsys, tmp_path, "HEAD", "HEAD~1")[0] == 2
    assert bisect(capsys, tmp_path, "HEAD", "HEAD")[0] == 2
    assert bisect(capsys, tmp_path, "nowhere", "HEAD")[0] == 2


def kept(repository, tmp_path):
    """A history of thirty runs of the first commit and six of the last, in which the metric got worse."""
    store = FolderStore(tmp_path / "store")
    identity = {"device": "cpu", "cpu": "some"}
    machine = HistoryMachine(fingerprint=fingerprint(identity), identity=identity)
    before, after = git(repository.top, "rev-parse", "HEAD~1"), repository.head
    for number in range(36):
        old = number < 30
        at = f"2030-01-01T{number // 60:02d}:{number % 60:02d}:00Z"
        run = Entry(
            id=f"run-{number}", at=at, machine=0, tool_version="1", commit=before if old else after
        )
        series = Points(
            case="command/step",
            suite="command",
            metric="work",
            arm="command",
            unit=Unit.SECONDS,
            better=Better.LOWER,
            lane=Lane.WALL,
            runs=(0,),
            values=(0.01 if old else 0.011,),
            errors=(None,),
        )
        store.append(
            file_of(History(tool_version="1", machines=(machine,), runs=(run,), series=(series,)))
        )
    return tmp_path / "store"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("slower", "code", "word"), [(1, 1, "confirmed: regressed"), (9, 0, "not confirmed")]
)
def test_a_paired_run_confirms_an_alarm_or_takes_it_back(  # noqa: PLR0917
    slower, code, word, history, capsys, tmp_path
):
    repository = history(1, slower=slower)
    store = kept(repository, tmp_path)
    assert cli.main(["history", "check", "-s", str(store)]) == 1
    capsys.readouterr()
    given = ["history", "check", "-s", str(store), "--confirm", "--output", str(tmp_path / "out")]
    assert cli.main(given) == code
    assert word in capsys.readouterr().out
