"""A training whose model, data, loss, optimizer and backend all lie in the repository: each side runs its own, and head's loss is judged."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from end_to_end_builders import git, outcome, perturbed_runs

from ci_bench.errors import ExitCode
from ci_bench.records.comparison import Parity
from ci_bench.records.config import Rule

pytestmark = [pytest.mark.engine, pytest.mark.slow]
pytest.importorskip("torch")

MINE = """
    import os
    from pathlib import Path

    import torch
    from torch import nn
    from torch.nn import functional

    MARK, SMOOTHING = {mark!r}, {smoothing}

    def note(part):
        with open(Path(os.environ["MARKS"]) / f"{{part}}-{{os.getpid()}}", "a") as stream:
            stream.write(f"{{Path.cwd()}} {{__file__}} {{MARK}}\\n")

    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            note("model")
            self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))

        def forward(self, pixels):
            return self.body(pixels)

    def rows(split, count):
        note("data")
        table = torch.tensor([[float(value) for value in line.split(",")] for line in Path("data/rows.csv").read_text().split()])
        return {{"pixels": table[:count, :4], "labels": table[:count, 4].long()}}

    def loss(logits, labels):
        return functional.cross_entropy(logits, labels, label_smoothing=SMOOTHING)

    def optimizer(params, lr):
        note("optimizer")
        return torch.optim.SGD(params, lr=lr)

    def backend(graph, inputs):
        note("backend")
        return graph.forward

    note("loss")
"""


def write(folder: Path, mark: str, smoothing: float) -> None:
    (folder / "src" / "mine.py").write_text(
        textwrap.dedent(MINE).format(mark=mark, smoothing=smoothing)
    )
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", mark)


@pytest.fixture
def own_repository(tmp_path: Path) -> Path:
    """The data set is a file of the repository, too: a relative path, from the side's tree."""
    folder = tmp_path / "a repository"
    (folder / "src").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "data" / "rows.csv").write_text(
        "\n".join(f"{n % 5},{n % 7},{n % 3},{n % 2},{n % 3}" for n in range(96))
    )
    entry = {
        "name": "mine",
        "backend": "mine:backend",
        "epochs": 1,
        "num_samples": 96,
        "batch_size": 8,
        "evaluation": False,
        "loss": "mine:loss",
        "optimizer": "mine:optimizer",
        "dataset": {"factory": "mine:rows", "num_labels": 3},
        "model": {"factory": "mine:Model", "options": {"width": 8}},
    }
    run = {
        "device": "cpu",
        "threads": 1,
        "sampling": "fixed",
        "launches": 1,
        "blocks": 2,
        "sample_s": 0.002,
        "warmup_s": 0.5,
    }
    # a single launch of two blocks cannot tell times; what is asked here is what is learned
    policy = {
        "severities": dict.fromkeys(
            ("regressed", "inconclusive", "check_failed", "check_unknown"), "note"
        )
    }
    config = {
        "schema_version": 1,
        "policy": policy,
        "baseline": "paired",
        "run": run,
        "suites": {"training_loss": [entry]},
    }
    (folder / "ci-bench.yml").write_text(yaml.safe_dump(config))
    git(folder, "init", "--quiet")
    write(folder, "on base", 0.0)
    return folder


def gate(folder: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "marks").mkdir(exist_ok=True)
    environ = {
        **os.environ,
        "MARKS": str(tmp_path / "marks"),
        "CI_BENCH_NOISE": str(tmp_path / "noise"),
    }
    command = [
        sys.executable,
        "-m",
        "ci_bench.cli",
        "gate",
        "--base",
        "HEAD~1",
        "--output",
        str(tmp_path / "out"),
    ]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=550, check=False
    )


def test_each_side_runs_its_own_code_and_another_loss_on_head_fails(
    own_repository, tmp_path
) -> None:
    write(own_repository, "on head", 0.1)
    done = gate(own_repository, tmp_path)
    assert (tmp_path / "out" / "comparison.json").exists(), done.stderr
    comparison = outcome(tmp_path / "out")
    (case,) = comparison.cases
    assert [finding.verdict.holds for finding in case.parity] == [True], (
        "within head, compiled is as eager is"
    )
    assert case.learning.verdict is Parity.DIFFERENT_MATH
    assert perturbed_runs(tmp_path / "out") == [6, 6], (
        "what does not hold in the envelope of one is asked again"
    )
    assert Rule.LEARNING_CHANGED in {finding.rule for finding in comparison.judgement.findings}
    assert done.returncode == ExitCode.POLICY_NOT_MET
    assert "(head against base)" in comparison.judgement.headline
    notes = [
        (path.name.partition("-")[0], line)
        for path in (tmp_path / "marks").iterdir()
        for line in path.read_text().splitlines()
    ]
    ran = {(part, line.split()[-1]) for part, line in notes}
    assert ran == {
        (part, side)
        for part in ("model", "data", "loss", "optimizer", "backend")
        for side in ("base", "head")
    }
    for _, line in notes:
        side = line.split()[-1]
        assert f"/{side}/a repository " in line, "its working folder is the one in its own tree"
        assert f"/{side}/a repository/src/mine.py" in line
