"""Where the memory of a launch's processes lies: in the same place on both sides, elsewhere in the next launch."""

import math
import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from fake_suite import QUICK, fake_environ

from ci_bench.processes import addresses as module
from ci_bench.processes.addresses import (
    ADDR_NO_RANDOMIZE,
    LEFT_OUT,
    PADDING,
    Addresses,
    drawn,
    started_alike,
)
from ci_bench.processes.launch import Launcher
from ci_bench.processes.protocol import Task

ONE = Addresses(hash_seed=7, padding=100, pages=512)


def _is_let() -> bool:
    with started_alike() as usual:
        return usual is not None


def _is_randomised(pid: int | str = "self") -> bool:
    return not int(Path(f"/proc/{pid}/personality").read_text(), 16) & ADDR_NO_RANDOMIZE


needs_fixed = pytest.mark.skipif(
    not _is_let(), reason="the kernel lets nobody start without randomised addresses here"
)


class TestDrawn:
    def test_one_key_has_one_place_and_another_another(self):
        assert drawn("run/launch-0") == drawn("run/launch-0")
        every = [drawn(f"run/launch-{number}") for number in range(40)]
        assert len({one.hash_seed for one in every}) == len({one.pages for one in every}) == 40
        assert len({one.padding for one in every}) > 30
        assert max(one.pages for one in every) * 4096 < 1 << 32

    def test_pages_are_spread_over_all_that_there_are(self):
        places = [drawn(str(number)).pages / (1 << 20) for number in range(400)]
        assert abs(sum(places) / 400 - 0.5) < 4 / math.sqrt(12 * 400)


class TestEnvironment:
    @pytest.mark.parametrize(
        ("usual", "place"),
        [
            (0, {LEFT_OUT: "0000512 00000000"}),
            (0x40000, {LEFT_OUT: "0000512 00040000"}),
            (None, {}),
        ],
    )
    def test_says_what_was_drawn_and_what_to_set_back(self, usual, place):
        environ = ONE.environ(["python"], {"A": "b"}, usual=usual)
        assert {name: value for name, value in environ.items() if name != PADDING} == {
            "A": "b",
            "PYTHONHASHSEED": "0000000007",
        } | place

    @pytest.mark.parametrize("usual", [0, None])
    def test_both_sides_fill_whole_pages(self, usual):
        sides = [
            (["python", place], {"PATH": place})
            for place in ("/base", "/head/of/a/longer/name", "/ü" * 3000)
        ]
        texts = [
            (*command, *_texts(ONE.environ(command, environ, usual=usual)))
            for command, environ in sides
        ]
        assert {sum(len(os.fsencode(text)) + 1 for text in every) % 4096 for every in texts} == {
            100
        }

    def test_what_the_caller_says_of_it_does_not_count(self):
        environ = ONE.environ(
            [], {"PYTHONHASHSEED": "1", LEFT_OUT: "x", PADDING: "y" * 9000}, usual=0
        )
        assert environ["PYTHONHASHSEED"] == "0000000007"
        assert environ[LEFT_OUT] == "0000512 00000000"
        assert len(environ[PADDING]) < 9000


ASKS = "print(open('/proc/self/personality').read().strip())"


class TestStartedAlike:
    @needs_fixed
    def test_only_what_starts_in_the_block_is_not_randomised(self):
        with started_alike() as usual:
            inside = subprocess.check_output([sys.executable, "-c", ASKS])
        outside = subprocess.check_output([sys.executable, "-c", ASKS])
        assert int(inside, 16) == int(outside, 16) | ADDR_NO_RANDOMIZE
        assert int(outside, 16) == usual

    @needs_fixed
    def test_ends_with_an_error_as_well(self):
        before = _is_randomised()
        with pytest.raises(OSError, match="no such thing"), started_alike():
            raise OSError("no such thing")
        assert _is_randomised() is before

    def test_a_filter_of_system_calls_may_refuse(self, monkeypatch):
        asked = []
        monkeypatch.setattr(
            module,
            "_personality",
            lambda value: asked.append(value) or (0 if value == 0xFFFFFFFF else -1),
        )
        with started_alike() as usual:
            pass
        assert (usual, asked[-1]) == (None, ADDR_NO_RANDOMIZE)

    @needs_fixed
    def test_where_the_caller_has_it_off_it_stays_off_and_launches_lie_elsewhere_all_the_same(
        self, tmp_path
    ):
        before = module._personality(0xFFFFFFFF)
        module._personality(before | ADDR_NO_RANDOMIZE)
        try:
            with _servers(tmp_path, {"a": drawn("one"), "b": drawn("two")}) as (one, other):
                assert _share(one, other) < 0.9
            with Launcher(preload=(), environ=fake_environ(), folder=tmp_path / "c") as launcher:
                assert not _is_randomised(launcher._server.pid)
        finally:
            module._personality(before)


@needs_fixed
class TestServers:
    def test_of_both_sides_lie_in_the_same_place_whatever_their_folders_are_called(self, tmp_path):
        wanted = {"b": drawn("one"), "head-of-a-longer-name": drawn("one"), "c": drawn("two")}
        with _servers(tmp_path, wanted) as (base, head, later):
            assert _share(base, head) > 0.9
            assert _share(base, later) < 0.9

    def test_start_what_the_user_executes_as_usual(self, tmp_path):
        with Launcher(
            preload=(), environ=fake_environ(), folder=tmp_path, addresses=drawn("one")
        ) as launcher:
            is_randomised = _is_randomised(launcher._server.pid)
            task = Task(launch=0, device="cpu", options=QUICK, scratch=str(tmp_path))
            worker = launcher.run(task, timeout_s=20, on_answer=lambda _: None)
        assert is_randomised is _is_randomised()
        assert worker.code == 0

    def test_whose_addresses_are_limited_lie_where_they_can(self, tmp_path):
        limited = tmp_path / "python"
        limited.write_text(f'#!/bin/sh\nulimit -v 3000000\nexec {sys.executable} "$@"\n')
        limited.chmod(0o755)
        most = Addresses(hash_seed=1, padding=0, pages=(1 << 20) - 1)
        with Launcher(
            preload=(), environ=fake_environ(), folder=tmp_path, addresses=most, python=limited
        ) as launcher:
            assert "ready" in launcher._heard


@contextmanager
def _servers(folder, drawn_of):
    """Where each library of servers with these addresses lies, by their folders' names."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                Launcher(
                    preload=("numpy",), environ=fake_environ(), folder=folder / name, addresses=one
                )
            )
            for name, one in drawn_of.items()
        ]
        yield [_libraries(server._server.pid) for server in servers]


def _libraries(pid):
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    found = [
        match.groups()
        for line in lines
        if (match := re.match(r"(\w+)-\w+ r-xp .* (/.*\.so[.\d]*)$", line))
    ]
    assert len(found) > 10
    return {name: start for start, name in found}


def _share(one, other):
    """How many of the libraries lie in the same place in both."""
    return sum(one[name] == other[name] for name in one.keys() & other.keys()) / len(one)


def _texts(environ):
    return [f"{name}={value}" for name, value in environ.items()]
