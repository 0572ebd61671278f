"""Sides as users of their own: what head's code tries with base's files and processes, and what both can do with their own."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from repositories import environ, topic_repository

from ci_bench.checkouts.paired import Place, SidePair, prepare_sides, reopen_sides
from ci_bench.checkouts.shell import run_command
from ci_bench.checkouts.sides import Side
from ci_bench.errors import BadInput, NotPrepared
from ci_bench.processes.users import Users, end_all, give, living, started_as, users_of
from ci_bench.records.config import Config, RunOptions, Sampling, Setup, SuiteEntry
from ci_bench.records.results import SideName, Status
from ci_bench.runner import planning
from ci_bench.runner.ledger import Ledger
from ci_bench.runner.runner import Runner

# not those of the action's containers: on this host their processes are to be seen, and to be
# ended, too
USERS = Users(base=65201, head=65202)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may pass; pytest's own are the caller's alone."""
    folder = Path(tempfile.mkdtemp(prefix="users-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "text", ["65201", "65201:", "0:65202", "65201:65201", "65201:65202:3", "a:b", "-1:2", " 1:2"]
)
def test_two_users_of_their_own_are_named_or_none(text: str) -> None:
    with pytest.raises(BadInput, match="CI_BENCH_USERS is two numbers of users"):
        users_of({"CI_BENCH_USERS": text})
    assert users_of({}) is None


def test_only_root_starts_processes_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ci_bench.processes.users.os.geteuid", lambda: 1000)
    with pytest.raises(BadInput, match="run as root, or without it"):
        users_of({"CI_BENCH_USERS": "65201:65202"})


@as_root
def test_users_that_somebody_else_has_are_refused() -> None:
    """A container's processes are such: this host sees them, and ends them with a user's."""
    assert users_of({"CI_BENCH_USERS": "65203:65204"}) == Users(base=65203, head=65204)
    with subprocess.Popen(["sleep", "60"], user=65204, group=65204, extra_groups=()) as other:
        try:
            with pytest.raises(
                BadInput, match=rf"names user 65204, who already runs process {other.pid}\."
            ):
                users_of({"CI_BENCH_USERS": "65203:65204"})
        finally:
            other.kill()


def prepared(folder: Path, command: str) -> SidePair:
    """Both sides, set up by a command; the engine's interpreter is left alone, since others may not be let to it."""
    repository, _, _ = topic_repository(folder / "r")
    place = Place(
        repository=repository.top,
        scratch=folder / "s",
        logs=folder / "s" / "logs",
        environ=environ(),
        users=USERS,
    )
    place.scratch.mkdir()
    return prepare_sides(place, base=None, setup=Setup(commands=(command,)))


@pytest.fixture
def no_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment is a folder with a file, and the engine is not sealed, to be quick."""

    def make(folder: Path, *_: object) -> None:
        (folder / "lib").mkdir(parents=True)
        (folder / "lib" / "module.py").write_text("1\n")

    monkeypatch.setattr("ci_bench.checkouts.paired.engine_grounds", lambda _: ())
    monkeypatch.setattr("ci_bench.checkouts.setup.make_environment", make)
    monkeypatch.setattr("ci_bench.checkouts.setup.find_shadowed", lambda *_: None)


OWN = """
echo "MARK = 1" >>mark.py; echo x >out.txt; echo x >$VIRTUAL_ENV/lib/new.py
echo x >$HOME/x; echo x >$TMPDIR/x; echo x >$CI_BENCH_SETUP_CACHE/x; mkdir -p $XDG_CACHE_HOME $PIP_CACHE_DIR
[ $(id -u) = "$(id -G)" ]; grep -q '^CapEff:.0*$' /proc/self/status
"""
PLACES = """
paired=$(dirname $(dirname $PWD)); base=$paired/base
attempt() { if eval "$1" 2>/dev/null; then echo "could: $1"; fi; }
"""
REACHES = (
    "cat $base/r/mark.py",
    "echo x >$base/r/mark.py",
    "ls $base",
    "touch $base/r/math.py",
    "cat $paired/base-env/lib/module.py",
    "echo x >$paired/base-env/lib/module.py",
    "ls $paired/base-home",
    "ls $paired/cache/base",
    "touch $paired/cache/base/x",
    "touch $paired/sides.json",
    "touch $paired/../logs/base-1.log",
    "touch $paired/repository/x",
    "ln -s / $paired/engine/torch",
    "rm $paired/engine/ci_bench",
    "mv $base $paired/elsewhere",
)
REACH = (
    PLACES
    + "\n".join(f"attempt '{reach}'" for reach in REACHES)
    + '\ncat mark.py; attempt "cat mark.py"'
)


@as_root
@pytest.mark.usefixtures("no_environments")
def test_each_side_has_its_own_and_nothing_of_the_other(open_folder: Path) -> None:
    pair = prepared(open_folder, f"{OWN}\n[ $CI_BENCH_SIDE = base ] && exit\n{REACH}")
    assert [side.failure for side in pair.sides] == [None, None]
    assert [side.user for side in pair.sides] == [USERS.base, USERS.head]
    assert pair.seal.breaks() == ()
    could = [
        line
        for line in (open_folder / "s/logs/head-1.log").read_text().splitlines()
        if line.startswith("could")
    ]
    assert could == ["could: cat mark.py"]
    for side in pair.sides:
        assert side.folder is not None
        assert (side.folder / "out.txt").stat().st_uid == side.user
        assert side.environ["HOME"].endswith(f"{side.name}-home")
        assert Path(side.environ["TMPDIR"], "x").is_file()


@as_root
@pytest.mark.usefixtures("no_environments")
def test_as_one_user_each_of_these_reaches_succeeds_and_the_seal_notices(
    open_folder: Path, monkeypatch
) -> None:
    monkeypatch.setitem(globals(), "USERS", None)
    one_user = REACH.replace("$paired/base-home", "$paired").replace("cache/base", "cache")
    pair = prepared(open_folder, f"[ $CI_BENCH_SIDE = base ] && exit\n{one_user}")
    could = [
        line
        for line in (open_folder / "s/logs/head-1.log").read_text().splitlines()
        if line.startswith("could")
    ]
    assert len(could) == len(REACHES) + 1
    assert "base's tree was changed" in (pair.head.failure or "")


@as_root
@pytest.mark.usefixtures("no_environments")
def test_sides_are_measured_by_the_users_that_they_were_prepared_for(open_folder: Path) -> None:
    made = prepared(open_folder, "true")
    place = Place(
        repository=open_folder / "r",
        scratch=open_folder / "s",
        logs=open_folder / "s" / "logs",
        environ=environ(),
        users=USERS,
    )
    assert reopen_sides(place, base=None, setup=Setup(commands=("true",))) == made
    for other in (None, Users(base=65202, head=65201)):
        with pytest.raises(NotPrepared, match="users was 65201:65202, now it is"):
            reopen_sides(
                Place(
                    repository=place.repository,
                    scratch=place.scratch,
                    logs=place.logs,
                    environ=environ(),
                    users=other,
                ),
                base=None,
                setup=Setup(commands=("true",)),
            )


@as_root
def test_a_users_processes_are_out_of_the_others_reach(open_folder: Path) -> None:
    base = subprocess.Popen(["sleep", "600"], **started_as(USERS.base), start_new_session=True)
    own = os.getpid()
    tries = [
        *(f"kill -{number} {pid}" for number in ("KILL", "STOP") for pid in (base.pid, own)),
        *(f"cat /proc/{pid}/{file}" for file in ("environ", "maps") for pid in (base.pid, own)),
        *(f"ls /proc/{pid}/fd/" for pid in (base.pid, own)),
        *(f"head -c1 /proc/{pid}/mem" for pid in (base.pid, own)),
        "echo",
    ]
    attempts = PLACES + "\n".join(f"attempt '{one}'" for one in tries) + "\nkill -KILL -1"
    visible = {"PATH": os.environ["PATH"]}
    try:
        ended = run_command(
            attempts,
            folder=open_folder,
            environ=visible,
            timeout_s=30,
            log=open_folder / "log",
            user=USERS.head,
        )
        assert [line for line in ended.tail.splitlines() if line.startswith("could")] == [
            "could: echo"
        ]
        assert base.poll() is None
    finally:
        end_all(USERS.base)
        assert base.wait(5) == -signal.SIGKILL


@as_root
def test_a_daemon_of_a_user_ends_with_his_command(open_folder: Path) -> None:
    give(open_folder, USERS.head, 0o755)
    command = (
        "setsid env -i sh -c 'echo $$ >pid; exec sleep 600' & until [ -s pid ]; do sleep 0.01; done"
    )
    run_command(
        command,
        folder=open_folder,
        environ={"PATH": os.environ["PATH"]},
        timeout_s=30,
        log=open_folder / "log",
        user=65202,
    )
    pid = int((open_folder / "pid").read_text())
    status = Path(f"/proc/{pid}/status")
    assert not status.exists() or "Z (zombie)" in status.read_text()


@as_root
def test_every_process_of_a_user_is_ended_and_nobody_elses() -> None:
    theirs = [
        subprocess.Popen(["sleep", "600"], **started_as(65205), start_new_session=True)
        for _ in range(3)
    ]
    other = subprocess.Popen(["sleep", "600"], **started_as(65206), start_new_session=True)
    try:
        assert end_all(65205)
        assert [one.wait(5) for one in theirs] == [-signal.SIGKILL] * 3
        assert other.poll() is None
    finally:
        for one in (*theirs, other):
            one.kill()
            one.wait()


@as_root
def test_what_is_in_a_session_that_is_spared_goes_on() -> None:
    command = ["sh", "-c", "sleep 600 & sleep 600; true"]
    spared, ended = (
        subprocess.Popen(command, **started_as(65205), start_new_session=True) for _ in range(2)
    )
    try:
        while len([*living(65205)]) < 6:
            time.sleep(0.01)
        assert end_all(65205, (spared.pid,))
        assert ended.wait(5) == -signal.SIGKILL
        assert len([*living(65205)]) == 3
        assert {os.getsid(pid) for pid in living(65205)} == {spared.pid}
        assert end_all(65205)
        assert not [*living(65205)]
    finally:
        for one in (spared, ended):
            one.kill()
            one.wait()


@as_root
def test_what_is_handed_over_takes_no_links_along(open_folder: Path) -> None:
    secret = open_folder / "secret"
    secret.write_text("x")
    (open_folder / "given").mkdir()
    (open_folder / "given" / "link").symlink_to(secret)
    (open_folder / "given" / "hard").hardlink_to(secret)
    give(open_folder / "given", USERS.head)
    assert secret.stat().st_uid == 0
    assert (open_folder / "given" / "link").lstat().st_uid == USERS.head


def passable_python() -> tuple[Path, str]:
    """An interpreter that others may run, and the path on which it finds the engine; skips where there is none."""
    path = os.pathsep.join(
        part
        for part in sys.path
        if Path(part, "ci_bench").is_dir() or Path(part, "msgspec").is_dir()
    )
    for python in (Path(sys.executable), Path("/usr/bin/python3")):
        visible = {"PYTHONPATH": path, "PATH": os.environ["PATH"]}
        with suppress(OSError):
            code = "import ci_bench, msgspec, numpy, torch"
            if not subprocess.run(
                [python, "-c", code], env=visible, cwd="/", check=False, **started_as(USERS.base)
            ).returncode:
                return python, path
    pytest.skip("no interpreter here that another user may run")


MEASURED = (
    PLACES
    + """
id -u >id; echo "$TMPDIR" >place; : >could
for pid in $PARENT $(find /proc -maxdepth 1 -user $OTHER -printf "%f "); do
    attempt "kill -STOP $pid" >>could
    attempt "cat /proc/$pid/environ" >>could
done
attempt 'find $SCRATCH -type f -size +0 -writable -not -path "*/$SIDE/*" | grep .' >>could
attempt 'find $SCRATCH -name "case-*" -not -path "*/$SIDE/*" -readable | grep .' >>could
"""
)


@as_root
@pytest.mark.engine
@pytest.mark.slow
def test_measured_side_by_side_no_side_reaches_the_other_or_the_engine(open_folder: Path) -> None:
    """A command on each side, by real workers: timed, and its memory taken.

    It leaves files in its own tree and scratch.
    """
    python, path = passable_python()
    entry = {"name": "reaching", "command": MEASURED}
    options = RunOptions(
        device="cpu", launches=1, blocks=1, warmup_s=0.01, sample_s=0.001, sampling=Sampling.FIXED
    )
    config = Config(entries=(SuiteEntry(suite="command", options=entry),), run=options)
    plan = planning.plan(config, ())
    scratch, sides = open_folder / "scratch", []
    scratch.mkdir()
    for name in SideName:
        tree = open_folder / name
        (tree / "tmp").mkdir(parents=True)
        give(tree, USERS.of(name))
        own = {
            "HOME": str(tree),
            "TMPDIR": str(tree / "tmp"),
            "SIDE": str(name),
            "SCRATCH": str(scratch),
            "PYTHONPATH": path,
        }
        other = USERS.head if name is SideName.BASE else USERS.base
        own |= {"OTHER": str(other), "PARENT": str(os.getpid())}
        visible = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **own}
        sides.append(
            Side(name=name, environ=visible, folder=tree, python=python, user=USERS.of(name))
        )
    ledger = Ledger.open(
        [case for _, case in plan], reproduce={case.id: "again" for _, case in plan}
    )
    runner = Runner(options=options, scratch=scratch, observe=lambda _: None)
    measured = runner.run(plan, sides, dict.fromkeys(SideName, ledger), lambda *_: None)
    for side in sides:
        (row,) = measured[side.name][1].rows.values()
        assert row.status is Status.OK, row.failure
        assert side.folder is not None
        assert (side.folder / "id").read_text().strip() == str(side.user)
        assert (side.folder / "could").read_text() == ""
        (case_folder,) = (scratch / side.name).glob("case-*")
        assert (case_folder.stat().st_uid, case_folder.stat().st_mode & 0o777) == (side.user, 0o700)
    assert not [pid for user in (USERS.base, USERS.head) for pid in living(user)]
