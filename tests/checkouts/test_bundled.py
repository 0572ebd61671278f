"""Sources travel as a git bundle: what is sent, what is refused before git sees it, and what nothing of the origin survives."""

import hashlib
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from repositories import Repository, environ, git, left_alone, new_repository, topic_repository

from ci_bench.checkouts.bundled import Manifest, Sources, make_bundle, opened, unbundle
from ci_bench.checkouts.worktrees import WantedTrees
from ci_bench.errors import BadCheckout, BadSources
from ci_bench.records.config import Setup
from ci_bench.records.results import SideName


def wanted(top: Path, **more: object) -> WantedTrees:
    return WantedTrees(
        **{"repository": top, "base": None, "setup": Setup(), "environ": environ(), **more}
    )


def made(top: Path, tmp_path: Path, *, config: Path | None = None, **more: object) -> Sources:
    return make_bundle(wanted(top, **more), tmp_path / "sources.bundle", config=config)[0]


def taken_out(sources: Sources, folder: Path):
    folder.mkdir()
    return unbundle(sources, folder, environ())


def store_of(folder: Path) -> Path:
    return folder / "repository"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return topic_repository(tmp_path_factory.mktemp("original") / "project")


@pytest.fixture
def topic(original, tmp_path):
    """A repository with a topic branch; base and head."""
    repository, base, head = original
    shutil.copytree(repository.top, tmp_path / "project")
    return Repository(tmp_path / "project"), base, head


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def by_hand(top: Path, tmp_path: Path, commit: str, *words: str) -> Sources:
    """A bundle that plain git makes, of other refs than ours."""
    file = tmp_path / "sources.bundle"
    git(top, "bundle", "create", "--quiet", str(file), *words)
    return Sources(file=file, sha256=digest_of(file), commit=commit)


def manifest_in(top: Path, manifest: object, *more: tuple[str, bytes]) -> str:
    """A commit like that of a manifest, with whatever content."""
    for name, content in (("manifest.json", msgspec.json.encode(manifest)), *more):
        (top / ".git" / "spare").write_bytes(content)
        blob = git(top, "hash-object", "-w", str(top / ".git" / "spare"))
        index = {**environ(), "GIT_INDEX_FILE": str(top / ".git" / "manifest-index")}
        for words in (
            ("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}"),
            ("write-tree",),
        ):
            done = subprocess.run(
                ["git", "-C", str(top), *words],
                env=index,
                capture_output=True,
                text=True,
                check=True,
            )
    commit = git(top, "commit-tree", done.stdout.strip(), "-m", "manifest")
    git(top, "update-ref", "refs/heads/manifest", commit)
    return commit


def test_both_sides_their_history_tags_and_the_configuration_come_out_as_they_went_in(
    topic, tmp_path
) -> None:
    repository, base, head = topic
    git(repository.top, "tag", "v1", base)
    git(repository.top, "tag", "later", "main")
    config = tmp_path / "elsewhere.yml"
    config.write_bytes(b"schema_version: 1 # \xff\n")
    with left_alone(repository.top):
        sources, sides = make_bundle(
            wanted(repository.top), tmp_path / "sources.bundle", config=config
        )
    assert {name: side.commit for name, side in sides.items()} == {
        SideName.BASE: base,
        SideName.HEAD: head,
    }
    found = taken_out(sources, tmp_path / "node")
    assert (found.here / "mark.py").read_text() == "MARK = 'topic'\n"
    assert found.base == base
    assert found.config.read_bytes() == config.read_bytes()
    assert git(found.checkout, "rev-parse", "HEAD") == head
    assert git(found.checkout, "show", f"{base}:mark.py") == "MARK = 'start'"
    assert git(found.checkout, "tag") == "v1", "tags of other histories stay behind"
    assert git(found.checkout, "status", "--porcelain") == ""
    assert opened(sources, tmp_path / "node", environ()) == found
    assert not (tmp_path / "node" / "sources.bundle").exists()


def test_the_folder_of_the_caller_is_the_same_one_in_the_checkout(topic, tmp_path) -> None:
    repository, *_ = topic
    repository.commit({"deep/inside/a.txt": "a"})
    found = taken_out(made(repository.top / "deep" / "inside", tmp_path), tmp_path / "node")
    assert found.here == tmp_path / "node" / "checkout" / "project" / "deep" / "inside"
    assert (found.here / "a.txt").read_text() == "a"


