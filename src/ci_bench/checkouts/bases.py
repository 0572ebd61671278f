"""Choose the base commit, a named one or the one that head's work started from, and name the rule.

Asks git, changes nothing. `fetching` fetches commits that a shallow clone lacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ci_bench.checkouts.git import Git
from ci_bench.errors import NoBase

SHORT = 12
NAME_IT = "name the commit to compare with: --base REF, or in ci-bench.yml base: REF"


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """The base commit, the branch it is known to be on, and the rule that chose it, in words.

    The commit need not be in the clone: a shallow one knows the name of a parent that it does not
    have.
    """

    commit: str
    branch: str | None
    rule: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseTarget:
    """The branch that head is meant for: its name, and its ref here."""

    name: str
    ref: str

    @property
    def shown(self) -> str:
        """The ref as people write it.

        A branch of the remote is not the local one of its name, which may be elsewhere.
        """
        return self.ref.removeprefix("refs/heads/").removeprefix("refs/remotes/")


def choose_base(
    git: Git, head: str, *, base: str | None, is_dirty: bool, environ: Mapping[str, str]
) -> Base:
    """Choose the commit that head is compared with.

    `base` is any name of a commit that git knows, or ``A...B`` for the merge base of the two.
    Without it, in this order:

    1. head is part of the target branch already: its first parent; by hand the commit itself if
       there are uncommitted changes (in CI no one made them, and the commit is what was pushed),
       and for the first commit of all;
    2. head is a merge commit, as GitHub makes one of each pull request: its first parent, which is
       what it was merged into; unless it merged the target branch into something else;
    3. the merge base of head and the target branch.

    Raises:
        NoBase: none of these leads to a commit.
    """
    if base is not None:
        return _resolve_name(git, base)
    target = find_target(git, environ)
    name = target.name if target else None
    if target and _is_ancestor(git, head, target.ref):
        if is_dirty and not in_ci(environ):
            return Base(
                commit=head,
                branch=name,
                rule=(
                    f"HEAD, which is on {target.shown}: the uncommitted changes are what is"
                    " measured"
                ),
            )
        if not _parents(git, head) and not in_ci(environ):
            return Base(
                commit=head,
                branch=name,
                rule="HEAD itself, which is the first commit: nothing came before it",
            )
        return _first_parent(
            git, head, name, f"the first parent of HEAD, which is on {target.shown}"
        )
    if len(_parents(git, head)) > 1 and not _merges_target(git, head, target):
        branch = environ.get("GITHUB_BASE_REF") or None
        return _first_parent(git, head, branch, "the first parent of HEAD, which is a merge commit")
    if target is None:
        target_name = environ.get("GITHUB_BASE_REF")
        missing = (
            f"the branch {target_name} is not known here"
            if target_name
            else "no default branch is known here (no origin/HEAD, main, master)"
        )
        raise NoBase(f"{missing}; {NAME_IT}")
    common = git.ask("merge-base", head, target.ref)
    if common is None:
        raise NoBase(f"HEAD and {target.shown} have no commit in common here; {NAME_IT}")
    return Base(commit=common, branch=name, rule=f"the merge base of HEAD and {target.shown}")


def in_ci(environ: Mapping[str, str]) -> bool:
    """Return whether this is a job of a CI service.

    Its variables are those that GitHub and most others set.
    """
    return any(
        environ.get(name, "").lower() not in {"", "0", "false"} for name in ("CI", "GITHUB_ACTIONS")
    )


def find_target(git: Git, environ: Mapping[str, str]) -> BaseTarget | None:
    """Return the branch that head is meant for, if it is known here.

    It is the pull request's (`GITHUB_BASE_REF`), or the default.
    """
    branch = environ.get("GITHUB_BASE_REF")
    names = [branch] if branch else ["main", "master"]
    default = None if branch else git.ask("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD")
    refs = [default] if default else []
    refs += [f"refs/{place}/{name}" for place in ("remotes/origin", "heads") for name in names]
    for ref in refs:
        if git.says("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"):
            return BaseTarget(name=branch_of(ref) or ref, ref=ref)
    return None


def branch_of(ref: str) -> str | None:
    """Return the short name of a branch by its full ref, here or at the remote `origin`."""
    for place in ("refs/heads/", "refs/remotes/origin/"):
        if ref.startswith(place):
            return ref.removeprefix(place)
    return None


def _resolve_name(git: Git, base: str) -> Base:
    """Return the base of a name; a branch that was only fetched is known as ``origin/NAME``."""
    first, dots, second = base.partition("...")
    if dots:
        common = git.ask("merge-base", "--end-of-options", first or "HEAD", second or "HEAD")
        if common is None:
            raise NoBase(f"base: {base!r}: git knows no commit that the two have in common")
        return Base(
            commit=common,
            branch=None,
            rule=f"the merge base of {first or 'HEAD'} and {second or 'HEAD'}, as given",
        )
    for name in (base, f"origin/{base}"):
        commit = git.ask(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
        if commit is not None:
            ref = git.ask(
                "rev-parse", "--symbolic-full-name", "--verify", "--quiet", "--end-of-options", name
            )
            return Base(commit=commit, branch=branch_of(ref or ""), rule=f"{name}, as given")
    if len(base) in {40, 64} and set(base) <= set("0123456789abcdef"):
        return Base(commit=base, branch=None, rule=f"{base[:SHORT]}, as given")
    raise NoBase(f"base: {base!r} is not a commit, branch or tag in this clone")


def _first_parent(git: Git, head: str, branch: str | None, rule: str) -> Base:
    parents = _parents(git, head)
    if not parents:
        raise NoBase(
            f"HEAD ({head[:SHORT]}) is the first commit: there is nothing before it to compare with"
        )
    return Base(commit=parents[0], branch=branch, rule=rule)


def _parents(git: Git, commit: str) -> list[str]:
    """Return the parents as written in the commit: git reports none if history was cut off."""
    header = git.run("cat-file", "commit", commit).partition("\n\n")[0]
    return [
        line.removeprefix("parent ") for line in header.splitlines() if line.startswith("parent ")
    ]


def _merges_target(git: Git, head: str, target: BaseTarget | None) -> bool:
    """Return whether a merge commit brought the target branch into something else.

    Its first parent is not the base then.
    """
    first, *others = _parents(git, head)
    if target is None or _is_ancestor(git, first, target.ref):
        return False
    return any(_is_ancestor(git, other, target.ref) for other in others)


def _is_ancestor(git: Git, commit: str, of: str) -> bool:
    return git.says("merge-base", "--is-ancestor", commit, of)
