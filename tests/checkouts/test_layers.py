"""Environments of two sides over one engine: each sees its own packages first, the engine's behind them, and never the other's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from repositories import (
    Repository,
    environ,
    git,
    new_repository,
    prepared,
    run_python,
    topic_repository,
)

from ci_bench.checkouts import layers
from ci_bench.checkouts.layers import (
    BEHIND,
    Layer,
    engine_layer,
    engine_sites,
    make_environment,
    packages_of,
)
from ci_bench.records.config import Setup

PROJECT = '[project]\nname = "demo"\nversion = "{}"\n[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
INSTALL = "pip install --quiet --no-deps --no-build-isolation --no-index {}"
WHO = "import demo, importlib.metadata as m; print(demo.WHO, m.version('demo'))"


def package(who: str, version: str, folder: str = "") -> dict[str, str]:
    """A package of the same name on both sides."""
    return {
        f"{folder}pyproject.toml": PROJECT.format(version),
        f"{folder}demo/__init__.py": f"WHO = {who!r}\n",
    }


def two_packages(top: Path, folder: str = "") -> Repository:
    repository = new_repository(top)
    repository.commit(package("base", "1.0", folder))
    git(repository.top, "checkout", "--quiet", "-b", "topic")
    repository.commit(package("head", "2.0", folder))
    return repository


@pytest.fixture
def engine(tmp_path: Path, monkeypatch) -> Path:
    """A folder that counts among the engine's, to put packages in."""
    folder = tmp_path / "engine-site"
    folder.mkdir()
    monkeypatch.setattr("ci_bench.checkouts.paired.engine_sites", lambda: (*engine_sites(), folder))
    return folder


