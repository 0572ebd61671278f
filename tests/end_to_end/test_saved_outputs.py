"""`--save-outputs`, then `--baseline FILE`: a later run is held against the very tensors that an earlier one computed."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")

from ci_bench.records import documents
from ci_bench.records.config import Rule
from ci_bench.records.outputs import Sameness

pytestmark = [pytest.mark.engine, pytest.mark.slow]
NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(16, 4)

    def forward(self, x):
        return {forward}

def make():
    torch.manual_seed(7)
    return Net(), (torch.randn(8, 16),)
"""
PLAIN = "self.last(x)"
SPLIT = (
    "x[:, 8:] @ self.last.weight[:, 8:].T + x[:, :8] @ self.last.weight[:, :8].T + self.last.bias"
)
SLIGHTLY_OFF = "self.last(x) * 1.001"
ENTRY = {
    "name": "own",
    "source": "own",
    "models": ["nets:make"],
    "mode": "inference",
    "backend": "eager",
    "perturbations": 1,
}
RUN = {
    "device": "cpu",
    "threads": 1,
    "sampling": "fixed",
    "launches": 1,
    "blocks": 1,
    "warmup_s": 0.1,
}


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ci_bench.cli", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.fixture(scope="module")
def earlier(tmp_path_factory) -> Path:
    """A folder with a run that kept its tensors, in ``saved``."""
    folder = tmp_path_factory.mktemp("tree")
    severities = {str(rule): "fail" if rule is Rule.OUTPUTS_CHANGED else "note" for rule in Rule}
    config = {
        "schema_version": 1,
        "run": RUN,
        "suites": {"torchbench": [ENTRY]},
        "policy": {"severities": severities},
    }
    (folder / "ci-bench.yml").write_text(yaml.safe_dump(config))
    (folder / "nets.py").write_text(NET.format(forward=PLAIN))
    told = ran(folder, "run", "--save-outputs", "--output", "saved")
    assert told.returncode == 0, told.stderr
    return folder


@pytest.mark.parametrize(
    ("forward", "kept", "verdict"),
    [
        (PLAIN, True, Sameness.BITWISE),
        (SPLIT, True, Sameness.WITHIN_ROUNDING),
        (SLIGHTLY_OFF, True, Sameness.CHANGED),
        (SLIGHTLY_OFF, False, Sameness.UNKNOWN),
    ],
    ids=["the same", "the sum in another order", "off by a thousandth", "without the tensors"],
)
def test_a_later_run_is_held_against_the_tensors_of_the_file_baseline(
    earlier, tmp_path, forward, kept, verdict
) -> None:
    (earlier / "nets.py").write_text(NET.format(forward=forward))
    baseline = earlier / "saved"
    if not kept:
        (tmp_path / "results.json").write_bytes((baseline / "results.json").read_bytes())
        baseline = tmp_path
    told = ran(
        earlier,
        "gate",
        "--baseline",
        str(baseline / "results.json"),
        "--output",
        str(tmp_path / "out"),
    )
    (case,) = documents.read_comparison(tmp_path / "out" / "comparison.json").cases
    assert case.outputs.verdict is verdict, case.outputs
    changed = verdict is Sameness.CHANGED
    assert (told.returncode, "outputs differ from base" in told.stdout) == (
        int(changed),
        changed,
    ), told.stdout + told.stderr
