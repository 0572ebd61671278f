"""The benchmark of the example's training loop: each head differs by one line of the example, and is named by what it is."""

import subprocess

import pytest

from benchmarks import example_loop


@pytest.mark.parametrize(
    ("head", "changed"),
    [("same", ""), ("slower", "model(rows)"), ("faulty", " / PARTS")],
)
def test_one_line_of_the_example_is_all_that_is_planted(tmp_path, head, changed):
    example_loop.make(tmp_path / "repository")
    example_loop.plant(tmp_path / "repository", head)
    command = [
        "git",
        "-C",
        str(tmp_path / "repository"),
        "diff",
        "--unified=0",
        "base",
        "HEAD",
        "--",
        "trainer.py",
    ]
    diff = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [
        line
        for line in diff.splitlines()
        if line[:1] in "+-" and not line.startswith(("+++", "---"))
    ]
    told = {"same": [], "slower": [f"+            {changed}"]}
    assert lines == told[head] if head in told else lines[0][1:] == lines[1][1:] + changed
