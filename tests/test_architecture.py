"""Who may import whom, what stays pure, how large things get: read from the source, and shown to see what is planted."""

import ast
import io
import re
import signal
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from ci_bench import errors
from ci_bench.errors import CiBenchError, ExitCode
from ci_bench.host.gpus.protocol import ClockCause, Reason
from ci_bench.host.gpus.vendors import VENDORS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}
MOST_FUNCTION_LINES, MOST_FILE_LINES = 60, 700
"""At 100 columns; at 130, which the code had until then, 550 lines were as much text."""
MOST_FILE_TOKENS = 3_900
"""Names, operators and texts of a module, without docstrings, brackets and commas, which depend on
the layout: as many as the largest module had in 550 lines of 130 columns.
"""
FEWEST_LINES = 60
"""A shorter module that a single other one imports is a part of that one."""
ONE_EACH = "ci_bench.formats."
"""Here a module is a format, however short."""

BOTTOM = {"records", "errors"}
MAY_IMPORT = {
    "records": {"errors"},
    "errors": set(),
    "statistics": set(),
    "formats": BOTTOM,
    "report": BOTTOM,
    "judge": {*BOTTOM, "statistics"},
    "host": BOTTOM,
    "suites": {*BOTTOM, "formats", "host", "statistics"},
    "processes": {*BOTTOM, "suites"},
    "checkouts": {*BOTTOM, "processes"},
    "worker": {*BOTTOM, "host", "processes", "suites"},
    "configuration": {*BOTTOM, "checkouts", "processes", "suites"},
    "runner": {
        *BOTTOM,
        "checkouts",
        "configuration",
        "host",
        "judge",
        "processes",
        "suites",
        "worker",
    },
    "diagnostics": {*BOTTOM, "host", "judge", "processes", "suites", "worker"},
    "history": {*BOTTOM, "judge", "report"},
    "github": {"errors"},
    "fleet": {*BOTTOM, "host", "judge", "runner", "statistics", "worker"},
    "starting": {*BOTTOM, "suites"},
    "command_line": {*BOTTOM, "configuration", "formats", "suites"},
}
"""By part of the package: what else of ours it may import; parts that are not here may import all
but the edge, `cli` and `commands`.
"""

EFFECTS = {
    "os",
    "subprocess",
    "socket",
    "shutil",
    "tempfile",
    "pathlib",
    "io",
    "sys",
    "urllib",
    "http",
    "logging",
    "asyncio",
}
EFFECT_CALLS = {
    "open",
    "input",
    "exec",
    "eval",
    "write_text",
    "write_bytes",
    "read_text",
    "read_bytes",
    "unlink",
    "mkdir",
}
PURE = {"judge", "report"}
EDGE = {
    "ci_bench.cli",
    *(module for module in MODULES if module.startswith("ci_bench.command_line")),
}
SCRIPTS = {
    "ci_bench.worker.profiling.replay",
    "ci_bench.suites.command.looping",
    "ci_bench.suites.training_loss.data.generate",
}
PROCESSES = {
    "ci_bench.worker.context",
    "ci_bench.worker.probe",
    "ci_bench.processes.forkserver",
    "ci_bench.worker.ranks",
    "ci_bench.processes.startup",
    "ci_bench.worker.worker",
    "ci_bench.worker.untouched",
    "ci_bench.fleet.ray_core",
    "ci_bench.fleet.slurm",
    "ci_bench.diagnostics.gpu_check.probes",
    "ci_bench.diagnostics.gpu_check.serve",
    "ci_bench.suites.command.meter",
    "ci_bench.suites.command.run",
    "ci_bench.suites.command.stepping",
    "ci_bench.suites.torchbench.backends",
    "ci_bench.suites.training_loss.planted",
}
"""What runs in processes of its own: their environment is what the parent made of the settings."""
TORCH_FREE_OF_A_SUITE = {
    "plan",
    "options",
    "declaring",
    "grids",
    "importing",
    "literal",
    "recording",
}
SHARED_BY_WORKERS = {
    "ci_bench.suites.shared.worker.batch_parts",
    "ci_bench.suites.shared.worker.casts",
    "ci_bench.suites.shared.worker.coverage",
    "ci_bench.suites.shared.worker.fp32_precision",
    "ci_bench.suites.shared.worker.marks",
    "ci_bench.suites.shared.worker.numerics",
    "ci_bench.suites.shared.worker.digests",
    "ci_bench.suites.shared.worker.draws",
    "ci_bench.suites.shared.worker.first_calls",
    "ci_bench.suites.shared.worker.freshness",
    "ci_bench.suites.shared.worker.later_calls",
    "ci_bench.suites.shared.worker.experiments",
    "ci_bench.suites.shared.worker.roofline",
    "ci_bench.suites.shared.worker.roundings",
    "ci_bench.suites.shared.worker.sharing",
    "ci_bench.suites.shared.worker.tilts",
}
"""What the workers' halves of the suites have in common."""


