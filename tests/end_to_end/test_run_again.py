"""The line that measures a case again, as terminal, comment and page print it, pasted into a shell."""

import base64
import html
import json
import os
import re
import shlex
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import yaml
from end_to_end_builders import git, outcome

from ci_bench.command_line.settings import Measuring
from ci_bench.commands.inputs import command_again
from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.comparison import Verdict

MEASURE = """read cost < cost
set -- $(od -An -N2 -tu2 /dev/urandom)
value=$cost.00$(($1 % 10))
echo '{"kind": "measurements", "schema_version": 1, "series": [{"name": "work", "unit": "ms", "better": "lower", "value": '$value'}]}'
"""
LAUNCHES = 6


def cases_of(page: Path) -> list[str]:
    """What the page shows of each case, as text."""
    (packed,) = re.findall(r'id="data">([^<]+)<', page.read_text())
    cases = json.loads(zlib.decompress(base64.b64decode(packed)))["cases"]
    return [html.unescape(re.sub(r"<[^>]+>", "", case["html"])) for case in cases]


def shim(folder: Path) -> Path:
    """A `ci-bench` of this interpreter."""
    folder.mkdir()
    (folder / "ci-bench").write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ci_bench.cli "$@"\n'
    )
    (folder / "ci-bench").chmod(0o755)
    return folder


@pytest.fixture
def slower(tmp_path, monkeypatch):
    """A repository whose last commit is slower than the branch `start`, and whose configuration has a name for a shell to trip on."""
    folder = tmp_path / "a repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CI_BENCH_LOCKS", str(tmp_path / "locks"))
    entry = {"command": "sh measure.sh", "format": "measurements", "output": "stdout"}
    config = {
        "schema_version": 1,
        "run": {
            "device": "cpu",
            "sampling": "fixed",
            "launches": 2,
            "blocks": 1,
            "sample_s": 0.001,
            "warmup_s": 0.05,
        },
        "suites": {"command": [{**entry, "name": "step"}, {**entry, "name": "other"}]},
    }
    (folder / "it's $HOME.yml").write_text(yaml.safe_dump(config))
    (folder / "measure.sh").write_text(MEASURE)
    (folder / "cost").write_text("10\n")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "start")
    git(folder, "branch", "start")
    (folder / "cost").write_text("20\n")
    git(folder, "commit", "-a", "-m", "slower")
    return folder


@pytest.mark.alone
def test_the_printed_line_measures_the_case_again_and_gets_the_same_verdict(
    slower, tmp_path, ci_bench
) -> None:
    asked = (
        "--config",
        "it's $HOME.yml",
        "--baseline",
        "paired",
        "--base",
        "start",
        "--noise",
        tmp_path / "noise of mine",
    )
    out = tmp_path / "out"
    code, shown, said = ci_bench(
        "gate", *asked, "--launches", LAUNCHES, "--device", "cpu", "--output", out
    )
    first = outcome(out)
    assert (code, {case.verdict for case in first.cases}) == (
        ExitCode.POLICY_NOT_MET,
        {Verdict.REGRESSED},
    ), said
    (line,) = (
        told.strip()
        for told in shown.partition("Reproduce the worst case:")[2].splitlines()
        if "ci-bench " in told
    )
    assert line in (out / "report.md").read_text()
    assert any(line in case for case in cases_of(out / "report.html"))
    git(
        slower, "branch", "--force", "start", "HEAD"
    )  # the name stands for another commit now, the line's does not
    environ = {**os.environ, "PATH": f"{shim(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(
        ["sh", "-c", line], cwd=slower, env=environ, capture_output=True, text=True, check=False
    )
    again = outcome(slower / "ci-bench-results")
    assert ended.returncode == code, ended.stderr
    (case,) = again.cases
    assert (case.verdict, again.base.source.commit) == (Verdict.REGRESSED, first.base.source.commit)
    results = documents.read_results(slower / "ci-bench-results" / "results.json")
    assert [len(metric.launches) for metric in results.cases[0].metrics] == [LAUNCHES]
    assert results.run.asked["launches"] == (str(LAUNCHES),)


def test_all_that_was_asked_is_in_the_line() -> None:
    settings = Measuring(
        environ={},
        here=Path(),
        config=Path("own.yml"),
        device="cuda:1",
        launches=3,
        budget_s=600.0,
        baseline="artifact",
        fetched=Path("fetched"),
        prepared=None,
    )
    line = "--config own.yml --baseline artifact --fetched fetched --device cuda:1 --launches 3"
    assert " ".join(command_again("gate", settings)) == f"ci-bench gate {line} --budget 600"
    paired = Measuring(environ={}, here=Path(), prepared=Path("sides"), base="main")
    assert command_again("gate", paired, base="a" * 40) == (
        "ci-bench",
        "gate",
        "--baseline",
        "paired",
        "--base",
        "a" * 40,
    )
