"""What hostile code would try on a runner, and finds no hole for; `benchmarks/guards_action.toml` takes out what keeps it from that."""

import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from action_steps import HOSTILE, SECRET, live_commands
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
        str(path.relative_to(documents))
        for path in documents.rglob("*")
        if path.is_file() and path.name != "bench.log"
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


SCENARIOS = (cancellation, credentials, log, outputs, tokens, uploads, verdicts)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_there_is_no_hole(steps, plan, scenario):
    assert scenario(steps, plan) == []
