"""The step of report/action.yml: what another job has measured, judged and told. Nothing that was measured is run here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import commands
import inputs
import workflow

_PATTERN = r"(?=.{1,100}$)[A-Za-z0-9][A-Za-z0-9._-]*(\*[A-Za-z0-9._-]*)?"
_OF_BOTH = (
    *("config_path", "baseline", "base", "baseline_branch", "baseline_workflow", "baseline_farthest"),
    *("comment", "comment_author", "check", "check_name", "key", "patience_s"),
)
FIELDS: Mapping[str, inputs.Parse] = {
    "command": inputs.one_of("publish", "announce"),
    "gate": inputs.boolean,
    "artifact": inputs.form(_PATTERN, "an artifact's name, with one * for the legs of a matrix"),
    "legs": inputs.whole(1, 16),
    "baseline_artifact": inputs.form(_PATTERN, "an artifact's name, with one * for the legs of a matrix"),
    **{name: inputs.FIELDS[name] for name in _OF_BOTH},
}
"""Every input of report/action.yml but the token."""
VERDICTS = {1, 4}
"""Exit codes that the check has told."""


def hosted() -> int:
    """Run the command with what `install.sh` has installed; its exit code, unless only the check is to tell the verdict."""
    settings = inputs.read(os.environ, FIELDS)
    source = Path(__file__).resolve().parents[2] / "src"
    temporary = Path(os.environ["RUNNER_TEMP"])
    python = temporary / "ci-bench-report" / "bin" / "python"
    argv = [str(python), "-m", "ci_bench.cli", *arguments(settings, str(temporary / "ci-bench-documents"))]
    environ = {**os.environ, "PYTHONPATH": str(source), "PYTHONSAFEPATH": "1"}
    code = subprocess.run(argv, env=environ, check=False).returncode
    if settings["command"] == "publish" and not settings["gate"] and code in VERDICTS:
        workflow.say(f"the check tells the verdict (exit code {code}); this job does not fail for it")
        return 0
    return code


def arguments(settings: Mapping[str, Any], output: str) -> list[str]:
    """The command's arguments."""
    told = ["--output", output, *commands.mark(settings), "--patience", str(settings["patience_s"])]
    if settings["command"] == "announce":
        return ["announce", *told]
    return ["publish", "--artifact", settings["artifact"], "--legs", str(settings["legs"]), *told, *commands.judging(settings)]
