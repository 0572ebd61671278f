"""Five public repositories, written small: a training script, kernels, models, plain Python, and pytest-benchmark tests.

Each has the traits of the repository that it is like, in code of its own: how it is started, what it prints, where its benchmarks
are, what git ignores. `finish` is what a user edits after `ci-bench init`, `changes` are the pull requests that follow.
"""

# ruff: noqa: E501 - the text of a file

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """A step of the first hour, in order."""

    INIT = "`ci-bench init`"
    FIRST = "first pull request"
    UNCHANGED = "no change"
    SLOWER = "slower"
    HARMLESS = "other rounding"
    HARMFUL = "other results"
    NEW = "new benchmark"
    RENAMED = "renamed benchmark"
    DELETED = "deleted benchmark"
    ACCEPTED = "slower, accepted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """A replacement in one file. Without `old`, `new` is appended; the file may be new."""

    file: str
    new: str
    old: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A repository, and the words that the headline of each step contains."""

    kind: str
    like: str
    """The public repository with the same traits."""
    files: Mapping[str, str]
    finish: tuple[Edit, ...]
    changes: Mapping[Step, tuple[Edit, ...]]
    case: str
    """The case that gets slower, as `ci-bench accept` names it."""
    headlines: Mapping[Step, str]
    blocks: int = 10


CONFIG = "ci-bench.yml"
_POLICY = "  default_threshold: 5%    # the smallest change that counts"


def _replace(file: str, old: str, new: str) -> tuple[Edit, ...]:
    return (Edit(file=file, old=old, new=new),)


TRAIN = """\
\"\"\"Train a model of characters. Settings are globals; `--name=value` overrides one.\"\"\"

import sys
import time
from ast import literal_eval

import numpy as np
import torch
from model import Gpt

data_file = "data/char/train.bin"
max_iters = 24
batch_size, block_size = 8, 16
learning_rate, grad_clip = 0.01, 1.0
for argument in sys.argv[1:]:
    name, _, value = argument.removeprefix("--").partition("=")
    globals()[name] = literal_eval(value)

torch.manual_seed(1337)
tokens = torch.from_numpy(np.fromfile(data_file, dtype=np.uint16).astype(np.int64))
print(f"the data has {len(tokens):,} tokens")
model = Gpt(vocabulary=int(tokens.max()) + 1, block=block_size)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.99))


def batch():
    places = torch.randint(len(tokens) - block_size, (batch_size,)).tolist()
    return (torch.stack([tokens[at + ahead : at + ahead + block_size] for at in places]) for ahead in (0, 1))


started = time.time()
for iteration in range(max_iters):
    x, y = batch()
    loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    ended = time.time()
    print(f"iter {iteration}: loss {loss.item():.4f}, time {1000 * (ended - started):.2f}ms")
    started = ended
"""
MODEL = """\
import math

import torch
from torch import nn
from torch.nn import functional


class Gpt(nn.Module):
    def __init__(self, vocabulary, block, width=64):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, vocabulary)
        self.register_buffer("past", torch.ones(block, block).tril().bool(), persistent=False)

    def forward(self, x, y):
        hidden = self.tokens(x) + self.places.weight
        q, k, v = self.project(hidden).chunk(3, -1)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        mixed = scores.masked_fill(~self.past, -math.inf).softmax(-1) @ v
        return functional.cross_entropy(self.out(hidden + mixed).flatten(0, 1), y.flatten())
"""
PREPARE = """\
\"\"\"Encode input.txt as characters.\"\"\"

from pathlib import Path

import numpy as np

folder = Path(__file__).parent
text = (folder / "input.txt").read_text()
letters = sorted(set(text))
np.array([letters.index(letter) for letter in text], dtype=np.uint16).tofile(folder / "train.bin")
print(f"{len(text):,} characters, {len(letters)} different ones")
"""
BENCH = """\
\"\"\"Time the loading of batches.\"\"\"

import numpy as np

data = np.arange(200_000, dtype=np.uint16)
for _ in range(200):
    np.stack([data[place : place + 1024] for place in range(0, 65536, 1024)]).astype(np.int64)
print("done")
"""
_INPUT = "the quick brown fox jumps over the lazy dog, and the dog sleeps on; " * 60

