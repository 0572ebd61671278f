"""What a command loads: no more than it needs, for that is what whoever waits for it pays first."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci_bench import cli
from ci_bench.suites import registry

EXAMPLE = Path(__file__).parents[1] / "schemas" / "examples" / "valid" / "results.json"
LOADED = """
import gc, json, sys
from ci_bench import cli
cli.main()
sys.stderr.write("\\n" + json.dumps([gc.get_freeze_count(), sorted(sys.modules)]))
"""
THREADS = """
import os
from ci_bench import cli
before = {**os.environ}
cli._load_numpy(os.environ)
assert {**os.environ} == before
import ci_bench.statistics.special_functions
print(len(os.listdir("/proc/self/task")))
"""


@pytest.fixture
def one_core():
    """What is started has one core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


def python(script, *arguments, **environ):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(
        command,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_to_compare_two_documents_no_format_is_loaded_and_no_list_of_packages_and_nothing_is_searched_at_the_end(
    tmp_path, one_core
) -> None:
    """On one core, where no copy of the process draws the page."""
    said = python(LOADED, "compare", EXAMPLE, EXAMPLE, "--output", tmp_path / "out")
    frozen, modules = json.loads(said.stderr.splitlines()[-1])
    loaded = {*modules}
    assert {"ci_bench.report.html.report", "numpy", "rich"} <= loaded
    assert (
        not {"ci_bench.formats.catalogue", "importlib.metadata", "numpy.ma", "scipy.stats", "torch"}
        & loaded
    )
    assert frozen > 10_000


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_where_there_is_a_second_core_the_page_is_drawn_beside_and_is_the_same(
    tmp_path, one_core
) -> None:
    python(LOADED, "compare", EXAMPLE, EXAMPLE, "--output", tmp_path / "alone")
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    said = python(LOADED, "compare", EXAMPLE, EXAMPLE, "--output", tmp_path / "beside")
    assert "ci_bench.report.html.report" not in json.loads(said.stderr.splitlines()[-1])[1], (
        "the process that judged drew it"
    )
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("alone", "beside")
    ]
    assert files[0] == files[1]
    assert {*files[0]} == {"comparison.json", "report.md", "report.html"}


def test_a_program_that_calls_a_command_keeps_its_garbage_collection(capsys) -> None:
    before = gc.get_freeze_count(), gc.get_threshold()
    assert cli.main(["validate", str(EXAMPLE)]) == 0
    assert (gc.get_freeze_count(), gc.get_threshold()) == before
    assert "valid results" in capsys.readouterr().out


def test_numpy_starts_no_threads_and_what_is_measured_gets_the_environment_as_it_was() -> None:
    without = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        env=without,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert int(done.stdout) == 1
    if os.cpu_count() != 1:
        assert int(python(THREADS, OPENBLAS_NUM_THREADS="2").stdout) > 1, "what the user says stays"


@pytest.fixture
def path(monkeypatch, tmp_path):
    """The only folder in which packages are looked for."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "nowhere")])
    monkeypatch.setattr(sys, "meta_path", [registry.PathFinder])
    monkeypatch.setattr(registry, "_installed", lambda: pytest.fail("asked"))
    (tmp_path / "other-1.dist-info").mkdir()
    (tmp_path / "other-1.dist-info" / "entry_points.txt").write_text(
        "[console_scripts]\nother = other:main\n"
    )
    (tmp_path / "bare-1.dist-info").mkdir()
    (tmp_path / "file.egg-info").touch()
    return tmp_path


def test_packages_are_asked_for_plugins_only_where_one_may_have_some(path) -> None:
    assert registry.plugin_forms() == {}


def _package(folder, _monkeypatch):
    (folder / "Mine-1.DIST-INFO").mkdir()
    (folder / "Mine-1.DIST-INFO" / "entry_points.txt").write_text(
        "[ci_bench.suites]\nmine = mine:SUITE\n"
    )


def _archive(folder, monkeypatch):
    (folder / "packages.zip").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder / "packages.zip")])


def _finder(_folder, monkeypatch):
    finder = type("Finder", (), {"find_distributions": lambda _: []})
    monkeypatch.setattr(sys, "meta_path", [finder(), *sys.meta_path])


@pytest.mark.parametrize("plant", [_package, _archive, _finder])
def test_what_may_hold_plugins_is_asked(path, monkeypatch, plant) -> None:
    plant(path, monkeypatch)
    with pytest.raises(pytest.fail.Exception, match="asked"):
        registry.plugin_forms()
