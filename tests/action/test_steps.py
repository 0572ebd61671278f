"""Each step of the composite by itself, as a process: what goes wrong on a runner, and what hostile code does."""

import json
import os
import re
import shutil
import signal
import stat
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from action_steps import HOSTILE, SECRET, live_commands
from gpu_runner import ROOT, calls, defaults

import commands
import phases
import preflight
from ci_bench.command_line.flags import make_parser
from faults import FAULTS, Fault
from phases import base_of_group
from supervise import supervise

# Preflight


def credential(checkout):
    (checkout / ".git" / "config").write_text(
        '[http "https://github.com/"]\n\textraheader = AUTHORIZATION: basic eHg=\n'
    )


def submodule_credential(checkout):
    folder = checkout / ".git" / "modules" / "a" / "modules" / "b"
    folder.mkdir(parents=True)
    (folder / "config").write_text('[remote "origin"]\n\turl = https://me:secret@github.com/a/b\n')


def no_git(checkout):
    (checkout / ".git").rename(checkout / "gone")


WRONG = {
    "no docker": ("no_docker", {"PATH": "/nowhere"}, {}, None),
    "no daemon": (
        "no_daemon",
        {},
        {"fails": {"info": "Cannot connect to the Docker daemon"}},
        None,
    ),
    "a job container": ("job_container", {"GITHUB_WORKSPACE": "/__w/repo"}, {}, None),
    "no checkout": ("no_checkout", {}, {}, no_git),
    "a credential": ("token_in_checkout", {}, {}, credential),
    "a submodule's credential": ("token_in_checkout", {}, {}, submodule_credential),
    "a token in a variable": (
        "token_in_variable",
        {"INPUT_PASS_ENV": "MODEL_HUB", "MODEL_HUB": f"hf_{'a1' * 15}"},
        {},
        None,
    ),
    "no such image": (
        "pull",
        {"INPUT_IMAGE": "ghcr.io/x/y"},
        {"fails": {"pull": "denied", "image": "no such image"}},
        None,
    ),
    "a Dockerfile that fails": (
        "build",
        {},
        {"fails": {"build": "failed to solve: process did not complete"}},
        None,
    ),
    "another image": ("image", {}, {"version": "nginx/1.27\n"}, None),
    "an image without an entrypoint": ("image", {}, {"version": ""}, None),
    "a daemon elsewhere": ("mount", {}, {"elsewhere": "/nowhere"}, None),
    "a daemon that remaps users": ("write", {}, {"read_only_folders": True}, None),
    "no GPU": ("gpu", {}, {"gpu_ways": []}, None),
    "a driver that is too old": (
        "cuda",
        {},
        {"cuda": "torch 2.13.0 is built for CUDA 13.0, which needs driver 580"},
        None,
    ),
    "an input": ("inputs", {"INPUT_GPUS": "all --privileged"}, {}, None),
    "natively, no ci-bench": (
        "no_ci_bench",
        {"INPUT_MODE": "native", "PATH": "/nowhere"},
        {},
        None,
    ),
}


@pytest.mark.parametrize(("key", "environ", "planned", "change"), WRONG.values(), ids=WRONG)
def test_each_thing_that_is_wrong_has_its_own_words(  # noqa: PLR0917 - by name
    steps, plan, checkout, key, environ, planned, change
):
    plan(**planned)
    if change:
        change(checkout)
    if environ.get("PATH"):
        environ = {**environ, "PATH": str(bare_path(steps.notes))}
    code, out = steps("preflight", **environ)
    opening = FAULTS[key].partition("{")[0]
    assert code in {2, 3}
    assert f"::error title=ci-bench::{opening}" in out
    assert sum(text.partition("{")[0] in out for text in FAULTS.values()) == 1, (
        "one thing is wrong, and one is said"
    )
    assert steps("cleanup")[0] == 0


def bare_path(notes):
    """A PATH with bash and nothing else."""
    folder = notes / "bare"
    folder.mkdir()
    (folder / "bash").symlink_to("/bin/bash")
    return folder