TRAINING = Project(
    kind="a training script",
    like="karpathy/nanoGPT",
    files={
        "train.py": TRAIN,
        "model.py": MODEL,
        "bench.py": BENCH,
        "data/char/prepare.py": PREPARE,
        "data/char/input.txt": _INPUT,
        ".gitignore": "*.bin\n__pycache__\n",
        "README.md": "# small\n\npython data/char/prepare.py && python train.py --max_iters=24\n",
    },
    finish=(
        Edit(
            file=CONFIG,
            old="\nsuites:",
            new="\nsetup:\n  commands: [python data/char/prepare.py]\n\nsuites:",
        ),
        Edit(
            file=CONFIG,
            old="command: [python, train.py]",
            new="command: [python, train.py, --max_iters=20]",
        ),
    ),
    changes={
        Step.SLOWER: _replace(
            "train.py",
            "    loss = model(x, y)\n",
            "    time.sleep(0.05)\n    loss = model(x, y)\n",
        ),
        Step.HARMLESS: _replace(
            "model.py",
            """\
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        mixed = scores.masked_fill(~self.past, -math.inf).softmax(-1) @ v
""",
            "        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.past)\n",
        ),
        Step.HARMFUL: _replace("model.py", " / math.sqrt(q.shape[-1])", ""),
        Step.NEW: (
            Edit(file="load.py", new=BENCH),
            Edit(
                file=CONFIG,
                old="\npolicy:",
                new="    - name: load\n      command: [python, load.py]\n\npolicy:",
            ),
        ),
        Step.RENAMED: _replace(CONFIG, "name: bench", "name: batches"),
        Step.DELETED: _replace(CONFIG, "    - name: bench\n      command: [python, bench.py]\n", ""),
    },
    case="command/train",
    blocks=2,
    headlines={
        Step.INIT: "train.py: losses and step times of a training",
        Step.FIRST: "Passed",
        Step.SLOWER: "train",
        Step.HARMFUL: "train",
        Step.NEW: "load",
        Step.RENAMED: "bench",
        Step.DELETED: "bench",
    },
)

NORM = """\
import time

import torch

try:
    import triton
except ImportError:
    triton = None


def rms_norm(x, weight, eps=1e-6):
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return x * scale * weight


def swiglu(gate, up):
    return torch.nn.functional.silu(gate) * up
"""
REPORT = """\
import torch
import triton
from kernels.norm import swiglu


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["n"], x_vals=[512], line_arg="provider", line_vals=["kernels"], line_names=["kernels"],
        plot_name="swiglu", ylabel="ms", args={},
    )
)
def bench_swiglu(n, provider):
    gate, up = torch.randn(64, n), torch.randn(64, n)
    return triton.testing.do_bench(lambda: swiglu(gate, up))
"""
NORMS = """\
import ci_bench
from kernels.norm import rms_norm


@ci_bench.benchmark(shapes=[(128, 512)], dtype=["fp32"])
def norm(shape, dtype):
    x, weight = ci_bench.inputs(2, shape, dtype)
    return lambda: rms_norm(x, weight[0])


@norm.provider("torch", reference=True)
def _(shape, dtype):
    x, weight = ci_bench.inputs(2, shape, dtype)
    return lambda: x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight[0]
"""
_NEW_NORM = """\

@ci_bench.benchmark(shapes=[(64, 256)])
def norm_wide(shape):
    x, weight = ci_bench.inputs(2, shape)
    return lambda: rms_norm(x, weight[0])
"""