def test_equal_sources_have_the_same_manifest(topic, tmp_path) -> None:
    repository, *_ = topic
    assert (
        made(repository.top, tmp_path / "a").commit == made(repository.top, tmp_path / "b").commit
    )


def test_where_a_shallow_clone_ends_its_copy_ends(tmp_path) -> None:
    repository = new_repository(tmp_path / "whole")
    for number in range(4):
        repository.commit({"a.txt": str(number)})
    git(tmp_path, "clone", "--quiet", "--depth=2", f"file://{repository.top}", "shallow")
    found = taken_out(made(tmp_path / "shallow", tmp_path), tmp_path / "node")
    assert git(found.checkout, "rev-list", "--count", "HEAD") == "2"
    assert git(found.checkout, "show", f"{found.base}:a.txt") == "2"


def test_a_repository_with_ids_of_sha256_is_sent_as_any(tmp_path) -> None:
    top = new(tmp_path / "project")
    git(top, "init", "--quiet", "--initial-branch=main", "--object-format=sha256")
    repository = Repository(top)
    base, head = repository.commit({"a.txt": "a"}), repository.commit({"a.txt": "b"})
    found = taken_out(made(top, tmp_path), tmp_path / "node")
    assert (len(head), found.base, (found.here / "a.txt").read_text()) == (64, base, "b")


def test_a_history_that_ends_without_a_note_of_where_is_refused(tmp_path) -> None:
    repository = new_repository(tmp_path / "whole")
    for number in range(4):
        repository.commit({"a.txt": str(number)})
    git(tmp_path, "clone", "--quiet", "--depth=2", f"file://{repository.top}", "shallow")
    top = tmp_path / "shallow"
    base, head = git(top, "rev-parse", "HEAD~1"), git(top, "rev-parse", "HEAD")
    commit = manifest_in(top, Manifest(base=base, head=head, name="p", prefix=""))
    with pytest.raises(BadSources, match="its history ends without a note of where"):
        taken_out(by_hand(top, tmp_path, commit, "--all"), tmp_path / "node")