def test_every_fault_is_shown():
    told = {key for key, *_ in WRONG.values()} | {"configuration", "disk"}
    assert told == {*FAULTS}


@pytest.mark.parametrize(("free", "enough"), [(9_999_999_999, False), (10_000_000_000, True)])
def test_a_job_starts_with_enough_disk(monkeypatch, free, enough):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with (
        nullcontext()
        if enough
        else pytest.raises(Fault, match="too little free disk: /srv has 9 GB, 10 GB are wanted")
    ):
        preflight.check_disk(Path("/srv"))


@pytest.mark.parametrize("way", ["cdi", "gpus", "runtime"])
def test_the_first_way_to_a_gpu_that_works_is_taken(steps, plan, way):
    plan(gpu_ways=[way])
    assert steps("preflight")[0] == 0
    assert json.loads((steps.work / "state.json").read_text())["gpu_access"] == way


def test_a_context_is_opened_in_the_image_with_the_gpus_that_measuring_gets(steps):
    assert steps("preflight")[0] == 0
    (asked,) = [
        one
        for one in calls(steps.notes, "run")
        if one["argv"][-1].endswith("ci_bench.worker.context")
    ]
    assert "nvidia.com/gpu=all" in asked["argv"]


def called(argv):
    """The command, or the action of `github`."""
    return argv[1] if argv[0] == "github" else argv[0]


def started(steps, command):
    """The container that was started for a command of ci-bench."""
    (found,) = [one for one in calls(steps.notes, "run") if one["command"][:1] == [command]]
    return found


def test_the_folder_of_locks_is_made_for_every_user_of_the_machine(steps):
    steps.ready()
    locks = Path(steps.environ["CI_BENCH_LOCKS"])
    assert locks.stat().st_mode & 0o7777 == 0o1777
    assert steps("bench")[0] == 0
    assert f"type=bind,source={locks},target=/locks" in started(steps, "gate")["argv"]


def test_a_folder_of_locks_that_containers_do_not_see_is_not_mounted(steps, plan):
    """A runner that runs in a container itself shares its work folder with the host, and may share nothing else."""
    plan(not_shared=str(steps.environ["CI_BENCH_LOCKS"]))
    code, out = steps("preflight")
    assert (code, "containers do not share" in out) == (0, True)
    assert json.loads((steps.work / "state.json").read_text())["locks"] == ""
    assert not [*Path(steps.environ["CI_BENCH_LOCKS"]).iterdir()], "nothing is left there"


def test_a_link_in_place_of_the_folder_of_locks_is_not_mounted(steps, tmp_path):
    locks = Path(steps.environ["CI_BENCH_LOCKS"])
    (tmp_path / "victim").mkdir()
    locks.symlink_to(tmp_path / "victim")
    code, out = steps("preflight")
    assert (code, "no folder that can be mounted" in out) == (0, True)
    assert json.loads((steps.work / "state.json").read_text())["locks"] == ""


def test_no_gpu_is_asked_for(steps, plan):
    plan(gpu_ways=[], cuda="never asked")
    steps.ready(gpus="none")
    assert steps("bench")[0] == 0
    assert "NVIDIA_VISIBLE_DEVICES=void" in started(steps, "gate")["argv"]


def test_a_rootless_daemons_root_is_this_user(steps, plan):
    plan(security=["name=seccomp,profile=builtin", "name=rootless"])
    steps("preflight")
    assert json.loads((steps.work / "state.json").read_text())["user"] == "0:0"


def test_an_image_that_cannot_be_pulled_is_tried_thrice_and_then_taken_from_the_host(steps, plan):
    plan(fails={"pull": "503 Service Unavailable"})
    started = time.monotonic()
    code, out = steps("preflight", INPUT_IMAGE="ghcr.io/x/y")
    assert code == 0
    assert len(calls(steps.notes, "pull")) == 3
    assert time.monotonic() - started > 4, "with growing pauses"
    assert (
        "could not be pulled (503 Service Unavailable); the one that is on this host is used" in out
    )


