"""Gives a throw-away base image this machine's pip settings, and serves its local wheels.

    python3 tools/pip_settings.py PIP_CONF FOLDER

Writes PIP_CONF for a container that shares the host's network, then serves until it is ended.
Folders that pip is told to search (`find-links`) are reachable in there by address only, so they
are linked into FOLDER, and FOLDER is served: at the same port each time, which the base remembers.
Settings name indexes, which may hold credentials: they belong into an image that is thrown away,
and nowhere else.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
KEPT = ("index-url", "extra-index-url", "trusted-host", "timeout", "retries", "proxy")


def main(pip_conf: Path, folder: Path) -> None:
    """Write the settings and serve."""
    pip_output = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    remembered = folder / "port"
    port = int(remembered.read_text(encoding="utf-8")) if remembered.exists() else 0
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Quiet, directory=str(folder)))
    remembered.write_text(str(server.server_port), encoding="utf-8")
    links = list(linked(parse(pip_output).get("find-links", ""), folder))
    addresses = [
        f"http://127.0.0.1:{server.server_port}/{name}/" if name else place for name, place in links
    ]
    draft = pip_conf.with_suffix(".draft")
    draft.write_text(render(parse(pip_output), addresses), encoding="utf-8")
    draft.rename(pip_conf)
    server.serve_forever()


def parse(pip_output: str) -> dict[str, str]:
    """Return the settings in the output of `pip config list`, by name.

    The last of a name wins, as the environment does for pip.
    """
    settings: dict[str, str] = {}
    for line in sorted(pip_output.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = value.strip("'\"")
    return settings


def linked(find_links: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each place to search after its name in `folder`.

    The name is empty unless the place is a folder of this machine.
    """
    for number, place in enumerate(find_links.split()):
        path = Path(unquote(urlsplit(place).path) if place.startswith("file://") else place)
        if path.is_dir():
            name = str(number)
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(path.resolve())
            yield name, place
        elif "://" in place:
            yield "", place


def render(settings: Mapping[str, str], find_links: list[str]) -> str:
    """Return the text of a pip.conf.

    Addresses of files are left out, since a container doesn't see them.
    """
    lines = ["[global]"]
    for name in KEPT:
        value = " ".join(
            word for word in settings.get(name, "").split() if not word.startswith(("file:", "/"))
        )
        lines += [f"{name} = {value}"] if value else []
    lines += [f"cert = {BUNDLE}"] if "cert" in settings else []
    lines += (
        [f"find-links = {' '.join(find_links)}", "disable-pip-version-check = 1"]
        if find_links
        else []
    )
    return "\n".join(lines) + "\n"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line per request."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Say nothing."""


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
