"""Builds the wheel and the source package as a release does, and tries them as a user would.

    python3 tools/release_packages.py build FOLDER    build both, and leave them in FOLDER
    python3 tools/release_packages.py try FOLDER      install them by the README's line

`build` builds both twice, in different folders. It fails unless both builds are the same bytes, the
source package makes the same wheel, and the wheel holds only the package's files. `try` takes only
ci-bench from FOLDER, which it serves as an index on the loopback; the dependencies come from the
index that pip is set to.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILDER = (
    "--no-deps",
    "--require-hashes",
    "--only-binary=:all:",
    "--requirement",
    str(ROOT / "requirements-build.lock"),
)
INSTALL = re.compile(r'`pip install ("ci-bench[^"@]*")`')
"""The README's line for a release; its other line installs from the repository."""
INDEX = "https://pypi.org/simple"


class Wrong(Exception):  # noqa: N818 - read as a sentence
    """Fault of the packages, in words for people."""


# Building


def sources(target: Path) -> Path:
    """Copy the files that git tracks into `target`, links as links.

    Mode and time of a file are those of now, as in a checkout.
    """
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_symlink() or (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name, follow_symlinks=False)
    return target


def build(python: Path, tree: Path, output: Path, *targets: str, umask: int = 0o022) -> list[Path]:
    """Build targets of a tree with hatchling; return the files, by name."""
    command = [str(python), "-m", "hatchling", "build", "--directory", str(output)]
    command += [word for target in targets for word in ("--target", target)]
    environ = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    subprocess.run(
        command,
        cwd=tree,
        check=True,
        env=environ,
        umask=umask,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    return sorted(output.iterdir())


def build_twice(python: Path, output: Path) -> list[Path]:
    """Build wheel and source package twice, and the wheel again from the source package.

    The builds are in two folders, under two users' habits.
    """
    with tempfile.TemporaryDirectory() as folder:
        here, there = (sources(Path(folder) / name) for name in ("a", "some/where/else"))
        packages = build(python, here, output, "sdist", "wheel")
        again = build(python, there, Path(folder) / "again", "sdist", "wheel", umask=0o077)
        unpacked = unpack(
            next(path for path in packages if path.name.endswith(".tar.gz")),
            Path(folder) / "unpacked",
        )
        of_source = build(python, unpacked, Path(folder) / "of-source", "wheel")
        check_same(packages, again, "two builds of the same files")
        check_same(
            [path for path in packages if path.suffix == ".whl"],
            of_source,
            "the tree and the source package",
        )
    check_content(next(path for path in packages if path.suffix == ".whl"))
    return packages


def unpack(package: Path, target: Path) -> Path:
    """Unpack a source package; return the one folder in it."""
    with tarfile.open(package) as archive:
        archive.extractall(target, filter="data")
    (folder,) = target.iterdir()
    return folder


def check_same(first: list[Path], second: list[Path], of: str) -> None:
    """Raise `Wrong` unless both are files of the same names and bytes."""
    digests = [{path.name: digest(path) for path in paths} for paths in (first, second)]
    different = sorted(
        name for name in {*digests[0], *digests[1]} if digests[0].get(name) != digests[1].get(name)
    )
    if different:
        raise Wrong(f"{of} differ: {', '.join(different)}")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_content(wheel: Path) -> None:
    """Raise `Wrong` unless the wheel has exactly the files that belong into it.

    These are the tracked files of the package, the schemas, the example workflows, and metadata.
    """
    places = ["src/ci_bench", "schemas/*.json", "examples/workflows/*.yml"]
    tracked = subprocess.run(
        ["git", "ls-files", "-z", *places], cwd=ROOT, check=True, capture_output=True, text=True
    )
    paths = tracked.stdout.split("\0")
    names = {name.removeprefix("src/") for name in paths if name.startswith("src/")}
    names -= {"ci_bench/schemas", "ci_bench/workflows"}
    names |= {f"ci_bench/{name}" for name in paths if re.fullmatch(r"schemas/[^/]+\.json", name)}
    names |= {
        f"ci_bench/{name.removeprefix('examples/')}"
        for name in paths
        if name.startswith("examples/workflows/")
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    complaints = [f"lacks {name}" for name in sorted(names - packed)] + [
        f"holds {name}" for name in sorted(packed - names)
    ]
    if complaints:
        raise Wrong(f"{wheel.name} {', '.join(complaints)}")


# Trying


class Index(BaseHTTPRequestHandler):
    """Simple index of one project.

    https://packaging.python.org/specifications/simple-repository-api

    Any other project is the business of the index behind it, to which clients are sent.
    """

    def __init__(
        self, folder: Path, behind: str | None, served: list[str], *arguments: object
    ) -> None:
        """Serve the packages in `folder`; add the name of each file handed out to `served`."""
        self.packages = {path.name: path for path in folder.iterdir() if path.is_file()}
        self.behind = behind
        self.served = served
        super().__init__(*arguments)  # type: ignore[arg-type] # http.server's own three

    def do_GET(self) -> None:
        """Answer a page of the index, a file, or a redirection."""
        parts = self.path.strip("/").split("/")
        if parts == ["simple", "ci-bench"]:
            links = (
                f'<a href="/files/{name}#sha256={digest(path)}">{name}</a>'
                for name, path in self.packages.items()
            )
            self._answer("<!DOCTYPE html>\n" + "\n".join(links), "text/html")
        elif parts[0] == "files" and parts[-1] in self.packages:
            self.served.append(parts[-1])
            self._answer(self.packages[parts[-1]].read_bytes(), "application/octet-stream")
        elif parts[0] == "simple" and self.behind:
            self.send_response(302)
            self.send_header("Location", f"{self.behind.rstrip('/')}/{parts[-1]}/")
            self.end_headers()
        else:
            self.send_error(404)

    def _answer(self, body: str | bytes, kind: str) -> None:
        content = body.encode() if isinstance(body, str) else body
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@contextmanager
def index(folder: Path, upstream: str | None) -> Iterator[tuple[str, list[str]]]:
    """Serve the packages of a folder; yield the index's address and the names handed out."""
    served: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, folder, upstream, served))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple", served
    finally:
        server.shutdown()
        server.server_close()


