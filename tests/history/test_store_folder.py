"""A store in a folder: runs that append at once, records that were cut or made to harm, and kills at every write."""

import gzip
import json
import os
import signal
import threading
from contextlib import suppress

import pytest
from history_builders import H200, ids, record

from ci_bench.errors import BadInput, CannotWrite
from ci_bench.history.compaction import compact
from ci_bench.history.store import FolderStore, file_of, folder_of
from ci_bench.judge.times.calibration import fingerprint
from ci_bench.records import documents

FOLDER = folder_of(fingerprint(H200))


def filled(path, runs=3):
    store = FolderStore(path)
    for number in range(runs):
        store.append(file_of(record(number)))
    return store


def test_what_was_appended_is_read_oldest_first(tmp_path):
    store = FolderStore(tmp_path / "new" / "store")
    for number in (2, 0, 1):
        store.append(file_of(record(number)))
    found = store.read()
    assert ids(found.history) == ["run-0", "run-1", "run-2"]
    assert found.passed == ()
    assert found.history.series[0].values == (0.01, 0.010001, 0.010002)


def test_a_store_that_is_not_there_holds_nothing(tmp_path):
    assert ids(FolderStore(tmp_path / "nowhere").read().history) == []


def test_a_run_appended_twice_counts_once(tmp_path):
    store = filled(tmp_path, 2)
    store.append(file_of(record(1)))
    store.append(file_of(record(1, series=2)))
    assert ids(store.read().history) == ["run-0", "run-1"]


def test_machines_are_kept_apart(tmp_path):
    store = filled(tmp_path, 1)
    other = {**H200, "gpu": "NVIDIA L4"}
    store.append(file_of(record(1, identity=other)))
    assert len(list(tmp_path.iterdir())) == 2
    assert {machine.identity["gpu"] for machine in store.read().history.machines} == {
        "NVIDIA H200",
        "NVIDIA L4",
    }


def test_many_that_append_at_once_while_others_compact_lose_nothing(tmp_path):
    store = filled(tmp_path, 0)
    threads = [
        threading.Thread(target=store.append, args=(file_of(record(number)),))
        for number in range(40)
    ]
    threads += [threading.Thread(target=compact, args=(store,)) for _ in range(4)]
    for thread in threads[::2] + threads[1::2]:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(store.read().history) == [f"run-{number}" for number in range(40)]
    compact(store)
    assert ids(store.read().history) == [f"run-{number}" for number in range(40)]


# Records that are not sound


def file_in(tmp_path, number=0):
    name, content = next(iter(file_of(record(number)).items()))
    return tmp_path / name, content


def renamed(path, content):
    """The file with a name that fits its content, as whoever made it to harm would see to."""
    import hashlib

    moment = path.name.split("-")[1]
    return path.with_name(f"run-{moment}-{hashlib.sha256(content).hexdigest()[:16]}.json.gz")


def packed(value):
    return gzip.compress(json.dumps(value).encode())


