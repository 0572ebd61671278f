"""What `ci-bench init` writes in small repositories of the kinds that people have, and what it leaves alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small_repositories import NETWORK, REPOSITORIES, TESTS

from ci_bench import __version__, cli
from ci_bench.errors import ExitCode

WORKFLOW = ".github/workflows/ci-bench.yml"
EXAMPLE = yaml.safe_load(
    (Path(__file__).parents[2] / "examples" / "workflows" / "pull-request.yml").read_text()
)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes a repository of files, and works in it."""

    def made(files):
        (tmp_path / ".git").mkdir()
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return made


def ci_bench(capsys, *arguments):
    code = cli.main([*map(str, arguments)])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("kind", REPOSITORIES)
def test_the_kind_of_repository_decides(kind, make, capsys):
    expected = REPOSITORIES[kind]
    root = make(expected.files)
    code, out, err = ci_bench(capsys, "init")
    assert (code, expected.words in out, "allow about" in out) == (0, True, True), out

    config = yaml.safe_load((root / "ci-bench.yml").read_text())
    assert config["suites"] == expected.suites
    assert config.get("setup") == expected.setup
    assert config["baseline"] == "paired"
    assert "policy" not in config, "the built-in policy is enough to begin with"

    workflow = yaml.safe_load((root / WORKFLOW).read_text())
    runner = EXAMPLE["jobs"]["gate"]["runs-on"] if expected.gpu else "ubuntu-24.04"
    assert workflow["jobs"]["gate"].pop("runs-on") == runner
    inputs = workflow["jobs"]["gate"]["steps"][1].pop("with")
    assert inputs == {"timeout_minutes": "35", **expected.inputs}
    rest = yaml.safe_load(yaml.safe_dump(EXAMPLE))
    del rest["jobs"]["gate"]["runs-on"], rest["jobs"]["gate"]["steps"][1]["with"]
    assert workflow == rest

    written = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()} - {
        *expected.files
    }
    assert written == {"ci-bench.yml", WORKFLOW, *([expected.example] if expected.example else [])}
    assert all(f"wrote {name}" in err for name in written)
    assert ci_bench(capsys, "validate", "ci-bench.yml")[0] == 0
    assert ci_bench(capsys, "init", "--check")[:2] == (0, "nothing has gone stale\n")


@pytest.mark.parametrize("kind", ["a model library", "nothing yet"])
def test_the_written_example_runs(kind, make, capsys):
    root = make(REPOSITORIES[kind].files)
    ci_bench(capsys, "init")
    call, shape = ("mlp_forward()", "(32, 4)") if "model" in kind else ("product((4, 4))", "(4, 4)")
    script = f"import sys; sys.path[:0] = ['benchmarks', 'src']; import example; print(tuple(example.{call}().shape))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=root
    )
    assert done.stdout.strip() == shape, done.stderr


def test_nothing_is_overwritten(make, capsys):
    root = make(
        {
            "ci-bench.yml": "mine",
            WORKFLOW: "uses: ours",
            "benchmarks/example.py": "print()",
            "README.md": "",
        }
    )
    code, out, err = ci_bench(capsys, "init")
    assert (code, out) == (0, "")
    assert "ci-bench.yml exists and is not changed" in err
    assert {path.read_text() for path in root.rglob("*") if path.is_file()} == {
        "mine",
        "uses: ours",
        "print()",
        "",
    }


def test_an_example_has_a_free_name(make, capsys):
    root = make({"benchmarks/example.py": "# notes"})
    assert ci_bench(capsys, "init")[0] == 0
    assert (root / "benchmarks" / "ci_bench_example.py").is_file()
    assert (root / "benchmarks" / "example.py").read_text() == "# notes"


@pytest.mark.parametrize(
    ("files", "kept", "words"),
    [
        (
            {"ci-bench.yaml": "mine"},
            "ci-bench.yml",
            "ci-bench.yml is not written: ci-bench.yaml is there; rename it",
        ),
        (
            {".github/workflows/gpu.yml": "jobs: {a: {steps: [{uses: ci-bench/ci-bench@v0.1.0}]}}"},
            WORKFLOW,
            f"{WORKFLOW} is not written: .github/workflows/gpu.yml uses ci-bench",
        ),
    ],
)
def test_what_serves_the_purpose_is_enough(files, kept, words, make, capsys):
    root = make(files)
    code, _, err = ci_bench(capsys, "init")
    assert (code, words in err, (root / kept).exists()) == (0, True, False), err


