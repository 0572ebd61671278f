"""Checks before measuring that this runner can: docker, files, disk, image, GPU.

Each failure has its own words.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import containers
import credentials
import docker
import inputs
from ci_bench.host import cage
from faults import Fault
from workflow import say

FOLDERS = ("config", "results", "prepared", "cache", "documents", "report", "baseline")
_JOB_CONTAINER = ("/__w", "/__t")
_LOCKS = "/tmp/ci-bench-locks"  # noqa: S108 - shared by all jobs and users of this machine on purpose
_CONTEXT = "python -I -m ci_bench.worker.context"
LEAST_FREE_GB = 10
_CONTEXT_S = 300
"""Importing torch from a cold disk takes its time."""


def examine(settings: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that the other steps need to know, or raise `Fault`."""
    workspace = Path(environ.get("GITHUB_WORKSPACE", "."))
    daemon: Mapping[str, Any] = {}
    if settings["mode"] == "container":
        if str(workspace).startswith(_JOB_CONTAINER):
            raise Fault("job_container")
        daemon = docker.information()
    elif shutil.which("ci-bench") is None:
        raise Fault("no_ci_bench")
    home = (
        environ.get("HOME")
        if settings["mode"] == "native" and not inputs.is_caged(settings)
        else None
    )
    check_checkout(workspace, Path(home) if home else None)
    check_variables(settings["pass_env"], environ)
    work = make_folders(Path(environ.get("RUNNER_TEMP", "/tmp")))  # noqa: S108 - outside of a job, as for other tools
    check_disk(work)
    nonce = secrets.token_hex(6)
    job = "-".join(
        [environ.get("GITHUB_RUN_ID", "0"), environ.get("GITHUB_RUN_ATTEMPT", "1"), nonce]
    )
    state: dict[str, Any] = {
        "settings": dict(settings),
        "workspace": str(workspace),
        "work": str(work),
        "job": job,
    }
    state["locks"] = make_locks(environ.get("CI_BENCH_LOCKS") or _LOCKS)
    state["run"] = (
        f"{environ.get('GITHUB_REPOSITORY', 'a job')} run {environ.get('GITHUB_RUN_ID', '0')}"
    )
    if settings["mode"] == "native":
        return state
    if Path(daemon.get("DockerRootDir") or "/nowhere").is_dir():
        check_disk(Path(daemon["DockerRootDir"]))
    state["user"], state["memory"] = docker.user(daemon), docker.memory(daemon)
    state["image"] = find_image(settings["image"], Path(environ["GITHUB_ACTION_PATH"]), work)
    check_image(state)
    check_mount(state)
    state["apart"] = settings["baseline"] == "paired" and find_users(state)
    state["locks"] = shared_locks(state)
    state["gpu_access"] = find_gpu(state)
    check_cuda(state)
    return state


def check_checkout(workspace: Path, home: Path | None = None) -> None:
    """Check that there is a checkout, with no credential in it.

    The code under test can read all of it, and `home` if it runs as its user.
    """
    if not (workspace / ".git").exists():
        raise Fault("no_checkout", path=workspace)
    finding = credentials.of_checkout(workspace, home)
    if finding is not None:
        raise Fault("token_in_checkout", code=2, found=finding)


def check_variables(names: Sequence[str], environ: Mapping[str, str]) -> None:
    """Check that the variables for the code under test hold no credential, whatever their names."""
    finding = credentials.of_variables(names, environ)
    if finding is not None:
        raise Fault("token_in_variable", code=2, found=finding)


def make_folders(temporary: Path) -> Path:
    """Make the folders of this job, which no other user can read."""
    work = temporary / f"ci-bench-{secrets.token_hex(8)}"
    for folder in (work, *(work / name for name in FOLDERS)):
        folder.mkdir(mode=0o700, parents=True)
    (work / "cache").chmod(0o711)  # base's user and head's pass through it, each to its own
    return work


def make_locks(folder: str) -> str:
    """Make the folder of this machine that jobs of all users queue in for a device.

    The path is empty if it cannot be made.
    """
    place = Path(folder)
    try:
        if not place.is_dir():
            place.mkdir(parents=True)
            place.chmod(0o1777)  # sticky, so that no user removes another's
    except OSError as error:
        say(
            f"{place} cannot be made ({error.strerror}): nothing keeps another job from measuring"
            " on the same device"
        )
        return ""
    if place.is_symlink() or not cage.can_be_mounted(folder):
        say(
            f"{place} is no folder that can be mounted: nothing keeps another job from measuring on"
            " the same device"
        )
        return ""
    return str(place)


def check_disk(path: Path) -> None:
    """Check that there is room for environments, results, and the image's layers."""
    free = shutil.disk_usage(path).free // 1_000_000_000
    if free < LEAST_FREE_GB:
        raise Fault("disk", path=path, free=free, wanted=LEAST_FREE_GB)


