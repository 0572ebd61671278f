"""The steps of action.yml, in its order.

The results of a step are JSON in the job's folder, for the next one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable

import caches
import collect
import commands
import containers
import docker
import inputs
import preflight as examination
import workflow
from faults import Fault
from supervise import supervise

State = Mapping[str, Any]
VERDICTS = (
    "improved",
    "unchanged",
    "regressed",
    "inconclusive",
    "incomparable",
    "new",
    "removed",
    "failed",
    "skipped",
)
MEASURED = {0, 1, 4}
"""Exit codes of a measurement that finished, whatever its verdict."""
READY = {0, 3}
"""Exit codes of a set-up that leaves the gate something to report.

With 3, neither side could be made ready.
"""
OF_DOCKER = {
    125: "docker refused to start the container",
    126: "the image's entrypoint cannot run",
    127: "the image has no entrypoint",
}
KILLED = 137
TALK_S = 2400
"""Seconds for a command that talks to GitHub, which may make it wait a few minutes."""
LEAST_FREE_BYTES = 500 << 20
"""Bytes that the runner itself needs to end a job."""
_NATIVE = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
    "VIRTUAL_ENV",
    "USER",
    "HOME",
)
_OF_A_FLEET = ("RAY_ADDRESS", "SLURM_CONF")
"""Variables that find a cluster; leases get neither."""
_URL = re.compile(r"https?://[A-Za-z0-9.:-]+/[A-Za-z0-9._/?#=&%-]{0,300}")
_ADDRESSES = ("comment_url", "check_url")


def preflight() -> int:
    """Check the inputs and the runner, and make the folders of this job."""
    settings = inputs.read(os.environ)
    inputs.check_fleet(settings)
    inputs.check_event(settings, os.environ.get("GITHUB_EVENT_NAME", ""))
    if settings["baseline"] == "paired":
        settings["base"] = settings["base"] or base_of_group(os.environ)
    state = examination.examine(settings, os.environ)
    work = Path(state["work"])
    _write(work / "state.json", state)
    workflow.set_outputs({"work": str(work), "documents": str(work / "documents")})
    return 0


def base_of_group(environ: Mapping[str, str]) -> str:
    """Return the commit that a merge group is based on, which no clone shows.

    It is empty for every other event.
    """
    if environ.get("GITHUB_EVENT_NAME") != "merge_group":
        return ""
    try:
        event = json.loads(Path(environ.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
        base = str(event["merge_group"]["base_sha"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return base if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", base) else ""


def baseline() -> int:
    """Fetch the configuration to measure by, and an earlier run's results, with the token.

    This happens before anything of the pull request has run.
    """
    state = _state()
    code = _talk(state, "baseline", commands.fetch_config(state))
    if code:
        raise Fault(
            "configuration",
            code=code if code < min(OF_DOCKER) else 3,
            detail="the log above says why",
        )
    if state["settings"]["baseline"] != "artifact":
        workflow.set_outputs({"baseline": state["settings"]["baseline"]})
        return 0
    _talk(state, "baseline", commands.fetch_baseline(state))
    outputs = workflow.read_outputs(Path(state["work"]) / "report" / "outputs")
    is_found = outputs.get("found") == "true"
    workflow.set_outputs(
        {"baseline": "artifact" if is_found else f"none: {outputs.get('reason', 'unknown')}"}
    )
    return 0


def setup() -> int:
    """Prepare both sides' environments; a failure is left to the report."""
    state = _state()
    contained = state["settings"]["mode"] == "container"
    if inputs.is_caged(state["settings"]):
        _record(state, "setup", 0, "exited")
        workflow.say("each node makes both sides ready, in containers")
        return 0
    if contained:
        caches.seed(state, os.environ)
    code, how = _bench(state, "setup", commands.setup(state))
    _record(state, "setup", code, how)
    if contained and code == 0:
        if containers.apart(state):
            _settle(state, "cache")
        caches.keep(state, os.environ)
    return 0


def bench() -> int:
    """Measure, and collect the documents.

    A failure is left to the report, and to the gate.
    """
    state = _state()
    work = Path(state["work"])
    made_ready = _recorded(state, "setup")
    if made_ready is None or made_ready["code"] in READY:
        _record(state, "bench", *_bench(state, "bench", commands.bench(state)))
    else:
        _record(state, "bench", made_ready["code"], f"set-up failed: {made_ready['how']}")
    documents = collect.collect(work / "results", work / "documents")
    for log in work.glob("*.log"):
        shutil.copyfile(log, work / "documents" / log.name)
    workflow.say(f"documents: {', '.join(documents) or 'none'}")
    return 130 if _recorded(state, "bench")["how"] == "cancelled" else 0


def report() -> int:
    """Judge again and publish the verdict, with the token; nothing that was measured is run."""
    state = _state()
    page = Path(state["work"]) / "report"
    (page / "outputs").unlink(missing_ok=True)
    code = _talk(state, "report", commands.publish(state))
    outputs = workflow.read_outputs(page / "outputs")
    _record(state, "report", code, outputs.get("verdict", ""))
    workflow.append_summary(page / "summary.md")
    documents = Path(state["work"]) / "documents"
    for name in ("comparison.json", "report.md", "report.html", "comment.md"):
        if (page / name).is_file():
            shutil.copyfile(page / name, documents / name)
    counts = {word: outputs[word] for word in VERDICTS if outputs.get(word, "").isdigit()}
    urls = {name: outputs[name] for name in _ADDRESSES if _URL.fullmatch(outputs.get(name, ""))}
    workflow.set_outputs({**counts, **urls})
    return 0