def test_an_image_that_is_built_has_a_tag_that_pruning_spares_and_says_how_far_it_is(steps, plan):
    plan(says={"build": "#7 [3/9] RUN pip install\n::error::planted\n"})
    code, out = steps("preflight", INPUT_IMAGE="build")
    assert code == 0, out
    (built,) = calls(steps.notes, "build")
    assert built["argv"][built["argv"].index("--tag") + 1] == "ci-bench.local/built"
    assert "│ #7 [3/9] RUN pip install" in out
    assert not re.search(r"(?m)^::error::planted", out), (
        "no command of what is built is one of ours"
    )


def test_the_users_of_both_sides_reach_their_caches_and_nobody_else_the_jobs_folders(steps):
    assert steps("preflight")[0] == 0
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in [steps.work, *steps.work.iterdir()]
        if path.is_dir()
    }
    assert modes.pop("cache") == 0o711
    assert set(modes.values()) == {0o700}


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "refused"])
def test_both_sides_are_users_where_the_daemon_allows_it_and_it_is_said_where_not(
    steps, plan, allowed
):
    plan(users=allowed)
    code, out = steps("preflight")
    assert code == 0
    assert json.loads((steps.work / "state.json").read_text())["apart"] is allowed
    assert ("base and head run as one user" in out, "chown: Operation not permitted" in out) == (
        not allowed,
        not allowed,
    )


@pytest.mark.parametrize(
    ("code", "done"),
    [(0, ["seed", "set up", "keep"]), (1, ["seed", "set up"])],
    ids=["sound", "failed"],
)
def test_what_set_up_keeps_the_next_job_of_the_branch_begins_with(steps, monkeypatch, code, done):
    steps.ready()
    log = []
    monkeypatch.setenv("CI_BENCH_WORK", str(steps.work))
    for name in ("seed", "keep"):
        monkeypatch.setattr(phases.caches, name, lambda *_, name=name: log.append(name))
    monkeypatch.setattr(phases, "_bench", lambda *_: log.append("set up") or (code, "exited"))
    monkeypatch.setattr(phases, "_settle", lambda *_: None)
    assert phases.setup() == 0
    assert log == done


def test_an_image_that_is_pulled_says_how_far_it_is(steps, plan):
    plan(says={"pull": "5a7813e071bf: Pull complete\n"})
    assert "│ 5a7813e071bf: Pull complete" in steps("preflight", INPUT_IMAGE="ghcr.io/x/y")[1]


@pytest.mark.parametrize(
    ("given", "limit"),
    [({}, "921600000b"), ({"INPUT_MEMORY": "4g"}, "4g"), ({"total": None}, None)],
    ids=["left out", "given", "unknown"],
)
def test_measuring_has_a_limit_to_its_memory(steps, plan, given, limit):
    plan(memory=given.pop("total", 1_024_000_000))
    steps("preflight", **given)
    steps("bench")
    argv = started(steps, "gate")["argv"]
    limits = [one for one in argv if one.startswith("--memory")]
    assert limits == ([f"--memory={limit}", f"--memory-swap={limit}"] if limit else [])


def test_what_fills_the_disk_is_stopped_and_does_not_pass(steps, monkeypatch):
    steps.ready()
    state = json.loads((steps.work / "state.json").read_text()) | {"apart": False}
    said, ended = [], []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100 << 20))
    monkeypatch.setattr(
        phases, "supervise", lambda *_, trouble, **__: ended.append(trouble()) or (137, ended[-1])
    )
    monkeypatch.setattr(phases.workflow, "annotate", lambda *what: said.append(what))
    assert phases._bench(state, "bench", ["gate"]) == (
        137,
        "it left less than 500 MiB of the disk free",
    )
    assert said == [("warning", "bench: it left less than 500 MiB of the disk free")]


def test_trouble_of_the_runner_ends_what_runs():
    started = time.monotonic()
    code, how = supervise(
        ["sleep", "60"],
        environ={"PATH": "/bin:/usr/bin"},
        take=lambda _: None,
        timeout_s=60,
        trouble=lambda: "the disk is full",
    )
    assert (how, code < 0) == ("the disk is full", True)
    assert time.monotonic() - started < 30