def reasons(module: str) -> Iterator[tuple[object, Reason | ClockCause]]:
    """The rows of a vendor's tables of reasons for low clocks: by whatever key to a reason, or by its word to its cause."""
    tables = [table for table in vars(sys.modules[module]).values() if isinstance(table, dict)]
    yield from (
        (key, value)
        for table in tables
        for key, value in table.items()
        if isinstance(value, Reason | ClockCause)
    )


OF_VENDORS = {type(vendor).__module__ for vendor in VENDORS}
"""The modules of GPU vendors: each alone knows its vendor's library, and the words that are the
vendor's.
"""
LIBRARY_NAMES = {re.sub(r"[^a-z0-9]", "", vendor.library.lower()) for vendor in VENDORS}
WORDS_OF_VENDORS = {
    *(
        word
        for vendor in VENDORS
        for word in (vendor.command, vendor.device_files, vendor.container_option)
    ),
    *(
        value.word if isinstance(value, Reason) else str(key)
        for module in OF_VENDORS
        for key, value in reasons(module)
    ),
}

OF_THE_REFEREE = {
    "ci_bench.worker.look_answers",
    "ci_bench.worker.looks",
    "ci_bench.worker.referee",
    "ci_bench.worker.repeats",
    "ci_bench.worker.untouched",
}
"""Loaded in workers alone, and only for programs that compute with torch."""
OF_RANKS = {"ci_bench.worker.ranked"}
"""Loaded in workers alone, and only in stages of several processes."""
OF_GPU_CHECK = {"ci_bench.diagnostics.gpu_check.probes", "ci_bench.diagnostics.gpu_check.serve"}
"""Loaded in the process that serves probes alone."""


def part(module: str) -> str:
    """The part of the package that a module is in."""
    return module.split(".")[1] if "." in module else ""


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def imports(source: str) -> tuple[tuple[str, bool], ...]:
    """Every module imported, and whether that happens where the module is loaded (not in a function, not for types only)."""
    return tuple(_imports(parsed(source)))


def _imports(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        or is_for_types(node)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) not in lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            yield from (
                (f"{node.module}.{alias.name}", id(node) not in lazy) for alias in node.names
            )
        elif isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"}:
            named = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
            yield from ((str(name), id(node) not in lazy) for name in named)


def libraries_of_vendors() -> set[str]:
    tops = {
        name.partition(".")[0]
        for module in OF_VENDORS
        for name, _ in imports(MODULES[module].read_text())
    }
    return tops - {*sys.stdlib_module_names, "ci_bench"}


