"""Artifacts of workflow runs: their records at GitHub, listings, and downloads within limits."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ci_bench.errors import GitHubOdd, GitHubUnreachable
from ci_bench.github.archive import Contents, UnsafeArchive, read_members
from ci_bench.github.client import Client
from ci_bench.github.http import TooLarge
from ci_bench.github.server import ApiRecord

logger = logging.getLogger(__name__)

MOST_PAGES = 20
"""Most pages of a listing of artifacts: 2,000, newest first."""
_DOWNLOADS = 3
_SHA256 = "sha256:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """One artifact and the run it is from.

    A field is `None` if GitHub does not say, as for a deleted fork or on an old server.
    """

    id: int
    """GitHub's id of the artifact."""
    name: str
    """The name that the upload gave it; several artifacts may share it."""
    size_bytes: int
    """Size of the packed archive, in bytes; 0 if GitHub does not say."""
    created_at: str
    """Time of the upload in UTC, ISO 8601; empty if GitHub does not say."""
    expired: bool
    """Whether it can no longer be downloaded; unknown counts as expired."""
    digest: str | None
    """Hash of the archive, ``sha256:…``."""
    run_id: int | None
    """The workflow run that uploaded it."""
    repository_id: int | None
    """The repository of that run."""
    head_repository_id: int | None
    """The repository of the run's commit: a fork's differs from `repository_id`."""
    head_branch: str | None
    """The branch of the run's commit; a fork may use any name."""
    head_sha: str | None
    """The run's commit."""

    @classmethod
    def of(cls, record: ApiRecord) -> "Artifact":
        """Convert GitHub's fields.

        Raises `GitHubOdd` if they name none.
        """
        run = record.inner("workflow_run") or ApiRecord({})
        return cls(
            id=record.need_number("id"),
            name=record.need_text("name"),
            size_bytes=record.number("size_in_bytes") or 0,
            created_at=record.text("created_at") or "",
            expired=record.truth("expired") is not False,
            digest=record.text("digest"),
            run_id=run.number("id"),
            repository_id=run.number("repository_id"),
            head_repository_id=run.number("head_repository_id"),
            head_branch=run.text("head_branch"),
            head_sha=run.text("head_sha"),
        )


def named(client: Client, name: str) -> tuple[tuple[Artifact, ...], bool]:
    """Return every artifact of the repository of this very name, and whether those are all.

    Artifacts of forks' runs are included.
    """
    listing = client.pages("actions/artifacts", {"name": name}, key="artifacts", most=MOST_PAGES)
    artifacts = (Artifact.of(record) for record in ApiRecord.each(listing.items))
    return tuple(artifact for artifact in artifacts if artifact.name == name), listing.complete


def of_run(client: Client, run_id: int, pattern: str) -> tuple[Artifact, ...]:
    """Return the artifacts of one run that match `pattern` (``ci-bench-*``), by name.

    Expired ones are left out. Several of one name are of several attempts, or of several jobs, the
    newest first. Raises `GitHubOdd` if there are more than are read.
    """
    listing = client.pages(f"actions/runs/{run_id}/artifacts", key="artifacts", most=MOST_PAGES)
    if not listing.complete:
        raise GitHubOdd(
            f"run {run_id} has too many artifacts to search; cannot determine whether ours exists"
        )
    artifacts = [Artifact.of(record) for record in ApiRecord.each(listing.items)]
    matches = [
        artifact
        for artifact in artifacts
        if fnmatchcase(artifact.name, pattern) and not artifact.expired
    ]
    newest_first = sorted(
        matches, key=lambda artifact: (artifact.created_at, artifact.id), reverse=True
    )
    return tuple(sorted(newest_first, key=lambda artifact: artifact.name))


def download(client: Client, artifact: Artifact, selection: Contents) -> Mapping[str, bytes]:
    """Return the selected members of an artifact, by name.

    The address to download from lasts a minute, so each try asks for a new one. Raises
    `UnsafeArchive`, `GitHubMissing` if the artifact has expired, and other `GitHubFailed`.
    """
    most = selection.limits.archive
    if artifact.size_bytes > most:
        raise UnsafeArchive(f"the archive has {artifact.size_bytes:,} bytes, {most:,} are allowed")
    return read_members(_content(client, artifact, most), selection)


def _content(client: Client, artifact: Artifact, most_bytes: int) -> bytes:
    """Download the bytes, and check them if GitHub names a digest.

    That proves the transport, not the origin.
    """
    for tried in range(1, _DOWNLOADS + 1):
        url = client.location(f"actions/artifacts/{artifact.id}/zip")
        try:
            content = client.fetch(url, most_bytes=most_bytes)
            _check_digest(content, artifact.digest)
        except TooLarge:
            raise UnsafeArchive(f"the archive has more than {most_bytes:,} bytes") from None
        except GitHubUnreachable as error:
            if tried == _DOWNLOADS or not client.wait(2.0**tried):
                raise
            logger.info("artifact %d: %s; trying again", artifact.id, error)
        else:
            return content
    raise AssertionError(artifact)


def _check_digest(content: bytes, digest: str | None) -> None:
    if (
        digest is not None
        and digest.startswith(_SHA256)
        and hashlib.sha256(content).hexdigest() != digest.removeprefix(_SHA256)
    ):
        raise GitHubUnreachable("the download is not what was uploaded: its digest differs")
