"""Run a lease's commands in containers of a node.

Their starter is trusted, the code in them is not.

A container sees the lease's sources and sides (read-only, except the sides while they are made),
its own folder for documents, the locks on devices, and the devices of its lease. It has no network
in any phase, so neither Ray's ports nor anything else of the node answers; no socket, no variable
of the node's, no capability. It ends with its lease: its starter removes it, and the next lease on
the node removes the leftovers of a killed starter.

The image is exactly the one of the digest, pulled before anything runs if the node lacks it: by
docker on the node, with that user's docker credentials for the registry, none of which a container
sees.
"""

import os
import re
import socket
import stat
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ci_bench.errors import BadInput, NoCage
from ci_bench.fleet.local import DOCUMENTS
from ci_bench.host import cage

RESULTS, LOCKS = "/results", "/locks"
LABEL = "ci-bench.agent"
LIMITS = ("--pids-limit=4096", "--shm-size=2g")
CLIENT = ("PATH", "HOME", "XDG_RUNTIME_DIR", "LANG")
"""Variables that the docker command itself sees. None of them enters a container automatically."""
ANSWER_S, PULL_S = 120.0, 3600.0
MAX_BYTES = 25_000_000
"""Of one document."""
DIGEST = re.compile(r"[a-z0-9][A-Za-z0-9._/:-]{0,250}@sha256:[0-9a-f]{64}")
"""An image that a registry has, and that is the same wherever it is pulled."""
BY_DIGEST = "name the image by its digest, NAME@sha256:…, so all leases run the same image"
"""The requirement in the message about another name."""
ID = re.compile(r"sha256:[0-9a-f]{64}")
"""The id of an image on a node, which no registry can deliver."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cage:
    """The containers of a lease's commands."""

    image: str
    """Image by its digest, or by its id on the node."""
    place: Path
    """Folder of the sources, read-only inside."""
    prepared: Path
    """Folder of both sides, writable only during set-up."""
    results: Path
    """Folder for the documents, writable inside; only `take_documents` reads it."""
    locks: Path
    """Folder of this machine in which leases queue for a device."""
    gpus: str
    """GPUs of the lease, as a selection of `cage.gpu_arguments`."""
    name: str
    """Unique name of the lease, which starts the names of its containers."""
    environ: Mapping[str, str]
    """Variables of the starter; docker's client sees only those in `CLIENT`."""

    def arguments(self, words: Sequence[str], *, here: Path, user: str, way: str) -> list[str]:
        """Return docker's arguments for a command of ours.

        It is `setup`, which may write the sides, or a measuring one.
        """
        phase = words[0]
        mounts = [
            cage.mount(str(self.place), str(self.place)),
            cage.mount(str(self.prepared), str(self.prepared), writable=phase == "setup"),
            cage.mount(str(self.results), RESULTS, writable=True),
            cage.mount(str(self.locks), LOCKS, writable=True),
        ]
        variables = {
            "CI_BENCH_LOCKS": LOCKS,
            "CI_BENCH_REQUIRE_DEVICE": "" if self.gpus == "none" else "cuda",
        }
        return [
            *("docker", "run", "--pull=never", "--rm", "--init", "--name", f"{self.name}-{phase}"),
            *("--label", f"{LABEL}={_agent()}"),
            *(
                cage.NO_NETWORK,
                *cage.no_proxies(),
                *cage.private(user),
                *LIMITS,
                "--workdir",
                str(here),
            ),
            *cage.gpu_arguments(self.gpus, way),
            *(part for mount in mounts for part in mount),
            *(
                part
                for name, value in variables.items()
                if value
                for part in ("-e", f"{name}={value}")
            ),
            self.image,
            *words,
        ]

    def run(self, words: Sequence[str], *, here: Path) -> int:
        """Run a command of ours to its end; return its exit code.

        Raises:
            NoCage: docker is missing, its daemon doesn't answer, the image can't be pulled, or
            no container gets the GPUs.
            BadInput: a path has a comma or a quote, or the image is not named by its digest.
        """
        if not DIGEST.fullmatch(self.image) and not ID.fullmatch(self.image):
            raise BadInput(f"--image {self.image}: {BY_DIGEST}")
        for path in (self.place, self.prepared, self.results, self.locks):
            if not cage.can_be_mounted(str(path)):
                raise BadInput(
                    f"{path}: a folder of a caged lease has a comma or a quote in it, which docker"
                    " cannot mount"
                )
        user = _user(self._ask("info", "--format", "{{json .SecurityOptions}}"))
        self._require_image()
        self._remove_left()
        command = self.arguments(words, here=here, user=user, way=self._way())
        return self._supervise(command, name=f"{self.name}-{words[0]}")

    def _require_image(self) -> None:
        """Pull the image if this node lacks it, before anything of it runs."""
        with suppress(NoCage):
            self._ask("image", "inspect", "--format", "{{.Id}}", self.image)
            return
        if ID.fullmatch(self.image):
            remedy = "name it NAME@sha256:…, by which nodes pull it from its registry"
            raise NoCage(
                f"image {self.image} is not on {socket.gethostname()}, and an id can't be pulled:"
                f" {remedy}"
            )
        try:
            self._ask("pull", "--quiet", self.image, timeout_s=PULL_S)
        except NoCage as error:
            remedy = (
                f"try `docker pull {self.image}` there, as the same user, after `docker login` if"
                " its registry asks who it is"
            )
            raise NoCage(
                f"{socket.gethostname()} could not pull the image: {error}; {remedy}"
            ) from error

    def _supervise(self, command: Sequence[str], *, name: str) -> int:
        """Run the container, and remove it when this process ends, except by a SIGKILL.

        `cli` makes an exception of a SIGTERM.
        """
        process = subprocess.Popen(command, env=self._client(), stdin=subprocess.DEVNULL)
        try:
            code = process.wait()
        finally:
            if process.poll() is None:
                with suppress(NoCage):
                    self._ask("rm", "--force", "--volumes", name)
                process.kill()
                process.wait()
        return code if code >= 0 else 128 - code

    def _way(self) -> str:
        """Return the first way in which a container here gets the lease's GPUs."""
        if self.gpus == "none":
            return ""
        complaints = []
        for way in cage.GPU_WAYS:
            probe = (
                "run",
                "--pull=never",
                "--rm",
                cage.NO_NETWORK,
                *cage.no_proxies(),
                *cage.HARDENED,
            )
            entry = ("--entrypoint", "/bin/sh", self.image, "-c", cage.GPU_PROBE)
            try:
                self._ask(*probe, *cage.gpu_arguments(self.gpus, way), *entry)
            except NoCage as error:
                complaints.append(f"{way}: {error}")
                continue
            return way
        raise NoCage(
            f"no container gets {self.gpus}: {'; '.join(complaints)}. Install the NVIDIA Container"
            " Toolkit on the node"
        )

    def _remove_left(self) -> None:
        """Remove containers whose starter on this node has ended."""
        lines = self._ask(
            "ps", "--filter", f"label={LABEL}", "--format", f'{{{{.ID}}}} {{{{.Label "{LABEL}"}}}}'
        ).splitlines()
        for container, _, agent in (line.partition(" ") for line in lines):
            host, _, pid = agent.rpartition("/")
            if host == socket.gethostname() and pid.isdecimal() and not Path("/proc", pid).exists():
                with suppress(NoCage):  # it may have ended already
                    self._ask("rm", "--force", "--volumes", container)

    def _ask(self, *words: str, timeout_s: float = ANSWER_S) -> str:
        try:
            done = subprocess.run(
                ["docker", *words],
                env=self._client(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=timeout_s,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoCage(
                f"`docker {words[0]}` could not be run ({error}): a caged lease needs docker on its"
                " node"
            ) from error
        if done.returncode:
            raise NoCage(
                f"`docker {words[0]}`:"
                f" {' '.join(done.stderr.split())[-500:] or f'exit code {done.returncode}'}"
            )
        return done.stdout

    def _client(self) -> dict[str, str]:
        return {name: self.environ[name] for name in CLIENT if name in self.environ}


def take_documents(results: Path, folder: Path) -> None:
    """Copy a lease's documents out of a container's folder.

    Links are skipped: one could lead to a file of the node.
    """
    for name in DOCUMENTS:
        content = _read_plain_file(results, name)
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def _read_plain_file(folder: Path, name: str) -> bytes | None:
    """Return the content of a plain file in `folder`, without links and up to `MAX_BYTES`.

    `None` if missing.
    """
    *inner, last = Path(name).parts
    opened = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for part in inner:
            opened.append(
                os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1])
            )
        opened.append(os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened[-1]))
        about = os.fstat(opened[-1])
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES:
            return None
        with os.fdopen(os.dup(opened[-1]), "rb") as stream:
            return stream.read(MAX_BYTES)
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _agent() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


