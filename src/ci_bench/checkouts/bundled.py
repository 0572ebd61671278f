"""Both sides' sources as one git bundle, for machines without the checkout, and their extraction.

A bundle is objects of git: it has no configuration, hook or alternate of its source clone. Besides
base, head and the tags of their history, it has one commit of our own, the manifest. The manifest
holds the sides' commits, the caller's folder in the checkout, the ends of a shallow clone's
history, and the configuration. Extracted objects are identified by full commit ids, and by the
file's SHA-256, computed of our own copy before git sees it: names in the file are not trusted.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ci_bench.checkouts.checkout import AUTHOR, ObjectStore
from ci_bench.checkouts.git import LONG_S, Git
from ci_bench.checkouts.worktrees import STORE, Chosen, WantedTrees, choose_commits, submodules_here
from ci_bench.errors import BadCheckout, BadConfig, BadSources, GitFailed
from ci_bench.records.results import SideName, Source

MOST_BYTES = 1 << 30
"""Of a bundle. Each node keeps several."""
MOST_MANIFEST_BYTES = 10 << 20
NAME = "sources.bundle"
MANIFEST, CONFIG, BOUNDARY = "manifest.json", "configuration", "shallow"
ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
TAG = re.compile(r"refs/tags/(?!.*(\.\.|//|/\.|\.lock(/|$)|\.$|/$))[\w][\w.+/-]*")
"""Tags that are taken out: of names that a version is read from."""
NO_TRANSPORT = {"protocol.allow": "never"}
DATES = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
"""The dates of the manifest; constant, so equal sources have the same one."""
WAY_OUT = (
    "or prepare both sides in a folder that all nodes share (`ci-bench setup --prepared DIR`, `gate"
    " --prepared DIR`)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """A bundle as a lease receives it: the file, its SHA-256 in hex, the manifest's commit id."""

    file: Path
    sha256: str
    commit: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The content of a bundle."""

    base: str
    """Commit of base."""
    head: str
    """Commit of head."""
    name: str
    """Name of the checkout's folder."""
    prefix: str
    """Caller's folder in the checkout; empty for its top."""
    config: str | None = None
    """File name of the configuration; `None` without one."""


def make_bundle(
    request: WantedTrees, file: Path, *, config: Path | None, most_bytes: int = MOST_BYTES
) -> tuple[Sources, Mapping[SideName, Source]]:
    """Write both commits of a paired run, their history and a configuration to `file`.

    It is the history that this clone has. Return the sources for the leases, and the sides'
    sources.

    Raises:
        BadCheckout: none exists, or the code to measure is not in commits, or is too large.
        NoBase: the base cannot be determined, or is not in this clone.
        GitFailed: git is missing, or failed.
    """
    with TemporaryDirectory(prefix="ci-bench-") as scratch:
        chosen = choose_commits(request, Path(scratch))
        _refuse(chosen, submodules=request.setup.submodules)
        store = ObjectStore(
            folder=Path(scratch) / STORE, git=Git.bare(Path(scratch) / STORE, request.environ)
        )
        _keep_tags_of(chosen, store)
        manifest = Manifest(
            base=chosen.base,
            head=chosen.head,
            name=chosen.checkout.top.name.replace(os.pathsep, "_") or "tree",
            prefix=chosen.checkout.prefix,
            config=config.name if config is not None else None,
        )
        commit = _write_manifest(store, manifest, config)
        for name, which in (("base", chosen.base), ("head", chosen.head), ("manifest", commit)):
            store.git.run("update-ref", f"refs/ci-bench/{name}", which)
        file.parent.mkdir(parents=True, exist_ok=True)
        store.git.run("bundle", "create", "--quiet", str(file), "--all", timeout_s=LONG_S)
    if (size := file.stat().st_size) > most_bytes:
        file.unlink()
        shallower = f"clone with less history (`git clone --depth`, `fetch-depth`), {WAY_OUT}"
        raise BadCheckout(
            f"the sources are {size / 1e6:,.0f} MB as a bundle; at most {most_bytes / 1e6:,.0f} MB"
            f" are allowed: {shallower}"
        )
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return Sources(file=file, sha256=digest, commit=commit), chosen.sources


def _refuse(chosen: Chosen, *, submodules: bool) -> None:
    """Refuse sources that a bundle of this repository's objects cannot hold.

    Raises `BadCheckout`.
    """
    top = chosen.checkout.top
    if chosen.head != chosen.checkout.head:
        remedy = f"commit them, name new files in .gitignore, {WAY_OUT}"
        raise BadCheckout(
            f"{top}: uncommitted changes and new files are in no commit, and nodes receive only"
            f" commits: {remedy}"
        )
    if chosen.checkout.is_partial:
        raise BadCheckout(
            f"{top}: this clone is partial (--filter), so nodes would miss objects, too: clone"
            " without --filter"
        )
    if submodules and (inside := submodules_here(chosen.checkout, chosen.store)):
        remedy = f"set `setup.submodules: false` if measuring needs no submodules, {WAY_OUT}"
        raise BadCheckout(
            f"{top}: the submodule {inside[0]} is a separate repository, which is not sent to the"
            f" nodes: {remedy}"
        )


