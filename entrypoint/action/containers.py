"""Arguments of docker for the two kinds of container.

Values in, arguments of docker out: all that matters for trust is here.

*bench* runs the code under test: no token, no network unless asked for, no docker socket, none of
the runner's files; the checkout read-only, and folders of this job's own. *report* has the token
and the network, and runs none of that code: it sees what the first has left as files, read-only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ci_bench.host import cage

WORKSPACE, CONFIG, RESULTS, PREPARED, NOISE = (
    "/workspace",
    "/config",
    "/results",
    "/prepared",
    "/noise",
)
LOCKS, CACHE = "/locks", "/cache"
DOCUMENTS, REPORT, BASELINE, EVENT, CERTIFICATES = (
    "/documents",
    "/report",
    "/baseline",
    "/event.json",
    "/certificates.pem",
)

GITHUB = (
    "GITHUB_ACTIONS",
    "GITHUB_ACTOR",
    "GITHUB_API_URL",
    "GITHUB_BASE_REF",
    "GITHUB_EVENT_NAME",
    "GITHUB_HEAD_REF",
    "GITHUB_REF",
    "GITHUB_JOB",
    "GITHUB_REPOSITORY",
    "GITHUB_REPOSITORY_ID",
    "GITHUB_RUN_ATTEMPT",
    "GITHUB_RUN_ID",
    "GITHUB_SERVER_URL",
    "GITHUB_SHA",
    "GITHUB_WORKFLOW_REF",
)
"""Variables of a workflow that ci-bench needs."""
_WAYS_TO_GITHUB = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
PROXIES = (*_WAYS_TO_GITHUB, "NO_PROXY", "no_proxy")
BENCH = (
    "CI",
    "GITHUB_BASE_REF",
    "GITHUB_HEAD_REF",
    "GITHUB_REPOSITORY",
    "GITHUB_RUN_ID",
    "GITHUB_RUN_ATTEMPT",
)
"""Variables of the workflow that measuring may see.

They are the names of the branches, by which it finds the base commit, and the run.
"""
_SHIFTS = {"b": 0, "k": 10, "m": 20, "g": 30}
_FETCHED = (("baseline", BASELINE), ("config", CONFIG))


USERS = "65101:65102"
"""Base's user and head's in the bench container of a paired run, where this host allows for them
(`preflight.find_users`).
"""


def bench(
    state: Mapping[str, Any], phase: str, command: Sequence[str], environ: Mapping[str, str]
) -> list[str]:
    """Return the docker command of the container that runs the code under test.

    `phase` is ``setup`` or ``bench``; each has its own setting for the network.
    """
    settings = state["settings"]
    memory = settings["memory"] or state.get("memory", "")
    limits = ["--pids-limit=4096", f"--shm-size={shared_memory(memory)}"]
    limits += [f"--memory={memory}", f"--memory-swap={memory}"] if memory else []
    mounts = [
        cage.mount(state["workspace"], WORKSPACE),
        cage.mount(_inside(state, "config"), CONFIG),
        cage.mount(_inside(state, "results"), RESULTS, writable=True),
        cage.mount(_inside(state, "prepared"), PREPARED, writable=True),
    ]
    mounts += (
        [cage.mount(_inside(state, "cache"), CACHE, writable=True)] if phase == "setup" else []
    )
    mounts += [cage.mount(settings["noise"], NOISE)] if settings["noise"] else []
    mounts += [cage.mount(folder, folder) for folder in settings["mounts"]]
    mounts += (
        [cage.mount(state["locks"], LOCKS, writable=True)]
        if phase == "bench" and state["locks"]
        else []
    )
    variables = [name for name in (*BENCH, *settings["pass_env"]) if name in environ]
    is_open = settings[f"{phase}_network"]
    return [
        *_start(state, phase, "bridge" if is_open else "none", as_root=apart(state)),
        *(() if is_open else cage.no_proxies(exempt=variables)),
        *cage.gpu_arguments(settings["gpus"], state["gpu_access"]),
        *limits,
        *(part for mount in mounts for part in mount),
        *cage.names(variables),
        *(
            part
            for pair in asked_of_the_engine(state, LOCKS).items()
            for part in ("-e", "=".join(pair))
        ),
        *(("-e", f"CI_BENCH_CACHE={CACHE}") if phase == "setup" else ()),
        *(("-e", f"CI_BENCH_USERS={USERS}") if apart(state) else ()),
        state["image"],
        *command,
    ]


def shared_memory(memory: str) -> str:
    """Return the size of ``/dev/shm``: half of the container's memory.

    It counts towards that memory, so it is not a further allowance.
    """
    return f"{(int(memory[:-1]) << _SHIFTS[memory[-1]]) // 2}b" if memory else "2g"


def asked_of_the_engine(state: Mapping[str, Any], locks: str) -> dict[str, str]:
    """Return the variables that tell the engine about this job.

    They hold the folder in which it queues for its device, its name there, and the required kind of
    device.
    """
    gpu = state["settings"]["mode"] == "container" and state["settings"]["gpus"] != "none"
    variables = {"CI_BENCH_LOCKS": locks if state["locks"] else "", "CI_BENCH_RUN": state["run"]}
    variables["CI_BENCH_REQUIRE_DEVICE"] = "cuda" if gpu else ""
    return {name: value for name, value in variables.items() if value}


def apart(state: Mapping[str, Any]) -> bool:
    """Return whether base and head are users of their own, started by the container's root."""
    return bool(state.get("apart")) and state["settings"]["baseline"] == "paired"