def _user(options: str) -> str:
    """Return the user option.

    Files that a container writes are ours: a rootless daemon maps root to this user.
    """
    return "0:0" if "name=rootless" in options else f"{os.getuid()}:{os.getgid()}"


def gpus_of(device: str | None, environ: Mapping[str, str]) -> str:
    """Return the GPUs of a lease, as `cage.gpu_arguments` takes them.

    They are the GPUs that its engine shows it, or its slot's.

    Raises:
        BadInput: the lease's GPU is unknown. A container without GPUs would measure another device.
    """
    shown = environ.get("CUDA_VISIBLE_DEVICES")
    kind, _, index = (device or "auto").partition(":")
    if kind == "cpu" or (kind == "auto" and shown is not None and not shown.strip()):
        return "none"
    ids = [each.strip() for each in (shown or "").split(",") if each.strip()]
    if index.isdecimal():
        ids = ids[int(index) : int(index) + 1] if ids else [index]
    elif not ids and kind == "cuda":
        ids = ["0"]
    selection = f"device={','.join(ids)}"
    if not cage.is_gpu_selection(selection):
        remedy = (
            "say --device cpu, name slots as local:cuda:0,cuda:1, or have the engine show each"
            " lease its GPU"
        )
        raise BadInput(
            f"--image: which GPU a lease of {device or 'auto'} has on this node is not known;"
            f" {remedy}"
        )
    return selection
