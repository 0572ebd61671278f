"""Find stale parts: entries without files, unmeasured benchmarks, workflows of another version.

Pure, except for the function that looks for files.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ci_bench import __version__
from ci_bench.starting.proposal import CONFIG, EXAMPLES, WORKFLOW
from ci_bench.starting.survey import Survey

_OURS = re.compile(
    r"(?:[A-Za-z0-9_.-]+/)?ci-bench(?P<half>/report)?@(?P<ref>[A-Za-z0-9_./-]{1,100})"
)
_RELEASE = re.compile(r"v[0-9]+(?:\.[0-9]+)*")
_SCRIPT = re.compile(r"(?<![\w./$*{-])[A-Za-z0-9_][\w./-]*\.py\b")
_OWN_ONLY = "head.repo.full_name == github.repository"


def stale_entries(
    config: Mapping[str, Any], survey: Survey, exists: Callable[[str], bool]
) -> Iterator[str]:
    """Yield a sentence for each entry without its files, and for each benchmark without an entry.

    `config` is the present configuration, with a valid form.
    """
    suites = config["suites"]
    paths = [path for entry in suites.get("functions", []) for path in _as_list(entry["path"])]
    for path in paths:
        if not exists(path) and not re.search(r"[*?\[]", path):
            yield f"{CONFIG}: suites.functions: {path} does not exist; remove it"
        elif not any(_covers(path, benchmark.file) for benchmark in survey.benchmarks):
            yield f"{CONFIG}: suites.functions: {path} has no benchmark; remove it"
    for benchmark in survey.benchmarks:
        if not any(_covers(path, benchmark.file) for path in paths):
            yield (
                f"{benchmark.file} has benchmarks that {CONFIG} does not measure; add it to"
                " suites.functions"
            )
    for entry in suites.get("command", []):
        yield from _stale_command(entry, exists)


def _stale_command(entry: Mapping[str, Any], exists: Callable[[str], bool]) -> Iterator[str]:
    where = f"{CONFIG}: suites.command: {entry['name']}"
    for command in [entry.get("command"), *entry.get("arms", {}).values()]:
        words = [command] if isinstance(command, str) else list(command or ())
        for script in dict.fromkeys(_SCRIPT.findall("\n".join(words))):
            if not exists((PurePosixPath(entry.get("cwd", ".")) / script).as_posix()):
                yield f"{where}: {script} does not exist; correct the command"
    module = str(entry.get("loop", "")).partition(":")[0].replace(".", "/")
    places = [
        f"{folder}{module}{ending}" for folder in ("", "src/") for ending in (".py", "/__init__.py")
    ]
    if module and not any(map(exists, places)):
        yield f"{where}: the module of {entry['loop']} is not in this repository; correct the loop"


def _covers(path: str, file: str) -> bool:
    """Return whether a path of an entry (a file, a folder, a glob) names a file."""
    place = PurePosixPath(path)
    return (
        file == str(place)
        or place in PurePosixPath(file).parents
        or str(place) == "."
        or PurePosixPath(file).match(path)
    )


def _as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def stale_workflows(
    workflows: Mapping[str, Any], config: Mapping[str, Any], exists: Callable[[str], bool]
) -> Iterator[str]:
    """Yield a sentence for each fault of the workflows that use ci-bench.

    `workflows` are parsed files by path.
    """
    jobs = [
        (file, workflow, job, step)
        for file, workflow in workflows.items()
        for job, step in _jobs(workflow)
    ]
    if not jobs:
        other = f"copy pull-request.yml of {EXAMPLES}, as {WORKFLOW} is another workflow"
        yield (
            "no workflow uses ci-bench;"
            f" {other if WORKFLOW in workflows else '`ci-bench init` writes one'}"
        )
        return
    for file, workflow, job, step in jobs:
        yield from _stale_step(file, step, exists)
        if _measures(step) and (fault := _unguarded(workflow, job)):
            yield f"{file}: {fault}"
    measuring = [(workflow, step) for _, workflow, _, step in jobs if _measures(step)]
    if not any(
        {"pull_request", "merge_group"} & {*_triggers(workflow)} for workflow, _ in measuring
    ):
        yield "no workflow measures pull requests with ci-bench; add the trigger pull_request"
    setup = config.get("setup")
    downloads = isinstance(setup, Mapping) and setup.get("network") is True
    if (
        downloads
        and measuring
        and not any(_inputs(step).get("setup_network") in {"true", True} for _, step in measuring)
    ):
        yield f"{CONFIG}: setup.network has no effect: no workflow sets the input setup_network"


def uses_ci_bench(workflow: Any) -> bool:
    """Return whether a parsed workflow uses one of ci-bench's actions."""
    return next(_jobs(workflow), None) is not None


def _stale_step(file: str, step: Mapping[str, Any], exists: Callable[[str], bool]) -> Iterator[str]:
    ref = _reference(step)["ref"]
    if _RELEASE.fullmatch(ref) and ref != f"v{__version__}":
        yield (
            f"{file}: it uses ci-bench {ref}, and this is v{__version__}; change the version, or"
            " install that one here"
        )
    path = _inputs(step).get("config_path")
    if isinstance(path, str) and "${{" not in path and not exists(path):
        yield f"{file}: config_path names a file that does not exist; correct it"


def _unguarded(workflow: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """Describe the access of forks' code to a token or a runner; empty if the job gives none."""
    if "pull_request_target" in _triggers(workflow):
        return "pull_request_target runs the code of forks with a token; use pull_request"
    granted = job.get("permissions", workflow.get("permissions"))
    trusted = granted is not None and "write" not in str(granted)
    trusted |= "self-hosted" not in str(job.get("runs-on")) or _OWN_ONLY in str(job.get("if", ""))
    if "pull_request" in _triggers(workflow) and not trusted:
        return (
            "pull requests of forks run on your own runner; add `if:"
            f" github.event.pull_request.{_OWN_ONLY}`"
        )
    return ""


def _jobs(workflow: Any) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each job that uses ci-bench's actions, with the step that does."""
    jobs = workflow.get("jobs") if isinstance(workflow, Mapping) else None
    for job in jobs.values() if isinstance(jobs, Mapping) else ():
        steps = job.get("steps") if isinstance(job, Mapping) else None
        elements = steps if isinstance(steps, list) else []
        yield from (
            (job, step)
            for step in elements
            if isinstance(step, Mapping) and _OURS.fullmatch(str(step.get("uses")))
        )


def _reference(step: Mapping[str, Any]) -> re.Match[str]:
    match = _OURS.fullmatch(str(step["uses"]))
    assert match is not None  # noqa: S101 - `_jobs` yields no other step
    return match


def _measures(step: Mapping[str, Any]) -> bool:
    return _reference(step)["half"] is None and _inputs(step).get("baseline") != "none"


def _inputs(step: Mapping[str, Any]) -> Mapping[str, Any]:
    inputs = step.get("with")
    return inputs if isinstance(inputs, Mapping) else {}


def _triggers(workflow: Mapping[str, Any]) -> list[str]:
    triggers = workflow.get("on")
    return (
        [triggers]
        if isinstance(triggers, str)
        else list(triggers)
        if isinstance(triggers, list | Mapping)
        else []
    )
