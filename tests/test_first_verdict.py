"""What docs/getting-started.md promises a new user: six lines, five minutes, and the planted slowdown named."""

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def load(name):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


release_packages, first_verdict = load("release_packages"), load("first_verdict")
PAGE = first_verdict.PAGE.read_text()
Step = first_verdict.Step


def borrow(venv):
    """What ci-bench needs comes from this environment: no network, and no ci-bench of the checkout."""
    (site,) = venv.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "borrowed.pth").write_text("\n".join(ours))


TRIES, TOLD_TO = 3, re.compile("stop other work on th(e|is) machine", re.IGNORECASE)
"""A gate that cannot decide says so, and what to do. Other machines of the same host cannot be
stopped, but they pause.
"""


@pytest.mark.engine
@pytest.mark.alone
def test_a_new_user_sees_a_planted_slowdown_by_the_steps_of_the_page(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("what is built is what git tracks, and this is no checkout")
    packages = tmp_path / "packages"
    release_packages.build(
        Path(sys.executable), release_packages.sources(tmp_path / "tree"), packages, "wheel"
    )
    with release_packages.index(packages, None) as (address, served):
        environ = {
            **os.environ,
            "PIP_INDEX_URL": address,
            "PIP_NO_DEPS": "1",
            "OMP_NUM_THREADS": "1",
        }
        for name in ("PYTHONPATH", "CI", "GITHUB_ACTIONS"):  # by hand, which a run in CI is not
            environ.pop(name, None)
        for number in range(TRIES):
            (folder := tmp_path / f"empty{number}").mkdir()
            steps = first_verdict.follow(PAGE, folder, environ, borrow)
            told = " ".join(" ".join(step.output for step in steps).split())
            if first_verdict.complaint(steps) is None or not TOLD_TO.search(told):
                break
        else:
            assert "Not decided" in told, "who cannot decide does not pass it either"
            pytest.skip(
                f"launches of the same code differ by too much here: {TRIES} gates, each with what it would take"
            )
    release_packages.check_served(served)
    assert first_verdict.complaint(steps) is None
    assert sum(step.seconds for step in steps) < first_verdict.IN_FIVE_MINUTES_S


def test_git_needs_no_identity(tmp_path):
    page = "\n".join(
        line
        for line in PAGE.splitlines()
        if not line.startswith(("$ ci-bench", "$ pip", "$ python3"))
    )
    (folder := tmp_path / "new").mkdir()
    steps = first_verdict.follow(page, folder, os.environ)
    assert [step.command.split()[1] for step in steps if step.command.startswith("git")] == [
        "init",
        "add",
        "checkout",
    ]
    assert {step.code: step.output for step in steps} == {0: ""}
    (other := tmp_path / "other").mkdir()
    without = page.replace("git -c user.name=me -c user.email=me@localhost commit", "git commit")
    assert any(step.code == 128 for step in first_verdict.follow(without, other, os.environ))


def test_the_benchmark_of_the_page_is_under_ten_lines():
    assert 0 < first_verdict.lines(PAGE) < first_verdict.LINES


def steps(*, gate=1, install=0, output="✘ Failed: smooth: step time 5.5 % slower."):
    told = [
        ("pip install x", install, ""),
        ("ci-bench gate benchmarks/ --baseline paired", gate, output),
    ]
    return [
        Step(command=command, seconds=1.0, code=code, output=words) for command, code, words in told
    ]


@pytest.mark.parametrize(
    ("happened", "said"),
    [
        (steps(gate=0, output="✔ Passed"), "exit code 0"),
        (steps(output="broke: no such file"), "no such file"),
        (steps(install=1), "pip install x: exit code 1"),
        (steps()[:1], "asks for no verdict"),
        (
            [*steps(), *steps(gate=2, output="ci-bench: HEAD is the first commit")[1:]],
            "exit code 2",
        ),
    ],
    ids=["passed", "failed otherwise", "not installed", "no gate", "not passed when taken back"],
)
def test_what_does_not_come_as_the_page_says_is_told(happened, said):
    assert first_verdict.complaint([*steps(), *steps(gate=0, output="✔ Passed")[1:]]) is None
    assert said in first_verdict.complaint(happened)