def is_for_types(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


LIBRARIES_OF_VENDORS = libraries_of_vendors()
HEAVY = {
    *(
        "huggingface_hub",
        "torch",
        "transformers",
        "datasets",
        "evaluate",
        "safetensors",
        "triton",
        "timm",
        "torchao",
        "torchvision",
    ),
    *LIBRARIES_OF_VENDORS,
}
"""Modules of the extra `engine`; triton comes with torch."""


def astray(module: str, source: str) -> list[str]:
    """Imports that the layout forbids."""
    own = part(module)
    found = []
    for name, on_load in imports(source):
        top, where = name.partition(".")[0], part(name)
        if top == "ci_bench":
            inside = where == own or where in {"", "__version__"}
            edge = where in {"cli", "commands"} and own not in {"cli", "commands"}
            forbidden = edge or (own in MAY_IMPORT and not inside and where not in MAY_IMPORT[own])
            found += [f"{module} imports {name}"] if forbidden else []
        of_the_hub = (module, top) == ("ci_bench.commands.fetch_models", "huggingface_hub")
        if (
            top in HEAVY
            and own not in {"suites", "worker"}
            and module not in OF_VENDORS | OF_GPU_CHECK
            and not of_the_hub
        ):
            found.append(f"{module} imports {top}")
        if (
            top in HEAVY
            and own in {"worker", "host"}
            and on_load
            and module not in OF_THE_REFEREE | OF_RANKS
        ):
            found.append(f"{module} imports {top} when it is loaded")
        if top == "requests" and own != "github":
            found.append(f"{module} imports {top}")
    return found


def tied_to_a_vendor(module: str, source: str) -> list[str]:
    """A GPU vendor's library, names or words outside the module of that vendor."""
    if module in OF_VENDORS:
        return []
    tree = parsed(source)
    found = [
        f"{module} imports {name}"
        for name, _ in imports(source)
        if name.partition(".")[0] in LIBRARIES_OF_VENDORS
    ]
    known = {word for node in ast.walk(tree) for word in words(node)}
    return found or [f"{module} knows {word}" for word in sorted(known)]


def words(node: ast.AST) -> Iterator[str]:
    """The words of vendors in one node: strings as a whole, and names that have a library's in them."""
    if isinstance(node, ast.Constant):
        yield from {str(node.value)} & WORDS_OF_VENDORS
    for field in ("id", "attr", "arg", "name"):
        name = getattr(node, field, None)
        if isinstance(name, str) and any(
            library in name.lower().replace("_", "") for library in LIBRARY_NAMES
        ):
            yield name


def impure(module: str, source: str) -> list[str]:
    """Input and output in a part that has none."""
    tree = parsed(source)
    if part(module) not in PURE:
        return []
    found = [
        f"{module} imports {name}"
        for name, _ in imports(source)
        if name.partition(".")[0] in EFFECTS
    ]
    calls = (called(node) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return found + [f"{module} calls {name}" for name in calls if name in EFFECT_CALLS]


def unsettled(module: str, source: str) -> list[str]:
    """What reads flags or the environment behind the edge, where both have become settings."""
    tree = parsed(source)
    parses = ["argparse"] if any(name == "argparse" for name, _ in imports(source)) else []
    reads = (
        ["os.environ"]
        if any(
            isinstance(node, ast.Attribute)
            and node.attr == "environ"
            and ast.unparse(node) == "os.environ"
            for node in ast.walk(tree)
        )
        else []
    )
    allowed = {
        *(parses if module in EDGE | SCRIPTS else []),
        *(reads if module in {"ci_bench.cli"} | PROCESSES | SCRIPTS else []),
    }
    return [f"{module} reads {what}" for what in (*parses, *reads) if what not in allowed]


def printing(module: str, source: str) -> list[str]:
    """Calls of `print`; those of a console that was handed in are none."""
    calls = (node for node in ast.walk(parsed(source)) if isinstance(node, ast.Call))
    prints = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
    return [
        f"{module} prints in line {node.lineno}"
        for node in prints
        if module != "ci_bench.report.terminal"
    ]


def oversized(module: str, source: str) -> list[str]:
    """Files and functions beyond the limits."""
    lines = len(source.splitlines())
    size = tokens(source)
    found = [f"{module} has {lines} lines"] if lines > MOST_FILE_LINES else []
    found += [f"{module} has {size} tokens"] if size > MOST_FILE_TOKENS else []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            found += (
                [f"{module}.{node.name} has {length} lines"] if length > MOST_FUNCTION_LINES else []
            )
    return found


def tokens(source: str) -> int:
    """The size of a module's code, whatever its layout."""
    texts = {
        (node.value.lineno, node.value.col_offset)
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return sum(
        token.type in {tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP}
        and token.string not in {",", "(", ")"}
        and token.start not in texts
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
    )


def imported(sources: dict[str, str]) -> dict[str, set[str]]:
    """The modules of ours that each module imports, lazily and for types as well."""
    found = {}
    for module, source in sources.items():
        names = {name for name, _ in imports(source)}
        found[module] = {
            name if name in sources else name.rpartition(".")[0] for name in names
        } & sources.keys() - {module}
    return found


def circles(sources: dict[str, str]) -> list[str]:
    """A way from a module back to itself, if there is one."""
    try:
        TopologicalSorter(imported(sources)).prepare()
    except CycleError as error:
        return [" -> ".join(error.args[1])]
    return []


def fragments(sources: dict[str, str]) -> list[str]:
    """Short modules that serve a single other one."""
    importers = Counter(name for names in imported(sources).values() for name in names)
    short = (
        module for module, source in sources.items() if len(source.splitlines()) < FEWEST_LINES
    )
    return [
        module for module in short if importers[module] == 1 and not module.startswith(ONE_EACH)
    ]


def undocumented(module: str, source: str) -> list[str]:
    """A module without a docstring."""
    return [] if ast.get_docstring(parsed(source)) else [f"{module} has no docstring"]


@pytest.mark.parametrize(
    "rule", [astray, tied_to_a_vendor, impure, unsettled, printing, oversized, undocumented]
)
def test_the_source_keeps_to_the_layout(rule) -> None:
    assert len(MODULES) > 40
    assert [
        complaint
        for module, path in MODULES.items()
        for complaint in rule(module, path.read_text())
    ] == []


@pytest.mark.parametrize("rule", [circles, fragments])
def test_modules_are_subjects_in_one_order(rule) -> None:
    assert rule({module: path.read_text() for module, path in MODULES.items()}) == []


DOOR = {"ci_bench", "ci_bench.cli", "ci_bench.errors"}
"""The only modules outside of the folders."""
SPLIT = {"judge", "suites"}
"""Folders whose own folders are rooms, too."""
LATE = {"ci_bench.commands.fleet_hook", "ci_bench.commands.judging", "ci_bench.commands.sides"}
"""Commands that import in functions: a fleet, the page (drawn by a copy of the process), other
tools' formats.
"""


def room(module: str) -> str:
    """The folder that a module is in; of the split ones, the inner one."""
    names = module.split(".")[1:-1]
    return ".".join(names[:2] if names[:1] and names[0] in SPLIT else names[:1])


def rooms(sources: dict[str, str]) -> dict[str, set[str]]:
    """The rooms that the modules of each room import.

    What lies in a split folder itself is its door, and no room.
    """
    found: dict[str, set[str]] = {}
    for module, names in imported(sources).items():
        found.setdefault(room(module), set()).update(
            {room(name) for name in names} - {room(module)}
        )
    return {
        name: others - {"", *SPLIT} for name, others in found.items() if name not in {"", *SPLIT}
    }


def circles_of_rooms(sources: dict[str, str]) -> list[str]:
    """A way from a folder back to itself, if there is one."""
    try:
        TopologicalSorter(rooms(sources)).prepare()
    except CycleError as error:
        return [" -> ".join(error.args[1])]
    return []


def late(module: str, source: str) -> list[str]:
    """Our own modules that a command's module imports in a function."""
    if part(module) != "commands" or module in LATE:
        return []
    return [
        f"{module} imports {name} in a function"
        for name, on_load in imports(source)
        if not on_load and name.startswith("ci_bench.")
    ]


def test_every_class_has_a_name_of_its_own() -> None:
    names = Counter(
        node.name
        for path in MODULES.values()
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_nothing_but_the_door_lies_outside_of_the_folders() -> None:
    assert {module for module in MODULES if "." not in module.removeprefix("ci_bench.")} - DOOR == {
        module
        for module, path in MODULES.items()
        if path.name == "__init__.py" and module.count(".") == 1
    }


def test_folders_import_in_one_order() -> None:
    assert circles_of_rooms({module: path.read_text() for module, path in MODULES.items()}) == []


def test_a_planted_circle_of_folders_is_seen() -> None:
    sources = {
        "ci_bench.a.x": "import ci_bench.b.y",
        "ci_bench.b.y": "",
        "ci_bench.b.z": "",
        "ci_bench.a.w": "",
    }
    assert circles_of_rooms(sources) == []
    (found,) = circles_of_rooms({**sources, "ci_bench.b.z": "def f():\n    import ci_bench.a.w"})
    assert {*found.split(" -> ")} == {"a", "b"}


def test_commands_import_at_the_top() -> None:
    assert [
        complaint
        for module, path in MODULES.items()
        for complaint in late(module, path.read_text())
    ] == []
    (found,) = late("ci_bench.commands.gate", "def f():\n    from ci_bench.judge import compare")
    assert "imports ci_bench.judge.compare in a function" in found


@pytest.mark.parametrize(
    "back",
    [
        "from a import x",
        "def f():\n    from a import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a",
    ],
)
def test_a_planted_circle_is_seen(back: str) -> None:
    sources = {"a": "import b", "b": "from c import x", "c": "", "d": "import a"}
    assert circles(sources) == []
    (found,) = circles({**sources, "c": back})
    assert {*found.split(" -> ")} == {"a", "b", "c"}


def test_a_planted_fragment_is_seen() -> None:
    long = "x = 1\n" * FEWEST_LINES
    assert fragments({"a": long + "import b", "b": "", "c": long + "import d", "d": long}) == ["b"]
    assert fragments({"a": long + "import b", "b": "", "c": long + "import b"}) == [], "two need it"
    assert fragments({"a": long + f"import {ONE_EACH}x", f"{ONE_EACH}x": ""}) == []


def test_every_part_is_known() -> None:
    """A new part has to be given its place above, or it could import everything."""
    free = {"", "__version__", "cli", "commands"}
    assert {part(module) for module in MODULES} <= {*MAY_IMPORT, *free}


PLANTED = [
    (
        astray,
        "ci_bench.records.results",
        "from ci_bench.configuration.config import load_config",
        "imports ci_bench.configuration.config.load_config",
    ),
    (
        astray,
        "ci_bench.records.results",
        "def f():\n    import ci_bench.judge.times.ratios",
        "imports ci_bench.judge.times.ratios",
    ),
    (
        astray,
        "ci_bench.configuration.config",
        "from ci_bench.runner import runner",
        "imports ci_bench.runner.runner",
    ),
    (
        astray,
        "ci_bench.suites.contract",
        "from ci_bench.worker.fence import x",
        "imports ci_bench.worker.fence.x",
    ),
    (
        astray,
        "ci_bench.processes.launch",
        "from ci_bench.judge import compare",
        "imports ci_bench.judge.compare",
    ),
    (
        astray,
        "ci_bench.judge.times.ratios",
        "from ci_bench.report.text import plain",
        "imports ci_bench.report.text.plain",
    ),
    (
        astray,
        "ci_bench.judge.times.ratios",
        "from ci_bench import report",
        "imports ci_bench.report",
    ),
    (
        astray,
        "ci_bench.report.text",
        "class A:\n    from ci_bench import judge",
        "imports ci_bench.judge",
    ),
    (
        astray,
        "ci_bench.runner.runner",
        "def f():\n    from ci_bench.cli import main",
        "imports ci_bench.cli.main",
    ),
    (astray, "ci_bench.diagnostics.doctor", "from ci_bench import cli", "imports ci_bench.cli"),
    (
        astray,
        "ci_bench.runner.runner",
        "from ci_bench.commands import compare",
        "imports ci_bench.commands.compare",
    ),
    (
        astray,
        "ci_bench.github.client",
        "from ci_bench.records.results import Case",
        "imports ci_bench.records.results.Case",
    ),
    (astray, "ci_bench.diagnostics.doctor", "def f():\n    import torch.cuda", "imports torch"),
    (
        astray,
        "ci_bench.runner.runner",
        'def f():\n    import_module("transformers")',
        "imports transformers",
    ),
    (astray, "ci_bench.worker.probe", "import pynvml", "imports pynvml when it is loaded"),
    (
        astray,
        "ci_bench.worker.probe",
        "try:\n    from torch import cuda\nexcept ImportError:\n    pass",
        "imports torch when",
    ),
    (astray, "ci_bench.suites.contract", "import requests", "imports requests"),
    (astray, "ci_bench.host.gpus.nvidia", "import pynvml", "imports pynvml when it is loaded"),
    (astray, "ci_bench.host.gpus.protocol", "def f():\n    import torch", "imports torch"),
    (
        astray,
        "ci_bench.host.gpus.vendors",
        "from ci_bench.worker import probe",
        "imports ci_bench.worker.probe",
    ),
    (tied_to_a_vendor, "ci_bench.host.monitor", "def f():\n    import pynvml", "imports pynvml"),
    (
        tied_to_a_vendor,
        "ci_bench.suites.transformers.run",
        "def f():\n    from pynvml import nvmlInit",
        "imports pynvml.nvmlInit",
    ),
    (
        tied_to_a_vendor,
        "ci_bench.worker.probe",
        "def f(gpu):\n    gpu.nvmlDeviceGetUUID()",
        "knows nvmlDeviceGetUUID",
    ),
    (
        tied_to_a_vendor,
        "ci_bench.host.gpus.vendors",
        "def load_nvml():\n    pass",
        "knows load_nvml",
    ),
    (tied_to_a_vendor, "ci_bench.host.health", 'HARMFUL = ("hw_slowdown",)', "knows hw_slowdown"),
    (tied_to_a_vendor, "ci_bench.diagnostics.doctor", 'which("nvidia-smi")', "knows nvidia-smi"),
    (impure, "ci_bench.judge.times.ratios", "import os.path", "imports os.path"),
    (impure, "ci_bench.report.markdown", "from pathlib import Path", "imports pathlib.Path"),
    (impure, "ci_bench.judge.compare", 'def f():\n    return open("x")', "calls open"),
    (
        impure,
        "ci_bench.report.progress",
        'def f(path):\n    path.write_text("x")',
        "calls write_text",
    ),
    (unsettled, "ci_bench.commands.compare", "import argparse", "reads argparse"),
    (
        unsettled,
        "ci_bench.runner.runner",
        "import os\ndef f():\n    return os.environ.get('A')",
        "reads os.environ",
    ),
    (printing, "ci_bench.worker.worker", 'def f():\n    print("x")', "prints in line 2"),
    (oversized, "ci_bench.cli", "\n" * 701, "has 701 lines"),
    (
        oversized,
        "ci_bench.cli",
        "class A:\n    def f(self):\n" + "        self\n" * 60,
        "ci_bench.cli.f has 61 lines",
    ),
    (oversized, "ci_bench.cli", "a = 1\n" * 650 + "[a" + ", a" * 3000 + "]", "has 4953 tokens"),
    (undocumented, "ci_bench.cli", "import os", "has no docstring"),
]


@pytest.mark.parametrize(("rule", "module", "source", "complaint"), PLANTED)
def test_what_is_planted_is_seen(rule, module: str, source: str, complaint: str) -> None:
    (found,) = rule(module, source)
    assert complaint in found


ALLOWED = [
    (astray, "ci_bench.records.documents", "from ci_bench.errors import BadDocument"),
    (astray, "ci_bench.configuration.config", "from ci_bench.configuration.config import parse"),
    (astray, "ci_bench.worker.worker", "from ci_bench.suites.contract import Context"),
    (astray, "ci_bench.worker.probe", "def f():\n    import torch"),
    (
        astray,
        "ci_bench.worker.probe",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
    ),
    (astray, "ci_bench.suites.training_loss.run", "import torch"),
    (astray, "ci_bench.diagnostics.doctor", "from ci_bench.processes.launch import Launcher"),
    (astray, "ci_bench.runner.runner", "from ci_bench import __version__"),
    (astray, "ci_bench.cli", "from ci_bench.commands.judging import judge"),
    (astray, "ci_bench.github.client", "import requests"),
    (astray, "ci_bench.host.gpus.nvidia", "def f():\n    import pynvml"),
    (
        tied_to_a_vendor,
        "ci_bench.host.gpus.nvidia",
        'def f():\n    import pynvml\n    return "hw_slowdown"',
    ),
    (tied_to_a_vendor, "ci_bench.host.health", "from ci_bench.host.gpus.protocol import Cause"),
    (impure, "ci_bench.commands.judging", "import os"),
    (unsettled, "ci_bench.worker.worker", "import os\nos.environ.update({})"),
    (unsettled, "ci_bench.commands.compare", "def f(settings):\n    return settings.environ"),
    (printing, "ci_bench.report.terminal", "def f(console):\n    console.print()"),
]


@pytest.mark.parametrize(("rule", "module", "source"), ALLOWED)
def test_what_is_allowed_is_let_be(rule, module: str, source: str) -> None:
    assert rule(module, source) == []


def is_torch_free(module: str) -> bool:
    inside = module.removeprefix("ci_bench.suites.").split(".")
    if module in SHARED_BY_WORKERS | OF_THE_REFEREE | OF_RANKS | OF_GPU_CHECK:
        return False
    return (
        not module.startswith("ci_bench.suites.")
        or len(inside) == 1
        or inside[1] in TORCH_FREE_OF_A_SUITE
    )


def test_nothing_but_the_workers_half_of_a_suite_needs_torch() -> None:
    wanted = [module for module in MODULES if is_torch_free(module)]
    assert "ci_bench.suites.training_loss.plan" in wanted
    assert "ci_bench.suites.training_loss.run" not in wanted
    code = "import sys, importlib; [importlib.import_module(name) for name in sys.argv[2:]]; "
    code += (
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {*sys.argv[1].split()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, " ".join(HEAVY), *wanted],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("\n", "")


# Exit codes

SIGNALLED = 128


def families() -> list[type[CiBenchError]]:
    return CiBenchError.__subclasses__()


def causes(family: type[CiBenchError]) -> list[type[CiBenchError]]:
    return [family, *(below for child in family.__subclasses__() for below in causes(child))]


def test_the_exit_codes_are_those_that_callers_know() -> None:
    outcomes = {code.name: code.value for code in ExitCode if code < SIGNALLED}
    assert outcomes == {
        "OK": 0,
        "POLICY_NOT_MET": 1,
        "BAD_INPUT": 2,
        "MEASURING_FAILED": 3,
        "INCOMPARABLE": 4,
        "GITHUB": 5,
    }
    ended_by = {"INTERRUPTED": signal.SIGINT, "BROKEN_PIPE": signal.SIGPIPE}
    rest = {code.name: code.value - SIGNALLED for code in ExitCode if code >= SIGNALLED}
    assert rest == {name: ended_by[name] for name in rest}, (
        "as shells count: 128 and the signal's number"
    )


def test_each_family_of_errors_has_its_own_exit_code() -> None:
    codes = [family.__dict__["exit_code"] for family in families()]
    assert sorted(set(codes)) == sorted(codes)
    assert {*codes} <= {ExitCode.BAD_INPUT, ExitCode.MEASURING_FAILED, ExitCode.GITHUB}, (
        "0, 1 and 4 are verdicts, no errors"
    )


def test_each_error_belongs_to_one_family_and_keeps_its_code() -> None:
    every = [error for family in families() for error in causes(family)]
    assert len(set(every)) == len(every)
    assert [error for error in every if "exit_code" in error.__dict__] == families()
    ours = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, CiBenchError)
    }
    assert ours - {CiBenchError} <= {*every}


def test_errors_are_defined_in_one_module() -> None:
    """Elsewhere a class could miss its family; what never reaches a user is no `CiBenchError`."""
    defined = {
        f"{module}.{node.name}": {base.id for base in node.bases if isinstance(base, ast.Name)}
        for module, path in MODULES.items()
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    known = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, CiBenchError)
    }
    assert [
        name
        for name, bases in defined.items()
        if bases & known and not name.startswith("ci_bench.errors.")
    ] == []


# Dependencies

DISTRIBUTIONS = {"huggingface_hub": "huggingface-hub", "yaml": "pyyaml", "pynvml": "nvidia-ml-py"}
COMES_WITH = {"triton"}
ASKED_FOR = {"ray", "submitit"}
"""The extras `ray` and `slurm`: imported where a cluster is asked for."""
ON_REQUEST = {"_pytest", "pytest", "timm", "torchao", "torchvision", "tritonbench"}
"""Used by suites where a user has installed them and asks for them, with a clear word where they
are missing.
"""
LATER = {"requests"} if "ci_bench.github" not in MODULES else set()
"""Declared before the part that imports it is here."""


def third_party() -> set[str]:
    tops = {
        name.partition(".")[0] for path in MODULES.values() for name, _ in imports(path.read_text())
    }
    return {
        DISTRIBUTIONS.get(top, top)
        for top in tops - {"ci_bench"} - COMES_WITH - ON_REQUEST
        if top not in sys.stdlib_module_names
    }


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base, extra, *asked_for = (
        {re.split(r"[<>=!~\[; ]", requirement)[0].lower() for requirement in listed}
        for listed in (
            project["dependencies"],
            *(project["optional-dependencies"][name] for name in ("engine", "ray", "slurm")),
        )
    )
    heavy = {DISTRIBUTIONS.get(top, top) for top in HEAVY - COMES_WITH - ON_REQUEST}
    assert base == third_party() - heavy - ASKED_FOR | LATER
    assert set().union(*asked_for) == ASKED_FOR <= third_party()
    assert extra == third_party() & heavy == heavy
