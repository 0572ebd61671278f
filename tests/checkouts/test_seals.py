"""What is noticed of base's tree, of its environment and of the engine, and what honest work may do there."""

import base64
import hashlib
import importlib.util
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from repositories import environ, topic_repository

from ci_bench.checkouts.bytecode import foreign_bytecode
from ci_bench.checkouts.paired import Place, prepare_sides, reopen_sides
from ci_bench.checkouts.seals import Ground, base_grounds, engine_grounds, seal
from ci_bench.records.config import Setup

SOURCE = "import math\n\n\ndef step(x=1.5, names=frozenset({'a', 'b'})):\n    return [math.sqrt(y) for y in range(9) if x]\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Base's tree: a module that was imported, one that was not, a result that is committed."""
    folder = tmp_path / "base"
    (folder / "package").mkdir(parents=True)
    for name in ("bench.py", "package/__init__.py", "package/late.py"):
        (folder / name).write_text(SOURCE)
    (folder / "results.json").write_text("{}")
    py_compile.compile(str(folder / "bench.py"), doraise=True)
    return folder


def restored(tree: Path) -> None:
    path = tree / "bench.py"
    before, times = path.read_bytes(), path.stat()
    path.write_bytes(b"x" * len(before))
    path.write_bytes(before)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def replaced(tree: Path) -> None:
    (tree / "other").write_text(SOURCE)
    (tree / "other").rename(tree / "bench.py")


def planted_bytecode(tree: Path, name: str = "package/late.py") -> None:
    """Python's own check of the source's time and size accepts it."""
    source = tree / name
    honest, times = source.read_bytes(), source.stat()
    source.write_bytes(honest.replace(b"range(9)", b"range(8)"))
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    made = Path(
        py_compile.compile(str(source), cfile=str(tree.parent / "made.pyc"), doraise=True) or ""
    )
    source.write_bytes(honest)
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.parent.mkdir(exist_ok=True)
    made.rename(cached)


OFFENCES: dict[str, tuple[Callable[[Path], object], str]] = {
    "rewritten": (lambda tree: (tree / "bench.py").write_text("1\n"), "bench.py was written"),
    "written and restored, its time set back": (restored, "bench.py was written"),
    "replaced by its like": (replaced, "bench.py was written"),
    "removed": (lambda tree: (tree / "package/late.py").unlink(), "package/late.py was removed"),
    "a mode": (lambda tree: (tree / "bench.py").chmod(0o600), "bench.py was written"),
    "a module": (lambda tree: (tree / "math.py").write_text("1\n"), "math.py is new"),
    "a library": (
        lambda tree: (tree / "package/late.so").write_bytes(b""),
        "package/late.so is new",
    ),
    "a module without a source": (
        lambda tree: (tree / "math.pyc").write_bytes(b""),
        "math.pyc is new",
    ),
    "a linked package": (lambda tree: (tree / "torch").symlink_to(tree.parent), "torch is new"),
    "settings": (lambda tree: (tree / "pytest.ini").write_text("[pytest]\n"), "pytest.ini is new"),
    "a data file": (
        lambda tree: (tree / "results.json").write_text("[1]"),
        "results.json was written",
    ),
    "a cache of what was never imported": (planted_bytecode, "package/__pycache__/late.cpython-"),
    "a cache of what was imported": (
        lambda tree: planted_bytecode(tree, "bench.py"),
        "__pycache__/bench.cpython-",
    ),
    "bytes that end the reader": (
        lambda tree: Path(importlib.util.cache_from_source(str(tree / "bench.py"))).write_bytes(
            b"\0" * 16 + b"\xfb" * 99
        ),
        "is not what its source compiles to",
    ),
}


@pytest.mark.parametrize("name", OFFENCES)
def test_a_change_of_bases_tree_is_noticed_by_name(tree: Path, name: str) -> None:
    change, said = OFFENCES[name]
    sealed = seal(base_grounds(tree=tree, venv=None, engine=tree.parent / "engine"))
    assert sealed.breaks() == ()
    change(tree)
    (sentence,) = [one for one in sealed.breaks() if said in one]
    assert sentence.startswith("base's tree was changed: ")


def test_honest_work_in_its_own_tree_breaks_nothing(tree: Path) -> None:
    """Outputs, logs, a tool's folders, and compiled modules at any level, as an interpreter makes them."""
    sealed = seal(
        base_grounds(
            tree=tree,
            venv=None,
            engine=tree.parent / "engine",
            writes=("results.json", "generated"),
        )
    )
    (tree / "out").mkdir()
    (tree / "out" / "times.json").write_text("{}")
    (tree / ".pytest_cache").mkdir()
    (tree / ".pytest_cache" / "README.md").write_text("x")
    (tree / "generated" / "deep").mkdir(parents=True)
    (tree / "generated" / "deep" / "kernel.py").write_text("1\n")
    (tree / "results.json").write_text("[2]")
    for options in ((), ("-O",), ("-OO",), ("-X", "no_debug_ranges")):
        command = [sys.executable, *options, "-c", "import bench, package.late"]
        subprocess.run(command, cwd=tree, check=True, env={"PATH": os.environ["PATH"]})
    assert len(list((tree / "package" / "__pycache__").iterdir())) == 6
    assert sealed.breaks() == ()


def test_compiled_modules_are_compared_with_their_sources(tree: Path) -> None:
    honest = Path(py_compile.compile(str(tree / "package/late.py"), doraise=True) or "")
    later = Path(py_compile.compile(str(tree / "bench.py"), doraise=True) or "")
    (tree / "bench.py").unlink()
    tool = honest.with_name("late.cpython-311-pytest-8.0.0.pyc")
    tool.write_bytes(b"of a tool that alone reads it")
    assert foreign_bytecode((honest, later, tool, honest.with_name("gone.cpython-311.pyc"))) == ()
    planted_bytecode(tree)
    assert foreign_bytecode((honest, later)) == (honest,)


