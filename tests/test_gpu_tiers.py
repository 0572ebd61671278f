"""The tests of a card, though there is none: its tiers run within limits in any Python, and each figure has its row in the docs."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tools" / "gpu_tests.py"
spec = importlib.util.spec_from_file_location("gpu_tests", SCRIPT)
gpu_tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu_tests)
GPU = ROOT / "tests" / "gpu"
HEADING = "## A card, by its tests\n"


def figures():
    """The names of figures as patterns, since some have a parameter in them."""
    for path in sorted(GPU.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "figure":
                name = node.args[0]
                parts = name.values if isinstance(name, ast.JoinedStr) else [name]
                yield "".join(
                    re.escape(part.value) if isinstance(part, ast.Constant) else ".+"
                    for part in parts
                )


def rows():
    table = (
        (ROOT / "docs" / "internals" / "measurements.md")
        .read_text()
        .partition(HEADING)[2]
        .partition("\n## ")[0]
    )
    return [
        line.split(" | ")[0].removeprefix("| ")
        for line in table.splitlines()
        if line.startswith("| ")
    ][2:]


def test_each_figure_has_its_row_and_each_row_a_figure():
    patterns, names = [*figures()], rows()
    assert len(names) > 10
    assert [
        name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns)
    ] == []
    assert [
        pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in names)
    ] == []


def call(*arguments, python=sys.executable, limit_s=200):
    return subprocess.run(
        [python, SCRIPT, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
    )


@pytest.mark.engine
def test_each_test_is_in_one_tier():
    pytest.importorskip("torch")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        "tests/gpu",
    ]
    collected = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    ids = [line for line in collected if "::" in line]
    assert len(ids) > 100

    def tiers_of(test):
        file, _, name = test.partition("::")
        fits = {
            tier: file.startswith(place)
            and (
                not expression or Expression.compile(expression).evaluate(lambda word: word in name)
            )
            for tier, (place, expression) in gpu_tests.TIERS.items()
        }
        return [tier for tier, fit in fits.items() if fit]

    assert [test for test in ids if len(tiers_of(test)) != 1] == []


def test_unknown_tier_and_missing_torch_are_refused(tmp_path):
    unknown = call("clok")
    assert (unknown.returncode, "there is no tier clok" in unknown.stderr) == (2, True)
    light = os.environ.get("CI_BENCH_LIGHT_PYTHON") or str(ROOT / ".venv-light" / "bin" / "python")
    if Path(light).exists():
        bare = call("clock", python=light)
        assert (bare.returncode, "lacks" in bare.stderr, "PYTHON=" in bare.stderr) == (
            2,
            True,
            True,
        )


def test_the_make_target_builds_nothing():
    call = ["make", "--no-print-directory", "-n", "gpu-tests", "PYTHON=python3.99", "VENV=/nowhere"]
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(call, cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["python3.99", "tools/gpu_tests.py"]
    ]


@pytest.mark.parametrize(
    ("code", "limits", "ended"),
    [
        ("import time; time.sleep(60)", {"limit_s": 1.0}, 124),
        ("kept = b'1' * (300 << 20); import time; time.sleep(60)", {"most_bytes": 150 << 20}, 124),
        ("import sys; sys.exit(3)", {}, 3),
        ("", {}, 0),
    ],
)
def test_a_tier_ends_within_its_limits(code, limits, ended):
    begun = time.monotonic()
    assert gpu_tests.run([sys.executable, "-c", code], os.environ, **limits) == ended
    assert time.monotonic() < begun + 30


def test_a_terminated_run_ends_its_tier(tmp_path):
    child = f"import os, pathlib, time; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); time.sleep(60)"
    code = f"import sys, gpu_tests\ngpu_tests.command = lambda *_: [sys.executable, '-c', {child!r}]\ngpu_tests.main(['contract'])"
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stdout=subprocess.DEVNULL
    ) as running:
        deadline = time.monotonic() + 30
        while (
            not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        running.terminate()
        assert running.wait(30) == 143
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


@pytest.mark.engine
@pytest.mark.slow
def test_tiers_run_on_the_simulated_card():
    """A tier that passes and one that fails, of tests and of a command: their exit codes come through."""
    pytest.importorskip("torch")
    passing = call("--simulated", "contract")
    assert passing.returncode == 0, passing.stdout[-3000:]
    assert "tier contract: exit code 0" in passing.stdout
    assert "skipped" not in passing.stdout
    checked = call("--simulated", "gpu-check", "--", "--only", "device", "--only", "fence")
    assert checked.returncode == 0, checked.stdout[-3000:]
    assert "Simulated H1" in checked.stdout
    assert "tier gpu-check: exit code 0" in checked.stdout
    refused = call("--simulated", "gpu-check", "--", "--only", "fences")
    assert (refused.returncode, "tier gpu-check: exit code 2" in refused.stdout) == (1, True)
    failing = call("--simulated", "contract", "--", "-k", "peaks", "-o", "addopts=--no-such-option")
    assert failing.returncode == 1
    assert "tier contract: exit code 4" in failing.stdout
