"""Asks the Docker daemon: short questions with an answer in text.

Long commands are in `supervise`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faults import Fault
from supervise import supervise
from workflow import Log, say

TRIES = 3
BUILT = "ci-bench.local/built"
"""The tag of an image that was built here: `docker image prune`, which takes what has no tag,
spares it.
"""
_CLIENT = ("PATH", "HOME", "XDG_RUNTIME_DIR", "TMPDIR", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR")


def client_environment(
    environ: Mapping[str, str], more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of the docker command: where the daemon is, and `more`.

    Nothing of it enters a container by itself.
    """
    client = {
        name: value
        for name, value in environ.items()
        if name in _CLIENT or name.startswith("DOCKER_")
    }
    return {**client, **(more or {})}


def ask(*arguments: str, timeout_s: float = 120) -> tuple[int, str, str]:
    """Run a docker command; return its exit code, output and the end of its complaint."""
    try:
        done = subprocess.run(
            ["docker", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=client_environment(os.environ),
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"docker {arguments[0]} took longer than {timeout_s:.0f} s"
    return done.returncode, done.stdout, tail(done.stderr)


def show(*arguments: str, timeout_s: float = 3600) -> tuple[int, str]:
    """Run a docker command that takes minutes; return its exit code and the end of its output.

    The job's log shows all output as it comes.
    """
    last = bytearray()

    def take(chunk: bytes) -> None:
        log.take(chunk)
        last.extend(chunk)
        del last[:-2000]

    with Path(os.devnull).open("wb") as nothing:
        log = Log(nothing)
        code, how = supervise(
            ["docker", *arguments],
            environ=client_environment(os.environ),
            take=take,
            timeout_s=timeout_s,
        )
        log.finish()
    ending = tail(last.decode("utf-8", "replace"))
    return (code, ending) if how == "exited" else (124, f"docker {arguments[0]} was ended: {how}")


def tail(text: str) -> str:
    """Return the last words of a complaint, in one line."""
    return " ".join(text.split())[-500:] or "it gave no reason"


def information() -> Mapping[str, Any]:
    """Return the daemon's description of itself.

    Raises `Fault` if there is no docker, or no daemon.
    """
    if shutil.which("docker") is None:
        raise Fault("no_docker")
    code, out, complaint = ask("info", "--format", "{{json .}}")
    try:
        description = json.loads(out) if code == 0 else None
    except ValueError:
        description = None
    if not isinstance(description, dict) or description.get("ServerErrors"):
        raise Fault(
            "no_daemon",
            detail=tail("; ".join(description["ServerErrors"])) if description else complaint,
        )
    return description


def memory(daemon: Mapping[str, Any]) -> str:
    """Return the default memory limit of measuring: all but a tenth.

    The runner has to outlive code that takes all it gets.
    """
    total = daemon.get("MemTotal")
    return f"{int(total * 0.9)}b" if isinstance(total, int) and total > 0 else ""


def user(daemon: Mapping[str, Any]) -> str:
    """Return the user of a container, so that what it writes is this runner's.

    A rootless daemon maps root to it.
    """
    options = daemon.get("SecurityOptions") or ()
    if any(str(option).startswith("name=rootless") for option in options):
        return "0:0"
    return f"{os.getuid()}:{os.getgid()}"


def pull(image: str, wait: float = 1.0) -> str:
    """Pull an image, and return the id that it is run by. Raises `Fault` after the third try."""
    complaint = ""
    for attempt in range(TRIES):
        code, complaint = show("pull", image)
        if code == 0:
            return identify(image)
        time.sleep(wait * 4**attempt if attempt + 1 < TRIES else 0)
    if ask("image", "inspect", "--format", "{{.Id}}", image)[0] == 0:
        say(f"{image} could not be pulled ({complaint}); the one that is on this host is used")
        return identify(image)
    raise Fault("pull", detail=f"{image}: {complaint}")


def build(folder: Path, note: Path) -> str:
    """Build this repository's own Dockerfile, and return the image's id."""
    code, complaint = show("build", "--iidfile", str(note), "--tag", BUILT, str(folder))
    if code:
        raise Fault("build", detail=complaint)
    return note.read_text(encoding="utf-8").strip()


def identify(image: str) -> str:
    """Return the id of an image on this host; the name may mean another one later."""
    code, out, complaint = ask("image", "inspect", "--format", "{{.Id}}", image)
    if code or not out.strip():
        raise Fault("pull", detail=f"{image}: {complaint}")
    return out.strip()


def remove(label: str) -> int:
    """Remove all containers with a label, running or not; return their number."""
    code, out, _ = ask("ps", "--all", "--quiet", "--filter", f"label={label}")
    ids: Sequence[str] = out.split() if code == 0 else ()
    if ids:
        ask("rm", "--force", "--volumes", *ids)
    return len(ids)