def settle(state: Mapping[str, Any], *folders: str) -> list[str]:
    """Return the command of a short container that gives folders of the job to this user."""
    mounts = [
        part
        for folder in folders
        for part in cage.mount(_inside(state, folder), f"/{folder}", writable=True)
    ]
    line = f"chown -hR {state['user']} {' '.join(f'/{folder}/.' for folder in folders)}"
    return [
        *_moment(state, as_root=True),
        *mounts,
        "--entrypoint",
        "/bin/sh",
        state["image"],
        "-c",
        line,
    ]


def try_users(state: Mapping[str, Any]) -> list[str]:
    """Return the command of a short container that tries what `apart` needs.

    It becomes another user, and hands over a file of `results`.
    """
    base = USERS.partition(":")[0]
    become = f"setpriv --reuid={base} --regid={base} --clear-groups true"
    line = (
        f"touch /results/theirs && chown {base}:{base} /results/theirs && {become} && chown"
        f" {state['user']} /results/theirs"
    )
    mount = cage.mount(_inside(state, "results"), RESULTS, writable=True)
    return [
        *_moment(state, as_root=True),
        *mount,
        "--entrypoint",
        "/bin/sh",
        state["image"],
        "-c",
        line,
    ]


def report(
    state: Mapping[str, Any], phase: str, command: Sequence[str], environ: Mapping[str, str]
) -> list[str]:
    """Return the docker command of the container that talks to GitHub.

    The token arrives by its name, from the environment of the docker command.
    """
    event, certificates = (
        environ.get("GITHUB_EVENT_PATH", ""),
        environ.get("REQUESTS_CA_BUNDLE", ""),
    )
    mounts = [
        cage.mount(_inside(state, "report"), REPORT, writable=True),
        cage.mount(_inside(state, "documents"), DOCUMENTS),
    ]
    mounts += [
        cage.mount(_inside(state, folder), target, writable=phase == "baseline")
        for folder, target in _FETCHED
    ]
    fixed = [f"GITHUB_OUTPUT={REPORT}/outputs", f"GITHUB_STEP_SUMMARY={REPORT}/summary.md"]
    if event and Path(event).is_file():
        mounts.append(cage.mount(event, EVENT))
        fixed.append(f"GITHUB_EVENT_PATH={EVENT}")
    if certificates and Path(certificates).is_file():
        mounts.append(cage.mount(certificates, CERTIFICATES))
        fixed.append(f"REQUESTS_CA_BUNDLE={CERTIFICATES}")
    return [
        *_start(state, phase, report_network(environ)),
        *cage.NO_GPUS,
        "--pids-limit=256",
        *(part for mount in mounts for part in mount),
        *cage.names([*(name for name in (*GITHUB, *PROXIES) if name in environ), "GITHUB_TOKEN"]),
        *(part for assignment in fixed for part in ("-e", assignment)),
        state["image"],
        *command,
    ]


def report_network(environ: Mapping[str, str]) -> str:
    """Return the runner's own network if GitHub, or the proxy to it, has a loopback address.

    No other network leads there.
    """
    addresses = (
        environ[name] for name in (*_WAYS_TO_GITHUB, "GITHUB_API_URL") if environ.get(name)
    )
    return "host" if any(map(_is_loopback, addresses)) else "bridge"


def _is_loopback(address: str) -> bool:
    """Return whether the host of an address is this machine; a proxy's may lack its scheme."""
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def probe(state: Mapping[str, Any], *arguments: str) -> list[str]:
    """Return the command of a short container that asks about the host.

    `arguments` are options, and then a line of shell.
    """
    *options, line = arguments
    return [*_moment(state), *options, "--entrypoint", "/bin/sh", state["image"], "-c", line]


def question(state: Mapping[str, Any], *command: str) -> list[str]:
    """Return the command of a short container that asks about the image."""
    return [*_moment(state), state["image"], *command]


def label(job: str) -> str:
    """Return the label of all containers of this job, by which they are found."""
    return f"ci-bench.job={job}"


def name(state: Mapping[str, Any], phase: str) -> str:
    """Return the name by which one container is stopped."""
    return f"ci-bench-{state['job']}-{phase}"


def _moment(state: Mapping[str, Any], *, as_root: bool = False) -> list[str]:
    return [
        "run",
        "--rm",
        cage.NO_NETWORK,
        "--label",
        label(state["job"]),
        *_private(state, as_root=as_root),
    ]


def _start(
    state: Mapping[str, Any], phase: str, network: str, *, as_root: bool = False
) -> list[str]:
    common = [
        "docker",
        "run",
        "--rm",
        "--init",
        "--name",
        name(state, phase),
        "--label",
        label(state["job"]),
    ]
    return [
        *common,
        f"--network={network}",
        *_private(state, as_root=as_root),
        "--workdir",
        WORKSPACE,
    ]


def _private(state: Mapping[str, Any], *, as_root: bool) -> list[str]:
    return cage.private("0:0", powers=cage.POWERS) if as_root else cage.private(state["user"])


def _inside(state: Mapping[str, Any], folder: str) -> str:
    return str(Path(state["work"]) / folder)