class TestNothingOfItsOrigin:
    def test_has_any_effect(self, topic, tmp_path) -> None:
        """Hooks, a file system monitor, filters, a fetch by ssh, borrowed objects and a template: all would write `ran`."""
        repository, *_ = topic
        ran = tmp_path / "ran"
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\necho $0 $* >> {ran}\ncat\n")
        program.chmod(0o755)
        template = tmp_path / "template" / "hooks"
        for hooks in (repository.top / ".git" / "hooks", template):
            hooks.mkdir(parents=True, exist_ok=True)
            for name in ("post-checkout", "reference-transaction", "post-index-change"):
                (hooks / name).write_text(program.read_text())
                (hooks / name).chmod(0o755)
        repository.commit({".gitattributes": "*.txt filter=own\n", "old.txt": "older"})
        ran.unlink(missing_ok=True)
        settings = {
            "core.fsmonitor": program,
            "core.sshCommand": program,
            "filter.own.smudge": program,
            "filter.own.clean": program,
        }
        for name, value in settings.items():
            git(repository.top, "config", name, str(value))
        lender = new_repository(tmp_path / "lender")
        (repository.top / ".git" / "objects" / "info" / "alternates").write_text(
            f"{lender.top}/.git/objects\n"
        )
        (tmp_path / "gitconfig").write_text(
            f"[init]\n\ttemplateDir = {template.parent}\n[core]\n\thooksPath = {template}\n"
        )
        ran.unlink(missing_ok=True)
        sources = made(repository.top, tmp_path, environ=environ())
        ran.unlink(missing_ok=True)  # the origin's own filters are its own business
        (tmp_path / "node").mkdir()
        found = unbundle(
            sources,
            tmp_path / "node",
            {**environ(), "GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")},
        )
        assert not ran.exists(), ran.read_text()
        assert not (store_of(tmp_path / "node") / "objects" / "info" / "alternates").exists()
        assert not (store_of(tmp_path / "node") / "hooks").exists()
        told = subprocess.run(
            ["git", "-C", str(found.checkout), "config", "--list", "--local"],
            env=environ(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert str(program) not in told.stdout


class TestRefused:
    def test_another_digest_before_git_sees_it(self, topic, tmp_path) -> None:
        sources = made(topic[0].top, tmp_path)
        content = bytearray(sources.file.read_bytes())
        content[-30] ^= 1
        sources.file.write_bytes(content)
        (tmp_path / "node").mkdir()
        with pytest.raises(
            BadSources, match=f"SHA-256 is .* not {sources.sha256}; git did not notice"
        ):
            unbundle(sources, tmp_path / "node", {"PATH": "/nonexistent"})

    def test_more_than_the_most_on_either_machine(self, topic, tmp_path) -> None:
        sources = made(topic[0].top, tmp_path)
        (tmp_path / "node").mkdir()
        with pytest.raises(BadSources, match="more than 0 MB"):
            unbundle(
                sources, tmp_path / "node", environ(), most_bytes=sources.file.stat().st_size - 1
            )
        unbundle(
            sources, new(tmp_path / "other"), environ(), most_bytes=sources.file.stat().st_size
        )
        with pytest.raises(BadCheckout, match="clone with less history"):
            make_bundle(
                wanted(topic[0].top), tmp_path / "large.bundle", config=None, most_bytes=100
            )
        assert not (tmp_path / "large.bundle").exists()

    def test_what_is_no_file_or_no_bundle(self, topic, tmp_path) -> None:
        sources = made(topic[0].top, tmp_path)
        with pytest.raises(BadSources, match="is not there"):
            unbundle(replace(sources, file=tmp_path), new(tmp_path / "a"), environ())
        sources.file.write_bytes(b"# v2 git bundle\n\nno pack")
        with pytest.raises(BadSources, match="git cannot take it out"):
            unbundle(
                replace(sources, sha256=digest_of(sources.file)), new(tmp_path / "b"), environ()
            )

    def test_a_bundle_without_the_commit_that_the_lease_names(self, topic, tmp_path) -> None:
        sources = made(topic[0].top, tmp_path)
        with pytest.raises(BadSources, match=f"it lacks commit {'0' * 40}"):
            taken_out(replace(sources, commit="0" * 40), tmp_path / "a")
        with pytest.raises(BadSources, match="it lacks commit refs/ci-bench/manifest"):
            taken_out(replace(sources, commit="refs/ci-bench/manifest"), tmp_path / "b")

    @pytest.mark.parametrize("side", ["base", "head"])
    def test_a_bundle_without_a_side(self, topic, tmp_path, side) -> None:
        repository, base, head = topic
        sides = {"base": base, "head": head, side: "1" * 40}
        commit = manifest_in(repository.top, Manifest(name="p", prefix="", **sides))
        with pytest.raises(BadSources, match=f"it lacks {side}, commit 1111"):
            taken_out(by_hand(repository.top, tmp_path, commit, "--all"), tmp_path / "node")

    def test_a_bundle_that_wants_commits_it_does_not_have(self, topic, tmp_path) -> None:
        repository, base, head = topic
        commit = manifest_in(repository.top, Manifest(base=base, head=head, name="p", prefix=""))
        sources = by_hand(repository.top, tmp_path, commit, "manifest", f"{base}..topic")
        with pytest.raises(BadSources, match=r"git cannot take it out: .*prerequisite"):
            taken_out(sources, tmp_path / "node")

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"head": "topic"}, "something else than full commit ids"),
            ({"head": "0123456"}, "something else than full commit ids"),
            ({"prefix": "../.."}, "a path outside of its tree"),
            ({"prefix": "/etc"}, "a path outside of its tree"),
            ({"name": "../../evil"}, "a path outside of its tree"),
            ({"name": ""}, "a path outside of its tree"),
            ({"config": "../evil.yml"}, "a path outside of its tree"),
            ({"config": ".."}, "a path outside of its tree"),
        ],
    )
    def test_a_manifest_that_names_sides_by_refs_or_leads_elsewhere(
        self, topic, tmp_path, change, words
    ) -> None:
        repository, base, head = topic
        commit = manifest_in(
            repository.top, replace(Manifest(base=base, head=head, name="p", prefix=""), **change)
        )
        with pytest.raises(BadSources, match=words):
            taken_out(by_hand(repository.top, tmp_path, commit, "--all"), tmp_path / "node")
        assert not (tmp_path / "evil").exists()

    def test_a_manifest_that_is_none_or_ends_history_at_no_commit(self, topic, tmp_path) -> None:
        repository, base, head = topic
        commit = manifest_in(repository.top, [1])
        with pytest.raises(BadSources, match="its manifest cannot be read"):
            taken_out(by_hand(repository.top, tmp_path, commit, "--all"), tmp_path / "a")
        whole = Manifest(base=base, head=head, name="p", prefix="")
        commit = manifest_in(repository.top, whole, ("shallow", b"topic\n"))
        with pytest.raises(BadSources, match="ends history at something else"):
            taken_out(by_hand(repository.top, tmp_path, commit, "--all"), tmp_path / "b")

    @pytest.mark.parametrize("path", ["..", ".git"])
    def test_a_tree_with_a_path_that_leads_outside(self, topic, tmp_path, path) -> None:
        repository, base, _ = topic
        blob = git(repository.top, "rev-parse", "HEAD:mark.py")
        inner = b"100644 evil\0" + bytes.fromhex(blob)
        trees = []
        for content in (inner, None):
            (repository.top / ".git" / "spare").write_bytes(
                content or b"40000 " + path.encode() + b"\0" + bytes.fromhex(trees[0])
            )
            trees.append(
                git(
                    repository.top,
                    "hash-object",
                    "-t",
                    "tree",
                    "--literally",
                    "-w",
                    str(repository.top / ".git" / "spare"),
                )
            )
        evil = git(repository.top, "commit-tree", trees[1], "-p", base, "-m", "evil")
        git(repository.top, "update-ref", "refs/heads/evil", evil)
        commit = manifest_in(repository.top, Manifest(base=base, head=evil, name="p", prefix=""))
        with pytest.raises(BadSources, match=r"cannot be checked out: .*invalid path"):
            taken_out(by_hand(repository.top, tmp_path, commit, "--all"), tmp_path / "node")
        assert not list((tmp_path / "node").rglob("evil"))
        assert not (tmp_path / "evil").exists()