def behind() -> str:
    """Return the index that pip is set to."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    return (
        subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or INDEX
    )


def install_line() -> str:
    """Return the requirement that the README tells a user to install."""
    lines = INSTALL.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    if len(lines) != 1:
        raise Wrong('README.md has no one line that installs a release: `pip install "ci-bench…"`')
    return lines[0].strip('"')


def install(
    packages: Path, venv: Path, *, upstream: str | None, options: tuple[str, ...] = ()
) -> Path:
    """Install the README's requirement in a new environment; return its folder of programs.

    pip gets ci-bench from an index with these packages.
    """
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    with index(packages, upstream) as (address, served):
        command = [
            str(venv / "bin" / "pip"),
            "--disable-pip-version-check",
            "install",
            "--quiet",
            "--index-url",
            address,
        ]
        subprocess.run([*command, *options, install_line()], check=True, env=plain_environment())
    check_served(served)
    return venv / "bin"


def check_served(names: list[str]) -> None:
    """Raise `Wrong` unless our index has handed out a wheel.

    pip may prefer one that it finds elsewhere.
    """
    if not any(name.endswith(".whl") for name in names):
        raise Wrong("pip installed a ci-bench that is not the one that was built")


def plain_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment without variables that would show another ci-bench."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **(more or {}),
    }


def commands(documents: Path) -> Iterator[tuple[list[str], int, str]]:
    """Yield what a user tries first: arguments, exit code and a part of the output."""
    yield ["--version"], 0, "ci-bench "
    yield ["--help"], 0, "gate"
    yield ["list", "--config", "quickstart"], 0, "training_loss/"
    yield ["validate", str(documents / "results.json")], 0, ""
    yield ["compare", str(documents / "results.json"), str(documents / "results.json")], 1, "Failed"


def try_commands(
    programs: Path, ask: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
) -> None:
    """Run the commands in an empty folder; raise `Wrong` for the first that answers otherwise."""
    for arguments, code, words in commands(ROOT / "schemas" / "examples" / "valid"):
        with tempfile.TemporaryDirectory() as folder:
            command = [str(programs / "ci-bench"), *arguments]
            done = ask(
                command,
                cwd=folder,
                env=plain_environment(),
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode != code or words not in done.stdout:
            output = (done.stderr or done.stdout)[-500:]
            raise Wrong(
                f"ci-bench {arguments[0]} of the installed wheel: exit code {done.returncode},"
                f" {output}"
            )


def main(what: str, folder: Path) -> None:
    """Build or try, and say what was done."""
    with tempfile.TemporaryDirectory() as temporary:
        venv = Path(temporary) / "venv"
        if what == "build":
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
            subprocess.run(
                [
                    str(venv / "bin" / "pip"),
                    "--disable-pip-version-check",
                    "install",
                    "--quiet",
                    *BUILDER,
                ],
                check=True,
            )
            folder.mkdir(parents=True, exist_ok=True)
            for path in build_twice(venv / "bin" / "python", folder):
                sys.stdout.write(f"{digest(path)}  {path.name}\n")
        else:
            try_commands(install(folder, venv, upstream=behind()))
            sys.stdout.write(
                f"release: {install_line()} was installed from an index of its own, and its"
                " commands work\n"
            )


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in {  # noqa: PLR2004 - the two words of the usage above
        "build",
        "try",
    }:
        sys.exit(__doc__)
    try:
        main(sys.argv[1], Path(sys.argv[2]).resolve())
    except Wrong as wrong:
        sys.exit(f"release: {wrong}")