def installed(folder: Path, content: bytes = b"x = 1\n") -> Path:
    """An environment with one module that its RECORD knows."""
    site = folder / "lib" / "python3.11" / "site-packages"
    (site / "one-1.dist-info").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("")
    module = site / "one.py"
    module.write_bytes(content)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    (site / "one-1.dist-info" / "RECORD").write_text(f"one.py,sha256={digest},{len(content)}\n")
    return module


def test_an_environment_takes_no_new_files_and_lets_installers_link_its_files_elsewhere(
    tmp_path: Path,
) -> None:
    module = installed(tmp_path / "env")
    sealed = seal([Ground(owner="base's environment", folder=tmp_path / "env")])
    (tmp_path / "elsewhere.py").hardlink_to(module)
    assert sealed.breaks() == ()
    times = module.stat()
    (tmp_path / "elsewhere.py").write_bytes(b"x = 2\n")
    os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns))
    name = "lib/python3.11/site-packages/one.py"
    assert sealed.breaks() == (f"base's environment was changed: {name} was written",)
    (tmp_path / "env" / "notes.txt").write_text("x")
    assert "notes.txt is new" in sealed.breaks()[0]


def test_many_changes_are_counted_and_a_shared_folder_is_inspected_when_asked(
    tmp_path: Path,
) -> None:
    sealed = seal(
        [
            Ground(
                owner="the engine's environment",
                folder=tmp_path / "engine",
                grows=True,
                shared=True,
            )
        ]
    )
    (tmp_path / "engine").mkdir()
    for number in range(5):
        (tmp_path / "engine" / f"m{number}.py").touch()
    assert sealed.breaks(shared=False) == ()
    assert sealed.breaks() == (
        "the engine's environment was changed: m0.py is new, m1.py is new, m2.py is new and 2 more",
    )


def test_the_engine_is_what_its_interpreter_finds_but_for_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("checkout/src", "elsewhere/site-packages", "elsewhere/deep"):
        (tmp_path / name).mkdir(parents=True)
    stdlib = Path(os.__file__).parent
    paths = [
        tmp_path / "checkout/src",
        tmp_path / "elsewhere",
        tmp_path / "elsewhere/site-packages",
        tmp_path / "elsewhere/deep",
    ]
    monkeypatch.setattr(
        sys, "path", ["", *map(str, paths), str(stdlib), str(stdlib / "lib-dynload")]
    )
    grounds = {ground.folder: ground.grows for ground in engine_grounds(tmp_path / "checkout")}
    assert grounds[tmp_path / "elsewhere"]
    assert not grounds[tmp_path / "elsewhere" / "site-packages"]
    assert stdlib in grounds
    assert tmp_path / "elsewhere/deep" in grounds
    assert not {tmp_path / "checkout/src", stdlib / "lib-dynload"} & grounds.keys()


def test_a_folder_of_the_users_on_the_path_counts_by_what_is_imported_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a temporary folder, or the one that the checkout is in, where others work as well."""
    for name in (
        "tool.py",
        "kit/__init__.py",
        "kit/part.py",
        "others/work.py",
        "checkout/bench.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (ground,) = [one for one in engine_grounds(tmp_path / "checkout") if one.folder == tmp_path]
    sealed = seal([ground])
    for name in ("others/work.py", "others/more.py", "checkout/bench.py", "notes.txt"):
        (tmp_path / name).write_text("1")
    assert sealed.breaks() == ()
    for name in ("tool.py", "kit/part.py", "json.py"):
        (tmp_path / name).write_text("1")
    assert sealed.breaks() == (
        "the engine's environment was changed: json.py is new, kit/part.py was written, tool.py was written",
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            '[ $CI_BENCH_SIDE = base ] || echo "MARK = 0" >../../base/r/mark.py',
            "base's tree was changed: mark.py was written",
        ),
        (
            "[ $CI_BENCH_SIDE = base ] || touch ../../base-env/lib/x.py",
            "base's environment was changed: lib/x.py is new",
        ),
        (
            "[ $CI_BENCH_SIDE = base ] || rm ../../engine/ci_bench",
            "the link to the engine was changed: ci_bench was removed",
        ),
        (
            'echo "X = 1" >built.py; touch $VIRTUAL_ENV/lib/x.py; python -c "import mark, built"',
            None,
        ),
    ],
)
def test_set_up_of_head_that_reaches_for_base_fails_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: str | None
) -> None:
    """The engine is left out, to be quick; an environment is a folder."""
    monkeypatch.setattr("ci_bench.checkouts.paired.engine_grounds", lambda _: ())
    monkeypatch.setattr(
        "ci_bench.checkouts.setup.make_environment",
        lambda folder, *_: (folder / "lib").mkdir(parents=True),
    )
    monkeypatch.setattr("ci_bench.checkouts.setup.find_shadowed", lambda *_: None)
    repository, _, _ = topic_repository(tmp_path / "r")
    place = Place(
        repository=repository.top,
        scratch=tmp_path / "s",
        logs=tmp_path / "s" / "logs",
        environ=environ(),
    )
    pair = prepare_sides(place, base=None, setup=Setup(commands=(command,)))
    for side in pair.sides:
        assert side.failure == (None if said is None else f"while head was set up, {said}")
    again = reopen_sides(place, base=None, setup=Setup(commands=(command,)))
    assert [side.failure for side in again.sides] == [side.failure for side in pair.sides]
    assert again.seal.breaks() == ()
    (pair.base.folder / "mark.py").write_text("MARK = 0\n")
    assert again.seal.breaks() == ("base's tree was changed: mark.py was written",)
