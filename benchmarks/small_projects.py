"""Five public repositories, written small: those with torch, plain Python, and tests with pytest-benchmark.

Each has the traits of the repository that it is like, in code of its own: how it is started, what
it prints, where its benchmarks are, what git ignores. `finish` is what a user edits after `ci-bench
init`, `changes` are the pull requests that follow.
"""

# ruff: noqa: E501 - the text of a file

from benchmarks.small_project import CONFIG, Edit, Project, Step, replaced
from benchmarks.small_torch_projects import KERNELS, MODELS, TRAINING

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
        "pyproject.toml": (
            '[tool.poetry]\nname = "records-json"\nversion ='
            ' "0.0.0"\n[tool.poetry.dependencies]\npython = "^3.7"\n[build-system]\nrequires ='
            ' ["poetry-core"]\n'
        ),
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
        Step.SLOWER: replaced(
            "records_json/api.py",
            "    return json.dumps(plain(value))",
            "    time.sleep(0.005)\n    return json.dumps(plain(value))",
        ),
        Step.HARMLESS: replaced(
            "records_json/api.py",
            "    total = 0.0\n    for value in values:\n        total += value\n    return total /"
            " len(values)\n",
            "    return sum(reversed(values)) / len(values)\n",
        ),
        Step.HARMFUL: replaced("records_json/api.py", "word.title()", "word"),
        Step.NEW: (Edit(file="benchmarks/encode.py", new=_NEW_ENCODE),),
        Step.RENAMED: replaced("benchmarks/encode.py", "def average", "def averages"),
        Step.DELETED: replaced(
            "benchmarks/encode.py", "@ci_bench.benchmark\ndef average", "def average"
        ),
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
        "pyproject.toml": (
            '[build-system]\nrequires = ["hatchling", "hatch-vcs"]\n[tool.pytest]\naddopts = ["-l",'
            ' "--benchmark-sort=fullname"]\n[project]\nname = "convert"\ndynamic ='
            ' ["version"]\ndependencies = []\n'
        ),
    },
    finish=(
        Edit(
            file=CONFIG, old="setup:    # runs once for each side, before it is measured\n", new=""
        ),
        Edit(file=CONFIG, old="  commands: [pip install pytest]\n", new=""),
        Edit(
            file=CONFIG, old="  network: true    # set-up may download; measuring may not\n", new=""
        ),
    ),
    changes={
        Step.SLOWER: replaced(
            "src/convert/__init__.py",
            "        return tuple(kind",
            "        time.sleep(0.005)\n        return tuple(kind",
        ),
        Step.HARMLESS: replaced(
            "src/convert/__init__.py", "for value in values)", "for value in reversed(values))"
        ),
        Step.HARMFUL: replaced("src/convert/__init__.py", "tuple(kind(value)", "tuple(value"),
        Step.NEW: (Edit(file="bench/test_tuples.py", new=_NEW_TUPLES),),
        Step.RENAMED: replaced("bench/test_tuples.py", "def test_norm", "def test_length"),
        Step.DELETED: replaced(
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
