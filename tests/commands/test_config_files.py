"""The configuration that was meant is found, and nothing else is measured instead of it."""

from pathlib import Path

import pytest

from ci_bench import cli
from ci_bench.errors import ExitCode

MINE = 'schema_version: 1\nsuites: {command: [{name: mine, command: "true"}]}\n'


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a repository, with a folder below it where commands are given."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.main(["list", *words])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("folder", [".", "src", "src/deep"])
def test_a_file_is_found_upward(root, folder, capsys, monkeypatch):
    (root / "ci-bench.yml").write_text(MINE)
    monkeypatch.chdir(root / folder)
    code, out, _ = listed(capsys)
    assert code == ExitCode.OK
    assert out.startswith("command/mine\n")


def test_the_nearest_file_counts(root, capsys, monkeypatch):
    (root / "ci-bench.yml").write_text("not read: [\n")
    (root / "src" / "ci-bench.yml").write_text(MINE)
    monkeypatch.chdir(root / "src" / "deep")
    assert listed(capsys)[1].startswith("command/mine\n")


def test_the_search_ends_at_the_root(root, capsys, monkeypatch):
    (root / "ci-bench.yml").write_text(MINE)
    (root / "src" / ".git").write_text("gitdir: elsewhere\n")
    monkeypatch.chdir(root / "src" / "deep")
    code, _, said = listed(capsys)
    assert code == ExitCode.BAD_INPUT
    assert f"no ci-bench.yml in {root / 'src' / 'deep'} or above it, up to {root / 'src'}" in said


def test_outside_a_repository_nothing_above_counts(tmp_path, capsys, monkeypatch):
    (tmp_path / "ci-bench.yml").write_text(MINE)
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path / "plain")
    assert listed(capsys)[0] == ExitCode.BAD_INPUT


@pytest.mark.parametrize("command", ["list", "run", "gate", "calibrate", "setup --models"])
def test_without_a_file_ways_on_are_named(root, command, capsys):
    code = cli.main(command.split())
    said = capsys.readouterr().err
    assert code == ExitCode.BAD_INPUT
    assert "no ci-bench.yml in" in said
    assert all(way in said for way in ("write one", "gate benchmarks/", "--config quickstart"))


def test_a_file_in_a_folder_below_is_offered(root, capsys):
    (root / "src" / "ci-bench.yml").write_text(MINE)
    assert "name src/ci-bench.yml with --config" in listed(capsys)[2]
    assert listed(capsys, "--config", "src/ci-bench.yml")[0] == ExitCode.OK


def test_the_embedded_one_is_named(root, capsys):
    code, out, _ = listed(capsys, "--config", "quickstart")
    assert code == ExitCode.OK
    assert "training_loss/reviews" in out


@pytest.mark.parametrize(
    "name",
    [
        *(
            "ci-bench.yaml",
            ".ci-bench.yml",
            "cibench.yml",
            "CI-Bench.yml",
            "ci_bench.yml",
            "ci-bench.YML",
            "ci-bench.json",
        ),
        *("ci-bnech.yml", "ci-benchs.yaml", ".github/ci-bench.yml", ".github/ci-bench.yaml"),
    ],
)
@pytest.mark.parametrize("folder", [".", "src"])
def test_a_near_miss_is_an_error(root, name, folder, capsys, monkeypatch):
    (root / ".github").mkdir()
    (root / name).write_text(MINE)
    monkeypatch.chdir(root / folder)
    for command in (("list",), ("gate", "benchmarks/"), ("compare", "a", "b")):
        code = cli.main([*command])
        said = capsys.readouterr().err
        assert code == ExitCode.BAD_INPUT
        assert name in said
        assert "ci-bench.yml" in said


@pytest.mark.parametrize(
    "name", ["ci-bench-nightly.yml", "ci-bench.md", "bench.yml", ".github/workflows/ci-bench.yml"]
)
def test_other_files_are_none_of_ours(root, name, capsys):
    (root / ".github" / "workflows").mkdir(parents=True)
    (root / name).write_text("jobs: {}\n")
    (root / "ci-bench.yml").write_text(MINE)
    assert listed(capsys)[0] == ExitCode.OK
    (root / "ci-bench.yml").unlink()
    assert "no ci-bench.yml in" in listed(capsys)[2]


def test_a_slip_above_does_not_hide_the_file(root, capsys):
    (root / "ci-bench.yml").write_text(MINE)
    (root / "ci-bench2.yml").write_text("jobs: {}\n")
    (root / "ci-bench.yaml").write_text("jobs: {}\n")
    assert listed(capsys)[0] == ExitCode.OK, "the right name is there"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("ci-bench.yaml", "ci-bench.yml"),
        ("gpu/cibench.yml", "gpu/ci-bench.yml"),
        ("ci-bnech.yml", "ci-bench.yml"),
        ("quickstrat", "quickstart"),
    ],
)
def test_a_misspelt_path_has_a_suggestion(root, given, meant, capsys):
    for folder in (root, root / "gpu"):
        folder.mkdir(exist_ok=True)
        (folder / "ci-bench.yml").write_text(MINE)
    code, _, said = listed(capsys, "--config", given)
    assert code == ExitCode.BAD_INPUT
    assert f"did you mean '{meant}'?" in said


def test_paths_below_are_those_of_the_folder(root, capsys, monkeypatch):
    (root / "ci-bench.yml").write_text(MINE + "run: {threads: 1}\n")
    text = "import ci_bench\n\n\n@ci_bench.benchmark()\ndef one():\n    return lambda: 1\n"
    (root / "src" / "bench.py").write_text(text)
    monkeypatch.chdir(root / "src")
    code, out, said = listed(capsys, "bench.py")
    assert code == ExitCode.OK, said
    assert out.startswith("functions/one\n")
    monkeypatch.chdir(root / "src" / "deep")
    assert listed(capsys, "../bench.py")[1] == out, "it lies inside of the configuration's folder"


def test_a_relative_baseline_is_the_files(root, capsys, monkeypatch):
    (root / "ci-bench.yml").write_text(MINE + "baseline: saved/main\n")
    monkeypatch.chdir(root / "src")
    assert cli.main(["gate"]) == ExitCode.BAD_INPUT
    assert "nothing at ../saved/main/results.json" in capsys.readouterr().err
    assert cli.main(["gate", "--baseline", "saved/main"]) == ExitCode.BAD_INPUT
    assert "nothing at saved/main/results.json" in capsys.readouterr().err


def test_a_fault_names_the_file_from_here(root, capsys, monkeypatch):
    (root / "ci-bench.yml").write_text(MINE + "run: {launchs: 1}\n")
    monkeypatch.chdir(root / "src")
    assert "../ci-bench.yml:3: run.launchs: unknown field" in listed(capsys)[2]