def test_what_runs_is_the_image_that_was_looked_at(steps):
    """By its id: between two steps, a tag may be moved."""
    steps.ready()
    steps("bench")
    assert {one["image"] for one in calls(steps.notes, "run")} == {"sha256:" + "5" * 64}


def test_the_configuration_that_cannot_be_had_ends_the_job(steps):
    (steps.notes / "bin" / "stub.json").write_text('{"fetch-config": 5}')
    steps("preflight")
    code, out = steps("baseline", GITHUB_TOKEN=SECRET)
    assert code == 5
    assert FAULTS["configuration"].partition("{")[0] in out


def test_the_first_pull_request_is_measured(steps):
    """The base branch has no configuration, so the command leaves head's own."""
    (steps.notes / "bin" / "ci-bench").symlink_to(steps.notes / "bin" / "stub-ci-bench")
    plan = {"configured": "head", "outputs": {"verdict": "undecided"}}
    (steps.notes / "bin" / "stub.json").write_text(json.dumps(plan))
    steps.ready(mode="native")
    for name in ("setup", "bench", "report"):
        assert steps(name, GITHUB_TOKEN=SECRET)[0] == 0
    told = [
        called(json.loads(line)["argv"])
        for line in (steps.notes / "bin" / "stub.jsonl").read_text().splitlines()
    ]
    assert told == ["fetch-config", "setup", "gate", "publish"]
    code, _ = steps("gate")
    assert (code, steps.outputs["verdict"]) == (0, "undecided")


# Tokens


def test_no_token_is_anywhere_near_the_code_under_test(steps):
    steps.ready(pass_env="SEED")  # noqa: S106 - no password
    for name in ("setup", "bench"):
        steps(name, SEED="7", GITHUB_TOKEN=SECRET)  # a careless job-level variable
    seen = [one for one in calls(steps.notes, "run") if one["command"][0] in {"setup", "gate"}]
    assert [one["command"][0] for one in seen] == ["setup", "gate"]
    for one in seen:
        assert SECRET not in json.dumps(one["argv"])
        assert SECRET not in json.dumps(one["environ"]), "the docker command has no token either"
        assert one["inside"]["SEED"] == "7"
    assert SECRET not in "".join(
        path.read_text() for path in steps.work.rglob("*") if path.is_file()
    )


def test_the_token_reaches_what_talks_to_github(steps):
    steps.ready()
    (one,) = (one for one in calls(steps.notes, "run") if called(one["command"]) == "fetch-config")
    assert one["inside"]["GITHUB_TOKEN"] == SECRET
    assert SECRET not in json.dumps(one["argv"])


# Hostile output


def test_what_the_code_under_test_prints_commands_nothing(steps, plan):
    plan(prints=HOSTILE)
    steps.ready()
    for name in ("setup", "bench"):
        code, out = steps(name)
        assert (code, live_commands(out)) == (0, [])
        without = re.sub(r"(?m)^::stop-commands::.*\n|^::[0-9a-f]{32}::$", "", out)
        assert live_commands(without) == [], "the lines are harmless by themselves, too"
        assert "\x1b" not in out
        assert "│ end" in out
    assert steps.outputs == {}


def test_an_unfiltered_log_would_be_obeyed():
    assert live_commands(HOSTILE) == ["set-output", "add-mask", "error"], (
        "then its own stop-commands hides the rest"
    )
    assert live_commands("##[set-output name=v]x") == ["set-output"]
    assert live_commands("::stop-commands::abc\n::error::x\n::abc::") == []


def test_an_endless_line_and_a_flood_are_cut(steps, plan):
    plan(prints="x" * 100_000 + "\n" + "y" * 19 + ("\n" + "y" * 19) * 250_000)
    steps.ready()
    code, out = steps("bench")
    assert code == 0
    assert max(map(len, out.splitlines())) < 2_100
    assert "printed too much" in out
    assert (steps.work / "bench.log").stat().st_size <= 4_100_000


