"""The action's inputs: checked together before anything else, and kept for later steps.

The runner enforces nothing: any input may be any text. Text that ends up in an argument of docker
has to match a form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from ci_bench.host import cage
from faults import Fault

Parse = Callable[[str], Any]
_SECRET = re.compile(r"(?i)token|secret|passw|credential|api_?key|private|authorization")
_LONGEST = 300
_DIGEST = re.compile(r"[a-z0-9][A-Za-z0-9._/:-]{0,250}@sha256:[0-9a-f]{64}")
NO_IMAGE = "none"
"""Leases of a fleet run as the nodes' own user."""
_RUNNERS = (
    "GITHUB_",
    "ACTIONS_",
    "RUNNER_",
    "INPUT_",
    "DOCKER_",
    "STATE_",
    "LD_",
    "PYTHON",
    "NVIDIA_",
    "CI_BENCH_",
)
_OFF_LIMITS = (
    "/",
    "/proc",
    "/sys",
    "/dev",
    "/etc",
    "/root",
    "/run",
    "/var",
    "/var/run",
    "/var/lib",
    "/var/lib/docker",
    "/home",
)


class Wrong(ValueError):  # noqa: N818 - errors read as sentences
    """Requirement that an input does not meet."""


def read(environ: Mapping[str, str], fields: Mapping[str, Parse] | None = None) -> dict[str, Any]:
    """Return the settings of ``INPUT_…``; raise `Fault` that names every invalid input."""
    settings, complaints = {}, []
    for name, parse in (fields or FIELDS).items():
        text = environ.get(f"INPUT_{name.upper()}", "").strip()
        try:
            settings[name] = parse(text)
        except Wrong as wrong:
            complaints.append(f"{name} is {text[:80]!r}, and has to be {wrong}")
    if complaints:
        raise Fault("inputs", code=2, detail="; ".join(complaints))
    return settings


def check_fleet(settings: Mapping[str, Any]) -> None:
    """Check that a fleet's leases have both sides, and say where they run. Raises `Fault`.

    Leases without an image have to be requested: an image that is only left out must not end in
    leases without containers.
    """
    unlike = {"mode": "native", "baseline": "paired"}
    wrong = [
        f"{name} is {settings[name]!r}, and has to be {word!r}"
        for name, word in unlike.items()
        if settings[name] != word
    ]
    if settings["image"] != NO_IMAGE and not _DIGEST.fullmatch(settings["image"]):
        digest = "an image by its @sha256: digest, in whose containers leases run"
        wrong.append(
            f"image is {settings['image']!r}, and has to be {digest}, or {NO_IMAGE!r} for code that"
            " you trust"
        )
    if settings["fleet"] and wrong:
        raise Fault("inputs", code=2, detail=f"with fleet, {'; '.join(wrong)} (docs/fleet.md)")
    if settings["image"] == NO_IMAGE and not settings["fleet"]:
        raise Fault(
            "inputs",
            code=2,
            detail=f"image is {NO_IMAGE!r}, which is for the leases of a fleet (docs/fleet.md)",
        )


def is_caged(settings: Mapping[str, Any]) -> bool:
    """Return whether a fleet's leases run in containers of `image`."""
    return bool(settings["fleet"]) and settings["image"] != NO_IMAGE


def check_event(settings: Mapping[str, Any], event: str) -> None:
    """Raise `Fault` for a native run on request unless its code stays in containers.

    Such a run belongs to the default branch, whose caches it may write.
    """
    if event == "issue_comment" and settings["mode"] == "native" and not is_caged(settings):
        detail = (
            "mode is 'native', and a run on request has to be 'container', or a fleet's with an"
            " image (docs/security.md)"
        )
        raise Fault("inputs", code=2, detail=detail)


def one_of(*words: str) -> Parse:
    """Return a parser of one of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise Wrong(f"one of {', '.join(words)}")
        return text

    return parse


def form(pattern: str, meaning: str, *, empty: bool = False) -> Parse:
    """Return a parser of text of a form; `empty` allows it to be left out."""
    compiled = re.compile(pattern)

    def parse(text: str) -> str:
        if not (compiled.fullmatch(text) or (empty and not text)):
            raise Wrong(meaning)
        return text

    return parse


def whole(least: int, most: int) -> Parse:
    """Return a parser of whole numbers in a range."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise Wrong(f"a whole number from {least} to {most}")
        return int(text)

    return parse


