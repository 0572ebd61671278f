"""What has to work without the extra `engine`: here with its imports blocked, and in an environment without it if there is one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"
RESULTS = str(EXAMPLES / "valid" / "results.json")
HYPERFINE = str(Path(__file__).parents[1] / "formats" / "data" / "hyperfine-1.15.0.json")
BLOCKED = ("torch", "transformers", "datasets", "evaluate", "safetensors", "pynvml", "triton")
LIGHT = os.environ.get("CI_BENCH_LIGHT_PYTHON")

BLOCKING = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocker())
from ci_bench.cli import main
sys.exit(main(sys.argv[1:]))
"""
PLAIN = "import sys; from ci_bench.cli import main; sys.exit(main(sys.argv[1:]))"

COMMANDS = {
    "help": (["--help"], 0, "compare"),
    "version": (["--version"], 0, "ci-bench"),
    "list": (["list", "--config", "quickstart"], 0, "training_loss/reviews"),
    "init": (["init"], 0, "Each pull request measures"),
    "validate": (
        ["validate", RESULTS, str(EXAMPLES / "valid" / "config.yml")],
        0,
        "a valid results document",
    ),
    "report of results": (["show", RESULTS, "--format", "comment"], 0, "ci-bench"),
    "report of a comparison": (
        ["show", str(EXAMPLES / "valid" / "comparison.json"), "--format", "markdown"],
        0,
        "ci-bench",
    ),
    "compare": (["compare", RESULTS, RESULTS, "--output", "out"], None, "training_loss/reviews"),
    "report as a page": (["show", RESULTS, "--format", "html"], 0, "<!doctype html>"),
    "report as a badge": (["show", RESULTS, "--format", "badge"], 0, '"schemaVersion": 1'),
    "show": (["show", RESULTS], 0, "training_loss/reviews"),
    "compare files of another tool": (["compare", HYPERFINE, HYPERFINE], None, "count to 10"),
    "compare for a program": (
        ["compare", RESULTS, RESULTS, "--format", "json"],
        None,
        '"kind": "decision"',
    ),
    "compare for a comment": (
        ["compare", RESULTS, RESULTS, "--format", "comment"],
        None,
        "training_loss/reviews",
    ),
}
"""Arguments, exit code (`None`: whatever the example is judged to be, but judged), and a word of
the output.
"""
PYTHONS = [
    pytest.param((sys.executable, "-c", BLOCKING), id="blocked"),
    pytest.param(
        (LIGHT or "", "-c", PLAIN),
        id="light",
        marks=pytest.mark.skipif(not LIGHT, reason="CI_BENCH_LIGHT_PYTHON names no interpreter"),
    ),
]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", COMMANDS)
def test_reading_commands_need_no_torch(tmp_path: Path, python: tuple[str, ...], name: str) -> None:
    arguments, code, word = COMMANDS[name]
    told = subprocess.run(
        [*python, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert told.returncode in ({0, 1} if code is None else {code}), told.stderr
    assert word in told.stdout
    assert "Traceback" not in told.stderr


@pytest.mark.skipif(not LIGHT, reason="CI_BENCH_LIGHT_PYTHON names no interpreter")
def test_measuring_without_the_engine_says_what_to_install(tmp_path: Path) -> None:
    told = subprocess.run(
        [str(LIGHT), "-c", PLAIN, "gate", "--config", "quickstart"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (told.returncode, "pip install 'ci-bench[engine]'" in told.stderr) == (3, True)


def test_the_blocker_blocks() -> None:
    told = subprocess.run(
        [sys.executable, "-c", BLOCKING.partition("from ci_bench")[0] + "import torch"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "torch is blocked" in told.stderr
