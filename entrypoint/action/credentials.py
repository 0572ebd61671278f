"""Find credentials that the code under test could read.

They can be in git's configuration, in files next to the checkout, and in variables. Git parses its
own files, and includes are followed whatever their condition: the file can be read anyway. A file
that the repository tracks unchanged is not a secret of the runner. Nothing here prints a secret: a
finding is a place and its kind.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

_DEEPEST = 4
"""Folders below the workspace that are searched for further checkouts and for credential files."""
_MOST_BYTES = 2_000_000
_MOST_INCLUDES = 100
_GIT_S = 20
_SKIPPED = {"objects", "refs", "lfs", "node_modules", "__pycache__"}
_CREDENTIAL_FILES = {
    ".git-credentials",
    ".gitmodules",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    "pip.conf",
    "pip.ini",
    "uv.toml",
    ".pypirc",
    ".condarc",
    ".dockercfg",
    ".docker/config.json",
    ".cargo/config.toml",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".aws/credentials",
    ".kube/config",
    ".config/gh/hosts.yml",
    ".config/pip/pip.conf",
    ".huggingface/token",
    ".cache/huggingface/token",
    ".env",
}
_WRITTEN_BY_ACTIONS = re.compile(r"gha-creds-\w+\.json")
"""google-github-actions/auth leaves it in the workspace."""
_HOME_FILES = (
    ".netrc",
    "_netrc",
    ".gitconfig",
    ".git-credentials",
    ".config/git/config",
    ".config/git/credentials",
)
"""Of the runner's user, read as text: a helper that it names is the machine's own, and no
credential.
"""

_USER_OF_ADDRESS = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*)://([^/\s?#'\"<>]*)@")
_PLACEHOLDER = re.compile(r"\$\{?\w+\}?|\$\{\{.*\}\}|%\(\w+\)s|<.*>|\*+|x{3,}|\.{3}")
_TOKEN = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{15,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}"
    r"|pypi-[\w-]{30,}|AKIA[0-9A-Z]{16}|xox[abprs]-[\w-]{10,}|dckr_pat_[\w-]{20,}|sk-[\w-]{30,})"
)
_RANDOM_USER = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_=+]{20,}")
_HEADER = re.compile(
    r"(?i)\b(?:proxy-)?authorization:\s*\S+|\b(?:private|job|deploy)-token:\s*\S+|\bcookie:\s*\S+"
)
_QUERY = re.compile(
    r"(?i)://\S*[?&](?:[a-z_]*token|sig|signature|x-amz-signature|password|api_?key)=[^&\s]+"
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")
_SETTING = re.compile(
    r"(?im)(?:^|[\s:])(?:_auth(?:token)?|_password|password|passwd|oauth_token|token|secret|aws_secret_access_key|npmauthtoken)"
    r"[\"']?\s*[ =:]\s*[\"']?([^\s\"',]+)|\"(?:auth|identitytoken|private_key)\"\s*:\s*\"([^\"]+)\""
)
"""A password in a file that is made for credentials; elsewhere such a line may be anything."""
_SECRET_KEY = re.compile(r"(?i)(?:pass|passw(?:or)?d|passphrase|token|secret|apikey)$")
_NO_SECRET = {"", "true", "false", "yes", "no", "on", "off", "0", "1"}


class Finding(NamedTuple):
    """Credential: the file or variable that holds it, and its key or kind, never its value."""

    place: str
    what: str

    def __str__(self) -> str:
        """Return both in words."""
        return f"{self.place} ({self.what})"


def of_checkout(workspace: Path, home: Path | None = None) -> Finding | None:
    """Find the first credential below `workspace`, and in git's files in `home`.

    `home` is `None` unless the code under test runs as its user.
    """
    return next(_in_checkout(workspace, home), None)


def of_variables(names: Sequence[str], environ: Mapping[str, str]) -> Finding | None:
    """Find the first credential in variables that the code under test gets.

    Addresses of proxies may have a password.
    """
    for name in names:
        value = environ.get(name, "")
        what = _kind_of(value)
        if what and not (name.lower().endswith("_proxy") and not _TOKEN.search(value)):
            return Finding(f"the variable {name}", what)
    return None


def _in_checkout(workspace: Path, home: Path | None) -> Iterator[Finding]:
    for folder, names in _walk(workspace):
        if ".git" in names:
            yield from _of_git_folder(folder / ".git", workspace)
        for path in _credential_files(folder, names):
            what = _kind_in_credential_file(path)
            if what and not _is_tracked(path):
                yield Finding(_shown(path, workspace), what)
    if home is None:
        return
    for path in (home / name for name in _HOME_FILES):
        what = _kind_in_credential_file(path)
        if what:
            yield Finding(_shown(path, workspace), what)


def _walk(workspace: Path) -> Iterator[tuple[Path, set[str]]]:
    """Yield the folders of a workspace with the names in them; links are not followed."""
    for name, folders, files in os.walk(workspace):
        folder = Path(name)
        yield folder, {*folders, *files}
        deep = len(folder.relative_to(workspace).parts) >= _DEEPEST
        folders[:] = (
            [] if deep else sorted(name for name in folders if name not in {".git", *_SKIPPED})
        )


def _credential_files(folder: Path, names: set[str]) -> Iterator[Path]:
    candidates = [name for name in _CREDENTIAL_FILES if name.partition("/")[0] in names]
    candidates += [name for name in names if _WRITTEN_BY_ACTIONS.fullmatch(name)]
    paths = (folder / name for name in sorted(candidates))
    return (path for path in paths if path.is_file() and not path.is_symlink())


def _of_git_folder(git: Path, workspace: Path) -> Iterator[Finding]:
    """Yield credentials in `.git`, which is a file in a linked checkout.

    Git reads the configurations; other files are searched as text.
    """
    for folder in _git_folders(git):
        for name, folders, files in os.walk(folder):
            folders[:] = sorted(child for child in folders if child not in _SKIPPED)
            for path in (Path(name) / file for file in sorted(files)):
                if path.name in {"config", "config.worktree"}:
                    yield from _of_configuration(path, workspace)
                what = _kind_of(_text(path)) if path.name != "index" else None
                if what:
                    yield Finding(_shown(path, workspace), what)


def _git_folders(git: Path) -> Iterator[Path]:
    if git.is_dir():
        yield git
        return
    pointer = re.match(r"gitdir:\s*(.+)", _text(git))
    if pointer is None:
        return
    folder = Path(os.path.normpath(git.parent / pointer[1].strip()))
    yield folder
    common = _text(folder / "commondir").strip()
    if common:
        yield Path(os.path.normpath(folder / common))


def _of_configuration(path: Path, workspace: Path) -> Iterator[Finding]:
    """Yield credentials in a configuration and in all that it includes."""
    waiting, visited = [path], set[Path]()
    while waiting and len(visited) < _MOST_INCLUDES:
        path = waiting.pop()
        if path in visited or not path.is_file():
            continue
        visited.add(path)
        for key, value in _settings(path):
            if key.endswith(".path") and key.startswith(("include.", "includeif.")):
                waiting.append(_included(value, path))
            what = _kind_of_setting(key, value)
            if what:
                yield Finding(_shown(path, workspace), f"{_key_shown(key)}: {what}")
        what = _kind_of(_text(path))  # also of what git cannot parse
        if what:
            yield Finding(_shown(path, workspace), what)


def _settings(path: Path) -> list[tuple[str, str]]:
    """Yield keys and values of a configuration file as git reads them; none if git cannot."""
    out = _git("config", "--file", str(path), "--no-includes", "--list", "-z")
    pairs = (entry.partition("\n") for entry in out.split("\0") if entry)
    return [(key, value) for key, _, value in pairs]


def _included(value: str, path: Path) -> Path:
    return Path(os.path.normpath(path.parent / Path(value).expanduser()))


def _kind_of_setting(key: str, value: str) -> str | None:
    """Return the kind of credential that a setting of git's holds, or `None`.

    An empty value takes a setting back.
    """
    section, _, variable = key.lower().rpartition(".")
    if value.strip().lower() in _NO_SECRET:
        return _kind_of(key)
    if variable == "extraheader":
        return "a header of every request"
    if variable == "helper" and section.partition(".")[0] == "credential":
        return "a helper that gives credentials"
    if variable == "sshcommand" and re.search(r"(?i)(?:^|\s)-i|identityfile", value):
        return "a key of ssh"
    if variable.endswith("proxy") and "://" not in value:
        value = f"http://{value}"
    if (
        variable != "askpass"
        and _SECRET_KEY.search(variable)
        and not _PLACEHOLDER.fullmatch(value.strip())
    ):
        return "a secret"
    return _kind_of(f"{key}\n{value}")


def _kind_of(text: str) -> str | None:
    """Return the kind of credential that a text holds, or `None`."""
    for scheme, user in _USER_OF_ADDRESS.findall(text):
        if _is_secret(scheme, user):
            return "an address with a credential"
    for pattern, what in (
        (_TOKEN, "a token"),
        (_HEADER, "a header"),
        (_QUERY, "an address with a credential"),
    ):
        if pattern.search(text):
            return what
    return "a private key" if _PRIVATE_KEY.search(text) else None


def _is_secret(scheme: str, user: str) -> bool:
    """Return whether the part before the @ of an address is more than a user's name."""
    name, _, password = (unquote(part) for part in user.partition(":"))
    if password:
        return not _PLACEHOLDER.fullmatch(password)
    if scheme.lower() in {"ssh", "git+ssh"}:
        return False
    return bool(_TOKEN.search(name) or _RANDOM_USER.fullmatch(name))