# What is left behind


def test_links_pipes_and_giants_are_left_where_they_are(steps, tmp_path):
    victim = tmp_path / "credentials"
    victim.write_text("the runner's secret")
    results = steps.notes / "results"
    (results / "elsewhere").mkdir(parents=True)
    (results / "elsewhere" / "results.json").write_text("{}")
    (results / "results.json").symlink_to(victim)
    (results / "base").symlink_to(tmp_path)
    (results / "calibration.json").symlink_to("/proc/self/environ")
    (results / "report.html").write_text("<script>")
    (results / "setup").mkdir()
    (results / "setup" / "base-1.log").symlink_to(victim)
    (results / "setup" / "head-1.log").write_text("built")
    (results / "evil.sh").write_text("x")
    (tmp_path / "results.json").write_text("the runner's secret")
    steps.ready()
    code, _ = steps("bench")
    assert code == 0
    taken = {
        str(path.relative_to(steps.work / "documents"))
        for path in (steps.work / "documents").rglob("*")
        if path.is_file()
    }
    assert taken == {"setup/head-1.log", "bench.log"}


def test_a_pipe_does_not_hold_the_job_up(steps):
    steps.ready()
    os.mkfifo(steps.work / "results" / "results.json")
    (steps.work / "results" / "setup").mkdir()
    with (steps.work / "results" / "setup" / "base-1.log").open("wb") as stream:
        stream.truncate(30_000_000)
    os.link(steps.work / "state.json", steps.work / "results" / "calibration.json")
    assert steps("bench")[0] == 0
    assert sorted(path.name for path in (steps.work / "documents").iterdir()) == ["bench.log"]


def test_cleaning_up_copes_with_what_cannot_be_listed(steps):
    steps.ready()
    folder = steps.work / "prepared" / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "file").touch()
    folder.chmod(0)
    folder.parent.chmod(0o500)
    assert steps("cleanup")[0] == 0
    assert not (steps.work / "prepared").exists()
    assert (steps.work / "documents").is_dir(), "its path is an output"
    assert calls(steps.notes, "ps")[-1]["argv"][-1].startswith("label=ci-bench.job=17-")


# The gate


ENDS = {
    "passed": ({}, {}, 0, "passed"),
    "something could not be decided": ({}, {"outputs": {"verdict": "undecided"}}, 0, "undecided"),
    "a regression": ({}, {"publish": 1}, 1, "failed"),
    "not comparable": ({}, {"publish": 4}, 4, "failed"),
    "GitHub said no": ({}, {"publish": 5}, 5, "failed"),
    "the bench's own verdict is not asked": ({"codes": {"gate": 1}}, {}, 0, "passed"),
    "measuring was killed, and what it left would pass": (
        {"codes": {"gate": 137}},
        {},
        3,
        "failed",
    ),
    "measuring failed, and what it left would pass": ({"codes": {"gate": 3}}, {}, 3, "failed"),
    "docker refused": ({"refuse": ["gate"]}, {"publish": 3}, 3, "failed"),
    "set-up failed": ({"codes": {"setup": 2}}, {"publish": 3}, 3, "failed"),
    "measuring was killed, and what it left would be undecided": (
        {"codes": {"gate": 137}},
        {"outputs": {"verdict": "undecided"}},
        3,
        "failed",
    ),
    "set-up failed on both sides": (
        {"codes": {"setup": 3, "gate": 3}},
        {"publish": 3},
        3,
        "failed",
    ),
    "no report": ({}, {"publish": 1, "silent": ["publish"]}, 3, "failed"),
    "no report that calls itself a pass": ({}, {"silent": ["publish"]}, 3, "failed"),
    "a report with words of its own": ({}, {"outputs": {"verdict": "passed-ish"}}, 3, "failed"),
}