def test_another_workflow_of_the_name_stays(make, capsys):
    root = make({WORKFLOW: "on: push\njobs: {}\n"})
    code, _, err = ci_bench(capsys, "init")
    assert (code, f"{WORKFLOW} does not use ci-bench and is not changed" in err) == (0, True), err
    assert (root / WORKFLOW).read_text() == "on: push\njobs: {}\n"
    assert ci_bench(capsys, "init", "--check")[0] == 0
    (root / ".github" / "workflows" / "ci-bench-gate.yml").unlink()
    assert (
        "as .github/workflows/ci-bench.yml is another workflow"
        in ci_bench(capsys, "init", "--check")[1]
    )


def test_init_works_from_a_folder_below(make, capsys, monkeypatch):
    root = make(REPOSITORIES["tests with pytest-benchmark"].files)
    monkeypatch.chdir(root / "tests")
    assert ci_bench(capsys, "init")[0] == 0
    assert (root / "ci-bench.yml").is_file()


# The repository is a stranger's


TRAP = "import pathlib\npathlib.Path('ran').touch()\nraise SystemExit(7)\n"
STRANGE = {
    "setup.py": TRAP,
    "conftest.py": TRAP,
    "sitecustomize.py": TRAP,
    "yaml.py": TRAP,
    "benchmarks/test_a.py": TRAP + TESTS,
    "benchmarks/null.py": "if __name__ == '__main__':\n    print(1)\n",
    "benchmarks/123.py": "if __name__ == '__main__':\n    print(1)\n",
    "benchmarks/$(touch ran).py": TESTS,
    "benchmarks/a: {b: c}.py": TESTS,
    "benchmarks/line\nbreak.py": TESTS,
    "benchmarks/::error::.py": TESTS,
    "benchmarks/-c.py": TESTS,
    "benchmarks/ünï.py": TESTS,
    "benchmarks/broken.py": "def test_x(benchmark:\n",
    "benchmarks/deep.py": f"benchmark = {'(' * 5000}{')' * 5000}\n",
    "benchmarks/minus.py": f"benchmark = {'-' * 50000}1\n",
    "benchmarks/null_byte.py": "benchmark = '\0'\n",
    "class/__init__.py": NETWORK,
    "class/mlp.py": NETWORK,
    "pyproject.toml": '[project]\nname = "\\u001b[31m; rm -rf /"\ndependencies = "no list"\ndynamic = 3\n',
    ".github/workflows/deep.yml": "[" * 5000,
    ".github/workflows/odd.yml": "jobs: {a: 1, b: {steps: 2}, c: {steps: [1, {uses: 3}]}}",
}


def test_hostile_text_is_never_run_or_repeated(make, capsys):
    root = make(STRANGE)
    (root / "benchmarks" / "loop").symlink_to(root)
    (root / "benchmarks" / "secret.py").symlink_to("/etc/passwd")
    (root / "benchmarks" / "huge.py").write_text(TESTS + "#" * (2 << 20))
    os.mkfifo(root / "benchmarks" / "pipe.py")
    code, out, err = ci_bench(capsys, "init")
    assert code == 0
    assert not (root / "ran").exists()
    config = yaml.safe_load((root / "ci-bench.yml").read_text())
    assert config["suites"]["functions"] == [{"path": "benchmarks/test_a.py"}]
    assert [entry["name"] for entry in config["suites"]["command"]] == ["run_123", "run_null"]
    assert ci_bench(capsys, "validate", "ci-bench.yml")[0] == 0
    assert not any(word in out + err for word in ("::error", "touch", "\x1b", "rm -rf", "ünï"))
    assert "benchmarks/broken.py:1" in err
    assert not (root / "ran").exists()


