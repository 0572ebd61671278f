"""The short form of the action, ``docker/action.yml``: the composite's steps, one after the other, in this one container.

GitHub's runner starts the container of such an action with the docker socket, the folders of its own files and the job's
runtime token, whatever the action does. Code that runs here can reach all of that, so this form runs only code that could have
been pushed to the repository: a pull request from anywhere else is refused before anything of it is run. Standard library only.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS = Path(__file__).resolve().parent / "action"
EVENTS = ("push", "schedule", "workflow_dispatch", "merge_group", "pull_request")
"""Events whose code comes from people who may push, or can be told from those that don't."""
FIXED = {
    "mode": "native",
    "fleet": "",
    "lease_image": "",
    "image": "",
    "gpus": "all",
    "gpu_access": "auto",
    "setup_network": "true",
    "bench_network": "true",
    "memory": "",
    "cpus": "",
    "shm_size": "2g",
    "pids_limit": "4096",
    "cache": "",
    "mounts": "",
    "upload": "false",
    "report_network": "bridge",
}
"""Inputs about containers, which the runner decides in this form: the one value that docker/action.yml has for each."""
TOKENS = ("GITHUB_TOKEN", "INPUT_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN")
BAD_INPUT, NOT_MEASURED, CANCELLED = 2, 3, 130


class Refused(Exception):  # noqa: N818 - errors read as sentences
    """This form must not, or cannot, run this."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the composite; `token` steps run nothing of the code under test."""

    name: str
    token: bool = False


FETCHING = Step(name="baseline", token=True)
MEASURING: Sequence[Step] = (Step(name="setup"), Step(name="bench"))
FINISHING: Sequence[Step] = (Step(name="report", token=True), Step(name="gate"))


def main(environ: Mapping[str, str]) -> int:
    """Run the action; the exit code is the gate's."""
    try:
        check_event(environ)
        check_inputs(environ)
    except Refused as refused:
        sys.stdout.write(f"::error title=ci-bench::{refused}\n")
        return BAD_INPUT
    workspace = Path(environ.get("GITHUB_WORKSPACE", "."))
    told = Path(environ.get("GITHUB_OUTPUT", os.devnull))
    code = _run(Step(name="preflight"), environ)
    work = outputs(told).get("work", "")
    if code or not work:
        return code or NOT_MEASURED
    environ = {**environ, "CI_BENCH_WORK": work}
    try:
        return _all(environ)
    finally:
        documents = keep(Path(work) / "documents", workspace)
        with told.open("a", encoding="utf-8") as stream:
            stream.write(f"documents={documents}\n")
        _run(Step(name="cleanup"), environ)
        give_back(workspace)


def _all(environ: Mapping[str, str]) -> int:
    code = _run(FETCHING, environ)
    paired = environ.get("INPUT_BASELINE") == "paired"
    for step in (one for one in MEASURING if paired or one.name != "setup"):
        code = code or _run(step, environ)
    if code:
        return code
    for step in FINISHING:
        code = _run(step, environ)
    return code


def _run(step: Step, environ: Mapping[str, str]) -> int:
    """Run one step, and return its exit code. It gets the signals of this process's group itself, and ends in its own time."""
    process = subprocess.Popen([sys.executable, "-I", "-B", str(STEPS), step.name], env=environment(step, environ))
    cancelled = False
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            cancelled = True
            continue
        return CANCELLED if cancelled else code if code >= 0 else 128 - code


def environment(step: Step, environ: Mapping[str, str]) -> dict[str, str]:
    """What a step sees: the job's token where it needs it, and never the runner's other tokens."""
    kept = {name: value for name, value in environ.items() if name not in TOKENS}
    kept |= {"INPUT_MODE": FIXED["mode"], "INPUT_IMAGE": "build"}  # the steps want an image's name, and don't use it natively
    if step.token:
        kept["GITHUB_TOKEN"] = environ.get("INPUT_TOKEN", "")
    return kept


def check_event(environ: Mapping[str, str]) -> None:
    """Raise `Refused` unless the code is of somebody who may push to this repository. What is not known is not trusted."""
    event = environ.get("GITHUB_EVENT_NAME", "")
    if event not in EVENTS:
        raise Refused(f"this form of the action runs on {', '.join(EVENTS)}, and not on {event or 'an unknown event'}")
    if event != "pull_request":
        return
    told = _event(environ)
    repository = _at(told, "repository", "id")
    head = _at(told, "pull_request", "head", "repo", "id")
    if not isinstance(head, int) or head != repository:
        raise Refused(
            "this pull request comes from a fork, or from where can't be told. This form of the action would show its code the "
            "docker socket and the job's tokens: use the composite action, ci-bench/ci-bench, which has a container for it"
        )


def check_inputs(environ: Mapping[str, str]) -> None:
    """Raise `Refused` for inputs that only the composite action can honour: they are refused, not ignored."""
    asked = {name: environ.get(f"INPUT_{name.upper()}", fixed).strip() for name, fixed in FIXED.items()}
    wrong = [f"{name} (here it can only be {FIXED[name]!r})" for name, value in asked.items() if value != FIXED[name]]
    if wrong:
        raise Refused(
            f"inputs that this form of the action can't honour: {', '.join(wrong)}. The runner decides how the container of a "
            "docker action is started; the composite action, ci-bench/ci-bench, starts its own"
        )


def outputs(path: Path) -> dict[str, str]:
    """The outputs so far; the last of a name wins, as for the runner."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return dict(line.split("=", 1) for line in lines if "=" in line)


def keep(documents: Path, workspace: Path) -> str:
    """Copy the documents to a new folder in the workspace, for the job's next steps, and return its name in there."""
    name = f"ci-bench-results-{secrets.token_hex(4)}"
    (workspace / name).mkdir()
    for path in sorted(documents.glob("*")):
        if path.is_file() and not path.is_symlink():
            shutil.copyfile(path, workspace / name / path.name)
    return name


def give_back(workspace: Path) -> None:
    """Make what root has left in the workspace its owner's: the runner could not remove it before the next job."""
    owner = workspace.stat()
    if owner.st_uid == 0 or os.geteuid() != 0:
        return
    for folder, folders, files in os.walk(workspace):
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.lstat().st_uid == 0:
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _event(environ: Mapping[str, str]) -> Any:
    try:
        return json.loads(Path(environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    except (KeyError, OSError, ValueError):
        return None


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _cancel(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _cancel)
    sys.exit(main(os.environ))