KERNELS = Project(
    kind="a kernel library",
    like="fla-org/flash-linear-attention",
    files={
        "kernels/__init__.py": "",
        "kernels/norm.py": NORM,
        "benchmarks/bench_swiglu.py": REPORT,
        "tests/test_norm.py": "def test_norm():\n    pass\n",
        "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\n[project]\nname = "kernels"\nversion = "1"\ndependencies = ["torch", "triton"]\n',
    },
    finish=(Edit(file="benchmarks/norms.py", new=NORMS),),
    changes={
        Step.SLOWER: _replace(
            "kernels/norm.py",
            "    return x * scale * weight\n",
            "    time.sleep(0.005)\n    return x * scale * weight\n",
        ),
        Step.HARMLESS: _replace(
            "kernels/norm.py",
            "    return x * scale * weight\n",
            "    return x * (scale * weight)\n",
        ),
        Step.HARMFUL: _replace("kernels/norm.py", "eps=1e-6", "eps=1e-2"),
        Step.NEW: (Edit(file="benchmarks/norms.py", new=_NEW_NORM),),
        Step.RENAMED: (
            *_replace("benchmarks/norms.py", "def norm(", "def rms("),
            *_replace("benchmarks/norms.py", "@norm.provider", "@rms.provider"),
        ),
        Step.DELETED: _replace("benchmarks/norms.py", NORMS, "import ci_bench\n"),
    },
    case="functions/norm*",
    headlines={
        Step.INIT: "benchmarks/bench_swiglu.py: 1 benchmark of triton.testing.perf_report",
        Step.FIRST: "Passed",
        Step.SLOWER: "norm",
        Step.HARMFUL: "norm",
        Step.NEW: "norm_wide",
        Step.RENAMED: "norm",
        Step.DELETED: "norm",
    },
)

ROTARY = """\
import torch
from torch import nn


class Rotary(nn.Module):
    \"\"\"Rotate queries or keys by their places; angles are cached after the first call.\"\"\"

    def __init__(self, dim):
        super().__init__()
        self.register_buffer("rates", 10000 ** (-torch.arange(dim).float() / dim), persistent=False)
        self.cached = None

    def angles(self, length):
        if self.cached is None:
            angles = torch.outer(torch.arange(length, device=self.rates.device).float(), self.rates)
            self.cached = angles
            return angles
        return self.cached

    def forward(self, x):
        angles = self.angles(x.shape[-2])
        return x * angles.cos() + x.roll(1, -1) * angles.sin()
"""
ENCODER = """\
import time

from torch import nn

from nets.rotary import Rotary


class Encoder(nn.Module):
    def __init__(self, width: int = 64, *, layers: int = 2):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.rotary = Rotary(width)

    def forward(self, x):
        x = self.rotary(x)
        for layer in self.layers:
            x = layer(x).relu()
        return x
"""
_NEW_FORWARD = """\

@ci_bench.benchmark
def deep_forward():
    (x,) = ci_bench.inputs(1, (32, 64))
    torch.manual_seed(0)
    model = Encoder(layers=4).to(x.device).eval()
    return lambda: model(x)
"""