@pytest.mark.parametrize("linked", [".github", ".github/workflows", "benchmarks"])
def test_no_link_leads_a_written_file_elsewhere(linked, make, capsys, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    root = make({"README.md": ""})
    (root / linked).parent.mkdir(exist_ok=True)
    (root / linked).symlink_to(elsewhere)
    code, _, err = ci_bench(capsys, "init")
    assert (code, f"{linked} is a symbolic link" in err) == (ExitCode.BAD_INPUT, True), err
    assert list(elsewhere.iterdir()) == []


# Stale


def fresh(root, capsys):
    ci_bench(capsys, "init")
    return root


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


STALE = {
    "a file is gone": (
        lambda root: (root / "tests" / "test_speed.py").unlink(),
        "tests/test_speed.py does not exist",
    ),
    "its benchmarks are gone": (
        lambda root: (root / "tests" / "test_speed.py").write_text("def test_x():\n    pass\n"),
        "tests/test_speed.py has no benchmark",
    ),
    "a file is new": (
        lambda root: (root / "tests" / "test_other.py").write_text(TESTS),
        "tests/test_other.py has benchmarks that ci-bench.yml does not measure",
    ),
    "a script is gone": (lambda root: (root / "train.py").unlink(), "train.py does not exist"),
    "a loop is gone": (
        lambda root: shutil.rmtree(root / "trainer"),
        "the module of trainer.loop:train is not in this repository",
    ),
    "no workflow": (lambda root: (root / WORKFLOW).unlink(), "no workflow uses ci-bench"),
    "an old version": (
        lambda root: edit(root / WORKFLOW, f"@v{__version__}", "@v0.0.1"),
        f"it uses ci-bench v0.0.1, and this is v{__version__}",
    ),
    "no pull requests": (
        lambda root: edit(
            root / WORKFLOW,
            "  pull_request:\n    types: [opened, synchronize, reopened, edited]",
            "  push:",
        ),
        "",
    ),
    "another trigger": (
        lambda root: edit(root / WORKFLOW, "  pull_request:", "  pull_request_target:"),
        "pull_request_target runs the code of forks with a token",
    ),
    "no guard": (
        lambda root: edit(
            root / WORKFLOW,
            "github.event.pull_request.head.repo.full_name == github.repository",
            "true",
        ),
        "pull requests of forks run on your own runner",
    ),
    "no network": (
        lambda root: edit(root / WORKFLOW, "setup_network", "bench_network"),
        "setup.network has no effect",
    ),
    "another path": (
        lambda root: edit(
            root / WORKFLOW, "setup_network:", 'config_path: "gone.yml"\n          setup_network:'
        ),
        "config_path names a file that does not exist",
    ),
}


@pytest.mark.parametrize("what", STALE)
def test_what_has_gone_stale_is_reported(what, make, capsys):
    files = {
        **REPOSITORIES["tests with pytest-benchmark"].files,
        **REPOSITORIES["a training script"].files,
    }
    loop = {
        name.removeprefix("src/"): text
        for name, text in REPOSITORIES["a training loop"].files.items()
        if "trainer" in name
    }
    root = make({**files, **loop})
    ci_bench(capsys, "init")
    assert ci_bench(capsys, "init", "--check")[0] == 0
    change, words = STALE[what]
    change(root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    code, out, _ = ci_bench(capsys, "init", "--check")
    assert (code, words in out) == (1 if words else 0, True), out
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_repository_without_configuration_is_pointed_to_init(make, capsys):
    make({})
    code, _, err = ci_bench(capsys, "init", "--check")
    assert (code, "`ci-bench init` writes one" in err) == (2, True)


def test_the_own_repository_of_examples_is_not_stale(capsys, monkeypatch, tmp_path):
    """Folders that their own `ci-bench.yml` measures."""
    shutil.copytree(Path(__file__).parents[2] / "examples" / "kernels", tmp_path / "kernels")
    monkeypatch.chdir(tmp_path / "kernels")
    code, out, _ = ci_bench(capsys, "init", "--check")
    assert (code, out) == (1, "stale: no workflow uses ci-bench; `ci-bench init` writes one\n")
