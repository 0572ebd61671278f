"""Measures the wall clock of a paired gate, and the share of it that is samples.

Reviewers wait for the first, and a GPU is paid for it.

Run as ``python -m benchmarks.gate_time [--case gpt|quickstart] [--calibrated] [--python PATH]…
[--rounds N] [--json FILE]``. Each PATH is a Python that has ci-bench installed (a checkout's);
where there are several they take turns, so that a busy hour of the machine hits all of them alike.
Base and head are the same code. `gpt` is one training of a three-layer GPT (steps of some 40 ms),
measured only eagerly; `quickstart` is the embedded default with its four suites.

The useful share is the seconds within samples, of both sides and all arms, over those of the whole
command.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.tables import publish, render

MODEL = '''
"""A GPT of three layers, and text of one's own: bytes that follow each other by a rule."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), \
nn.Linear(4 * width, width))

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2) \
for part in self.qkv(self.before(x)).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.between(x))


class GPT(nn.Module):
    def __init__(self, layers=3, width=96, heads=4, vocabulary=64, length=64):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, text):
        x = self.tokens(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


def loss(logits, labels):
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def rows(split, count):
    generator = torch.Generator().manual_seed(len(split))
    start, stride = (torch.randint(high, (count, 1), generator=generator) for high in (64, 7))
    text = (start + (1 + stride) * torch.arange(65)) % 64
    return {"text": text[:, :-1].contiguous(), "labels": text[:, 1:].contiguous()}
'''
HERE = Path(sys.executable)
GPT = {
    "name": "gpt",
    "backend": "eager",
    "model": {"factory": "gpt:GPT"},
    "loss": "gpt:loss",
    "dataset": {"factory": "gpt:rows", "num_labels": 64},
    "evaluation": False,
    "batch_size": 16,
    "num_samples": 800,
    "epochs": 1,
}
CASES: Mapping[str, Mapping[str, Any]] = {
    "gpt": {
        "schema_version": 1,
        "run": {"device": "cpu", "threads": 1},
        "suites": {"training_loss": [GPT]},
    },
    "quickstart": yaml.safe_load(
        (Path(__file__).parents[1] / "src/ci_bench/default.yml").read_text()
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """One gate, with its times and its end."""

    python: str
    """The path of the Python that ran it."""
    wall_s: float
    """The wall time of the command (s)."""
    sampled_s: float
    """The seconds within samples, of both sides and all arms."""
    launches: int
    """The number of launches of the case that had most."""
    code: int
    """The exit code."""
    headline: str
    """The headline of the verdict."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure in turns, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=sorted(CASES), default="gpt")
    parser.add_argument(
        "--calibrated",
        action="store_true",
        help="learn the machine's noise first, outside the time",
    )
    parser.add_argument(
        "--python", action="append", type=Path, help="who measures; this one where left out"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    pythons = [path.absolute() for path in arguments.python or [HERE]]
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "repository"
        make(repository, CASES[arguments.case])
        noise = (
            {python: Path(folder) / f"noise-{place}" for place, python in enumerate(pythons)}
            if arguments.calibrated
            else {}
        )
        for python, place in noise.items():
            _ci_bench(
                python, repository, "calibrate", f"--noise={place}", f"--output={place}-results"
            )
        timed = []
        for number in range(arguments.rounds):
            for python in pythons if number % 2 == 0 else pythons[::-1]:
                timed.append(gate(python, repository, Path(folder) / "out", noise.get(python)))
                sys.stderr.write(f"{timed[-1]}\n")
    rows = [
        {
            "python": timing.python,
            "wall (s)": f"{timing.wall_s:.1f}",
            "samples (s)": f"{timing.sampled_s:.1f}",
            "useful": f"{timing.sampled_s / timing.wall_s:.1%}",
            "launches": str(timing.launches),
            "exit": str(timing.code),
            "said": timing.headline[:60],
        }
        for timing in timed
    ]
    title = (
        f"A paired gate of unchanged code, {arguments.case},"
        f" {'calibrated' if arguments.calibrated else 'not calibrated'}"
    )
    publish(
        render(title, rows),
        {"case": arguments.case, "gates": [asdict(timing) for timing in timed]},
        arguments.json,
    )
    return 0


def make(folder: Path, config: Mapping[str, Any]) -> None:
    """Create a repository with two commits: the second changes a comment."""
    folder.mkdir(parents=True)
    (folder / "gpt.py").write_text(MODEL)
    (folder / "ci-bench.yml").write_text(yaml.safe_dump(dict(config), sort_keys=False))
    _git(folder, "init", "--quiet", "--initial-branch=main")
    for message in ("a model", "a comment"):
        (folder / "NOTES").write_text(message)
        _git(folder, "add", "--all")
        _git(
            folder,
            "-c",
            "user.name=gate",
            "-c",
            "user.email=gate@localhost",
            "commit",
            "--quiet",
            f"--message={message}",
        )


def gate(python: Path, repository: Path, output: Path, noise: Path | None) -> Timed:
    """Gate the last commit against the one before it, into a fresh folder."""
    output = output.with_name(f"{output.name}-{time.monotonic_ns()}")
    flags = () if noise is None else (f"--noise={noise}",)
    begun = time.perf_counter()
    code = _ci_bench(
        python,
        repository,
        "gate",
        "--baseline=paired",
        "--base=HEAD~1",
        f"--output={output}",
        *flags,
    )
    wall_s = time.perf_counter() - begun
    documents = [
        json.loads((output / name).read_text()) for name in ("results.json", "base/results.json")
    ]
    verdict = json.loads((output / "comparison.json").read_text())
    return Timed(
        python=str(python),
        wall_s=wall_s,
        sampled_s=sum(map(sampled_s, documents)),
        launches=max(
            (
                len(metric["launches"])
                for case in documents[0]["cases"]
                for metric in case["metrics"]
            ),
            default=0,
        ),
        code=code,
        headline=verdict["judgement"]["headline"],
    )


def sampled_s(document: Mapping[str, Any]) -> float:
    """Return the seconds within samples in a results document.

    They are those of whole steps, and of commands that measure themselves.
    """
    steps = [
        metric
        for case in document["cases"]
        for metric in case["metrics"]
        if metric["unit"] == "s"
        and (metric["name"] == "step_time" or case["case"]["suite"] == "command")
    ]
    launches = [
        (launch, metric.get("calls", 1)) for metric in steps for launch in metric["launches"]
    ]
    return float(sum(value * calls for launch, calls in launches for value in launch["values"]))


def ci_bench(python: Path) -> list[str]:
    """Return the command of a Python's ci-bench."""
    return [str(python), "-m", "ci_bench.cli"]


def _ci_bench(python: Path, repository: Path, *arguments: str) -> int:
    command = [*ci_bench(python), *arguments]
    ended = subprocess.run(command, cwd=repository, check=False, capture_output=True, text=True)
    if ended.returncode not in {0, 1}:
        raise SystemExit(
            f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr[-4000:]}"
        )
    return ended.returncode


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