MODELS = Project(
    kind="a model library",
    like="lucidrains/rotary-embedding-torch",
    files={
        "nets/__init__.py": "from nets.encoder import Encoder\nfrom nets.rotary import Rotary\n",
        "nets/rotary.py": ROTARY,
        "nets/encoder.py": ENCODER,
        "setup.py": 'from setuptools import find_packages, setup\n\nsetup(name="nets", version="1", packages=find_packages(), install_requires=["torch>=2.0"])\n',
    },
    finish=(
        Edit(file=CONFIG, old="setup:    # runs once for each side, before it is measured\n", new=""),
        Edit(file=CONFIG, old="  commands: [pip install -e .]\n", new=""),
        Edit(file=CONFIG, old="  network: true    # set-up may download; measuring may not\n", new=""),
    ),
    changes={
        Step.SLOWER: _replace(
            "nets/encoder.py",
            "            x = layer(x).relu()\n",
            "            time.sleep(0.005)\n            x = layer(x).relu()\n",
        ),
        Step.HARMLESS: _replace("nets/encoder.py", "layer(x).relu()", "(x @ layer.weight.mT + layer.bias).relu()"),
        Step.HARMFUL: _replace("nets/rotary.py", "self.cached = angles\n", "self.cached = angles.half().float()\n"),
        Step.NEW: (Edit(file="benchmarks/example.py", new=_NEW_FORWARD),),
        Step.RENAMED: _replace("benchmarks/example.py", "def encoder_forward", "def forward"),
        Step.DELETED: (
            *_replace("benchmarks/example.py", "def encoder_forward", "def deep_forward"),
            *_replace("benchmarks/example.py", "Encoder()", "Encoder(layers=4)"),
        ),
    },
    case="functions/encoder_forward",
    headlines={
        Step.INIT: "benchmarks/example.py: an example, the forward pass of Encoder",
        Step.FIRST: "Nothing to compare with yet",
        Step.SLOWER: "encoder_forward",
        Step.HARMFUL: "encoder_forward",
        Step.NEW: "deep_forward",
        Step.RENAMED: "encoder_forward",
        Step.DELETED: "encoder_forward",
    },
)

API = """\
\"\"\"Dataclasses as JSON.\"\"\"

import dataclasses
import json
import time


def camel(name):
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def plain(value):
    if dataclasses.is_dataclass(value):
        return {camel(field.name): plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def to_json(value):
    return json.dumps(plain(value))


def mean(values):
    total = 0.0
    for value in values:
        total += value
    return total / len(values)
"""
ENCODE = """\
from dataclasses import dataclass

import ci_bench
from records_json import mean, to_json


@dataclass
class Point:
    first_name: str
    values: list


POINTS = [Point(f"point {number}", [number, number / 3, None]) for number in range(40)]


@ci_bench.benchmark
def encode():
    return lambda: to_json(POINTS)


@ci_bench.benchmark
def average():
    return lambda: mean([number / 7 for number in range(500)])
"""
_NEW_ENCODE = """\

@ci_bench.benchmark
def encode_one():
    return lambda: to_json(POINTS[0])
"""

PLAIN = Project(
    kind="a pure-Python package",
    like="lidatong/dataclasses-json",
    files={
        "records_json/__init__.py": "from records_json.api import mean, to_json\n",
        "records_json/api.py": API,
        "tests/test_api.py": "def test_api():\n    pass\n",
        "pyproject.toml": '[tool.poetry]\nname = "records-json"\nversion = "0.0.0"\n[tool.poetry.dependencies]\npython = "^3.7"\n[build-system]\nrequires = ["poetry-core"]\n',
    },
    finish=(
        Edit(file="benchmarks/encode.py", new=ENCODE),
        Edit(
            file=CONFIG,
            old="""\
  command:
    - name: import_records_json
      command: [python, -c, "import records_json"]
""",
            new="  functions:\n    - path: benchmarks\n",
        ),
    ),
    changes={
        Step.SLOWER: _replace(
            "records_json/api.py",
            "    return json.dumps(plain(value))",
            "    time.sleep(0.005)\n    return json.dumps(plain(value))",
        ),
        Step.HARMLESS: _replace(
            "records_json/api.py",
            "    total = 0.0\n    for value in values:\n        total += value\n    return total / len(values)\n",
            "    return sum(reversed(values)) / len(values)\n",
        ),
        Step.HARMFUL: _replace("records_json/api.py", "word.title()", "word"),
        Step.NEW: (Edit(file="benchmarks/encode.py", new=_NEW_ENCODE),),
        Step.RENAMED: _replace("benchmarks/encode.py", "def average", "def averages"),
        Step.DELETED: _replace("benchmarks/encode.py", "@ci_bench.benchmark\ndef average", "def average"),
    },
    case="functions/encode",
    headlines={
        Step.INIT: "import records_json: an example, the time and memory of the import",
        Step.FIRST: "Nothing to compare with yet",
        Step.SLOWER: "encode",
        Step.HARMFUL: "encode",
        Step.NEW: "encode_one",
        Step.RENAMED: "average",
        Step.DELETED: "average",
    },
)