def boolean(text: str) -> bool:
    """Parse a switch."""
    if text not in {"true", "false"}:
        raise Wrong("true or false")
    return text == "true"


def _gpus(text: str) -> str:
    if not cage.is_gpu_selection(text):
        raise Wrong(cage.GPU_FORM)
    return text


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _filters(text: str) -> list[str]:
    lines = _lines(text)
    if any(len(line) > _LONGEST or not line.isprintable() for line in lines):
        raise Wrong("parts of cases' ids, one on each line")
    return lines


def _folder(text: str) -> str:
    """Parse a folder of the runner that the code under test may see, read-only."""
    path = Path(text)
    if not re.fullmatch(r"/[A-Za-z0-9._/+-]+", text) or ".." in path.parts or not path.is_dir():
        raise Wrong("an absolute path of a folder that exists")
    real = str(path.resolve())
    if (
        text.rstrip("/") != real
        or real in _OFF_LIMITS
        or any(part.startswith((".ssh", ".docker", "_work")) for part in path.parts)
    ):
        raise Wrong(
            "a folder of data, named by its real path: no link, and none of the system's or the"
            " runner's own"
        )
    return real


def _folders(text: str) -> list[str]:
    return [_folder(line) for line in _lines(text)]


def _names(text: str) -> list[str]:
    names = text.replace(",", " ").split()
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name):
            raise Wrong("names of environment variables")
        if (
            _SECRET.search(name)
            or name.upper().startswith(_RUNNERS)
            or name.upper() in {"PATH", "HOME", "TMPDIR"}
        ):
            raise Wrong(
                f"names of variables for the code under test: {name} is the runner's, or looks like"
                " a secret"
            )
    return names


FIELDS: Mapping[str, Parse] = {
    "mode": one_of("container", "native"),
    "fleet": form(
        r"(local|ray|slurm)(:[A-Za-z0-9_.:@|&*/+=,-]{1,300})?",
        "local:DEVICE,…, ray:ADDRESS, or slurm:NAME=VALUE,…",
        empty=True,
    ),
    "image": form(
        r"build|[a-z0-9][A-Za-z0-9._/:@-]{0,299}",
        "build, or an image's name, best with its @sha256: digest",
    ),
    "gpus": _gpus,
    "baseline": one_of("paired", "artifact", "none"),
    "base": form(r"[A-Za-z0-9_][A-Za-z0-9._/~^@-]{0,199}", "a commit, branch or tag", empty=True),
    "config_path": form(r"[A-Za-z0-9_.][A-Za-z0-9_./-]{0,199}", "a path in the repository"),
    "filter": _filters,
    "head": form(r"[0-9a-f]{40}|[0-9a-f]{64}", "a whole commit id", empty=True),
    "setup_network": boolean,
    "bench_network": boolean,
    "memory": form(r"[1-9][0-9]{0,5}[kmg]", "a size such as 64g", empty=True),
    "timeout_minutes": whole(1, 7_000),
    "cache": lambda text: _folder(text) if text else "",
    "noise": lambda text: _folder(text) if text else "",
    "mounts": _folders,
    "pass_env": _names,
    "artifact": form(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
        "an artifact's name of letters, digits, dots, dashes",
        empty=True,
    ),
    "baseline_artifact": form(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", "an artifact's name of letters, digits, dots, dashes"
    ),
    "baseline_workflow": form(
        r"\.github/workflows/[A-Za-z0-9._-]{1,100}",
        "a path such as .github/workflows/x.yml",
        empty=True,
    ),
    "comment": one_of("always", "on-change", "never"),
    "comment_author": form(r"[A-Za-z0-9][A-Za-z0-9-]{0,60}(\[bot\])?", "a login"),
    "key": form(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "a word of letters, digits, dots, dashes"),
}
"""Every input of action.yml but the token.

Only the two steps that talk to GitHub get that.
"""
