"""Small repositories of the kinds that people have, re-created: their files, and what `init` makes of them."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Repository:
    """Files by path, and what `init` writes: suites, set-up, the workflow's differences, an example."""

    files: dict[str, str]
    suites: dict[str, list]
    setup: dict | None = None
    gpu: bool = True
    inputs: dict[str, str] = field(default_factory=dict)
    example: str | None = None
    words: str = ""


NANO_GPT = """
import torch
from model import GPT

def get_batch():
    return torch.zeros(1)

model = GPT()
for step in range(10):
    loss = model(get_batch())
    loss.backward()
    print(f"iter {step}: loss {loss.item():.4f}, time 1.00ms")
"""
MODEL = """
import torch
from torch import nn

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab, 8)
"""
KERNEL = "import torch\nimport triton\n\ndef softmax(x):\n    return torch.softmax(x, -1)\n"
PERF_REPORT = """
import torch, triton
from kernels import softmax

@triton.testing.perf_report(triton.testing.Benchmark(x_names=["n"], x_vals=[128], line_arg="provider", line_vals=["ours"]))
def benchmark(n, provider):
    return triton.testing.do_bench(lambda: softmax(torch.zeros(n, n)))
"""
DECORATED = """
import ci_bench
from kernels import softmax

@ci_bench.benchmark(shape=[(64, 64), (128, 128)], dtype=["fp32", "bf16"])
def soft(shape, dtype):
    (x,) = ci_bench.inputs(1, shape, dtype)
    return lambda: softmax(x)
"""
NETWORK = """
import torch
from torch import nn

class Mlp(nn.Module):
    def __init__(self, width: int = 16, *, hidden: int = 32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 4))

    def forward(self, x):
        return self.layers(x)
"""
TESTS = """
import json

def test_dumps(benchmark):
    benchmark(json.dumps, {"a": 1})

def test_plain():
    assert json.loads("1") == 1
"""
ASV = """
class Suite:
    params = [10, 100]

    def setup(self, n):
        self.values = list(range(n))

    def time_sort(self, n):
        sorted(self.values)

    def peakmem_copy(self, n):
        return list(self.values)
"""
LOOP = """
import ci_bench

def train(width: int = 8):
    while True:
        loss = compute(width)
        loss.backward()
        yield ci_bench.Step(loss=loss)
"""
PROJECT = '[build-system]\nrequires = ["setuptools"]\n[project]\nname = "{name}"\ndependencies = [{dependencies}]\n'

REPOSITORIES = {
    "a training script": Repository(
        files={"train.py": NANO_GPT, "model.py": MODEL, "README.md": "# nano"},
        suites={
            "command": [
                {
                    "name": "train",
                    "command": ["python", "train.py"],
                    "losses": {"warmup_steps": 3},
                    "output": "stdout",
                }
            ]
        },
        words="losses and step times of a training",
    ),
    "a training loop": Repository(
        files={
            "src/trainer/__init__.py": "",
            "src/trainer/loop.py": LOOP,
            "setup.py": "from setuptools import setup\nsetup()\n",
        },
        suites={
            "command": [
                {
                    "name": "train",
                    "loop": "trainer.loop:train",
                    "losses": {"steps": 30, "warmup_steps": 5},
                }
            ]
        },
        gpu=False,
        inputs={"gpus": "none"},
    ),
    "a kernel library": Repository(
        files={
            "kernels/__init__.py": KERNEL,
            "kernels/csrc/softmax.cu": "__global__ void softmax() {}",
            "benchmarks/softmax.py": DECORATED,
            "benchmarks/report.py": PERF_REPORT,
            "pyproject.toml": PROJECT.format(name="kernels", dependencies='"torch>=2.4"'),
        },
        suites={"functions": [{"path": "benchmarks"}]},
        setup={"commands": ["pip install --no-deps --no-build-isolation -e ."]},
        words="benchmarks/softmax.py: 1 benchmark of ci-bench, 4 cases",
    ),
    "a model library": Repository(
        files={
            "src/nets/__init__.py": "from nets.mlp import Mlp\n",
            "src/nets/mlp.py": NETWORK,
            "tests/test_mlp.py": "def test_mlp():\n    pass\n",
            "pyproject.toml": PROJECT.format(name="nets", dependencies='"torch", "einops>=0.7"'),
        },
        suites={"functions": [{"path": "benchmarks/example.py"}]},
        setup={"commands": ["pip install -e ."], "network": True},
        inputs={"setup_network": "true"},
        example="benchmarks/example.py",
        words="the forward pass of Mlp; check the shape of its input",
    ),
    "a pure-Python package": Repository(
        files={
            "dataclasses_json/__init__.py": "def to_json(value):\n    return str(value)\n",
            "dataclasses_json/clock.py": "def time_now():\n    return 0\n",
            "tests/test_api.py": "def test_api():\n    pass\n",
            "pyproject.toml": PROJECT.format(name="dataclasses-json", dependencies=""),
        },
        suites={
            "command": [
                {
                    "name": "import_dataclasses_json",
                    "command": ["python", "-c", "import dataclasses_json"],
                }
            ]
        },
        gpu=False,
        inputs={"gpus": "none"},
        words="the time and memory of the import",
    ),
    "tests with pytest-benchmark": Repository(
        files={
            "fast/__init__.py": "",
            "tests/test_speed.py": TESTS,
            "tests/test_more.py": "def test_more():\n    pass\n",
            "pyproject.toml": PROJECT.format(name="fast", dependencies=""),
        },
        suites={"functions": [{"path": "tests/test_speed.py"}]},
        setup={"commands": ["pip install pytest"], "network": True},
        gpu=False,
        inputs={"gpus": "none", "setup_network": "true"},
        words="tests/test_speed.py: 1 benchmark of pytest-benchmark",
    ),
    "a package in a folder": Repository(
        files={
            "packages/core/core/__init__.py": "",
            "packages/core/tests/test_speed.py": TESTS,
            "packages/core/pyproject.toml": PROJECT.format(name="core", dependencies=""),
            "packages/docs/pyproject.toml": PROJECT.format(name="docs", dependencies=""),
            "packages/web/package.json": "{}",
        },
        suites={"functions": [{"path": "packages/core/tests/test_speed.py"}]},
        setup={"commands": ["pip install pytest -e ./packages/core"], "network": True},
        gpu=False,
        inputs={"gpus": "none", "setup_network": "true"},
        words="packages/core/tests/test_speed.py: 1 benchmark of pytest-benchmark",
    ),
    "an asv suite": Repository(
        files={
            "asv.conf.json": "{}",
            "benchmarks/__init__.py": "",
            "benchmarks/sorting.py": ASV,
            "benchmarks/report.py": "import json\nprint(json.dumps({}))\n",
        },
        suites={
            "functions": [{"path": "benchmarks/sorting.py"}],
            "command": [{"name": "report", "command": ["python", "benchmarks/report.py"]}],
        },
        gpu=False,
        inputs={"gpus": "none"},
        words="benchmarks/sorting.py: 2 benchmarks of asv",
    ),
    "nothing yet": Repository(
        files={"README.md": "# new"},
        suites={"functions": [{"path": "benchmarks/example.py"}]},
        gpu=False,
        inputs={"gpus": "none"},
        example="benchmarks/example.py",
        words="an example to replace",
    ),
}
