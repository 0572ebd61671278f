"""Files of git LFS in a snapshot: pointers, as they are in every commit.

A pointer is made here, by https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md: git-lfs may not be installed where the
checkout is measured, and where it is, it would write to the checkout's ``.git``.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from ci_bench.engine.trees.git import LONG_S, Git

NO_FILTER = {"filter.lfs.clean": "", "filter.lfs.smudge": "", "filter.lfs.process": "", "filter.lfs.required": "false"}
VERSION = b"version https://git-lfs.github.com/spec/v1\n"


def put_pointers(git: Git, top: Path, head: str, aside: Mapping[str, str], spare: Path) -> None:
    """Replace the content of changed LFS files in an index by pointers.

    `aside` are the variables that say which index, and where objects are written; `spare` is a file to write to. Raises
    `GitFailed`.
    """
    index = {"GIT_INDEX_FILE": aside["GIT_INDEX_FILE"]}
    listed = git.run("ls-files", "--stage", "-z", "--", ":(top,attr:filter=lfs)", timeout_s=LONG_S, more=index)
    if not listed:
        return
    at_head = set(git.run("ls-tree", "-r", "-z", "--full-tree", head, timeout_s=LONG_S).split("\0"))
    for entry in filter(None, listed.split("\0")):
        about, _, path = entry.partition("\t")
        mode, known, _ = about.split()
        file = top / path
        if f"{mode} blob {known}\t{path}" in at_head or file.is_symlink() or not file.is_file():
            continue
        spare.write_bytes(_pointer(file))
        made = git.run("hash-object", "-w", "--no-filters", str(spare), more=aside).strip()
        git.run("update-index", "--cacheinfo", f"{mode},{made},{path}", more=aside)


def _pointer(file: Path) -> bytes:
    """The pointer to a file's content; the file as it is where it is one already."""
    with file.open("rb") as stream:
        if stream.read(len(VERSION)) == VERSION:
            stream.seek(0)
            return stream.read()
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return VERSION + f"oid sha256:{digest}\nsize {file.stat().st_size}\n".encode()
