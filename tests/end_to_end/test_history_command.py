"""`ci-bench history` from argv to exit code: runs added, looked through, shown, compacted, told to GitHub."""

import json
import re
import shutil

import fake_github
import pytest
from end_to_end_builders import git
from fake_github import TOKEN, serve
from fake_github_state import REPOSITORY
from records_builders import RESULTS

from ci_bench import cli
from ci_bench.history.store import FolderStore
from ci_bench.records import documents
from ci_bench.records.results import Launch, Source, Unit


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments):
        capsys.readouterr()
        code = cli.main(["history", *map(str, arguments)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def results(folder, number, factor=1.0):
    """The results of run `number`, all times multiplied."""
    from dataclasses import replace

    def scaled(metric):
        if metric.unit is not Unit.SECONDS:
            return metric
        jitter = factor * (1 + 0.002 * ((number * 7919) % 11 - 5) / 5)
        return replace(
            metric,
            launches=tuple(
                Launch(launch=one.launch, values=tuple(value * jitter for value in one.values))
                for one in metric.launches
            ),
        )

    rows = tuple(replace(row, metrics=tuple(map(scaled, row.metrics))) for row in RESULTS.cases)
    at = f"2030-{1 + number // 28:02d}-{1 + number % 28:02d}T12:00:00Z"
    document = replace(
        RESULTS,
        cases=rows,
        run=replace(RESULTS.run, id=f"run-{number}", started_at=at, finished_at=None),
        source=Source(commit=f"{number + 1:040x}", branch="main", dirty=False),
    )
    path = folder / f"{number}.json"
    documents.write(document, path)
    return path


@pytest.fixture
def store(run, tmp_path):
    """A store of forty runs, the last six of them ten per cent slower."""
    paths = [
        results(tmp_path / "runs", number, 1.1 if number >= 34 else 1.0) for number in range(40)
    ]
    assert run("add", *paths)[0] == 0
    return tmp_path / "ci-bench-history"


def test_a_regression_fails_the_check_and_names_its_commits(run, store):
    code, out, _ = run("check")
    assert code == 1
    assert "slower" in out
    assert f"after {34:040x}"[:18] in out
    assert f"up to {35:040x}"[:18] in out


def test_once_recovered_the_check_passes(run, store, tmp_path):
    run("add", *(results(tmp_path / "runs", number) for number in range(40, 46)))
    code, out, _ = run("check")
    assert (code, out.partition(" in ")[0]) == (0, "no open change for the worse")


def test_a_policy_that_only_warns_does_not_fail(run, store, tmp_path):
    (tmp_path / "ci-bench.yml").write_text(
        "schema_version: 1\nsuites:\n  training_loss:\n    - {backend: inductor}\npolicy:\n  severities: {regressed: warn}\n"
    )
    code, out, _ = run("check")
    assert code == 0
    assert "warn" in out


def test_what_is_less_than_asked_for_does_not_count(run, store):
    assert run("check", "--least", "20%")[0] == 0
    with pytest.raises(SystemExit):
        run("check", "--least", "much")


def test_adding_twice_is_said(run, store, tmp_path):
    code, _, err = run("add", tmp_path / "runs" / "3.json")
    assert code == 0
    assert "the run run-3 is there already" in err


def test_compacting_and_exporting_lose_nothing_and_are_taken_over(run, store, tmp_path):
    before = FolderStore(store).read()
    code, _, _ = run("compact", "--export", "out/history.json.gz")
    after = FolderStore(store).read()
    assert code == 0
    assert len(after.files) == 1
    assert after.size < before.size
    assert [one.values for one in after.history.series] == [
        one.values for one in before.history.series
    ]
    assert run("import", "out/history.json.gz", "-s", "other")[0] == 0
    assert FolderStore(tmp_path / "other").read().history == after.history
    assert "imported 0 of 40" in run("import", "out/history.json.gz", "-s", "other")[2]


def test_a_store_beyond_its_size_is_thinned_out_and_says_so(run, store, monkeypatch):
    monkeypatch.setattr("ci_bench.history.compaction.compact.__kwdefaults__", {"most_bytes": 800})
    code, _, err = run("compact")
    assert code == 0
    assert re.search(r"thinned out \d+ old runs", err)
    left = FolderStore(store).read()
    assert left.size <= 800
    assert left.history.runs[-1].id == "run-39"


def test_many_single_records_are_compacted_by_themselves(run, store, tmp_path):
    run("add", *(results(tmp_path / "runs", number) for number in range(40, 70)))
    assert len(FolderStore(store).read().files) == 1
    assert len(FolderStore(store).read().history.runs) == 70


def test_the_page_is_one_file_that_names_what_is_open(run, store, tmp_path):
    run(
        "add", results(tmp_path / "runs", 40, 1.1), "--url", "https://github.com/o/r/actions/runs/7"
    )
    assert run("page", "-o", "trend.html")[0] == 0
    text = (tmp_path / "trend.html").read_text()
    assert "for the worse" in text
    assert f"https://github.com/o/r/commit/{35:040x}" in text
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", text)


@pytest.mark.parametrize("action", ["check", "compact", "page"])
@pytest.mark.parametrize(
    ("is_there", "why"),
    [(False, "the folder does not exist"), (True, "the folder holds no run that can be read")],
)
def test_a_store_without_runs_is_no_store_without_changes(
    run, tmp_path, action, is_there, why
) -> None:
    if is_there:
        (tmp_path / "histroy").mkdir()
        (tmp_path / "histroy" / "notes.txt").touch()
    code, out, err = run(action, "--store", "histroy")
    assert (code, out) == (2, "")
    assert f"history at histroy: {why}" in err
    assert "ci-bench history add RUN" in err
    assert not (tmp_path / "trend.html").exists()


def test_a_branch_that_does_not_exist_is_said_and_adding_makes_it(run, tmp_path) -> None:
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "start")
    path = results(tmp_path / "runs", 0)
    code, _, err = run("check", "--branch", "trend")
    assert (code, "history at branch trend: it does not exist" in err) == (2, True)
    assert run("add", path, "--branch", "trend")[0] == 0
    assert run("check", "--branch", "trend")[0] == 0


def test_a_store_on_a_branch_of_no_repository_is_said(run):
    code, _, _ = run("check", "--branch", "ci-bench-history")
    assert code == 2


def test_a_remote_without_a_branch_is_said(run):
    code, _, err = run("check", "--remote", "origin")
    assert (code, "--branch NAME" in err) == (2, True)


@pytest.fixture
def github(monkeypatch):
    from ci_bench.github import issues

    monkeypatch.setattr(issues, "_SETTLE_S", 0.0)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serve() as fake:
        monkeypatch.setenv("GITHUB_API_URL", fake.url)
        monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        yield fake
        assert fake.faults == []


def test_the_issue_is_opened_updated_and_closed(run, store, tmp_path, github):
    code, _, err = run("check", "--issue")
    assert (code, "issue: done: opened issue" in err) == (1, True)
    (issue,) = github.state.issues.values()
    assert "step_time" in issue["body"]
    assert "ci-bench history bisect" in issue["body"]
    run("add", *(results(tmp_path / "runs", number) for number in range(40, 46)))
    code, _, err = run("check", "--issue")
    assert (code, issue["state"]) == (0, "closed")


def test_the_issue_of_a_branch_with_any_name_is_found_again(run, tmp_path, github):
    """A branch's name may have what a marker cannot."""
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "start")
    paths = [
        results(tmp_path / "runs", number, 1.1 if number >= 34 else 1.0) for number in range(40)
    ]
    assert run("add", *paths, "--branch", "ci-bench/trend")[0] == 0
    for _ in range(2):
        code, _, err = run("check", "--issue", "--branch", "ci-bench/trend")
        assert code == 1, err
    assert len(github.state.issues) == 1


