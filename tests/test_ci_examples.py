"""The files for other CI hosts, run with programs in place of ci-bench and the host's own."""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from ci_bench.command_line.flags import make_parser

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "ci"
PROGRAM = """#!/usr/bin/env bash
printf '%s\\n' "$*" >> "$CALLS/$(basename "$0")"
if [ "$(basename "$0")" = ci-bench ] && [ "$1" = gate ] && [ "$MEASURES" = yes ]; then
  mkdir -p ci-bench-results && echo '{}' > ci-bench-results/comparison.json
fi
if [ "$(basename "$0")" = ci-bench ] && [ "$1" = show ]; then echo "the comment" > "${@: -1}"; fi
if [ "$(basename "$0")" = buildkite-agent ]; then cat >> "$CALLS/annotation"; fi
if [ "$1" = gate ]; then exit "$CODE"; fi
"""
REPORTS = {"comment.md", "junit.xml", "code-quality.json"}


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Run a script as a job of a host does, with fake programs.

    Returns the exit code, and the calls of each program.
    """
    programs, calls, tree = (tmp_path / name for name in ("bin", "calls", "tree"))
    for folder in (programs, calls, tree / "ci"):
        folder.mkdir(parents=True)
    for name in ("ci-bench", "git", "buildkite-agent"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    (tree / "ci" / "gate.sh").write_text((EXAMPLES / "gate.sh").read_text())

    def run(script, *, code=0, measures=True, **variables):
        environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CALLS": str(calls),
            "CODE": str(code),
        }
        environ |= {"MEASURES": "yes" if measures else "no", **variables}
        ended = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=tree,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        return ended.returncode, {
            file.name: file.read_text().splitlines() for file in calls.iterdir()
        }

    run.tree = tree
    return run


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_shell_ends_as_the_gate(job, code) -> None:
    ended, calls = job("bash ci/gate.sh", code=code, CI_BENCH_TARGET="origin/develop")
    assert ended == code
    assert {*(path.name for path in (job.tree / "ci-bench-results").iterdir())} == {
        "comparison.json",
        *REPORTS,
    }
    assert calls["ci-bench"][0].startswith("gate --baseline paired --base origin/develop...HEAD ")
    for line in calls["ci-bench"]:
        assert make_parser().parse_args(line.split()).command


def test_nothing_is_reported_without_a_verdict(job) -> None:
    ended, calls = job("bash ci/gate.sh", code=2, measures=False)
    assert (ended, len(calls["ci-bench"])) == (2, 1)


@pytest.mark.parametrize(("code", "style"), [(0, "success"), (1, "error"), (4, "warning")])
def test_buildkite_annotates_the_build(job, code, style) -> None:
    (step,) = yaml.safe_load((EXAMPLES / "buildkite.yml").read_text())["steps"]
    ended, calls = job(
        step["command"].replace("$$", "$"), code=code, BUILDKITE_PULL_REQUEST_BASE_BRANCH="main"
    )
    assert ended == code
    assert calls["buildkite-agent"] == [f"annotate --style {style} --context ci-bench"]
    assert calls["annotation"] == ["the comment"]
    assert calls["git"] == ["fetch --quiet origin main:refs/remotes/origin/main"]
    assert re.search(r"(?<!\$)\$(?!\$)", step["command"]) is None, (
        "Buildkite interpolates a single $ when it uploads"
    )


def test_buildkite_annotates_nothing_without_a_comment(job) -> None:
    (step,) = yaml.safe_load((EXAMPLES / "buildkite.yml").read_text())["steps"]
    ended, calls = job(
        step["command"].replace("$$", "$"),
        code=2,
        measures=False,
        BUILDKITE_PULL_REQUEST_BASE_BRANCH="main",
    )
    assert (ended, "buildkite-agent" in calls) == (2, False)


def test_jenkins_runs_the_gate_and_reads_its_report(job) -> None:
    text = (EXAMPLES / "Jenkinsfile").read_text()
    ended, calls = job(
        "\n".join(re.findall(r"^ +sh '(.*)'$", text, re.MULTILINE)), code=1, CHANGE_TARGET="main"
    )
    assert (ended, calls["git"]) == (1, ["fetch --quiet origin main:refs/remotes/origin/main"])
    (junit,) = re.findall(r"junit testResults: '(.*?)'", text)
    assert (job.tree / junit).exists()


def test_gitlab_runs_the_gate_and_reads_its_reports(job) -> None:
    pipeline = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())
    gate, note = pipeline["gate"], pipeline["note"]
    assert [gate["stage"], note["stage"]] == pipeline["stages"]
    target = gate["variables"]["CI_BENCH_TARGET"].replace(
        "$CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main"
    )
    ended, calls = job(
        "\n".join(gate["script"]),
        CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main",
        CI_BENCH_TARGET=target,
    )
    assert (ended, calls["git"]) == (0, ["fetch --quiet origin main:refs/remotes/origin/main"])
    assert gate["artifacts"]["when"] == "always"
    assert gate["artifacts"]["reports"].keys() == {"junit", "codequality"}
    assert all((job.tree / path).exists() for path in gate["artifacts"]["reports"].values())
    assert "ci-bench" not in " ".join(note["script"]).replace("ci-bench-results", ""), (
        "the job with the token runs no code under test"
    )
    assert note["rules"][0]["when"] == "always"


class GitLab(BaseHTTPRequestHandler):
    """Notes and commit statuses, as GitLab's API documents them: paths, methods, codes, and pages of results."""

    def do_GET(self) -> None:
        self._note("GET")
        place, _, query = self.path.partition("?")
        page = int(dict(pair.split("=") for pair in query.split("&"))["page"])
        notes = self.server.notes if place == "/api/v4/projects/7/merge_requests/3/notes" else None
        self._answer(404 if notes is None else 200, (notes or [])[2 * (page - 1) : 2 * page])

    def do_POST(self) -> None:
        body = self._note("POST")
        if self.path.startswith("/api/v4/projects/7/statuses/"):
            self._answer(self.server.status_code, {})
        else:
            self.server.notes.append({"id": 100 + len(self.server.notes), "body": body["body"]})
            self._answer(201, {})

    def do_PUT(self) -> None:
        body = self._note("PUT")
        found = next(
            note for note in self.server.notes if self.path.endswith(f"/notes/{note['id']}")
        )
        found["body"] = body["body"]
        self._answer(200, found)

    def _note(self, method):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
        self.server.calls.append((method, self.path.partition("?")[0], body))
        assert self.headers["PRIVATE-TOKEN"] == "glpat-x"
        return body

    def _answer(self, code, value):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_) -> None:
        """Print nothing."""


