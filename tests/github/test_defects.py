"""Each protection is taken out in turn, and its test has to turn red: a test that can't fail protects nothing."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import fake_github_defects
import pytest
from fake_github_defects import DEFECTS, path_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outcomes():
    """All of them at once: what they share is loaded only once."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "fixtures")}
    program = [sys.executable, fake_github_defects.__file__]
    done = subprocess.run(program, capture_output=True, text=True, check=True, cwd=ROOT, env=environ)
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", [defect.name for defect in DEFECTS])
def test_a_protection_that_is_taken_out_is_missed(outcomes, name):
    assert outcomes[name]["tests"] > 0, "no test is meant"
    assert outcomes[name]["code"] == pytest.ExitCode.TESTS_FAILED, "the test stays green"


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_still_fits_the_source(defect):
    assert defect.sound in path_of(defect.module).read_text()
    assert defect.sound != defect.broken


def test_no_defect_is_listed_twice():
    assert [name for name, times in Counter(defect.name for defect in DEFECTS).items() if times > 1] == []
