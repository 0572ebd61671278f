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
    """Where the folders of a job are, as the command sees them."""

    config: str = containers.CONFIG
    results: str = containers.RESULTS
    prepared: str = containers.PREPARED
    documents: str = containers.DOCUMENTS
    report: str = containers.REPORT
    baseline: str = containers.BASELINE
    noise: str = containers.NOISE


def places(state: Mapping[str, Any]) -> Places:
    """In a container everything has a fixed place; natively, it is where it is."""
    if state["settings"]["mode"] == "container":
        return Places()
    work = Path(state["work"])
    names = ("config", "results", "prepared", "documents", "report", "baseline")
    return Places(noise=state["settings"]["noise"], **{name: str(work / name) for name in names})


def fetch_config(state: Mapping[str, Any]) -> list[str]:
    """The configuration of the base branch."""
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
    """The results of an ancestor of the base commit."""
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
    """Both sides of a paired run made ready."""
    here = places(state)
    return [
        "setup",
        "--prepared",
        here.prepared,
        *_measuring(here),
        *_given("--base", state["settings"]["base"]),
    ]


def bench(state: Mapping[str, Any]) -> list[str]:
    """Measuring: both sides in turns, or head alone. What it says of a verdict is not used."""
    here, settings = places(state), state["settings"]
    filters = _filters(settings)
    if settings["baseline"] != "paired":
        return ["run", *_measuring(here), *filters]
    noise = ["--noise", here.noise] if settings["noise"] else []
    where = [*_given("--base", settings["base"]), *_given("--fleet", settings["fleet"])]
    sides = (
        ["--image", settings["image"]]
        if inputs.is_caged(settings)
        else ["--prepared", here.prepared]
    )
    return ["gate", *sides, *_measuring(here), *where, *noise, *filters]


def publish(state: Mapping[str, Any]) -> list[str]:
    """The verdict, computed anew, and told."""
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
    """Which gate this is: its comment and its check."""
    return ["--key", settings["key"]]


def judging(settings: Mapping[str, Any]) -> list[str]:
    """How it is judged and told, the baseline looked for anew."""
    return [
        *_telling(settings),
        *(_baseline(settings) if settings["baseline"] == "artifact" else []),
    ]


def requested(settings: Mapping[str, Any]) -> list[str]:
    """The commit of a run that a comment requested."""
    return _given("--head", settings["head"])


def answer_request(settings: Mapping[str, Any], output: str) -> list[str]:
    """Checks and answers a comment's request for a run."""
    named = [
        "--artifact",
        settings["artifact"],
        "--baseline-artifact",
        settings["baseline_artifact"],
    ]
    told = [
        "--config-path",
        settings["config_path"],
        "--comment-author",
        settings["comment_author"],
    ]
    return ["github", "answer-request", "--output", output, *named, *told]


def _filters(settings: Mapping[str, Any]) -> list[str]:
    return [part for text in settings["filter"] for part in ("--filter", text)]


def _telling(settings: Mapping[str, Any]) -> list[str]:
    judged = ["--config-path", settings["config_path"], "--baseline", settings["baseline"]]
    own = [*requested(settings), *_filters(settings)] if settings["head"] else []
    return [
        *judged,
        "--comment",
        settings["comment"],
        "--comment-author",
        settings["comment_author"],
        *own,
    ]


def _measuring(here: Places) -> list[str]:
    """The base branch's configuration by its path: the one in the checkout is the pull request's."""
    return ["--config", f"{here.config}/{CONFIGURATION}", "--output", here.results]


def _baseline(settings: Mapping[str, Any]) -> list[str]:
    named = ["--baseline-artifact", settings["baseline_artifact"]]
    return [
        *named,
        *_given("--baseline-workflow", settings["baseline_workflow"]),
        *_given("--base", settings["base"]),
    ]


def _given(flag: str, value: str) -> list[str]:
    return [flag, value] if value else []
