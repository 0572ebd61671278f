"""Faults that are found before measuring, in the words that a user reads.

Each has an entry in docs/troubleshooting.md, found by the text before its first brace.
"""

from __future__ import annotations

FAULTS = {  # each in one line, so that it is found as it is read
    "inputs": "an input of this action cannot be: {detail}",
    "no_docker": (
        "docker was not found on this runner: install Docker Engine, or set `mode: native` in a job"
        " container or pod"
    ),
    "no_daemon": "the Docker daemon does not answer: {detail}",
    "job_container": (
        "this job runs inside a container, whose folders are not the host's: remove `container:`"
        " from the job, or set `mode: native`"
    ),
    "no_checkout": "there is no git checkout in {path}: run actions/checkout before this action",
    "token_in_checkout": (
        "the checkout holds a credential in {found}, for the code under test to read: set"
        " `persist-credentials: false` for actions/checkout, and remove what another step left"
        " there"
    ),
    "token_in_variable": (
        "pass_env hands on a credential in {found}: fetch what it is for in a step before this"
        " action, and leave the variable out"
    ),
    "disk": "too little free disk: {path} has {free} GB, {wanted} GB are wanted",
    "pull": "the image cannot be pulled: {detail}",
    "build": "the image cannot be built: {detail}",
    "image": "the image does not answer as ci-bench's does: {detail}",
    "mount": "a container does not see this runner's files: {detail}",
    "write": "a container cannot write into a folder of this runner: {detail}",
    "gpu": "no container gets the GPU: {detail}",
    "cuda": "the image cannot compute on the GPU that its container gets: {detail}",
    "no_ci_bench": (
        "mode: native runs the `ci-bench` command of this machine, and there is none: install it,"
        " or run the job in ci-bench's image"
    ),
    "configuration": "the base branch's configuration cannot be had: {detail}",
}


class Fault(Exception):  # noqa: N818 - errors read as sentences
    """Fault that ends the job.

    `key` is the cause; `code` is the exit code, as everywhere in ci-bench.
    """

    def __init__(self, key: str, *, code: int = 3, **about: object) -> None:
        """Word the cause with what is known about it."""
        super().__init__(FAULTS[key].format(**about))
        self.key, self.code = key, code
