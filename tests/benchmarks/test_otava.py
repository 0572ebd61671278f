"""Otava is asked in an environment of its own, and a broken answer is named."""

import subprocess
import sys

import pytest
from benchmarks.otava import otavas_places

from ci_bench.errors import BadInput

STEP = "max(range(1, len(values)), key=lambda at: abs(values[at] - values[at - 1]))"
GOOD = f"""
class Point:
    def __init__(self, index):
        self.index = index

def compute_change_points(values, window_len, max_pvalue, min_magnitude):
    place = {STEP}
    moved = abs(values[place] / values[place - 1] - 1) > min_magnitude
    return ([Point(place)] if moved else []), None
"""
BROKEN = {
    "none installed": (None, "No module named 'otava'"),
    "it fails": (
        "def compute_change_points(*_, **__):\n    raise RuntimeError('too short')",
        "too short",
    ),
    "a place that is none": (
        GOOD.replace("[Point(place)]", "[Point(10**6)]"),
        "does not fit what it was asked",
    ),
    "prints something else": ("print('hello')\n" + GOOD, "--otava"),
}


@pytest.fixture
def interpreter(tmp_path):
    """An environment whose package `otava` has this analysis."""

    def make(analysis):
        folder = tmp_path / "own"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        if analysis is not None:
            (package,) = folder.glob("lib/python*/site-packages")
            (package / "otava").mkdir()
            (package / "otava" / "__init__.py").write_text("")
            (package / "otava" / "analysis.py").write_text(analysis)
        return folder / "bin" / "python"

    return make


def test_it_is_asked_with_the_values_and_the_least_change(interpreter):
    steps = [1.0] * 5 + [1.1] * 5
    assert otavas_places([(steps, 0.01), (steps, 0.2), ([2.0] * 9, 0.01)], interpreter(GOOD)) == [
        [5],
        [],
        [],
    ]


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_answer_is_named_with_what_to_do(interpreter, case):
    analysis, said = BROKEN[case]
    with pytest.raises(BadInput, match=said) as caught:
        otavas_places([([1.0] * 5 + [1.1] * 5, 0.01)], interpreter(analysis))
    assert "-m pip install apache-otava" in str(caught.value)


def test_no_such_interpreter(tmp_path):
    with pytest.raises(BadInput, match="No such file"):
        otavas_places([([1.0, 2.0], 0.01)], tmp_path / "nowhere")
