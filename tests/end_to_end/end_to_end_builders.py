"""Repositories of the fake suite: how long a step takes is a file of the tree."""

import subprocess
from pathlib import Path

from ci_bench.records import documents
from ci_bench.records.comparison import Comparison


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main")
    told = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return told.stdout.strip()


def commit(folder: Path, step_s: str) -> None:
    (folder / "fake_step_s").write_text(step_s)
    git(folder, "commit", "-a", "-m", f"take {step_s} s")


def outcome(out: Path) -> Comparison:
    return documents.read_comparison(out / "comparison.json")