class TestNothingIsSent:
    def test_of_what_is_not_committed(self, topic, tmp_path) -> None:
        repository, *_ = topic
        repository.write({"new.txt": "n"})
        with pytest.raises(BadCheckout, match=r"uncommitted changes and new files .* commit them"):
            made(repository.top, tmp_path)
        made(repository.top, tmp_path, leave_out=(repository.top / "new.txt",))

    def test_of_a_clone_that_is_partial(self, topic, tmp_path) -> None:
        repository, *_ = topic
        git(repository.top, "config", "remote.origin.promisor", "true")
        with pytest.raises(BadCheckout, match="this clone is partial"):
            made(repository.top, tmp_path)

    def test_of_a_submodule_unless_none_is_wanted(self, topic, tmp_path) -> None:
        repository, *_ = topic
        library = new_repository(tmp_path / "library")
        library.commit({"lib.txt": "first"})
        git(repository.top, "submodule", "--quiet", "add", f"file://{library.top}", "third/lib")
        repository.commit({})
        with pytest.raises(
            BadCheckout,
            match=r"the submodule third/lib is a separate repository.*setup.submodules: false",
        ):
            made(repository.top, tmp_path)
        found = taken_out(
            made(repository.top, tmp_path, setup=Setup(submodules=False)), tmp_path / "node"
        )
        assert list((found.checkout / "third" / "lib").iterdir()) == []
        git(repository.top, "submodule", "--quiet", "deinit", "third/lib")
        made(repository.top, tmp_path)


def test_a_link_and_a_large_file_of_lfs_are_what_they_are_in_every_tree(topic, tmp_path) -> None:
    repository, *_ = topic
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 1\n"
    (repository.top / "link").symlink_to("mark.py")
    repository.commit({"weights.bin": pointer})
    repository.commit({".gitattributes": "*.bin filter=lfs\n"})
    found = taken_out(made(repository.top, tmp_path), tmp_path / "node")
    assert (found.checkout / "weights.bin").read_text() == pointer
    assert (found.checkout / "link").readlink() == Path("mark.py")


def new(folder: Path) -> Path:
    folder.mkdir()
    return folder