@pytest.fixture
def gitlab():
    server = ThreadingHTTPServer(("127.0.0.1", 0), GitLab)
    server.notes, server.calls, server.status_code = (
        [{"id": number, "body": "LGTM"} for number in range(3)],
        [],
        201,
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def publish(gitlab, folder, **more):
    environ = {
        "PATH": os.environ["PATH"],
        "CI_API_V4_URL": f"http://127.0.0.1:{gitlab.server_address[1]}/api/v4",
        "CI_PROJECT_ID": "7",
        "CI_MERGE_REQUEST_IID": "3",
        "CI_COMMIT_SHA": "a" * 40,
        "CI_JOB_URL": "https://gitlab.example.com/job/1",
        "CI_BENCH_GITLAB_TOKEN": "glpat-x",
        **more,
    }
    script = [sys.executable, "-I", "-S", str(EXAMPLES / "gitlab_note.py"), str(folder)]
    return subprocess.run(script, env=environ, capture_output=True, text=True, check=False)


def verdict(folder, word="failed"):
    judgement = {"verdict": word, "headline": "mlp is 5 % slower " + "x" * 300}
    (folder / "comparison.json").write_text(json.dumps({"judgement": judgement}))
    (folder / "comment.md").write_text(f"## {word}")


@pytest.mark.parametrize(
    ("word", "state"), [("passed", "success"), ("undecided", "success"), ("failed", "failed")]
)
def test_gitlabs_note_is_written_once_and_updated(gitlab, tmp_path, word, state) -> None:
    for number, said in enumerate(("passed", word)):
        verdict(tmp_path, said)
        ended = publish(gitlab, tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert len(gitlab.notes) == 4, number
    assert gitlab.notes[3]["body"] == f"<!-- ci-bench -->\n## {word}"
    method, path, body = gitlab.calls[-1]
    assert (method, path) == ("POST", f"/api/v4/projects/7/statuses/{'a' * 40}")
    assert (body["state"], body["name"], len(body["description"])) == (state, "ci-bench", 255)


def test_gitlab_learns_that_nothing_was_measured(gitlab, tmp_path) -> None:
    assert publish(gitlab, tmp_path, CI_MERGE_REQUEST_SOURCE_BRANCH_SHA="b" * 40).returncode == 0
    assert "measured nothing" in gitlab.notes[3]["body"]
    assert gitlab.calls[-1][1].endswith(f"/statuses/{'b' * 40}")
    assert gitlab.calls[-1][2]["state"] == "failed"


@pytest.mark.parametrize(("code", "ended"), [(400, 0), (401, 1), (500, 1)])
def test_only_an_unchanged_status_is_no_error(gitlab, tmp_path, code, ended) -> None:
    verdict(tmp_path)
    gitlab.status_code = code
    assert publish(gitlab, tmp_path).returncode == ended
