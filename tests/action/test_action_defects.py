"""Each protection of the steps is needed: without it, a hole is seen that is not there with it."""

import json
import os
import re
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from action_steps import ACTION, HOSTILE, SECRET, live_commands
from gpu_runner import calls


def log(steps, plan):
    plan(prints=HOSTILE)
    steps.ready()
    out = steps("bench")[1]
    without = re.sub(r"(?m)^::stop-commands::.*\n|^::[0-9a-f]{32}::$", "", out)
    switched = re.search(r"(?m)^::stop-commands::[0-9a-f]{32}$", out)
    return live_commands(without) + ([] if switched else ["nothing is switched off"])


def uploads(steps, plan):
    """Links to the runner's files, as files and as folders, and a second name of one."""
    steps.ready()
    results, secret = steps.work / "results", Path(steps.environ["HOME"]) / "secret"
    secret.mkdir()
    (secret / "results.json").write_text(SECRET)
    (results / "results.json").symlink_to(secret / "results.json")
    (results / "base").symlink_to(secret)
    (secret / "other").write_text(SECRET)
    (results / "calibration.json").hardlink_to(secret / "other")
    (results / "setup").mkdir()
    with (results / "setup" / "head-1.log").open("wb") as stream:
        stream.truncate(26_000_000)
    steps("bench")
    documents = steps.work / "documents"
    return sorted(
        str(path.relative_to(documents)) for path in documents.rglob("*") if path.is_file() and path.name != "bench.log"
    )


def tokens(steps, plan):
    steps.ready()
    steps("bench", GITHUB_TOKEN=SECRET)
    (one,) = (one for one in calls(steps.notes, "run") if one["command"][0] == "gate")
    return [name for name, value in {**one["environ"], **one["inside"]}.items() if value == SECRET]


def verdicts(steps, plan):
    plan(codes={"gate": 3})
    steps.ready()
    steps("bench")
    steps("report", GITHUB_TOKEN=SECRET)
    return [] if steps("gate")[0] else ["a failed measurement passes"]


def outputs(steps, plan):
    told = {"comment_url": "javascript:alert", "regressed": "1 rm -rf", "improved": "²"}
    (steps.notes / "bin" / "stub.json").write_text(json.dumps({"outputs": told}))
    steps.ready()
    steps("bench")
    steps("report", GITHUB_TOKEN=SECRET)
    return [*steps.outputs]


def credentials(steps, plan):
    config = Path(steps.environ["GITHUB_WORKSPACE"]) / ".git" / "config"
    config.write_text('[http "https://github.com/"]\n\textraheader = AUTHORIZATION: basic eHg=\n')
    return [] if steps("preflight")[0] else ["a token is shown to the code under test"]


def cancellation(steps, plan):
    plan(hangs="gate")
    steps.ready()
    process = steps.start("bench")
    until = time.monotonic() + 30
    while not (steps.notes / "hanging").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    until = time.monotonic() + 6
    while time.monotonic() < until and not calls(steps.notes, "stop"):
        time.sleep(0.1)
    (pid,) = (int(path.read_text()) for path in steps.notes.glob("*.pid"))
    with suppress(ProcessLookupError):  # where stopping has ended it
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.communicate()
    return [] if calls(steps.notes, "stop") else ["the container lives on"]


DEFECTS = {
    "lines keep their start": (log, "workflow.py", 'PREFIX = "│ "', 'PREFIX = ""'),
    "the old commands are let through": (log, "workflow.py", '_BROKEN = "##\\u200b["', '_BROKEN = "##["'),
    "commands are not switched off": (log, "workflow.py", 'say(f"::stop-commands::{word}")', "pass"),
    "a link is followed": (uploads, "collect.py", "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK", "os.O_RDONLY | os.O_NONBLOCK"),
    "a link to a folder is followed": (
        uploads,
        "collect.py",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW",
        "os.O_RDONLY | os.O_DIRECTORY",
    ),
    "a second name is as good": (uploads, "collect.py", "told.st_nlink != 1", "False"),
    "any size will do": (uploads, "collect.py", "MOST_BYTES = 25_000_000", "MOST_BYTES = 10**9"),
    "docker sees the whole environment": (
        tokens,
        "docker.py",
        "if name in _CLIENT or name.startswith",
        "if True or name.startswith",
    ),
    "the token is passed on": (tokens, "containers.py", 'BENCH = ("CI",', 'BENCH = ("GITHUB_TOKEN", "CI",'),
    "how measuring ended is not asked": (verdicts, "phases.py", "MEASURED = {0, 1, 4}", "MEASURED = {0, 1, 3, 4}"),
    "any text becomes a count": (outputs, "phases.py", 'told.get(word, "").isdigit()', 'told.get(word, "")'),
    "any text becomes an address": (outputs, "phases.py", '_URL.fullmatch(told.get(name, ""))', 'told.get(name, "")'),
    "any text becomes an output": (outputs, "workflow.py", "if _PLAIN.fullmatch(value)]", "]"),
    "credentials are not looked for": (credentials, "preflight.py", "    check_checkout(workspace)\n", ""),
    "signals are not heard": (cancellation, "supervise.py", "stop.ask()", "pass"),
}


@pytest.mark.parametrize("scenario", sorted({scenario for scenario, *_ in DEFECTS.values()}, key=lambda one: one.__name__))
def test_there_is_no_hole(steps, plan, scenario):
    assert scenario(steps, plan) == []


@pytest.mark.parametrize(("scenario", "file", "what", "instead"), DEFECTS.values(), ids=DEFECTS)
def test_without_a_protection_there_is_one(steps, plan, tmp_path, scenario, file, what, instead):  # noqa: PLR0917 - by name
    steps.action = shutil.copytree(ACTION, tmp_path / "action", ignore=shutil.ignore_patterns("__pycache__"))
    text = (steps.action / file).read_text()
    assert text.count(what) == 1, "the defect has a place"
    (steps.action / file).write_text(text.replace(what, instead))
    assert scenario(steps, plan) != []