def _kind_in_credential_file(path: Path) -> str | None:
    """Return the kind of credential in a file that is made for them, or `None`."""
    text = _text(path)
    kind = _kind_of(text)
    if kind or path.name == ".gitmodules":
        return kind
    values = (first or second for first, second in _SETTING.findall(text))
    return "a secret" if any(not _PLACEHOLDER.fullmatch(value) for value in values) else None


def _is_tracked(path: Path) -> bool:
    """Return whether the repository holds this very file, which is then no secret."""
    blob = _git("hash-object", "--no-filters", "--", path.name, folder=path.parent).strip()
    return bool(blob) and f" blob {blob}\t" in _git(
        "ls-tree", "HEAD", "--", path.name, folder=path.parent
    )


def _git(*arguments: str, folder: Path = Path("/")) -> str:
    """Return git's output under no configuration but its own; empty if it fails or is missing."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ.update(
        GIT_CONFIG_NOSYSTEM="1", HOME="/nowhere", XDG_CONFIG_HOME="/nowhere", GIT_OPTIONAL_LOCKS="0"
    )
    safe = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false")
    try:
        ran = subprocess.run(
            ["git", *safe, *arguments],
            cwd=folder,
            env=environ,
            capture_output=True,
            timeout=_GIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return ran.stdout.decode("utf-8", "replace") if ran.returncode == 0 else ""


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _shown(path: Path, workspace: Path) -> str:
    return str(path.relative_to(workspace)) if workspace in path.parents else str(path)


def _key_shown(key: str) -> str:
    """Return a key without a credential that its address may hold."""
    return _TOKEN.sub("***", _USER_OF_ADDRESS.sub(r"\1://***@", key))