@pytest.mark.parametrize("folder", [".", "kept/trend", "kept of h100", "k" * 100, "-kept", "grün"])
def test_the_issue_of_a_store_in_any_folder_is_found_again(run, store, tmp_path, github, folder):
    shutil.copytree(store, tmp_path / folder, dirs_exist_ok=True)
    for _ in range(2):
        code, _, err = run("check", "--issue", f"--store={folder}")
        assert code == 1, err
    assert len(github.state.issues) == 1


def test_two_stores_have_an_issue_each(run, store, tmp_path, github):
    shutil.copytree(store, tmp_path / "kept" / store.name)
    assert [run("check", "--issue", *place)[0] for place in ([], ["-s", f"kept/{store.name}"])] == [
        1,
        1,
    ]
    assert len(github.state.issues) == 2


def test_the_issue_of_an_app_is_found_by_its_login(run, store, github, monkeypatch):
    github.tokens["ghs_app"] = ("gate[bot]", fake_github.WRITES)
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_app")
    for _ in range(2):
        assert run("check", "--issue", "--comment-author", "gate[bot]")[0] == 1
    assert len(github.state.issues) == 1


def test_a_verdict_wins_over_what_github_has_against_it(run, store, github, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", fake_github.READ_ONLY)
    assert run("check", "--issue")[0] == 1
    assert run("check", "--issue", "--least", "90%")[0] == 0


def artifact(fake, name, runs, **fields):
    content = {"history.json.gz": runs}
    return fake.state.add_artifact(
        fake.state.add_run(f"{name:040x}", **fields), content, name="ci-bench-history"
    )


def test_artifacts_of_two_runs_at_once_are_united_and_a_forks_is_not_believed(
    run, tmp_path, github, monkeypatch
):
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"repository": {"id": github.state.repository_id}}))
    wanted = {
        "GITHUB_RUN_ID": "1",
        "GITHUB_EVENT_NAME": "schedule",
        "GITHUB_SHA": "1" * 40,
        "GITHUB_REF": "refs/heads/main",
    }
    for name, value in {**wanted, "GITHUB_EVENT_PATH": str(event)}.items():
        monkeypatch.setenv(name, value)
    exported = {}
    for name, numbers in (("one", (0, 1)), ("two", (0, 2)), ("fork", (3,)), ("branch", (4,))):
        run(
            "add",
            *(results(tmp_path / name, number) for number in numbers),
            "-s",
            tmp_path / f"store-{name}",
        )
        run("compact", "-s", tmp_path / f"store-{name}", "--export", tmp_path / f"{name}.json.gz")
        exported[name] = (tmp_path / f"{name}.json.gz").read_bytes()
    artifact(github, 1, exported["one"])
    artifact(github, 2, exported["two"])
    artifact(github, 3, exported["fork"], fork=True)
    artifact(github, 4, exported["branch"], head_branch="feature")
    artifact(github, 5, exported["one"][:100])
    code, _, err = run("fetch")
    assert code == 0
    assert [one.id for one in FolderStore(tmp_path / "ci-bench-history").read().history.runs] == [
        "run-0",
        "run-1",
        "run-2",
    ]
    assert "skipped artifact" in err
