"""The step of report/action.yml: judges and publishes what another job has measured.

Nothing that was measured is run here.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import commands
import inputs
import workflow

_PATTERN = r"(?=.{1,100}$)[A-Za-z0-9][A-Za-z0-9._-]*(\*[A-Za-z0-9._-]*)?"
_MACHINE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}"
_MACHINES = rf"{_MACHINE}( *, *{_MACHINE}){{0,15}}"
_OF_BOTH = (
    *("config_path", "baseline", "base", "baseline_workflow"),
    *("comment", "comment_author", "key", "head", "filter"),
)
FIELDS: Mapping[str, inputs.Parse] = {
    "command": inputs.one_of("publish", "announce", "answer-request", "install"),
    "gate": inputs.boolean,
    "artifact": inputs.form(_PATTERN, "an artifact's name, with one * for the names of machines"),
    "machines": inputs.form(
        _MACHINES, "names of up to 16 machines, separated by commas", empty=True
    ),
    "baseline_artifact": inputs.form(
        _PATTERN, "an artifact's name, with one * for the names of machines"
    ),
    **{name: inputs.FIELDS[name] for name in _OF_BOTH},
}
"""Every input of report/action.yml but the token."""
VERDICTS = {1, 4}
"""Exit codes of verdicts that the check shows."""


def hosted() -> int:
    """Run the command with what `install.sh` has installed; return its exit code.

    It is 0 for any verdict if only the check shows the verdict.
    """
    settings = inputs.read(os.environ, FIELDS)
    temporary = Path(os.environ["RUNNER_TEMP"])
    program = make_program(temporary / "ci-bench-report")
    if settings["command"] == "install":
        workflow.add_to_path(program.parent)
        return subprocess.run([str(program), "--version"], check=False).returncode
    argv = [str(program), *arguments(settings, str(temporary / "ci-bench-documents"))]
    code = subprocess.run(argv, check=False).returncode
    if settings["command"] == "publish" and not settings["gate"] and code in VERDICTS:
        workflow.say(
            f"the check tells the verdict (exit code {code}); this job does not fail for it"
        )
        return 0
    return code


def make_program(venv: Path) -> Path:
    """Write the program ``ci-bench``: this source in the installed environment.

    It is in a folder of its own, and its path is returned.
    """
    source = Path(__file__).resolve().parents[2] / "src"
    program = venv / "program" / "ci-bench"
    program.parent.mkdir(exist_ok=True)
    words = [
        f"PYTHONPATH={source}",
        "PYTHONSAFEPATH=1",
        str(venv / "bin" / "python"),
        "-m",
        "ci_bench.cli",
    ]
    program.write_text(f'#!/bin/sh\nexec env {shlex.join(words)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def arguments(settings: Mapping[str, Any], output: str) -> list[str]:
    """Return the command's arguments."""
    options = ["--output", output, *commands.mark(settings)]
    if settings["command"] == "announce":
        return ["github", "announce", *options]
    if settings["command"] == "answer-request":
        return commands.answer_request(settings, output)
    machines = ["--machines", settings["machines"]] if settings["machines"] else []
    argv = ["github", "publish", "--artifact", settings["artifact"], *machines]
    return [*argv, *options, *commands.judging(settings)]