def install(folder: Path, name: str, who: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(f"WHO = {who!r}\n")


@pytest.mark.parametrize(("way", "place"), [(".", ""), ("-e .", ""), ("-e .", "python/")])
def test_both_sides_install_a_package_of_the_same_name(
    tmp_path: Path, way: str, place: str
) -> None:
    """In the tree's root, where the tree itself would do, and in a folder that is on no path."""
    repository = two_packages(tmp_path / "r", place)
    command = INSTALL.format(way.replace(".", f"./{place}"))
    with prepared(repository.top, tmp_path / "s", setup=Setup(commands=(command,))) as pair:
        assert [side.failure for side in pair.sides] == [None, None]
        assert [run_python(side, WHO) for side in pair.sides] == ["base 1.0", "head 2.0"]
        other = str(tmp_path / "s" / "paired" / "head")
        assert other not in run_python(pair.base, "import sys; print(sys.path)")


def test_a_package_of_a_side_wins_over_the_engines(tmp_path: Path, engine: Path) -> None:
    install(engine, "demo", "engine")
    install(engine, "only", "engine")
    repository = two_packages(tmp_path / "r", "python/")
    with prepared(
        repository.top, tmp_path / "s", setup=Setup(commands=(INSTALL.format("./python"),))
    ) as pair:
        assert [
            run_python(side, "import demo, only; print(demo.WHO, only.WHO)") for side in pair.sides
        ] == [
            "base engine",
            "head engine",
        ]


def test_an_editable_install_that_loses_to_the_engines_copy_is_a_failure(
    tmp_path: Path, engine: Path
) -> None:
    """setuptools' hook for a layout of its own is asked last, so that both sides would run the engine's copy, and be equal."""
    install(engine, "demo", "engine")
    repository = two_packages(tmp_path / "r", "python/")
    layout = '[tool.setuptools]\npackages = ["demo"]\npackage-dir = {demo = "code"}\n'
    for name in ("main", "topic"):
        git(repository.top, "checkout", "--quiet", name)
        text = (repository.top / "python/pyproject.toml").read_text()
        git(repository.top, "mv", "python/demo", "python/code")
        repository.commit({"python/pyproject.toml": text + layout})
    git(repository.top, "rebase", "--quiet", "--strategy-option=theirs", "main")
    with prepared(
        repository.top, tmp_path / "s", setup=Setup(commands=(INSTALL.format("-e ./python"),))
    ) as pair:
        assert [run_python(side, "import demo; print(demo.WHO)") for side in pair.sides] == [
            "engine",
            "engine",
        ]
        for side in pair.sides:
            assert "importing them finds the engine's copies: demo (" in (side.failure or "")


def test_an_installed_package_wins_over_its_source(tmp_path: Path) -> None:
    """Only the former has what was compiled."""
    repository = two_packages(tmp_path / "r")
    purelib = "import sysconfig, pathlib as p; (p.Path(sysconfig.get_path('purelib')) / 'demo' / 'made.py').touch()"
    command = f'{INSTALL.format(".")}; python -c "{purelib}"'
    with prepared(repository.top, tmp_path / "s", setup=Setup(commands=(command,))) as pair:
        assert [run_python(side, "import demo.made; print(demo.WHO)") for side in pair.sides] == [
            "base",
            "head",
        ]


def test_modules_of_the_tree_are_found_without_and_with_an_environment(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    repository.commit({"src/inner.py": "", "bench/models.py": "MODEL = 1"})
    git(repository.top, "branch", "--force", "main", "HEAD")
    repository.commit({"src/inner.py": "X = 1"})
    code = "import inner, bench.models, mark; print(inner.__file__)"
    for setup in (Setup(), Setup(commands=("true",))):
        with prepared(repository.top, tmp_path / "s", setup=setup) as pair:
            assert [run_python(side, code) for side in pair.sides] == [
                str(side.folder / "src/inner.py") for side in pair.sides
            ]


def test_without_commands_no_environment_is_made(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    with prepared(repository.top, tmp_path / "s") as pair:
        assert [side.python for side in pair.sides] == [Path(sys.executable)] * 2
        assert not list((tmp_path / "s" / "paired").glob("*-env"))


@pytest.mark.parametrize("commands", [(), ("true",)])
def test_the_engine_is_the_same_on_both_sides(tmp_path: Path, commands: tuple[str, ...]) -> None:
    """Also where the tree has a package of its name, as this project's own has."""
    repository, _, _ = topic_repository(tmp_path / "r")
    repository.commit({"ci_bench/__init__.py": "", "src/ci_bench/__init__.py": ""})
    with prepared(repository.top, tmp_path / "s", setup=Setup(commands=commands)) as pair:
        code = "import ci_bench, os; print(os.path.realpath(ci_bench.__file__))"
        assert [run_python(side, code) for side in pair.sides] == [
            os.path.realpath(layers.ci_bench.__file__)
        ] * 2


def test_what_the_engine_has_of_the_checkout_itself_is_left_out(
    tmp_path: Path, engine: Path
) -> None:
    """An editable install of the code under test, whose hook comes before all paths, as that of meson-python does."""
    repository = two_packages(tmp_path / "r")
    hook = "import sys\nclass Finder:\n    @staticmethod\n    def find_spec(name, path=None, target=None):\n"
    hook += "        if name == 'demo': raise ImportError('the checkout itself')\nsys.meta_path.insert(0, Finder)\n"
    (engine / "demo_hook.py").write_text(hook)
    (engine / "demo-editable.pth").write_text("import demo_hook\n")
    (engine / "old-style.pth").write_text(f"{repository.top}\n{tmp_path}\n")
    (engine / "wanted.pth").write_text("import sys; sys.wanted = True\n")
    info = engine / "demo-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 2.0\n")
    (info / "RECORD").write_text("demo-editable.pth,,\ndemo_hook.py,,\n")
    (info / "direct_url.json").write_text(
        json.dumps({"url": f"file://{repository.top}", "dir_info": {"editable": True}})
    )
    layer = engine_layer(repository.top, (engine,))
    assert [path.name for path in layer.own] == ["demo-editable.pth", "old-style.pth"]
    assert [path.name for path in layer.startup] == ["wanted.pth"]
    assert layer.folders == (tmp_path,)
    assert [path.name for path in engine_layer(tmp_path / "another", (engine,)).own] == []
    code = "import demo, sys; print(demo.WHO, sys.wanted)"
    with prepared(repository.top, tmp_path / "s") as pair:
        assert [run_python(side, code) for side in pair.sides] == ["base True", "head True"]


def test_an_environment_in_the_checkout_is_not_its_code(tmp_path: Path, monkeypatch) -> None:
    """Many keep `.venv` in the checkout."""
    site = tmp_path / ".venv" / "site-packages"
    site.mkdir(parents=True)
    (site / "x.pth").write_text(f"{site}/more\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert engine_layer(tmp_path, (site,)).own == ()


def test_commands_of_the_engine_run_with_the_interpreter_of_the_side(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "the project")
    commands = ('pytest --version; python -c "import sys; print(sys.prefix)"; pip --version',)
    with prepared(repository.top, tmp_path / "the scratch", setup=Setup(commands=commands)) as pair:
        assert pair.head.failure is None
        log = (tmp_path / "the scratch/logs/head-1.log").read_text()
        assert f"\n{tmp_path}/the scratch/paired/head-env\n" in log
        script = tmp_path / "the scratch/paired/head-env/bin/pytest"
        assert str(script.parent / "python") in script.read_text().splitlines()[1]


def test_an_engine_without_pip_gives_its_sides_one(tmp_path: Path) -> None:
    assert (
        make_environment(tmp_path / "env", Layer(sites=(), startup=(), folders=(), own=()), ())
        is None
    )
    done = subprocess.run(
        [str(tmp_path / "env/bin/pip"), "--version"],
        env=environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path / "env") in done.stdout


def test_an_environment_that_cannot_be_made_is_a_reason(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    nothing = Layer(sites=(), startup=(), folders=(), own=())
    assert "no environment could be made for this side" in (
        make_environment(tmp_path / "file" / "x", nothing, ()) or ""
    )
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    assert "no environment could be made for this side" in (
        make_environment(tmp_path / "y", nothing, ()) or ""
    )


def test_the_engines_folders_come_behind_all_that_a_side_adds(tmp_path: Path, monkeypatch) -> None:
    """The negative control: with the file read first, the engine's copy wins over what an editable install adds."""
    monkeypatch.setattr(layers, "find_spec", lambda _: None)
    for name in ("engine", "added"):
        (tmp_path / name).mkdir()
        install(tmp_path / name, "demo", name)
    layer = Layer(sites=(tmp_path / "engine",), startup=(), folders=(), own=())
    assert make_environment(tmp_path / "env", layer, ()) is None
    packages = packages_of(tmp_path / "env")
    (packages / "__editable__.zzz.pth").write_text(f"{tmp_path}/added\n")

    def who() -> str:
        command = [str(tmp_path / "env/bin/python"), "-c", "import demo; print(demo.WHO)"]
        return subprocess.run(
            command, env=environ(), capture_output=True, text=True, check=True
        ).stdout.strip()

    assert who() == "added"
    (packages / BEHIND).rename(packages / "A.pth")
    assert who() == "engine"