def _keep_tags_of(chosen: Chosen, store: ObjectStore) -> None:
    """Keep the tags that lead to a commit of base's or head's history.

    Versions are read only from them.
    """
    queries = [
        ("for-each-ref", "--format=%(objectname) %(refname)", f"--merged={commit}", "refs/tags")
        for commit in (chosen.base, chosen.head)
    ]
    lines = {
        line for words in queries for line in store.git.run(*words, timeout_s=LONG_S).splitlines()
    }
    (store.folder / "packed-refs").write_text(
        "".join(f"{line}\n" for line in sorted(lines, key=_name_of))
    )


def _name_of(line: str) -> str:
    return line.partition(" ")[2]


def _write_manifest(store: ObjectStore, manifest: Manifest, config: Path | None) -> str:
    """Write the commit that describes the bundle.

    Raises `BadConfig` if the configuration cannot be read.
    """
    import msgspec

    contents = {MANIFEST: msgspec.json.encode(manifest)}
    if (boundary := store.folder / "shallow").exists():
        contents[BOUNDARY] = boundary.read_bytes()
    try:
        contents |= {CONFIG: config.read_bytes()} if config is not None else {}
    except OSError as error:
        raise BadConfig(f"{config}: cannot be read: {error.strerror or error}") from error
    spare, index = store.folder / "spare", {"GIT_INDEX_FILE": str(store.folder / "manifest-index")}
    for name, content in contents.items():
        spare.write_bytes(content)
        blob = store.git.run("hash-object", "-w", "--no-filters", str(spare)).strip()
        store.git.run("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", more=index)
    tree = store.git.run("write-tree", more=index).strip()
    return store.git.run(
        "commit-tree", tree, "-m", "What is measured", more={**AUTHOR, **DATES}
    ).strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Unbundled:
    """The extracted sources.

    They are head's checkout, the caller's folder in it (`here`), the configuration's file, and
    base's commit.
    """

    checkout: Path
    here: Path
    config: Path | None
    base: str


def unbundle(
    sources: Sources, folder: Path, environ: Mapping[str, str], *, most_bytes: int = MOST_BYTES
) -> Unbundled:
    """Extract a bundle into the new `folder`: a store, head checked out, and the configuration.

    Raises:
        BadSources: the file is not the one that was handed out, or is incomplete.
        GitFailed: git is missing.
    """
    copy = folder / NAME
    copy_checked(sources, copy, most_bytes=most_bytes)
    store = _open_store(sources, copy, folder / STORE, environ)
    manifest = _read_manifest(store, sources)
    _restore_boundary(store, sources)
    for side, commit in (("base", manifest.base), ("head", manifest.head)):
        if not store.has(commit):
            raise BadSources(
                f"{sources.file}: it lacks {side}, commit {commit}: it was made of another"
                " repository, or cut off"
            )
    walked = store.git.call("rev-list", "--count", manifest.base, manifest.head, timeout_s=LONG_S)
    if walked.code:
        cut = (
            "its history ends without a note of where, as that of a shallow clone; ci-bench writes"
            " one: let it make the bundle"
        )
        raise BadSources(f"{sources.file}: {cut} ({walked.said})")
    _restore_tags(store, copy)
    store.git.run("update-ref", "--no-deref", "HEAD", manifest.head)
    copy.unlink()
    return _check_out(store, manifest, sources, folder)


def opened(sources: Sources, folder: Path, environ: Mapping[str, str]) -> Unbundled:
    """Return the sources that `unbundle` left in `folder`."""
    store = ObjectStore(folder=folder / STORE, git=Git.bare(folder / STORE, environ))
    return _places(_read_manifest(store, sources), folder)


def copy_checked(sources: Sources, copy: Path, *, most_bytes: int = MOST_BYTES) -> None:
    """Copy the file, and check the copy: later changes in a shared folder then do not reach git.

    Raises:
        BadSources: it is not there, too large, or of another SHA-256.
    """
    digest, size = hashlib.sha256(), 0
    try:
        if not sources.file.is_file():
            raise BadSources(
                f"{sources.file}: is not there: the folder has to be at the same path on every node"
            )
        with sources.file.open("rb") as stream, copy.open("xb") as out:
            while chunk := stream.read(1 << 20):
                size += len(chunk)
                if size > most_bytes:
                    raise BadSources(
                        f"{sources.file}: more than {most_bytes / 1e6:,.0f} MB, which no bundle of"
                        " a lease has"
                    )
                digest.update(chunk)
                out.write(chunk)
    except OSError as error:
        raise BadSources(
            f"{sources.file}: cannot be copied to {copy}: {error.strerror or error}"
        ) from error
    if digest.hexdigest() != sources.sha256:
        raise BadSources(
            f"{sources.file}: its SHA-256 is {digest.hexdigest()}, not {sources.sha256}; git did"
            " not notice"
        )