@pytest.mark.parametrize(("planned", "stubbed", "code", "verdict"), ENDS.values(), ids=ENDS)
def test_the_gate(steps, plan, planned, stubbed, code, verdict):  # noqa: PLR0917 - by name
    plan(**planned)
    (steps.notes / "bin" / "stub.json").write_text(json.dumps(stubbed))
    steps.ready()
    steps("setup")
    steps("bench")
    assert steps("report", GITHUB_TOKEN=SECRET)[0] == 0
    found, out = steps("gate")
    assert (found, steps.outputs) == (code, {"verdict": verdict, "exit_code": str(code)})
    assert ("::error title=ci-bench::exit code" in out) == bool(code)
    measured = [
        one["command"][0] for one in calls(steps.notes, "run") if one["command"][0] == "gate"
    ]
    assert measured == ([] if planned.get("codes", {}).get("setup") == 2 else ["gate"])


def test_only_plain_words_become_outputs(steps):
    hostile = {
        "comment_url": "javascript:alert(1)",
        "check_url": "https://github.example/x y",
        "regressed": "1; rm",
        "evil": "x",
    }
    (steps.notes / "bin" / "stub.json").write_text(
        json.dumps({"outputs": {**hostile, "improved": "2"}})
    )
    steps.ready()
    steps("bench")
    steps("report", GITHUB_TOKEN=SECRET)
    assert steps.outputs == {"improved": "2"}


# Time and cancellation


def hang(steps, plan, **more):
    plan(hangs="gate", **more)
    process = steps.start("bench")
    until = time.monotonic() + 30
    while not (steps.notes / "hanging").exists() and time.monotonic() < until:
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_cancelled_job_stops_its_container(steps, plan, number):
    steps.ready()
    process = hang(steps, plan)
    sent = time.time()
    process.send_signal(number)
    process.communicate(timeout=30)
    (stopped,) = calls(steps.notes, "stop")
    assert process.returncode == 130
    assert stopped["argv"] == [
        "stop",
        "-t",
        "5",
        f"ci-bench-{json.loads((steps.work / 'state.json').read_text())['job']}-bench",
    ]
    assert stopped["time"] - sent < 2, "the runner waits 7.5 s before it sends the next signal"
    assert steps.recorded("bench") == {"code": 130, "how": "cancelled"}


def test_a_container_that_does_not_stop_is_killed_in_time(steps, plan):
    steps.ready()
    process = hang(steps, plan, stubborn=True)
    sent = time.time()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert time.time() - sent < 9.5, "10 s after the first signal the runner kills everything"
    assert len(calls(steps.notes, "kill")) == 1


def test_a_measurement_that_takes_too_long_is_stopped_and_does_not_pass(steps, plan):
    steps.ready()
    state = json.loads((steps.work / "state.json").read_text())
    state["settings"]["timeout_minutes"] = 0.01
    (steps.work / "state.json").write_text(json.dumps(state))
    process = hang(steps, plan)
    out = process.communicate(timeout=30)[0]
    assert process.returncode == 0, "what was measured is reported"
    assert "::warning title=ci-bench::bench: took longer than timeout_minutes allows" in out
    steps("report", GITHUB_TOKEN=SECRET)
    assert steps("gate")[0] == 3


# Natively


def test_natively_the_code_under_test_sees_no_token(steps):
    (steps.notes / "bin" / "ci-bench").symlink_to(steps.notes / "bin" / "stub-ci-bench")
    steps.ready(mode="native", pass_env="SEED")  # noqa: S106 - no password
    for name in ("setup", "bench"):
        assert steps(name, SEED="7", GITHUB_TOKEN=SECRET, AWS_SECRET_ACCESS_KEY=SECRET)[0] == 0
    steps("report", GITHUB_TOKEN=SECRET)
    told = [
        json.loads(line) for line in (steps.notes / "bin" / "stub.jsonl").read_text().splitlines()
    ]
    by_name = {called(one["argv"]): one for one in told}
    assert [*by_name] == ["fetch-config", "setup", "gate", "publish"]
    for name in ("setup", "gate"):
        assert SECRET not in json.dumps(by_name[name])
        assert by_name[name]["environ"]["SEED"] == "7"
    assert by_name["publish"]["environ"]["GITHUB_TOKEN"] == SECRET
    assert calls(steps.notes) == [], "docker was not asked"
    assert steps("gate")[0] == 0


