"""Histories that earlier runs of a branch left in artifacts.

An artifact never changes, so each run takes over what the newest of them hold, adds its own, and leaves a new one. Two runs at
once leave one each, and the next run unites them. Only runs of this repository's own branch are believed: a fork's run can leave
an artifact of any name.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.commands.output import tell
from ci_bench.errors import BadDocument, BadInput, GitHubMissing

if TYPE_CHECKING:
    from ci_bench.github.artifacts import Artifact
    from ci_bench.records.history import History

EXPORT = "history.json.gz"


def fetched(arguments: argparse.Namespace, environ: Mapping[str, str]) -> "Iterator[History]":
    """What the newest artifacts hold; one that cannot be read is named and passed over. Raises `GitHubFailed`."""
    from ci_bench.github.archive import Contents, Limits, UnsafeArchive
    from ci_bench.github.artifacts import download, named
    from ci_bench.github.client import Client
    from ci_bench.github.context import load_context, server_of

    context = load_context(environ)
    branch = arguments.from_branch or context.head.branch
    if branch is None:
        message = "--from-branch NAME: this event does not tell which branch's artifacts to believe"
        raise BadInput(message)
    wanted = Contents(members=(EXPORT,), limits=Limits(archive=50_000_000))
    with Client(server_of(environ), patience_s=arguments.patience_s) as client:
        every, _ = named(client, arguments.artifact)
        ours = [one for one in every if _is_ours(one, context.repository_id, branch)]
        for artifact in sorted(ours, key=lambda one: (one.created_at, one.id), reverse=True)[: arguments.newest]:
            try:
                yield _history(download(client, artifact, wanted))
            except (UnsafeArchive, BadDocument, GitHubMissing) as error:
                tell(f"passed over artifact {artifact.id}: {' '.join(str(error).split())[:300]}")


def _is_ours(artifact: "Artifact", repository: int | None, branch: str) -> bool:
    own = artifact.repository_id == artifact.head_repository_id == repository and repository is not None
    return own and artifact.head_branch == branch and not artifact.expired


def _history(members: Mapping[str, bytes]) -> "History":
    from ci_bench.judge.calibration import fingerprint
    from ci_bench.records import documents

    if EXPORT not in members:
        raise BadDocument(f"it holds no {EXPORT}")
    with tempfile.TemporaryDirectory(prefix="ci-bench-history-") as folder:
        path = Path(folder) / EXPORT
        path.write_bytes(members[EXPORT])
        history = documents.read_history(path)
    for machine in history.machines:
        if machine.fingerprint != fingerprint(machine.identity):
            raise BadDocument("it names a machine by another fingerprint than its own")
    return history
