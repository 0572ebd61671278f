"""Wheel and source package are built the same twice, hold what the package needs and no more, and work where they are installed."""

import importlib.util
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location(
    "release_packages", ROOT / "tools" / "release_packages.py"
)
release_packages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release_packages)
Wrong = release_packages.Wrong


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    if not (ROOT / ".git").exists():
        pytest.skip("what is built is what git tracks, and this is no checkout")
    folder = tmp_path_factory.mktemp("packages")
    release_packages.build_twice(Path(sys.executable), folder)
    return folder


@pytest.fixture
def changed(packages, tmp_path):
    """A copy of the wheel with a file more, a file less or a file that is otherwise."""

    def change(edit):
        (wheel,) = packages.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        edit(files)
        with zipfile.ZipFile(tmp_path / wheel.name, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return tmp_path / wheel.name

    return change


@pytest.fixture(scope="module")
def venv(packages, tmp_path_factory):
    """An environment with the wheel, by the README's line; what it needs is borrowed from this one, so that it takes no network."""
    folder = tmp_path_factory.mktemp("user") / "venv"
    release_packages.install(packages, folder, upstream=None, options=("--no-deps",))
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def test_the_wheel_works_where_it_is_installed_by_the_line_of_the_readme(packages, venv, tmp_path):
    assert {path.suffix for path in packages.iterdir()} == {".whl", ".gz"}
    release_packages.try_commands(venv / "bin")
    where = [venv / "bin" / "python", "-c", "import ci_bench; print(ci_bench.__file__)"]
    printed = subprocess.run(where, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert printed.startswith(str(venv)), "the installed one is asked, not the checkout's"


def test_a_package_without_its_schemas_fails_at_its_first_command_that_needs_one(venv):
    (schema,) = venv.glob("lib/python*/site-packages/ci_bench/schemas/results.json")
    text = schema.read_text()
    schema.unlink()
    try:
        with pytest.raises(Wrong, match="ci-bench list of the installed wheel"):
            release_packages.try_commands(venv / "bin")
    finally:
        schema.write_text(text)


def test_a_wheel_that_lacks_a_file_is_refused(changed):
    wheel = changed(lambda files: files.pop("ci_bench/schemas/results.json"))
    with pytest.raises(Wrong, match=r"lacks ci_bench/schemas/results\.json"):
        release_packages.check_content(wheel)


def test_what_does_not_belong_into_the_wheel_is_named(changed):
    wheel = changed(lambda files: files.update({"ci_bench/notes.txt": b"", "tests/test_x.py": b""}))
    with pytest.raises(Wrong, match=r"holds ci_bench/notes\.txt, holds tests/test_x\.py"):
        release_packages.check_content(wheel)


def test_builds_that_differ_in_a_byte_are_not_the_same(packages, changed):
    (wheel,) = packages.glob("*.whl")
    other = changed(lambda files: files.update({"ci_bench/default.yml": b"#"}))
    with pytest.raises(Wrong, match=r"two builds differ: ci_bench-.*\.whl"):
        release_packages.check_same([wheel], [other], "two builds")
    release_packages.check_same([wheel], [wheel], "a build and itself")


def test_a_ci_bench_from_elsewhere_is_not_taken_for_the_built_one():
    """Where pip prefers another index's, nothing of ours was tried."""
    release_packages.check_served(["ci_bench-0.1.0-py3-none-any.whl"])
    with pytest.raises(Wrong, match="not the one that was built"):
        release_packages.check_served([])


@pytest.mark.parametrize(
    "text", ["no line", '`pip install "ci-bench[engine]"` and `pip install "ci-bench"`']
)
def test_a_readme_without_its_one_line_is_refused(tmp_path, monkeypatch, text):
    (tmp_path / "README.md").write_text(text)
    monkeypatch.setattr(release_packages, "ROOT", tmp_path)
    with pytest.raises(Wrong, match="no one line"):
        release_packages.install_line()
