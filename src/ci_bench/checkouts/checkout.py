"""The user's checkout, which is only read, and the store, which borrows its objects.

The store is our own repository. The two trees are worktrees of the store. So nothing is written to
the checkout or to its ``.git`` (no worktree is registered there, no object added, no lock taken),
and it may be read-only. Nothing is left in it however a run ends, and the trees don't show its
configuration, where `actions/checkout` may have left a token.

Files of git LFS are pointers in every commit. A pointer is made here, by
https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md: git-lfs may not be installed on the
measuring machine, and if it is, it would write to the checkout's ``.git``.
"""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ci_bench.checkouts.git import LONG_S, Git
from ci_bench.errors import BadCheckout

NO_FILTER = {
    "filter.lfs.clean": "",
    "filter.lfs.smudge": "",
    "filter.lfs.process": "",
    "filter.lfs.required": "false",
}
VERSION = b"version https://git-lfs.github.com/spec/v1\n"


def put_pointers(git: Git, top: Path, head: str, aside: Mapping[str, str], spare: Path) -> None:
    """Replace the content of changed LFS files in an index by pointers.

    `aside` are the variables that select the index and the folder for objects; `spare` is a file to
    write to. Raises `GitFailed`.
    """
    index = {"GIT_INDEX_FILE": aside["GIT_INDEX_FILE"]}
    entries = git.run(
        "ls-files", "--stage", "-z", "--", ":(top,attr:filter=lfs)", timeout_s=LONG_S, more=index
    )
    if not entries:
        return
    at_head = set(git.run("ls-tree", "-r", "-z", "--full-tree", head, timeout_s=LONG_S).split("\0"))
    for entry in filter(None, entries.split("\0")):
        about, _, path = entry.partition("\t")
        mode, blob, _ = about.split()
        file = top / path
        if f"{mode} blob {blob}\t{path}" in at_head or file.is_symlink() or not file.is_file():
            continue
        spare.write_bytes(_pointer(file))
        pointer = git.run("hash-object", "-w", "--no-filters", str(spare), more=aside).strip()
        git.run("update-index", "--cacheinfo", f"{mode},{pointer},{path}", more=aside)


def _pointer(file: Path) -> bytes:
    """Return the pointer to a file's content; the file itself if it is one already."""
    with file.open("rb") as stream:
        if stream.read(len(VERSION)) == VERSION:
            stream.seek(0)
            return stream.read()
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return VERSION + f"oid sha256:{digest}\nsize {file.stat().st_size}\n".encode()