HOSTILE = {
    "cut short": (lambda content: content[: len(content) // 2], "cut short"),
    "empty": (lambda _: b"", "the file is empty"),
    "no gzip, no JSON": (lambda _: b"\x1f\x8bno gzip", "a broken gzip file"),
    "a bomb": (lambda _: gzip.compress(b"[" * 60_000_000), "more than 50,000,000 bytes"),
    "deep": (lambda _: gzip.compress(b"[" * 200_000), "nested too deep"),
    "not a history": (lambda _: packed({"kind": "results"}), "$.kind"),
    "another machine's name": (
        lambda content: packed(
            json.loads(gzip.decompress(content))
            | {"machines": [{"fingerprint": f"sha256:{'0' * 64}", "identity": {}}]}
        ),
        "not the one whose folder it is in",
    ),
    "a value that is no number": (
        lambda content: gzip.compress(gzip.decompress(content).replace(b"0.01", b"1e999", 1)),
        "not a finite number",
    ),
    "a script for a name": (
        lambda content: gzip.compress(
            gzip.decompress(content).replace(b"fake/case-0", b"<script>", 1)
        ),
        "does not have the form",
    ),
    "a script for an address": (
        lambda content: gzip.compress(
            gzip.decompress(content).replace(b"https://github.com", b"javascript:alert(1)//")
        ),
        "does not have the form",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_record_is_named_and_passed_over(name, tmp_path):
    store = filled(tmp_path, 2)
    make, reason = HOSTILE[name]
    path, content = file_in(tmp_path, 7)
    bad = make(content)
    renamed(path, bad).write_bytes(bad)
    found = store.read()
    (passed,) = found.passed
    assert reason in str(passed)
    assert renamed(path, bad).name in str(passed)
    assert ids(found.history) == ["run-0", "run-1"]
    compact(store)
    assert renamed(path, bad).exists(), "what cannot be read is not taken away"


def test_a_record_that_was_cut_does_not_fit_its_name(tmp_path):
    filled(tmp_path, 2)
    path, content = file_in(tmp_path, 1)
    path.write_bytes(content[:-20])
    (passed,) = FolderStore(tmp_path).read().passed
    assert "cut short or changed" in str(passed)
    FolderStore(tmp_path).append(file_of(record(1)))
    assert FolderStore(tmp_path).read().passed == (), "appending it again heals it"


def test_links_pipes_and_strangers_are_passed_over_and_not_followed(tmp_path):
    store = filled(tmp_path / "store", 1)
    outside = tmp_path / "outside"
    outside.write_text("secret")
    folder = tmp_path / "store" / FOLDER
    (folder / f"run-20300101T000000-{'0' * 16}.json.gz").symlink_to(outside)
    os.mkfifo(folder / f"run-20300101T000000-{'1' * 16}.json.gz")
    (folder / "notes\x1b[31m.txt").write_text("?")
    (tmp_path / "store" / ("f" * 32)).symlink_to(folder, target_is_directory=True)
    found = store.read()
    assert ids(found.history) == ["run-0"]
    assert len(found.passed) == 4
    assert not any("\x1b" in str(passed) or "secret" in str(passed) for passed in found.passed)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="cannot be written"):
        FolderStore(tmp_path / "file").append(file_of(record(0)))


def test_a_file_in_place_of_the_store_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be read"):
        FolderStore(tmp_path / "file").read()


# Kills

CALLS = ("open", "write", "fsync", "close", "replace", "unlink", "mkdir")


class Killer:
    """Kills this process at the `number`th call that changes anything: before it, after it, or in the middle of a write."""

    def __init__(self, number, when):
        self.left, self.when = number, when

    def around(self, name, call):
        def called(*arguments, **named):
            self.left -= 1
            if self.left == 0:
                if self.when == "after":
                    with suppress(OSError):
                        call(*arguments, **named)
                if self.when == "within" and name == "write":
                    call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return called


def survived(number, when, work):
    """Whether `work` came to its end in a child that is killed at its `number`th call."""
    child = os.fork()
    if child == 0:
        killer = Killer(number, when)
        for name in CALLS:
            setattr(os, name, killer.around(name, getattr(os, name)))
        try:
            work()
        except BaseException:  # noqa: BLE001 - a child of a test must not go on as one
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


def lost_by_kills(root, make, when):
    """What is missing after a kill at each write of appending and compacting; how many kills there were."""
    lost = []
    for number in range(1, 1000):
        path = root / f"{when}-{number}"
        filled(path, 3)
        store = make(path)

        def work(store=store):
            store.append(file_of(record(3)))
            compact(store)

        ended = survived(number, when, work)
        found = FolderStore(path).read()
        wanted = {f"run-{index}" for index in range(4 if ended else 3)}
        lost += [(number, sorted(wanted - {*ids(found.history)}), found.passed)] * (
            not wanted <= {*ids(found.history)} or bool(found.passed)
        )
        FolderStore(path).append(file_of(record(3)))
        compact(FolderStore(path))
        again = FolderStore(path).read()
        assert ids(again.history) == [f"run-{index}" for index in range(4)] or lost
        if ended:
            return lost, number - 1
    raise AssertionError


@pytest.mark.parametrize("when", ["before", "within", "after"])
def test_nothing_is_lost_on_a_kill_at_any_write(when, tmp_path):
    lost, kills = lost_by_kills(tmp_path, FolderStore, when)
    assert lost == []
    assert kills > 15


class Careless(FolderStore):
    """Takes away before it has added."""

    def replace(self, add, remove, state):
        for name in remove:
            os.unlink(self.path / name)  # noqa: PTH108 - what the killer replaces
        self.append(add)


class InPlace(FolderStore):
    """Writes where the record belongs at once."""

    def append(self, files):
        for name, content in files.items():
            handle = os.open(self.path / name, os.O_WRONLY | os.O_CREAT)
            os.write(handle, content)
            os.close(handle)


@pytest.mark.parametrize(("make", "when"), [(Careless, "before"), (InPlace, "within")])
def test_the_kills_see_a_store_that_is_not_safe(make, when, tmp_path):
    assert lost_by_kills(tmp_path, make, when)[0]


def test_what_killed_writers_left_is_removed_after_a_day(tmp_path):
    store = filled(tmp_path, 2)
    old, new = (tmp_path / FOLDER / f".run-{name}.tmp" for name in ("old", "new"))
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (0, 0))
    compact(store)
    assert (old.exists(), new.exists()) == (False, True)
    assert store.read().passed == ()


def test_a_record_validates_as_any_document(tmp_path, capsys):
    from ci_bench import cli

    filled(tmp_path, 1)
    (path,) = (tmp_path / FOLDER).iterdir()
    assert cli.main(["validate", str(path)]) == 0
    assert "a valid history document" in capsys.readouterr().out
    assert documents.packed(documents.read_history(path)) == path.read_bytes()