def find_image(image: str, action: Path, work: Path) -> str:
    """Return the image's id: pulled, or built from the action's own source."""
    if image == "build":
        return docker.build(action, work / "image-id")
    return docker.pull(image)


def check_image(state: Mapping[str, Any]) -> None:
    """Check that this is an image of ci-bench."""
    code, out, complaint = docker.ask(*containers.question(state, "--version"))
    if code or not out.startswith("ci-bench "):
        raise Fault("image", detail=complaint if code else out[:80].strip() or "it said nothing")
    say(f"image {state['settings']['image']}: {out.strip()}, {state['image']}")


def check_mount(state: Mapping[str, Any]) -> None:
    """Check that a container of this daemon sees and writes the files of this runner.

    The daemon may be on another machine.
    """
    word = secrets.token_hex(16)
    folder = Path(state["work"]) / "results"
    question, answer = folder / "asked", folder / "answer"
    question.write_text(word)
    mount = ("--mount", f"type=bind,source={folder},target=/probe")
    code, out, complaint = docker.ask(*containers.probe(state, *mount, "cat /probe/asked"))
    if code or out.strip() != word:
        detail = complaint if code else "it saw another file"
        raise Fault(
            "mount",
            detail=(
                f"{detail}; the daemon has to run on the machine that the runner's folders are on"
            ),
        )
    code, _, complaint = docker.ask(
        *containers.probe(state, *mount, "cat /probe/asked >/probe/answer")
    )
    if code or not answer.is_file() or answer.read_text() != word or not os.access(answer, os.W_OK):
        raise Fault(
            "write",
            detail=(
                f"{complaint}; a daemon that remaps users has to run as the runner's own (rootless)"
            ),
        )
    question.unlink()
    answer.unlink()


def find_users(state: Mapping[str, Any]) -> bool:
    """Return whether base and head can be users of their own here.

    Some daemons that remap users, or drop capabilities, do not allow it.
    """
    theirs = Path(state["work"]) / "results" / "theirs"
    code, _, complaint = docker.ask(*containers.try_users(state))
    try:
        theirs.unlink()
    except OSError as error:
        code, complaint = (
            code or 1,
            (complaint if code else f"what a container writes cannot be removed: {error.strerror}"),
        )
    if code:
        why = f"here a container's root cannot start processes of other users ({complaint})"
        say(
            f"base and head run as one user: {why}; what head does to base is noticed, not"
            " prevented (docs/security.md)"
        )
    return not code


def shared_locks(state: Mapping[str, Any]) -> str:
    """Return the folder of locks if containers share it with this runner, else nothing.

    A runner that is a container itself may have its own.
    """
    folder = state["locks"]
    if not folder:
        return ""
    word = secrets.token_hex(16)
    question = Path(folder) / f"asked-{word}"
    try:
        question.write_text(word)
        mount = ("--mount", f"type=bind,source={folder},target=/probe")
        line = f"cat /probe/{question.name} && : >/probe/{question.name}"
        code, out, _ = docker.ask(*containers.probe(state, *mount, line))
        if code == 0 and out == word:
            return str(folder)
    except OSError as error:
        say(f"{folder} cannot be written: {error.strerror}")
    finally:
        question.unlink(missing_ok=True)
    say(
        f"containers do not share {folder} with this runner: nothing keeps another job from"
        " measuring on the same device"
    )
    return ""


def find_gpu(state: Mapping[str, Any]) -> str:
    """Return the first way that gives a container the requested GPUs."""
    settings = state["settings"]
    if settings["gpus"] == "none":
        return "none"
    complaints = []
    for way in cage.GPU_WAYS:
        options = cage.gpu_arguments(settings["gpus"], way)
        code, _, complaint = docker.ask(*containers.probe(state, *options, cage.GPU_PROBE))
        if code == 0:
            say(f"GPU: {settings['gpus']}, by {way}")
            return way
        complaints.append(
            f"{way}: {complaint if code in {125, 126, 127} else 'no device appeared'}"
        )
    hint = (
        "install the NVIDIA Container Toolkit on the host, or set `gpus: none` to measure on"
        " the CPU"
    )
    raise Fault("gpu", detail=f"{'; '.join(complaints)}. {hint}")


def check_cuda(state: Mapping[str, Any]) -> None:
    """Check that the image's torch computes on the GPU that its container gets.

    The presence of the device files is not enough.
    """
    settings = state["settings"]
    if settings["gpus"] == "none":
        return
    options = cage.gpu_arguments(settings["gpus"], state["gpu_access"])
    code, out, complaint = docker.ask(
        *containers.probe(state, *options, _CONTEXT), timeout_s=_CONTEXT_S
    )
    if code:
        raise Fault("cuda", detail=complaint)
    say(f"GPU: {out.strip()}")