MOST_UNTRACKED_BYTES = 1 << 30
MOST_AT_ONCE = 500
"""Paths of one call of git."""
AUTHOR = {
    "GIT_AUTHOR_NAME": "ci-bench",
    "GIT_AUTHOR_EMAIL": "ci-bench@localhost",
    "GIT_COMMITTER_NAME": "ci-bench",
    "GIT_COMMITTER_EMAIL": "ci-bench@localhost",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """Git's view of a folder."""

    top: Path
    """Top folder of the checkout."""
    prefix: str
    """Path of the folder in it; empty for the top."""
    head: str
    """Commit that is checked out."""
    branch: str | None
    """Branch that is checked out; `None` for a detached HEAD."""
    objects: Path
    """Folder of the repository's objects."""
    shallow: Path
    """File of commits whose parents were not cloned; only a shallow clone has it."""
    git: Git
    """git for this checkout."""

    @property
    def is_shallow(self) -> bool:
        """Return whether history was cut off by the clone."""
        return self.shallow.exists()

    @property
    def is_partial(self) -> bool:
        """Return whether the clone left out files (``--filter``), to be fetched when needed."""
        return self.git.says("config", "--get-regexp", r"^remote\..*\.promisor$")


def open_checkout(folder: Path, environ: Mapping[str, str]) -> Checkout:
    """Read the state of the checkout that `folder` is in.

    Raises:
        BadCheckout: it is in none, or nothing was ever committed.
        GitFailed: git is not installed.
    """
    git = Git.at(folder, environ)
    answer = git.call("rev-parse", "--show-toplevel")
    if answer.code:
        message = (
            f"{folder} is not in a git checkout ({answer.said}); `baseline: paired` takes both"
            " sides from one: run it in a clone"
        )
        raise BadCheckout(message)
    head = git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if head is None:
        raise BadCheckout(
            f"{folder}: this repository has no commit yet, so there is nothing to compare with"
        )
    prefix = git.run("rev-parse", "--show-prefix").removesuffix("\n").rstrip("/")
    top = Path(answer.out.removesuffix("\n"))
    git = Git.at(top, environ)
    return Checkout(
        top=top,
        prefix=prefix,
        head=head,
        branch=git.ask("symbolic-ref", "--short", "--quiet", "HEAD"),
        objects=_path(git, "objects"),
        shallow=_path(git, "shallow"),
        git=git,
    )


def _path(git: Git, name: str) -> Path:
    return Path(
        git.run("rev-parse", "--path-format=absolute", "--git-path", name).removesuffix("\n")
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectStore:
    """A bare repository of our own in `folder`."""

    folder: Path
    git: Git

    def has(self, commit: str) -> bool:
        """Return whether a commit is here, or in a store that objects are borrowed from."""
        return self.git.says("cat-file", "-e", f"{commit}^{{commit}}")

    def tree(self, commit: str) -> str:
        """Return the id of a commit's tree."""
        return self.git.run("rev-parse", "--verify", f"{commit}^{{tree}}").strip()

    def add_worktree(self, commit: str, folder: Path) -> None:
        """Check a commit out into a folder, which may exist if it is empty. Raises `GitFailed`."""
        self.git.set(NO_FILTER).run(
            "worktree", "add", "--quiet", "--detach", str(folder), commit, timeout_s=LONG_S
        )


def make_store(folder: Path, *, objects: Path, shallow: Path, like: Git) -> ObjectStore:
    """Make a repository that borrows objects, of the same kind as another one.

    Raises `GitFailed`.
    """
    git = Git.bare(folder, like.environ)
    form = like.run("rev-parse", "--show-object-format").strip()
    git.run("init", "--quiet", "--bare", "--template=", f"--object-format={form}", str(folder))
    git.run("config", "core.hooksPath", "/dev/null")
    (folder / "objects" / "info" / "alternates").write_text(f"{objects}\n")
    with suppress(FileNotFoundError):
        shutil.copyfile(shallow, folder / "shallow")
    return ObjectStore(folder=folder, git=git)


def borrow(checkout: Checkout, folder: Path) -> ObjectStore:
    """Make a store that borrows a checkout's objects, with its HEAD and its tags.

    Build tools read versions from the tags.

    Raises:
        GitFailed: the disk is full, or the like.
    """
    store = make_store(
        folder, objects=checkout.objects, shallow=checkout.shallow, like=checkout.git
    )
    # In one call: one by one, each of a hundred thousand tags would become a file.
    tags = checkout.git.run(
        "for-each-ref", "--format=%(objectname) %(refname)", "refs/tags", timeout_s=LONG_S
    )
    (folder / "packed-refs").write_text(tags)
    store.git.run("update-ref", "--no-deref", "HEAD", checkout.head)
    return store


def snapshot(checkout: Checkout, store: ObjectStore, *, leave_out: Sequence[Path] = ()) -> str:
    """Commit the checked-out files, with uncommitted changes and untracked files.

    Ignored ones are left out. It is HEAD itself if nothing differs. A copy of the index is brought
    up to date, and new objects go to the store. `leave_out` are files and folders that are not part
    of it.

    Raises:
        BadCheckout: a merge is under way, or untracked files are too large to be meant.
        GitFailed: a file cannot be read, or the like.
    """
    omitted = [
        path.relative_to(checkout.top).as_posix()
        for path in leave_out
        if _is_inside(path, checkout.top)
    ]
    # Ignored files are not added, and git fails if such a path is excluded by name.
    excluded = [
        path
        for path in omitted
        if not checkout.git.says("-C", str(checkout.top), "check-ignore", "--quiet", "--", path)
    ]
    files = (":/", *(f":(top,exclude,literal){path}" for path in excluded))
    _refuse_conflicts(checkout)
    _refuse_large_files(checkout, files)
    tree = _tree_of_what_lies_here(checkout, store, files)
    if tree == store.tree(checkout.head):
        return checkout.head
    # With HEAD's date, so equal files make an equal commit.
    date = f"@{checkout.git.run('show', '--no-patch', '--format=%ct', checkout.head).strip()} +0000"
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    arguments = (
        "commit-tree",
        tree,
        "-p",
        checkout.head,
        "-m",
        "What was checked out, with uncommitted changes",
    )
    return store.git.run(*arguments, more={**AUTHOR, **dates}).strip()


def _tree_of_what_lies_here(checkout: Checkout, store: ObjectStore, files: Sequence[str]) -> str:
    """Bring a copy of the index up to date and write its tree.

    git writes what it adds unless the object is there already; then it touches the object, or the
    whole pack, that has it. So objects are written to a folder that doesn't know the checkout's.
    The index is compared with the files before, which only reads.
    """
    index, objects = store.folder / "snapshot-index", store.folder / "snapshot-objects"
    objects.mkdir()
    with suppress(FileNotFoundError):
        # With its time stamp, by which git knows for which files the noted time stamps prove
        # nothing.
        shutil.copy2(_path(checkout.git, "index"), index)
    git = checkout.git.set({"core.safecrlf": "false", **NO_FILTER})
    git.call("update-index", "--refresh", timeout_s=LONG_S, more={"GIT_INDEX_FILE": str(index)})
    aside = {"GIT_INDEX_FILE": str(index), "GIT_OBJECT_DIRECTORY": str(objects)}
    git.run("add", "--all", "--sparse", "--", *files, timeout_s=LONG_S, more=aside)
    put_pointers(git, checkout.top, checkout.head, aside, store.folder / "pointer")
    tree = git.run("write-tree", "--missing-ok", timeout_s=LONG_S, more=aside).strip()
    with (store.folder / "objects" / "info" / "alternates").open("a") as alternates:
        alternates.write(f"{objects}\n")
    phantoms = _phantoms(checkout, store, tree)
    for mode, blob, path in phantoms:
        git.run("update-index", "--cacheinfo", f"{mode},{blob},{path}", more=aside)
    return (
        git.run("write-tree", "--missing-ok", timeout_s=LONG_S, more=aside).strip()
        if phantoms
        else tree
    )


def _phantoms(checkout: Checkout, store: ObjectStore, tree: str) -> list[tuple[str, str, str]]:
    """Return files that git calls modified but that equal HEAD: mode, blob and path.

    They were committed before `.gitattributes` or a setting made them different (for example CRLF),
    so each fresh clone has them. https://git-scm.com/docs/gitattributes#_end_of_line_conversion
    """
    fields = store.git.run(
        "diff-tree", "-r", "-z", "--diff-filter=M", checkout.head, tree, timeout_s=LONG_S
    ).split("\0")
    changes = [
        (about.removeprefix(":").split(), path)
        for about, path in zip(fields[::2], fields[1::2], strict=False)
    ]
    files = [
        (before, blob, path)
        for (before, after, blob, *_), path in changes
        if before == after and before.startswith("100")
    ]
    phantoms = []
    for start in range(0, len(files), MOST_AT_ONCE):
        part = files[start : start + MOST_AT_ONCE]
        lying = checkout.git.run(
            "hash-object", "--no-filters", "--", *(path for *_, path in part), timeout_s=LONG_S
        ).split()
        phantoms += [file for file, blob in zip(part, lying, strict=True) if file[1] == blob]
    return phantoms


def _is_inside(path: Path, top: Path) -> bool:
    return path.is_relative_to(top) and path != top


def _refuse_conflicts(checkout: Checkout) -> None:
    conflicts = checkout.git.run("ls-files", "--unmerged", "-z").split("\0")
    if conflicts[0]:
        name = conflicts[0].partition("\t")[2]
        raise BadCheckout(
            f"{checkout.top}: a merge is under way, and {name} has conflicts; resolve them first"
        )


def _refuse_large_files(checkout: Checkout, files: Sequence[str]) -> None:
    """Refuse large files: a data set missing from .gitignore would be copied, twice."""
    question = ("ls-files", "--others", "--exclude-standard", "-z", "--", *files)
    names = [name for name in checkout.git.run(*question, timeout_s=LONG_S).split("\0") if name]
    sizes = {
        name: (checkout.top / name).lstat().st_size
        for name in names
        if (checkout.top / name).is_file()
    }
    total = sum(sizes.values())
    if total > MOST_UNTRACKED_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise BadCheckout(
            f"{checkout.top}: untracked files hold {total / 1e9:.1f} GB, the largest is {largest};"
            " they would be part of head: name them in .gitignore, or move them away"
        )
