"""The command line in a process of its own, with the fake suite installed, in a folder that is a git checkout."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fake_suite_cli
import pytest
import yaml
from fake_suite import FIXTURES

GIT = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}
RUN = {
    "device": "cpu",
    "launches": 1,
    "blocks": 2,
    "sample_s": 0.001,
    "warmup_s": 0.05,
    "stage_timeout_s": 60,
}


@dataclass
class Place:
    """A checkout with a configuration, and ways to run ci-bench in it."""

    folder: Path
    site: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def output(self) -> Path:
        return self.folder / "out"

    @property
    def temporary(self) -> Path:
        return self.folder.parent / "tmp"

    def configure(self, *entries: Mapping[str, Any], **run: object) -> None:
        policy = {"severities": {"baseline_missing": "warn"}}
        config = {
            "schema_version": 1,
            "run": {**RUN, **run},
            "suites": {"fake": list(entries)},
            "policy": policy,
        }
        (self.folder / "ci-bench.yml").write_text(yaml.safe_dump(config))
        self.commit()

    def commit(self) -> None:
        for command in (
            ("init", "-q"),
            ("add", "ci-bench.yml"),
            ("commit", "-q", "--allow-empty", "-m", "one"),
        ):
            subprocess.run(
                ["git", *command],
                cwd=self.folder,
                env={**os.environ, **GIT},
                check=True,
                capture_output=True,
            )

    def start(
        self,
        *arguments: object,
        command: Sequence[str] = fake_suite_cli.COMMAND,
        preexec_fn: Callable[[], None] | None = None,
        **environ: str,
    ) -> "subprocess.Popen[str]":
        self.temporary.mkdir(exist_ok=True)
        path = os.pathsep.join([str(self.site), str(FIXTURES)])
        more = {
            "PYTHONPATH": path,
            "TMPDIR": str(self.temporary),
            "FAKE_NOTES": str(self.folder.parent / "notes"),
            **self.environ,
        }
        how = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "preexec_fn": preexec_fn,
        }
        visible = {**os.environ, **more, **environ}
        return subprocess.Popen(
            [*command, *map(str, arguments)], cwd=self.folder, env=visible, **how
        )

    def run(self, *arguments: object, **options: Any) -> tuple[int, str, str]:
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.temporary.glob("ci-bench-*"))


def _make(folder: Path) -> Place:
    (folder / "work").mkdir()
    return Place(folder=folder / "work", site=fake_suite_cli.install(folder / "site"))


@pytest.fixture
def place(tmp_path):
    return _make(tmp_path)


@pytest.fixture(scope="session")
def make_place(tmp_path_factory):
    return lambda: _make(tmp_path_factory.mktemp("place"))