def gate() -> int:
    """Set the job's verdict: the report's, but no pass for a measurement that did not finish."""
    state = _state()
    measured, reported = _recorded(state, "bench"), _recorded(state, "report")
    if reported is None or reported["how"] not in {"passed", "undecided", "failed"}:
        code, why = 3, "there is no verdict: the log of the step before says why"
    elif reported["code"]:
        code, why = reported["code"], f"the verdict is {reported['how']}"
    elif measured is None or measured["code"] not in MEASURED or measured["how"] != "exited":
        code, why = 3, "what was measured did not fail, but measuring did not come to its end"
    else:
        code, why = 0, ""
    if measured is not None and measured["code"] not in MEASURED:
        why += f" (measuring: {measured['how']}, exit code {measured['code']})"
    verdict = "failed" if code or reported is None else reported["how"]
    workflow.set_outputs({"verdict": verdict, "exit_code": str(code)})
    if code:
        workflow.annotate("error", f"exit code {code}: {why}; the report is in the job's summary")
    return int(code)


def cleanup() -> int:
    """Remove every container and folder of this job but the documents, whatever became of it."""
    if not os.environ.get("CI_BENCH_WORK"):
        return 0
    state = _state()
    if state["settings"]["mode"] == "container":
        removed = docker.remove(containers.label(state["job"]))
        workflow.say(f"{removed} containers were left to remove")
        if containers.apart(state):
            _settle(state, "results", "prepared", "cache")
    for folder in ("prepared", "cache", "results", "baseline", "config", "report"):
        _remove(Path(state["work"]) / folder)
    return 0


def _state() -> dict[str, Any]:
    text = (Path(os.environ["CI_BENCH_WORK"]) / "state.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def _bench(state: State, phase: str, command: Sequence[str]) -> tuple[int, str]:
    """Run the code under test; return its exit code, and how it ended."""
    settings, work = state["settings"], Path(state["work"])
    native = settings["mode"] == "native"
    argv = ["ci-bench", *command] if native else containers.bench(state, phase, command, os.environ)
    names = (*containers.BENCH, *settings["pass_env"], *(_NATIVE if native else ()))
    names += _OF_A_FLEET if native and phase == "bench" and settings["fleet"] else ()
    values = {name: os.environ[name] for name in names if name in os.environ}
    values.update(containers.asked_of_the_engine(state, state["locks"]) if native else {})
    with (work / f"{phase}.log").open("wb") as file, workflow.without_commands():
        log = workflow.Log(file)
        code, how = supervise(
            argv,
            environ=values if native else docker.client_environment(os.environ, values),
            take=log.take,
            timeout_s=settings["timeout_minutes"] * 60,
            container=None if native else containers.name(state, phase),
            folder=Path(state["workspace"]),
            trouble=lambda: _full(work),
        )
        log.finish()
    if not native and containers.apart(state):
        _settle(state, "results")
    if not native and code in OF_DOCKER:
        how = OF_DOCKER[code]
    elif code in {KILLED, -9} and how == "exited":
        how = "killed, most likely for its memory"
    if how != "exited":
        reason = (
            "took longer than timeout_minutes allows, and was stopped" if how == "timeout" else how
        )
        workflow.annotate("warning", f"{phase}: {reason}")
    return (code if code >= 0 else 128 - code), how


def _full(work: Path) -> str:
    """Return a complaint if the code under test has filled the runner's disk, else nothing."""
    free = shutil.disk_usage(work).free
    return (
        f"it left less than {LEAST_FREE_BYTES >> 20} MiB of the disk free"
        if free < LEAST_FREE_BYTES
        else ""
    )


def _settle(state: State, *folders: str) -> None:
    """Make what other users left in folders of the job this runner's."""
    code, _, complaint = docker.ask(*containers.settle(state, *folders))
    if code:
        workflow.annotate(
            "warning", f"files of other users are left in {state['work']}: {complaint}"
        )


def _talk(state: State, phase: str, command: Sequence[str]) -> int:
    """Run a command that has the token; its own output is the job's."""
    native = state["settings"]["mode"] == "native"
    argv = (
        ["ci-bench", *command] if native else containers.report(state, phase, command, os.environ)
    )
    report_folder = Path(state["work"]) / "report"
    values = {
        name: os.environ[name]
        for name in (*containers.GITHUB, *containers.PROXIES, "GITHUB_TOKEN")
        if name in os.environ
    }
    if native:
        files = {
            "GITHUB_OUTPUT": str(report_folder / "outputs"),
            "GITHUB_STEP_SUMMARY": str(report_folder / "summary.md"),
        }
        inherited = (*_NATIVE, "GITHUB_EVENT_PATH", "REQUESTS_CA_BUNDLE")
        values = {
            **values,
            **{name: os.environ[name] for name in inherited if name in os.environ},
            **files,
        }
    code, _ = supervise(
        argv,
        environ=values if native else docker.client_environment(os.environ, values),
        take=lambda chunk: os.write(1, chunk),
        timeout_s=TALK_S,
        container=None if native else containers.name(state, phase),
    )
    return code if code >= 0 else 128 - code


def _record(state: State, phase: str, code: int, how: str) -> None:
    _write(Path(state["work"]) / f"{phase}.json", {"code": code, "how": how})


def _recorded(state: State, phase: str) -> Any:
    path = Path(state["work"]) / f"{phase}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def _remove(folder: Path) -> None:
    """Remove a folder that the code under test has written to, read-only parts too."""
    for place, inner, _ in os.walk(folder):
        for path in (Path(place) / name for name in inner):
            if not path.is_symlink():  # before it is listed in its turn
                path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


STEPS: Mapping[str, Callable[[], int]] = {
    "preflight": preflight,
    "baseline": baseline,
    "setup": setup,
    "bench": bench,
    "report": report,
    "gate": gate,
    "cleanup": cleanup,
}
