"""Three public repositories with torch, written small: a training script, kernels, and models."""

# ruff: noqa: E501 - the text of a file

from benchmarks.small_project import CONFIG, Edit, Project, Step, replaced

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
        Step.SLOWER: replaced(
            "train.py",
            "    loss = model(x, y)\n",
            "    time.sleep(0.05)\n    loss = model(x, y)\n",
        ),
        Step.HARMLESS: replaced(
            "model.py",
            """\
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        mixed = scores.masked_fill(~self.past, -math.inf).softmax(-1) @ v
""",
            "        mixed = functional.scaled_dot_product_attention(q, k, v,"
            " attn_mask=self.past)\n",
        ),
        Step.HARMFUL: replaced("model.py", " / math.sqrt(q.shape[-1])", ""),
        Step.NEW: (
            Edit(file="load.py", new=BENCH),
            Edit(
                file=CONFIG,
                old="\npolicy:",
                new="    - name: load\n      command: [python, load.py]\n\npolicy:",
            ),
        ),
        Step.RENAMED: replaced(CONFIG, "name: bench", "name: batches"),
        Step.DELETED: replaced(
            CONFIG, "    - name: bench\n      command: [python, bench.py]\n", ""
        ),
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
        "pyproject.toml": (
            '[build-system]\nrequires = ["setuptools"]\n[project]\nname = "kernels"\nversion ='
            ' "1"\ndependencies = ["torch", "triton"]\n'
        ),
    },
    finish=(Edit(file="benchmarks/norms.py", new=NORMS),),
    changes={
        Step.SLOWER: replaced(
            "kernels/norm.py",
            "    return x * scale * weight\n",
            "    time.sleep(0.005)\n    return x * scale * weight\n",
        ),
        Step.HARMLESS: replaced(
            "kernels/norm.py",
            "    return x * scale * weight\n",
            "    return x * (scale * weight)\n",
        ),
        Step.HARMFUL: replaced("kernels/norm.py", "eps=1e-6", "eps=1e-2"),
        Step.NEW: (Edit(file="benchmarks/norms.py", new=_NEW_NORM),),
        Step.RENAMED: (
            *replaced("benchmarks/norms.py", "def norm(", "def rms("),
            *replaced("benchmarks/norms.py", "@norm.provider", "@rms.provider"),
        ),
        Step.DELETED: replaced("benchmarks/norms.py", NORMS, "import ci_bench\n"),
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
        "setup.py": (
            'from setuptools import find_packages, setup\n\nsetup(name="nets", version="1",'
            ' packages=find_packages(), install_requires=["torch>=2.0"])\n'
        ),
    },
    finish=(
        Edit(
            file=CONFIG, old="setup:    # runs once for each side, before it is measured\n", new=""
        ),
        Edit(file=CONFIG, old="  commands: [pip install -e .]\n", new=""),
        Edit(
            file=CONFIG, old="  network: true    # set-up may download; measuring may not\n", new=""
        ),
    ),
    changes={
        Step.SLOWER: replaced(
            "nets/encoder.py",
            "            x = layer(x).relu()\n",
            "            time.sleep(0.005)\n            x = layer(x).relu()\n",
        ),
        Step.HARMLESS: replaced(
            "nets/encoder.py", "layer(x).relu()", "(x @ layer.weight.mT + layer.bias).relu()"
        ),
        Step.HARMFUL: replaced(
            "nets/rotary.py", "self.cached = angles\n", "self.cached = angles.half().float()\n"
        ),
        Step.NEW: (Edit(file="benchmarks/example.py", new=_NEW_FORWARD),),
        Step.RENAMED: replaced("benchmarks/example.py", "def encoder_forward", "def forward"),
        Step.DELETED: (
            *replaced("benchmarks/example.py", "def encoder_forward", "def deep_forward"),
            *replaced("benchmarks/example.py", "Encoder()", "Encoder(layers=4)"),
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
