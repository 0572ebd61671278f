"""What containers are started with: each protection is there, and its absence is seen."""

import re
from itertools import pairwise

import pytest
from gpu_runner import defaults

import commands
import containers
from ci_bench.host import cage

TOKEN = "ghs_secret"  # noqa: S105 - the test's own


def state(**given):
    return {
        "settings": defaults(**given),
        "work": "/runner/temp/ci-bench-1",
        "workspace": "/runner/repo",
        "job": "1-1-abc",
        "user": "1001:1001",
        "image": "sha256:5",
        "gpu_access": "cdi",
        "locks": "/srv/locks",
        "run": "o/r run 7",
    }


ENVIRON = {
    "CI": "true",
    "GITHUB_BASE_REF": "main",
    "GITHUB_TOKEN": TOKEN,
    "GITHUB_EVENT_PATH": "/etc/hostname",
    "ACTIONS_RUNTIME_TOKEN": TOKEN,
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": TOKEN,
    "HTTPS_PROXY": "http://user:pass@proxy",
    "SEED": "7",
}


def bench(phase="bench", **given):
    where = state(**given)
    return containers.bench(where, phase, commands.bench(where), ENVIRON)


NO_PROXIES = {
    f"{name}="
    for kind in ("HTTP", "HTTPS", "FTP", "ALL", "NO")
    for name in (f"{kind}_PROXY", f"{kind}_PROXY".lower())
}
"""Docker's client would give them to containers as its configuration has them, with their
passwords.
"""


def complaints(argv):
    """What a container with the code under test must not have, or lacks."""
    joined = " ".join(argv)
    named = [value for flag, value in pairwise(argv) if flag == "-e"]
    mounts = [value for flag, value in pairwise(argv) if flag == "--mount"]
    found = [
        f"variable {name}"
        for name in named
        if re.search(r"TOKEN|SECRET|PROXY|ACTIONS_|EVENT|OUTPUT|SUMMARY", name, re.IGNORECASE)
        and name not in NO_PROXIES
    ]
    own = ("NVIDIA_", "CI_BENCH_")
    found += [
        f"value of {name}"
        for name in named
        if "=" in name and name not in NO_PROXIES and not name.startswith(own)
    ]
    found += [f"docker's own {name[:-1]}" for name in sorted(NO_PROXIES - {*named})]
    found += ["a token"] if TOKEN in joined else []
    found += ["docker's socket"] if "docker.sock" in joined else []
    found += ["network"] if "--network=none" not in argv else []
    for flag in (
        "--rm",
        "--init",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--read-only",
        "--log-driver=none",
    ):
        found += [f"no {flag}"] if flag not in argv else []
    found += ["no user"] if "--user" not in argv else []
    found += ["privileged"] if re.search(r"--privileged|--pid=|--ipc=host|--userns", joined) else []
    powers = {
        value for flag, _, value in (part.partition("=") for part in argv) if flag == "--cap-add"
    }
    is_root = any(value.startswith("0:") for flag, value in pairwise(argv) if flag == "--user")
    found += (
        ["root for no reason"]
        if is_root != bool(powers) or is_root != (f"CI_BENCH_USERS={containers.USERS}" in named)
        else []
    )
    found += (
        ["privileged"] if powers - {"CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID"} else []
    )
    found += [f"no {flag}" for flag in ("--pids-limit", "--shm-size") if flag not in joined]
    own = re.compile(r"/runner/temp/ci-bench-1/(config|results|prepared|cache)")
    for mount in mounts:
        source, target, *rest = (part.partition("=")[2] for part in mount.split(",")[1:])
        writable = not mount.endswith(",readonly")
        if source == "/runner/repo":
            found += ["checkout writable"] if writable else []
        elif (source, target) == ("/srv/locks", "/locks"):
            continue
        elif not own.fullmatch(source) and source not in {"/srv/models", "/srv/noise"}:
            found.append(f"mount {source}")
        elif writable and target not in {"/results", "/prepared", "/cache"}:
            found.append(f"writable {target}")
        assert not rest or rest == [""]
    return found


@pytest.mark.parametrize("baseline", ["paired", "artifact", "none"])
@pytest.mark.parametrize("phase", ["setup", "bench"])
def test_the_code_under_test_gets_nothing_of_the_runner(phase, baseline):
    assert complaints(bench(phase, INPUT_BASELINE=baseline)) == []


PLANTED = {
    "a token by name": (["-e", "GITHUB_TOKEN"], "variable GITHUB_TOKEN"),
    "the runtime's token": (["-e", "ACTIONS_RUNTIME_TOKEN"], "variable ACTIONS_RUNTIME_TOKEN"),
    "a token by value": (["-e", f"X={TOKEN}"], "a token"),
    "the socket": (
        ["--mount", "type=bind,source=/var/run/docker.sock,target=/s"],
        "docker's socket",
    ),
    "the runner's files": (
        ["--mount", "type=bind,source=/runner/temp,target=/t,readonly"],
        "mount /runner/temp",
    ),
    "a writable checkout": (
        ["--mount", "type=bind,source=/runner/repo,target=/r"],
        "checkout writable",
    ),
    "capabilities": (["--cap-add=SYS_ADMIN"], "privileged"),
    "all of it": (["--privileged"], "privileged"),
}