CONVERTERS = """\
\"\"\"Plain values to classes and back.\"\"\"

import time


class Converter:
    def __init__(self, detailed=False):
        self.detailed = detailed

    def structure(self, values, kinds):
        return tuple(kind(value) for value, kind in zip(values, kinds))

    def unstructure(self, value):
        return [self.unstructure(one) for one in value] if isinstance(value, (list, tuple)) else value


def norm(values):
    return sum(value * value for value in values) ** 0.5
"""
TUPLES = """\
import pytest
from convert import Converter, norm

RAW, KINDS = [1.0, 2, "3", 4.0, 5, "6"] * 20, [int, str, float] * 40


@pytest.mark.parametrize("detailed", [True])
def test_structure_tuple(benchmark, detailed):
    \"\"\"Structure a tuple of several types.\"\"\"
    found = benchmark(Converter(detailed).structure, RAW, KINDS)
    assert found[:3] == (1, "2", 3.0)


def test_norm(benchmark):
    assert benchmark(norm, [number / 7 for number in range(200)]) == pytest.approx(232.4, abs=1)
"""
_NEW_TUPLES = """\


def test_unstructure(benchmark):
    assert benchmark(Converter().unstructure, (1, (2, 3))) == [1, [2, 3]]
"""

PYTEST = Project(
    kind="tests with pytest-benchmark",
    like="python-attrs/cattrs",
    files={
        "src/convert/__init__.py": CONVERTERS,
        "bench/__init__.py": "",
        "bench/test_tuples.py": TUPLES,
        "tests/test_convert.py": "def test_convert():\n    pass\n",
        "pyproject.toml": '[build-system]\nrequires = ["hatchling", "hatch-vcs"]\n[tool.pytest]\naddopts = ["-l", "--benchmark-sort=fullname"]\n'
        '[project]\nname = "convert"\ndynamic = ["version"]\ndependencies = []\n',
    },
    finish=(
        Edit(file=CONFIG, old="setup:    # runs once for each side, before it is measured\n", new=""),
        Edit(file=CONFIG, old="  commands: [pip install pytest]\n", new=""),
        Edit(file=CONFIG, old="  network: true    # set-up may download; measuring may not\n", new=""),
    ),
    changes={
        Step.SLOWER: _replace(
            "src/convert/__init__.py",
            "        return tuple(kind",
            "        time.sleep(0.005)\n        return tuple(kind",
        ),
        Step.HARMLESS: _replace("src/convert/__init__.py", "for value in values)", "for value in reversed(values))"),
        Step.HARMFUL: _replace("src/convert/__init__.py", "tuple(kind(value)", "tuple(value"),
        Step.NEW: (Edit(file="bench/test_tuples.py", new=_NEW_TUPLES),),
        Step.RENAMED: _replace("bench/test_tuples.py", "def test_norm", "def test_length"),
        Step.DELETED: _replace(
            "bench/test_tuples.py",
            "def test_norm(benchmark):\n    assert benchmark(norm, ",
            "def test_norm():\n    assert norm(",
        ),
    },
    case="functions/test_structure_tuple*",
    headlines={
        Step.INIT: "bench/test_tuples.py: 2 benchmarks of pytest-benchmark",
        Step.FIRST: "Passed",
        Step.SLOWER: "test_structure_tuple",
        Step.HARMFUL: "test_structure_tuple",
        Step.NEW: "test_unstructure",
        Step.RENAMED: "test_norm",
        Step.DELETED: "test_norm",
    },
)

PROJECTS = (TRAINING, KERNELS, MODELS, PLAIN, PYTEST)