def _open_store(
    sources: Sources, copy: Path, folder: Path, environ: Mapping[str, str]
) -> ObjectStore:
    git = Git.bare(folder, environ).set(NO_TRANSPORT)
    form = "sha256" if len(sources.commit) == 64 else "sha1"  # noqa: PLR2004 - the digits of an id
    git.run("init", "--quiet", "--bare", "--template=", f"--object-format={form}", str(folder))
    answer = git.call("bundle", "unbundle", str(copy), timeout_s=LONG_S)
    if answer.code:
        raise BadSources(f"{sources.file}: git cannot take it out: {answer.said}")
    return ObjectStore(folder=folder, git=git)


def _read_manifest(store: ObjectStore, sources: Sources) -> Manifest:
    import msgspec

    if not ID.fullmatch(sources.commit) or not store.has(sources.commit):
        raise BadSources(f"{sources.file}: it lacks commit {sources.commit}, which the lease names")
    try:
        manifest = msgspec.json.decode(os.fsencode(_read(store, sources, MANIFEST)), type=Manifest)
    except msgspec.MsgspecError as error:
        raise BadSources(f"{sources.file}: its manifest cannot be read: {error}") from error
    names = [name for name in (manifest.name, manifest.config) if name is not None]
    outside = (
        any(PurePosixPath(name).name != name or name in {"", ".."} for name in names)
        or ".." in PurePosixPath(manifest.prefix).parts
    )
    if outside or manifest.prefix.startswith("/"):
        raise BadSources(f"{sources.file}: its manifest names a path outside of its tree")
    if not all(ID.fullmatch(commit) for commit in (manifest.base, manifest.head)):
        raise BadSources(
            f"{sources.file}: its manifest names sides by something else than full commit ids"
        )
    return manifest


def _read(store: ObjectStore, sources: Sources, name: str) -> str:
    """Return the content of one of the manifest's files; empty if missing. Raises `BadSources`."""
    size = store.git.ask("cat-file", "-s", f"{sources.commit}:{name}")
    if size is None:
        return ""
    if int(size) > MOST_MANIFEST_BYTES:
        raise BadSources(
            f"{sources.file}: {name} of its manifest is larger than {MOST_MANIFEST_BYTES >> 20} MiB"
        )
    return store.git.run("cat-file", "blob", f"{sources.commit}:{name}")


def _restore_boundary(store: ObjectStore, sources: Sources) -> None:
    """End history where the shallow clone's history ends."""
    lines = _read(store, sources, BOUNDARY).split()
    if any(not ID.fullmatch(line) for line in lines):
        raise BadSources(
            f"{sources.file}: its manifest ends history at something else than full commit ids"
        )
    if lines:
        (store.folder / "shallow").write_text("".join(f"{line}\n" for line in lines))


def _restore_tags(store: ObjectStore, copy: Path) -> None:
    heads = store.git.run("bundle", "list-heads", str(copy), timeout_s=LONG_S).splitlines()
    (store.folder / "packed-refs").write_text(
        "".join(f"{line}\n" for line in sorted(_tags(heads), key=_name_of))
    )


def _tags(heads: list[str]) -> Iterator[str]:
    for line in heads:
        commit, _, name = line.partition(" ")
        if ID.fullmatch(commit) and TAG.fullmatch(name):
            yield line


def _check_out(store: ObjectStore, manifest: Manifest, sources: Sources, folder: Path) -> Unbundled:
    places = _places(manifest, folder)
    places.checkout.mkdir(parents=True)
    try:
        store.add_worktree(manifest.head, places.checkout)
    except GitFailed as error:
        raise BadSources(
            f"{sources.file}: head, commit {manifest.head}, cannot be checked out: {error}"
        ) from error
    if places.config is not None:
        places.config.parent.mkdir()
        places.config.write_bytes(os.fsencode(_read(store, sources, CONFIG)))
    return places


def _places(manifest: Manifest, folder: Path) -> Unbundled:
    checkout = folder / "checkout" / manifest.name
    config = folder / "config" / manifest.config if manifest.config is not None else None
    return Unbundled(
        checkout=checkout, here=checkout / manifest.prefix, config=config, base=manifest.base
    )