@pytest.mark.parametrize(("more", "complaint"), PLANTED.values(), ids=PLANTED)
def test_a_hole_is_seen(more, complaint):
    argv = bench()
    assert complaint in complaints([*argv[:3], *more, *argv[3:]])


@pytest.mark.parametrize(
    "flag",
    [
        "--network=none",
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--init",
    ],
)
def test_a_protection_that_is_gone_is_seen(flag):
    assert complaints([part for part in bench() if part != flag]) != []


def test_the_network_is_each_phases_own():
    assert "--network=bridge" in bench("setup", INPUT_SETUP_NETWORK="true")
    assert "--network=none" in bench("bench", INPUT_SETUP_NETWORK="true")
    assert "--network=bridge" in bench("bench", INPUT_BENCH_NETWORK="true")


def test_proxies_of_docker_are_there_where_there_is_a_network_for_them_and_what_is_passed_on_is():
    assert not NO_PROXIES & {*bench("setup", INPUT_SETUP_NETWORK="true")}
    argv = bench("bench", INPUT_PASS_ENV="HTTPS_PROXY")  # noqa: S106 - a name
    assert ("-e", "HTTPS_PROXY") in set(pairwise(argv))
    assert NO_PROXIES - {*argv} == {"HTTPS_PROXY="}, "one variable is not given twice"


def test_set_up_alone_has_a_cache():
    mount = "type=bind,source=/runner/temp/ci-bench-1/cache,target=/cache"
    assert mount in bench("setup")
    assert "CI_BENCH_CACHE=/cache" in bench("setup")
    assert not [part for part in bench("bench") if "target=/cache" in part]


def test_limits_mounts_and_variables_are_passed_on(tmp_path):
    given = {
        "INPUT_MEMORY": "64g",
        "INPUT_PASS_ENV": "SEED GONE",
    }
    argv = bench(INPUT_MOUNTS=str(tmp_path.resolve()), **given)
    assert {
        "--memory=64g",
        "--memory-swap=64g",
        f"--shm-size={32 << 30}b",
        "--pids-limit=4096",
    } <= set(argv)
    assert f"type=bind,source={tmp_path},target={tmp_path},readonly" in argv
    assert argv[argv.index("SEED") - 1] == "-e"
    assert "GONE" not in argv, "docker would take the value of an unset variable for an empty one"


@pytest.mark.parametrize(
    ("given", "memory", "size"),
    [
        ("", "1001b", "500b"),
        ("", "", "2g"),
        ("10m", "1001b", f"{5 << 20}b"),
        ("3k", "", f"{3 << 9}b"),
    ],
)
def test_shared_memory_is_half_of_the_limit(given, memory, size):
    where = {**state(INPUT_MEMORY=given), "memory": memory}
    argv = containers.bench(where, "bench", commands.bench(where), ENVIRON)
    assert f"--shm-size={size}" in argv


@pytest.mark.parametrize(
    ("network", "environ"),
    [
        ("bridge", {}),
        (
            "bridge",
            {"HTTPS_PROXY": "http://user:pass@proxy:3128", "NO_PROXY": "localhost,127.0.0.1"},
        ),
        ("bridge", {"https_proxy": "http://localhost.example:3128", "http_proxy": "http://["}),
        ("bridge", {"GITHUB_API_URL": "https://api.github.com", "HTTPS_PROXY": ""}),
        ("host", {"HTTPS_PROXY": "http://user:pass@127.0.0.1:3128"}),
        ("host", {"http_proxy": "localhost:3128"}),
        ("host", {"https_proxy": "http://[::1]:3128"}),
        ("host", {"GITHUB_API_URL": "http://127.0.0.1:8080/api/v3"}),
    ],
)
def test_github_is_reached_where_its_proxy_listens(network, environ):
    assert f"--network={network}" in containers.report(state(), "report", ["publish"], environ)
    assert "--network=none" in containers.bench(state(), "bench", ["gate"], environ), (
        "not the code under test"
    )


def told(argv):
    return dict(
        value.split("=", 1)
        for flag, value in pairwise(argv)
        if flag == "-e" and value.startswith("CI_BENCH_")
    )