def test_a_fleet_measures_natively_and_the_job_reports_as_always(steps):
    (steps.notes / "bin" / "ci-bench").symlink_to(steps.notes / "bin" / "stub-ci-bench")
    steps.ready(mode="native", fleet="slurm:partition=gpu,gres=gpu:1", image="none")
    for name in ("setup", "bench"):
        assert (
            steps(name, SLURM_CONF="/etc/own.conf", SLURM_JWT=SECRET, GITHUB_TOKEN=SECRET)[0] == 0
        )
    steps("report", GITHUB_TOKEN=SECRET)
    told = [
        json.loads(line) for line in (steps.notes / "bin" / "stub.jsonl").read_text().splitlines()
    ]
    by_name = {called(one["argv"]): one for one in told}
    words = by_name["gate"]["argv"]
    assert words[words.index("--fleet") + 1] == "slurm:partition=gpu,gres=gpu:1"
    assert by_name["gate"]["environ"]["SLURM_CONF"] == "/etc/own.conf"
    assert "SLURM_CONF" not in by_name["setup"]["environ"]
    assert SECRET not in json.dumps([by_name["setup"], by_name["gate"]])
    assert "--fleet" not in by_name["publish"]["argv"]
    assert steps("gate")[0] == 0


def test_with_caged_leases_this_runner_sets_nothing_up_and_hands_the_image_on(steps):
    (steps.notes / "bin" / "ci-bench").symlink_to(steps.notes / "bin" / "stub-ci-bench")
    image = "ghcr.io/o/ci-bench@sha256:" + "4" * 64
    steps.ready(mode="native", fleet="ray:head:6379", image=image)
    for name in ("setup", "bench"):
        assert steps(name)[0] == 0
    told = [
        json.loads(line)["argv"]
        for line in (steps.notes / "bin" / "stub.jsonl").read_text().splitlines()
    ]
    assert "setup" not in [words[0] for words in told]
    (words,) = (words for words in told if words[0] == "gate")
    assert words[words.index("--image") + 1] == image
    assert "--prepared" not in words


UNFIT = {
    "an image of no fleet": (
        {"fleet": "", "image": "none"},
        "image is 'none', which is for the leases of a fleet",
    ),
    "no image": (
        {"mode": "native", "image": "build"},
        "image is 'build', and has to be an image by its @sha256: digest",
    ),
    "an image by its tag": (
        {"mode": "native", "image": "x:latest"},
        "image is 'x:latest', and has to be an image by its",
    ),
    "half a digest": (
        {"mode": "native", "image": "x@sha256:4"},
        "image is 'x@sha256:4', and has to be an image by its",
    ),
    "containers of this runner": ({}, "mode is 'container', and has to be 'native'"),
    "one side": (
        {"mode": "native", "baseline": "artifact"},
        "baseline is 'artifact', and has to be 'paired'",
    ),
}


@pytest.mark.parametrize(("given", "words"), UNFIT.values(), ids=UNFIT)
def test_a_fleet_in_a_container_or_with_one_side_is_refused(steps, given, words):
    inputs = {
        "fleet": "ray:head:6379",
        "mode": "container",
        "baseline": "paired",
        "image": "none",
    } | given
    code, out = steps(
        "preflight", **{f"INPUT_{name.upper()}": text for name, text in inputs.items()}
    )[:2]
    assert code == 2
    assert words in out


# The trusted half, on a hosted runner


def hosted(steps, **given):
    """Its step, with the stub in place of what is installed."""
    folder = Path(steps.environ["RUNNER_TEMP"]) / "ci-bench-report" / "bin"
    folder.mkdir(parents=True)
    python = folder / "python"
    python.write_text(
        f'#!/bin/bash\nshift 2\nexec "{steps.environ["DOCKER_FAKE_CI_BENCH"]}" "$@"\n'
    )
    python.chmod(0o700)
    declared = yaml.safe_load((ROOT / "report" / "action.yml").read_text())["inputs"]
    inputs = {
        f"INPUT_{name.upper()}": str(one["default"])
        for name, one in declared.items()
        if name != "token"
    }
    return steps("hosted", **{**inputs, "STUB_NOTES": str(steps.notes / "bin"), **given})


