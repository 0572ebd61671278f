"""A machine with the fake suite installed, and a folder with a configuration that names it."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fake_suite_cli
import pytest
import yaml
from fake_suite import FIXTURES

from ci_bench import cli
from ci_bench.diagnostics import doctor

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = fake_suite_cli.install(tmp_path / "site")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(FIXTURES)]))
    monkeypatch.setattr(doctor, "_version", lambda _: "99.0")
    monkeypatch.setenv("FAKE_STEP_S", "0.004")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration of the fake suite's cases."""

    def write(
        *entries: Mapping[str, Any], severities: Mapping[str, str] | None = None, **run: object
    ) -> Path:
        how = {
            "device": "cpu",
            "launches": 3,
            "blocks": 3,
            "sample_s": 0.001,
            "warmup_s": 0.1,
            "stage_timeout_s": 60,
            **run,
        }
        policy = {
            "default_threshold": "30%",
            "thresholds": {"step_time": "30%"},
            "severities": severities or {"baseline_missing": "warn"},
        }
        path = tmp_path / "ci-bench.yml"
        path.write_text(
            yaml.safe_dump(
                {
                    "schema_version": 1,
                    "run": how,
                    "suites": {"fake": list(entries)},
                    "policy": policy,
                }
            )
        )
        return path

    return write


@pytest.fixture
def ci_bench(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs one command in this process: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def repository(
    tmp_path: Path, configure: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A checkout with one commit: a configuration of one case, and code that takes 4 ms."""
    from end_to_end_builders import git

    folder = tmp_path / "a repository"
    folder.mkdir()
    configure({"name": "one"}, launches=5, blocks=6, sample_s=0.004).rename(folder / "ci-bench.yml")
    (folder / "fake_step_s").write_text("0.004")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "start")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CI_BENCH_NOISE", str(tmp_path / "noise"))
    for name in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    return folder