def test_measuring_knows_which_run_and_attempt_it_is_of():
    where, known = (
        state(),
        {"GITHUB_REPOSITORY": "o/r", "GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "2"},
    )
    argv = containers.bench(where, "bench", commands.bench(where), {**ENVIRON, **known})
    assert {*known} <= {value for flag, value in pairwise(argv) if flag == "-e"}


def test_measuring_queues_for_its_device_on_the_host_by_the_runs_name():
    argv = bench()
    assert "type=bind,source=/srv/locks,target=/locks" in argv
    assert told(argv) == {
        "CI_BENCH_LOCKS": "/locks",
        "CI_BENCH_RUN": "o/r run 7",
        "CI_BENCH_REQUIRE_DEVICE": "cuda",
    }
    assert not any("target=/locks" in part for part in bench("setup")), "set-up measures nothing"


def test_without_gpus_none_is_required_and_without_a_folder_nothing_is_mounted():
    assert "CI_BENCH_REQUIRE_DEVICE" not in told(bench(INPUT_GPUS="none"))
    where = {**state(), "locks": ""}
    argv = containers.bench(where, "bench", commands.bench(where), ENVIRON)
    assert "CI_BENCH_LOCKS" not in told(argv)
    assert not any("target=/locks" in part for part in argv)


def test_natively_the_same_folder_is_used_and_no_device_is_required():
    where = state(INPUT_MODE="native")
    assert containers.asked_of_the_engine(where, where["locks"]) == {
        "CI_BENCH_LOCKS": "/srv/locks",
        "CI_BENCH_RUN": "o/r run 7",
    }


def test_a_filter_is_one_argument_whatever_it_holds():
    argv = bench(INPUT_FILTER="fastrnns/lstm[batch=64]\na b; rm -rf /\n--network=host")
    assert argv[argv.index("--filter") :] == [
        "--filter",
        "fastrnns/lstm[batch=64]",
        "--filter",
        "a b; rm -rf /",
        "--filter",
        "--network=host",
    ]
    assert argv.index("--network=host") > argv.index("sha256:5"), (
        "after the image, it is ci-bench's to understand"
    )


def test_the_report_has_the_token_by_name_and_no_gpu_and_writes_its_own_folder_only():
    where = state()
    argv = containers.report(where, "report", commands.publish(where), ENVIRON)
    assert argv[argv.index("GITHUB_TOKEN") - 1] == "-e"
    assert TOKEN not in " ".join(argv)
    assert "NVIDIA_VISIBLE_DEVICES=void" in argv
    assert not {"--gpus", "--device"} & {*argv}
    writable = [
        part for part in argv if part.startswith("type=bind") and not part.endswith(",readonly")
    ]
    assert writable == ["type=bind,source=/runner/temp/ci-bench-1/report,target=/report"]
    assert not any(
        "/results" in part or "/runner/repo" in part or "/prepared" in part for part in argv
    )


WAYS = {
    ("none", "cdi"): ("-e", "NVIDIA_VISIBLE_DEVICES=void"),
    ("all", "gpus"): ("--gpus", "all"),
    ("2", "gpus"): ("--gpus", "2"),
    ("device=0,1", "gpus"): ("--gpus", '"device=0,1"'),
    ("all", "cdi"): ("--device", "nvidia.com/gpu=all"),
    ("2", "cdi"): ("--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"),
    ("device=1,3", "cdi"): ("--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"),
    ("device=1", "runtime"): (
        "--runtime=nvidia",
        "-e",
        "NVIDIA_VISIBLE_DEVICES=1",
        "-e",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
}


@pytest.mark.parametrize(("asked", "argv"), WAYS.items(), ids=map(str, WAYS))
def test_gpus_by_each_way(asked, argv):
    assert cage.gpu_arguments(*asked) == argv


@pytest.mark.parametrize("phase", ["setup", "bench"])
def test_both_sides_of_a_paired_run_are_users_of_their_own_where_the_host_allows(phase):
    where = {**state(INPUT_BASELINE="paired"), "apart": True}
    argv = containers.bench(where, phase, commands.bench(where), ENVIRON)
    assert complaints(argv) == []
    assert ("--user", "0:0") in set(pairwise(argv))
    assert sum(part.startswith("--cap-add=") for part in argv) == 5
    assert f"CI_BENCH_USERS={containers.USERS}" in argv


@pytest.mark.parametrize("baseline", ["artifact", "none"])
def test_a_side_that_is_measured_without_another_runs_as_the_runners_user(baseline):
    where = {**state(INPUT_BASELINE=baseline), "apart": True}
    argv = containers.bench(where, "bench", commands.bench(where), ENVIRON)
    assert ("--user", "1001:1001") in set(pairwise(argv))
    assert not [part for part in argv if part.startswith(("--cap-add", "CI_BENCH_USERS"))]


def test_containers_of_a_moment_have_the_powers_of_their_task_alone():
    where = state()
    for argv in (containers.settle(where, "results", "prepared"), containers.try_users(where)):
        assert "--cap-drop=ALL" in argv
        assert "--network=none" in argv
        assert "-e" not in argv
        assert all(
            mount.split("source=")[1].startswith("/runner/temp/ci-bench-1/")
            for mount in argv
            if mount.startswith("type=")
        )
    assert "chown -hR 1001:1001 /results/. /prepared/." in containers.settle(
        where, "results", "prepared"
    )
