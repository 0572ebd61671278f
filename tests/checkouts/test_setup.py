"""Set-up: what commands see and what becomes of those that fail; one side's failure is no other's."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from repositories import (
    Repository,
    environ,
    git,
    has_ended,
    left_alone,
    prepared,
    run_python,
    topic_repository,
    wait_for,
)

from ci_bench.checkouts import setup as module
from ci_bench.checkouts.git import Git
from ci_bench.checkouts.setup import Preparing, cache_key, reason_of
from ci_bench.configuration.config import load_config
from ci_bench.errors import BadConfig, CannotWrite
from ci_bench.records.config import LOCK_FILES, Setup
from ci_bench.records.documents import Kind, schema
from ci_bench.records.results import SideName

TOKENS = {
    "GITHUB_TOKEN": "ghs_0123456789abcdefghij",
    "HF_TOKEN": "x",
    "PIP_INDEX_URL": "https://user:password@example.com/simple",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "http.extraheader",
    "GIT_CONFIG_VALUE_0": "AUTHORIZATION: basic eDpnaHNfMDEyMzQ1Njc4OQ==",
    "GIT_ASKPASS": "/bin/true",
    "ACTIONS_RUNTIME_TOKEN": "y",
}


def seen(scratch: Path, side: str = "head", number: int = 1) -> dict[str, str]:
    """The variables that a command `env -0` printed."""
    text = (scratch / "logs" / f"{side}-{number}.log").read_text()
    return dict(entry.split("=", 1) for entry in text.split("\0") if entry)


def test_commands_run_once_per_side_in_its_folder_and_in_turn(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    told: list[Preparing] = []
    commands = (
        f'cat mark.py >>"{tmp_path}/$CI_BENCH_SIDE"; touch one',
        f'test -f one; echo second >>"{tmp_path}/$CI_BENCH_SIDE"',
    )
    with prepared(
        repository.top, tmp_path / "s", setup=Setup(commands=commands), observe=told.append
    ) as pair:
        assert [side.failure for side in pair.sides] == [None, None]
    assert (tmp_path / "base").read_text() == "MARK = 'start'\nsecond\n"
    assert (tmp_path / "head").read_text() == "MARK = 'topic'\nsecond\n"
    assert [(event.side, event.done, event.total) for event in told] == [
        (side, n, 2) for side in SideName for n in (0, 1)
    ]
    assert told[0].command == commands[0]


def test_a_command_may_have_several_lines(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    with prepared(
        repository.top, tmp_path / "s", setup=Setup(commands=("echo one >a\nfalse\necho two >b\n",))
    ) as pair:
        assert (pair.head.folder / "a").exists()
        assert not (pair.head.folder / "b").exists()
        assert (pair.head.failure or "").startswith(
            "set-up command 1 of 1 (`echo one >a false echo two >b`) ended with exit code 1"
        )


def test_no_secret_reaches_a_command_or_a_worker(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    with prepared(
        repository.top,
        tmp_path / "s",
        setup=Setup(commands=("env -0",)),
        environ=environ(**TOKENS, KEPT="1"),
    ) as pair:
        for visible in (
            seen(tmp_path / "s", "base"),
            seen(tmp_path / "s"),
            *(side.environ for side in pair.sides),
        ):
            assert visible["KEPT"] == "1"
            assert not [name for name in TOKENS if visible.get(name) == TOKENS[name]]
            assert not [name for name in visible if name.startswith("GIT_CONFIG")]


def test_what_a_command_is_told(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    with prepared(repository.top, tmp_path / "s", setup=Setup(commands=("env -0",))) as pair:
        visible = seen(tmp_path / "s")
        assert visible["CI_BENCH_SIDE"] == "head"
        assert visible["CI_BENCH_CHECKOUT"] == str(repository.top)
        assert Path(visible["CI_BENCH_SETUP_CACHE"]).is_dir()
        assert visible["VIRTUAL_ENV"] == str(pair.head.python.parents[1])
        assert visible["PATH"].split(":")[0] == str(pair.head.python.parent)
        told = {"CI_BENCH_SIDE", "CI_BENCH_CHECKOUT", "CI_BENCH_SETUP_CACHE", "PIP_CACHE_DIR"}
        assert not told & pair.head.environ.keys(), "what is measured is told nothing of this"


def test_both_sides_measure_in_environments_that_differ_in_paths_alone(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    with prepared(repository.top, tmp_path / "s", setup=Setup(commands=("true",))) as pair:
        base, head = (json.dumps(dict(side.environ)) for side in pair.sides)
        assert base.replace("/base", "/head") == head
        assert len(base) == len(head)


def test_the_callers_folders_of_the_checkout_become_those_of_the_side(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    repository.commit({"python/where.py": ""})
    git(repository.top, "branch", "--force", "main", "HEAD")
    repository.commit({"python/where.py": "X = 1"})
    path = f"{repository.top}/python:{tmp_path}/elsewhere:"
    for setup in (Setup(), Setup(commands=("true",))):
        with prepared(
            repository.top, tmp_path / "s", setup=setup, environ=environ(PYTHONPATH=path)
        ) as pair:
            for side in pair.sides:
                assert run_python(side, "import where; print(where.__file__)") == str(
                    side.folder / "python/where.py"
                )
                assert f"{tmp_path}/elsewhere" in side.environ["PYTHONPATH"].split(":")
                assert "" not in side.environ["PYTHONPATH"].split(":")


@pytest.mark.parametrize("name", ["PIP_TARGET", "PIP_PREFIX", "PYTHONHOME", "PIP_USER"])
def test_what_would_divert_an_install_is_taken_away(tmp_path: Path, name: str) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    with prepared(
        repository.top,
        tmp_path / "s",
        setup=Setup(commands=("env -0",)),
        environ=environ(**{name: "/x"}),
    ) as pair:
        assert name not in seen(tmp_path / "s")
        assert name not in pair.head.environ


# Failures

PIP = """Obtaining file:///src/lib
  Checking if build backend supports build_editable: started
  error: subprocess-exited-with-error

  × Preparing editable metadata (pyproject.toml) did not run successfully.
  │ exit code: 1
  ╰─> [3 lines of output]
      running egg_info
      Traceback (most recent call last):
      needs cmake
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
ERROR: Failed to build 'file:///src/lib' when preparing editable metadata
"""


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (PIP, "needs cmake"),
        (
            "cc -c a.c\na.c:3:1: error: unknown type name 'flaot'\nmake: *** [Makefile:2: a.o] Error 1",
            None,
        ),
        (
            "a.c:3:1: fatal error: cuda.h: No such file or directory\nmake[1]: *** [all] Error 2\nmake: *** [x] Error 2",
            None,
        ),
        (
            "ERROR: No matching distribution found for torchh\n[notice] A new release of pip is available",
            None,
        ),
        (
            "one\ntwo\nbash: line 1: nvcc: command not found",
            "bash: line 1: nvcc: command not found",
        ),
        ("waiting", "waiting"),
        ("", ""),
    ],
)
def test_the_reason_is_the_line_that_complains(tail: str, reason: str | None) -> None:
    wanted = (
        reason
        if reason is not None
        else next(line for line in tail.splitlines() if "ERROR" in line or "error" in line)
    )
    assert reason_of(tail) == wanted


def failing(tmp_path: Path, command: str, **fields: object) -> str:
    """Why head cannot be measured, where a command is right on base and does `command` on head."""
    repository, _, _ = topic_repository(tmp_path / "r")
    commands = (
        "true",
        f"[ $CI_BENCH_SIDE = base ] || {{ {command}; }}",
        f"touch {tmp_path}/third-on-$CI_BENCH_SIDE",
    )
    with prepared(repository.top, tmp_path / "s", setup=Setup(commands=commands, **fields)) as pair:
        assert pair.base.failure is None
        assert (tmp_path / "third-on-base").exists()
        assert run_python(pair.base, "import mark; print(mark.MARK)") == "start"
    return pair.head.failure or ""


def test_a_command_that_fails_is_the_failure_of_its_side_alone(tmp_path: Path) -> None:
    failure = failing(tmp_path, "echo out; printf '\\033[31mbad\\033[0m' >&2; exit 7")
    assert not (tmp_path / "third-on-head").exists()
    assert failure.startswith("set-up command 2 of 3 (`[ $CI_BENCH_SIDE = base ] || { ")
    assert failure.endswith(") ended with exit code 7: bad (log: head-2.log)\nout\nbad")


def test_a_command_that_hangs_is_the_failure_of_its_side_alone(tmp_path: Path) -> None:
    started = time.monotonic()
    failure = failing(
        tmp_path, f"sleep 600 & echo $! >{tmp_path}/child; echo waiting; wait", timeout_s=2
    )
    assert time.monotonic() - started < 30
    assert (
        "was ended, as set-up of this side took longer than setup.timeout_s (2 s): waiting (log: head-2.log)"
        in failure
    )
    assert has_ended(int((tmp_path / "child").read_text()))


def test_the_limit_is_for_all_commands_of_a_side(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    with prepared(
        repository.top,
        tmp_path / "s",
        setup=Setup(commands=("sleep 1.2", "sleep 1.2"), timeout_s=2),
    ) as pair:
        for side in pair.sides:
            assert (side.failure or "").startswith("set-up command 2 of 2 (`sleep 1.2`) was ended")


def test_a_command_that_is_killed_says_by_what(tmp_path: Path) -> None:
    assert "was ended by SIGSEGV: it printed nothing (log: head-2.log)" in failing(
        tmp_path, "kill -SEGV $$"
    )


def test_a_command_that_floods_leaves_a_failure_of_a_size_that_can_be_shown(tmp_path: Path) -> None:
    failure = failing(tmp_path, "head -c 100000000 /dev/zero | tr '\\0' x; exit 1")
    assert len(failure) < 3000


def test_a_long_command_is_named_by_its_start(tmp_path: Path) -> None:
    failure = failing(tmp_path, f": {'x' * 5000}; false")
    assert len(failure) < 500
    assert "xxx…`) ended with exit code 1" in failure


def test_a_background_process_ends_with_its_command(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    with prepared(
        repository.top,
        tmp_path / "s",
        setup=Setup(commands=(f"sleep 600 & echo $! >>{tmp_path}/children",)),
    ) as pair:
        assert pair.head.failure is None
        for child in (tmp_path / "children").read_text().split():
            assert has_ended(int(child))


def test_a_side_that_spoils_the_engines_environment_cannot_be_measured(
    tmp_path: Path, monkeypatch
) -> None:
    """By a pip of its own, say. The other side would be measured with it."""
    site = tmp_path / "engine-site"
    (site / "kept").mkdir(parents=True)
    monkeypatch.setattr(module, "engine_sites", lambda: (site,))
    failure = failing(
        tmp_path, f"mkdir {site}/intruder-1.0.dist-info {site}/__pycache__ {site}/~left"
    )
    assert failure.startswith(
        "set-up changed the engine's own environment (intruder-1.0.dist-info)"
    )


def test_a_side_that_breaks_its_interpreter_cannot_be_measured(tmp_path: Path) -> None:
    """With a module in front of the standard library's own, say."""
    site = "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
    failure = failing(
        tmp_path,
        f'echo 1/0 >json.py; echo "import sys; sys.path.insert(0, \\"$PWD\\")" >"{site}/a.pth"',
    )
    assert "this side's interpreter no longer works after set-up" in failure
    assert "ZeroDivisionError" in failure