@pytest.mark.parametrize(
    ("gate", "code", "ends"),
    [("true", 1, 1), ("false", 1, 0), ("false", 4, 0), ("false", 5, 5), ("false", 0, 0)],
)
def test_whether_the_trusted_half_fails_with_the_verdict(steps, gate, code, ends):
    (steps.notes / "bin" / "stub.json").write_text(json.dumps({"publish": code}))
    assert hosted(steps, INPUT_GATE=gate)[0] == ends


def test_the_trusted_halfs_inputs_become_flags(steps):
    given = {
        "INPUT_ARTIFACT": "ci-bench-*",
        "INPUT_MACHINES": "h200, l4",
        "INPUT_BASELINE": "artifact",
        "INPUT_BASELINE_ARTIFACT": "base-*",
    }
    assert hosted(steps, **given)[0] == 0
    (line,) = (steps.notes / "bin" / "stub.jsonl").read_text().splitlines()
    parsed = make_parser().parse_args(json.loads(line)["argv"])
    assert (parsed.artifact, parsed.machines, parsed.baseline, parsed.baseline_artifact) == (
        "ci-bench-*",
        ("h200", "l4"),
        "artifact",
        "base-*",
    )


def test_bad_inputs_of_the_trusted_half_are_named(steps):
    code, out = hosted(steps, INPUT_ARTIFACT="a*b*c", INPUT_MACHINES="a,;b")
    assert code == 2
    assert "artifact is 'a*b*c'" in out
    assert "machines is 'a,;b'" in out


def test_a_merge_group_is_measured_against_what_it_is_made_on(tmp_path):
    """GitHub's clone of it holds no branch that it could have left."""
    path = tmp_path / "event.json"
    of = {"GITHUB_EVENT_NAME": "merge_group", "GITHUB_EVENT_PATH": str(path)}
    assert base_of_group(of) == ""
    path.write_text(json.dumps({"merge_group": {"base_sha": "a" * 40}}))
    assert base_of_group(of) == "a" * 40
    assert base_of_group({**of, "GITHUB_EVENT_NAME": "pull_request"}) == ""
    path.write_text(json.dumps({"merge_group": {"base_sha": "--output"}}))
    assert base_of_group(of) == ""


@pytest.mark.parametrize(("baseline", "base"), [("paired", "a" * 40), ("artifact", "")])
def test_a_merge_groups_base_is_handed_on_to_what_measures(steps, tmp_path, baseline, base):
    (tmp_path / "event.json").write_text(json.dumps({"merge_group": {"base_sha": "a" * 40}}))
    of = {"GITHUB_EVENT_NAME": "merge_group", "GITHUB_EVENT_PATH": str(tmp_path / "event.json")}
    assert steps("preflight", **of, INPUT_BASELINE=baseline)[0] == 0
    assert json.loads((steps.work / "state.json").read_text())["settings"]["base"] == base


@pytest.mark.parametrize("baseline", ["paired", "artifact", "none"])
@pytest.mark.parametrize("mode", ["container", "native"])
def test_every_command_of_the_steps_parses(baseline, mode):
    """The flags are those of this ci-bench."""
    where = {
        "settings": defaults(
            INPUT_BASELINE=baseline, INPUT_MODE=mode, INPUT_BASE="main", INPUT_FILTER="a\nb"
        ),
        "work": "/w",
    }
    for make in (
        commands.fetch_config,
        commands.fetch_baseline,
        commands.setup,
        commands.bench,
        commands.publish,
    ):
        assert make_parser().parse_args(make(where)).command


def test_the_defaults_are_sound():
    assert defaults()["mode"] == "container"
    assert defaults()["bench_network"] is False
