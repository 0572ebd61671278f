"""Commits on GitHub: parents, names, and merge bases. Also across forks.

Asked of the API, and never of a checkout or of what results say of themselves.
"""

from urllib.parse import quote

from ci_bench.errors import GitHubInvalid, GitHubMissing
from ci_bench.github.client import Client
from ci_bench.github.server import ApiRecord


def parents(client: Client, name: str) -> tuple[str, ...]:
    """Return the parents of a commit, the first one first.

    Raises `GitHubMissing` if GitHub knows no such commit.
    """
    entries = _commit(client, name).fields.get("parents")
    return tuple(
        record.need_text("sha")
        for record in ApiRecord.each(entries if isinstance(entries, list) else [])
    )


def tree(client: Client, name: str) -> str:
    """Return the tree of a commit, which identifies its content.

    Raises `GitHubMissing` if GitHub knows no such commit.
    """
    return _commit(client, name).need_text("commit", "tree", "sha")


def resolve(client: Client, name: str) -> str:
    """Return the commit that a branch, a tag or a commit's own name stands for.

    Raises `GitHubMissing`.
    """
    return _commit(client, name).need_text("sha")


def branch_point(client: Client, base: str, head: str) -> str:
    """Return the commit where `head` left `base`, each a commit or a branch.

    Raises `GitHubFailed`.
    """
    compared = client.get(
        f"compare/{quote(base, safe='')}...{quote(head, safe='')}", {"per_page": 1}
    )
    return compared.need_text("merge_base_commit", "sha")


def is_on(client: Client, branch: str, commit: str) -> bool:
    """Return whether a commit is part of a branch; an unknown commit is not."""
    try:
        return branch_point(client, branch, commit) == commit
    except GitHubMissing:
        return False


def _commit(client: Client, name: str) -> ApiRecord:
    try:
        listing = client.pages("commits", {"sha": name, "per_page": 1}, most=1)
    except GitHubInvalid as error:
        raise GitHubMissing(str(error)) from error
    first = next(ApiRecord.each(listing.items), None)
    if first is None:
        raise GitHubMissing(f"GitHub knows no commit {name:.80}")
    return first
