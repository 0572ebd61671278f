"""The ci-bench commands of each phase, for the container's paths or for this machine's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import containers
import inputs

CONFIGURATION = "ci-bench.yml"


@dataclass(frozen=True)
class Places:
    """Folders of a job, as the command sees them."""

    config: str = containers.CONFIG
    """The configuration that was fetched from the base branch."""
    results: str = containers.RESULTS
    """The output of measuring, which the code under test can write to."""
    prepared: str = containers.PREPARED
    """The prepared trees and environments of both sides."""
    documents: str = containers.DOCUMENTS
    """The documents that were collected from `results`."""
    report: str = containers.REPORT
    """The output of the report: page, outputs and summary."""
    baseline: str = containers.BASELINE
    """The earlier run's results, if any were fetched."""
    noise: str = containers.NOISE
    """The noise that `ci-bench calibrate` has learned."""


def places(state: Mapping[str, Any]) -> Places:
    """Return the folders: fixed ones in a container, the job's own ones natively."""
    if state["settings"]["mode"] == "container":
        return Places()
    work = Path(state["work"])
    names = ("config", "results", "prepared", "documents", "report", "baseline")
    return Places(noise=state["settings"]["noise"], **{name: str(work / name) for name in names})


def fetch_config(state: Mapping[str, Any]) -> list[str]:
    """Return the command that fetches the base branch's configuration."""
    settings = state["settings"]
    path, output = settings["config_path"], places(state).config
    return [
        "github",
        "fetch-config",
        "--config-path",
        path,
        "--output",
        output,
        *requested(settings),
    ]


def fetch_baseline(state: Mapping[str, Any]) -> list[str]:
    """Return the command that fetches the results of an ancestor of the base commit."""
    settings = state["settings"]
    return [
        "github",
        "fetch-baseline",
        "--output",
        places(state).baseline,
        *_baseline(settings),
        *requested(settings),
    ]


def setup(state: Mapping[str, Any]) -> list[str]:
    """Return the command that prepares both sides of a paired run."""
    here = places(state)
    return [
        "setup",
        "--prepared",
        here.prepared,
        *_measuring(here),
        *_make_option("--base", state["settings"]["base"]),
    ]


def bench(state: Mapping[str, Any]) -> list[str]:
    """Return the command that measures both sides in turns, or head only.

    Its verdict is not used.
    """
    here, settings = places(state), state["settings"]
    filters = _filters(settings)
    if settings["baseline"] != "paired":
        return ["run", *_measuring(here), *filters]
    noise = ["--noise", here.noise] if settings["noise"] else []
    where = [*_make_option("--base", settings["base"]), *_make_option("--fleet", settings["fleet"])]
    sides = (
        ["--image", settings["image"]]
        if inputs.is_caged(settings)
        else ["--prepared", here.prepared]
    )
    return ["gate", *sides, *_measuring(here), *where, *noise, *filters]


def publish(state: Mapping[str, Any]) -> list[str]:
    """Return the command that computes the verdict again and publishes it."""
    here, settings = places(state), state["settings"]
    argv = ["github", "publish", here.documents, "--output", here.report]
    argv += ["--artifact", settings["artifact"], *mark(settings)]
    if (
        settings["mode"] == "native"
    ):  # the code under test could have changed what was fetched before
        return [*argv, *judging(settings)]
    return [
        *argv,
        *_telling(settings),
        *(["--fetched", here.baseline] if settings["baseline"] == "artifact" else []),
    ]


def mark(settings: Mapping[str, Any]) -> list[str]:
    """Return the options that identify this gate's comment and check."""
    return ["--key", settings["key"]]


def judging(settings: Mapping[str, Any]) -> list[str]:
    """Return the options for judging and publishing; the baseline is looked up again."""
    return [
        *_telling(settings),
        *(_baseline(settings) if settings["baseline"] == "artifact" else []),
    ]


def requested(settings: Mapping[str, Any]) -> list[str]:
    """Return the option for the commit of a run that a comment requested."""
    return _make_option("--head", settings["head"])


def answer_request(settings: Mapping[str, Any], output: str) -> list[str]:
    """Return the command that checks and answers a comment's request for a run."""
    artifacts = [
        "--artifact",
        settings["artifact"],
        "--baseline-artifact",
        settings["baseline_artifact"],
    ]
    options = [
        "--config-path",
        settings["config_path"],
        "--comment-author",
        settings["comment_author"],
    ]
    return ["github", "answer-request", "--output", output, *artifacts, *options]


def _filters(settings: Mapping[str, Any]) -> list[str]:
    return [part for text in settings["filter"] for part in ("--filter", text)]


def _telling(settings: Mapping[str, Any]) -> list[str]:
    judged = ["--config-path", settings["config_path"], "--baseline", settings["baseline"]]
    narrowing = [*requested(settings), *_filters(settings)] if settings["head"] else []
    return [
        *judged,
        "--comment",
        settings["comment"],
        "--comment-author",
        settings["comment_author"],
        *narrowing,
    ]


def _measuring(here: Places) -> list[str]:
    """Return the options for measuring: configuration and output.

    The configuration is the base branch's, by its path: the one in the checkout is the pull
    request's.
    """
    return ["--config", f"{here.config}/{CONFIGURATION}", "--output", here.results]


def _baseline(settings: Mapping[str, Any]) -> list[str]:
    artifact = ["--baseline-artifact", settings["baseline_artifact"]]
    return [
        *artifact,
        *_make_option("--baseline-workflow", settings["baseline_workflow"]),
        *_make_option("--base", settings["base"]),
    ]


def _make_option(flag: str, value: str) -> list[str]:
    return [flag, value] if value else []