def test_a_side_whose_interpreter_is_talkative_can_be_measured(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    site = "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
    hook = "import atexit; print('hello'); atexit.register(print, 'good bye')"
    with prepared(
        repository.top, tmp_path / "s", setup=Setup(commands=(f'echo "{hook}" >"{site}/a.pth"',))
    ) as pair:
        assert [side.failure for side in pair.sides] == [None, None]


@pytest.mark.parametrize(("network", "hinted"), [(False, True), (True, False)])
def test_a_download_that_is_not_allowed_says_how_to_allow_it(
    tmp_path: Path, network: bool, hinted: bool
) -> None:
    failure = failing(
        tmp_path, "echo 'ERROR: No matching distribution found for demo'; exit 1", network=network
    )
    assert ("`setup.network: true` gives it" in failure) == hinted


def test_pip_finds_no_index_where_the_network_is_not_allowed(tmp_path: Path) -> None:
    failure = failing(tmp_path, "pip install --quiet a-package-that-nobody-has-made-yet")
    assert "has-made-yet (set-up has no network here" in failure


@pytest.mark.parametrize("network", [False, True])
def test_proxies_are_there_only_where_the_network_is_allowed(tmp_path: Path, network: bool) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    proxies = {"https_proxy": "http://localhost:1", "ALL_PROXY": "http://localhost:1"}
    with prepared(
        repository.top,
        tmp_path / "s",
        setup=Setup(commands=("env -0",), network=network),
        environ=environ(**proxies),
    ):
        visible = seen(tmp_path / "s")
        assert (
            proxies.items() <= visible.items() if network else not proxies.keys() & visible.keys()
        )
        assert ("PIP_NO_INDEX" in visible) != network


def test_no_bash_is_a_failure(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("git", "env"):
        (tools / name).symlink_to(
            subprocess.run(
                ["which", name], capture_output=True, text=True, check=True
            ).stdout.strip()
        )
    with prepared(
        repository.top,
        tmp_path / "s",
        setup=Setup(commands=("true",)),
        environ=environ() | {"PATH": str(tools)},
    ) as pair:
        assert "set-up could not be run: " in (pair.head.failure or "")
        assert "bash" in (pair.head.failure or "")


def test_logs_of_an_earlier_run_are_gone(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    logs = tmp_path / "s" / "logs"
    logs.mkdir(parents=True)
    (logs / "head-9.log").touch()
    (logs / "mine.log").touch()
    with prepared(repository.top, tmp_path / "s", setup=Setup(commands=("true",))):
        assert sorted(path.name for path in logs.iterdir()) == [
            "base-1.log",
            "head-1.log",
            "mine.log",
        ]


# Interrupts

RUN = """
import signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[1:2]
from repositories import environ
from ci_bench.checkouts.paired import Place, paired_sides
from ci_bench.records.config import Setup
def stop(*_): raise KeyboardInterrupt
signal.signal(signal.SIGTERM, stop)  # as the command line does
top, scratch = Path(sys.argv[2]), Path(sys.argv[3])
place = Place(repository=top, scratch=scratch, logs=scratch / "logs", environ=environ())
commands = (f"echo $$ >{scratch}/child; setsid sleep 600 & wait",)
with paired_sides(place, base=None, setup=Setup(commands=commands)):
    print("not to be reached")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupt_during_set_up_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    """But where the run is killed outright: what is left then lies in its own folder, and the next run takes it away."""
    repository, _, _ = topic_repository(tmp_path / "r")
    repository.write({"mark.py": "MARK = 'dirty'\n"})
    scratch = tmp_path / "s"
    scratch.mkdir()
    fixtures = Path(__file__).parents[1] / "fixtures"
    with left_alone(repository.top):
        command = [sys.executable, "-c", RUN, str(fixtures), str(repository.top), str(scratch)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            child = int(wait_for(scratch / "child"))
            process.send_signal(number)
            try:
                out, said = process.communicate(timeout=30)
            finally:
                process.kill()
        assert out == ""
        if number == signal.SIGKILL:
            assert (scratch / "paired").exists()
            os.killpg(child, signal.SIGKILL)
        else:
            assert said.strip().endswith("KeyboardInterrupt")
            assert has_ended(child)
            assert not (scratch / "paired").exists()
    with prepared(repository.top, scratch) as pair:
        assert run_python(pair.head, "import mark; print(mark.MARK)") == "dirty"


# Caches


def key(repository: Repository, setup: Setup | None = None) -> str:
    return cache_key(
        Git.at(repository.top, environ()), repository.head, setup or Setup(commands=("make",))
    )


def test_the_key_changes_with_what_an_installation_depends_on_and_with_nothing_else(
    tmp_path: Path, monkeypatch
) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    first = key(repository)
    repository.commit({"code.py": "X = 1", "notes/requirements.md": ""})
    assert key(repository) == first, "code is what is measured, not what it depends on"
    known = {first}
    for name in (
        "requirements-dev.txt",
        "sub/folder/requirements.txt",
        "pyproject.toml",
        "uv.lock",
        "conda-lock.yml",
    ):
        repository.commit({name: "a"})
        known.add(key(repository))
    repository.commit({"uv.lock": "b"})
    known.add(key(repository))
    known.add(key(repository, Setup(commands=("make", "more"))))
    monkeypatch.setattr(module, "version", lambda _: "99.0")
    known.add(key(repository))
    monkeypatch.setattr("platform.python_version", lambda: "99.0")
    known.add(key(repository))
    assert len(known) == 10


def test_the_files_of_the_key_can_be_chosen(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    setup = Setup(cache_key=("native/*.cu", "CMakeLists.txt"))
    first = key(repository, setup)
    repository.commit({"pyproject.toml": "a", "other/x.cu": ""})
    assert key(repository, setup) == first
    repository.commit({"deep/native/x.cu": ""})
    assert key(repository, setup) != first


def test_the_cache_is_kept_for_the_next_run_and_is_no_part_of_head(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    count = 'echo x >>"$CI_BENCH_SETUP_CACHE/count"; wc -l <"$CI_BENCH_SETUP_CACHE/count"; ls >listing; echo "$PIP_CACHE_DIR"'
    setup = Setup(commands=(count,), cache=".cache")
    (repository.top / ".cache").mkdir()
    for expected in ("2", "4"):
        with paired(repository, tmp_path / "s", setup) as pair:
            assert pair.head.failure is None
            assert not (pair.head.folder / ".cache").exists()
            assert (
                tmp_path / "s/logs/head-1.log"
            ).read_text() == f"{expected}\n{repository.top}/.cache/pip\n"
            assert pair.head.source.dirty is False


def test_the_cache_lies_elsewhere_where_the_checkout_cannot_be_written(tmp_path: Path) -> None:
    """In the action's container it is read-only."""
    repository, _, _ = topic_repository(tmp_path / "r")
    setup = Setup(
        commands=('echo "$PIP_CACHE_DIR"; touch "$CI_BENCH_SETUP_CACHE/x"',), cache=".cache"
    )
    with paired(
        repository, tmp_path / "s", setup, CI_BENCH_CACHE=str(tmp_path / "elsewhere")
    ) as pair:
        assert pair.head.failure is None
        assert (tmp_path / "s/logs/head-1.log").read_text() == f"{tmp_path}/elsewhere/pip\n"
    assert not (repository.top / ".cache").exists()


def paired(repository: Repository, scratch: Path, setup: Setup, **more: str):
    from ci_bench.checkouts.paired import Place, paired_sides

    scratch.mkdir(exist_ok=True)
    place = Place(
        repository=repository.top,
        scratch=scratch,
        logs=scratch / "logs",
        environ={**environ(), **more},
    )
    return paired_sides(place, base=None, setup=setup)


def test_without_a_cache_nothing_is_kept_but_both_sides_share_it(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    count = 'echo x >>"$CI_BENCH_SETUP_CACHE/count"; wc -l <"$CI_BENCH_SETUP_CACHE/count"'
    for _ in range(2):
        with prepared(repository.top, tmp_path / "s", setup=Setup(commands=(count,))):
            assert (tmp_path / "s/logs/head-1.log").read_text() == "2\n"


def test_a_cache_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    (tmp_path / "file").touch()
    with (
        pytest.raises(CannotWrite, match=r"^setup\.cache: "),
        paired(repository, tmp_path / "s", Setup(commands=("true",), cache=f"{tmp_path}/file/x")),
    ):
        pass
    assert not (tmp_path / "s" / "paired").exists()


# The configuration


def test_the_schema_has_the_fields_and_defaults_of_the_dataclass() -> None:
    described = schema(Kind.CONFIG)["$defs"]["setup"]["properties"]
    defaults = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(Setup()).items()
    }
    assert {name: form["default"] for name, form in described.items()} == defaults
    assert defaults["cache_key"] == list(LOCK_FILES)


def config(tmp_path: Path, setup: Mapping[str, object]) -> Setup:
    path = tmp_path / "ci-bench.yml"
    path.write_text(
        json.dumps(
            {"schema_version": 1, "suites": {"training_loss": [{"name": "x"}]}, "setup": setup}
        )
    )
    return load_config(path).setup


def test_the_configuration_is_read(tmp_path: Path) -> None:
    given = {
        "commands": ["make\nmake install", "true"],
        "timeout_s": 5,
        "cache": "c",
        "cache_key": ["a"],
        "network": True,
    }
    assert config(tmp_path, given) == Setup(
        commands=("make\nmake install", "true"),
        timeout_s=5,
        cache="c",
        cache_key=("a",),
        network=True,
    )
    assert config(tmp_path, {}) == Setup()


@pytest.mark.parametrize(
    ("setup", "complaint"),
    [
        ({"commands": "make"}, "setup.commands: 'make' is not a list"),
        ({"commands": [""]}, r"setup.commands\[0\]: "),
        ({"command": ["make"]}, "setup.command: unknown field; did you mean 'commands'"),
        ({"timeout_s": 0}, "setup.timeout_s: 0 is not more than 0"),
        ({"network": "yes"}, "setup.network: 'yes' is not true or false"),
    ],
)
def test_faults_in_the_configuration_are_named(
    tmp_path: Path, setup: Mapping[str, object], complaint: str
) -> None:
    with pytest.raises(BadConfig, match=complaint):
        config(tmp_path, setup)
