"""Versions and tools of a GPU host, the cost of imports, and if forked workers can use the GPU.

Run as ``python -m benchmarks.gpu.environment FILE``. FILE gets everything, the output what matters.
Nothing here needs a GPU. If a forked worker cannot use the GPU, an empty file ``no-worker`` next to
FILE makes the trial skip the stages that fork workers.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from benchmarks.gpu.measuring import run_module, this_trial
from ci_bench.runner.servers import preload_of
from ci_bench.suites.registry import find_suite

ROOT = Path(__file__).resolve().parents[2]
NO_WORKER = "no-worker"
LIMIT_S, LONG_S = 150, 0.1
TOOLS = ("git", "gcc", "g++", "ninja", "make", "nvcc", "ptxas", "nvidia-smi", "taskset")
IMPORTED = (
    "torch",
    "numpy",
    "scipy",
    "msgspec",
    "jsonschema",
    "rich",
    "requests",
    "yaml",
    "safetensors",
    "datasets",
    "evaluate",
    "transformers",
    "pynvml",
    "pytest",
    "xdist",
    "hypothesis",
    "ci_bench",
)
SHOWN = (
    "torch",
    "triton",
    "transformers",
    "datasets",
    "numpy",
    "scipy",
    "huggingface-hub",
    "nvidia-ml-py",
    "pytest",
    "msgspec",
)
FOR_TESTS = ("pytest>=9.0", "pytest-timeout>=2.4", "pytest-xdist>=3.8", "hypothesis>=6.120")
WHOLE = frozenset({"torch", "transformers"})
"""Packages whose requirements are the host's concern."""
ENTRIES: Mapping[str, Mapping[str, Any]] = {
    "training_loss": {"name": "a"},
    "fastrnns": {"variants": ["cudnn", "jit"]},
    "torchbench": {"models": ["mlp"], "mode": "training", "backend": "inductor"},
    "transformers": {"model": "bert"},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Look, print, write; return 1 if something is wrong."""
    (file,) = map(Path, sys.argv[1:] if argv is None else argv)
    imports: Mapping[str, tuple[float, str]] = _forking("imports", IMPORTED)
    server = _forking("server", preloaded())
    query = _forking("query", ())
    tools = {name: shutil.which(name) for name in TOOLS}
    header = Path(sysconfig.get_path("include")) / "Python.h"
    tools["Python.h"] = str(header) if header.exists() else None
    document = {
        "python": f"{sys.version.split()[0]} {sys.executable}",
        "packages": {package.metadata["Name"]: package.version for package in distributions()},
        "tools": tools,
        "unmet": unmet(ROOT / "pyproject.toml"),
        "imports": imports,
        "server": server,
        "fork after is_available": query,
    }
    file.write_text(json.dumps(document, indent=1), encoding="utf-8")
    wrong = faults(imports, server)
    works = server.get("worker") == "works"
    mark = file.with_name(NO_WORKER)
    mark.unlink(missing_ok=True)
    if not works:
        mark.touch()
    _print(document)
    torch_s = imports.get("torch", (None, ""))[0]
    words = "; ".join(wrong) or "nothing wrong"
    worker = server.get("worker", server)
    torch = f"torch {_version('torch')} imported in {torch_s} s"
    _say(f"FIGURE: {torch}; forked worker: {worker}; {words}")
    return int(bool(wrong))


def faults(imports: Mapping[str, tuple[float, str]], server: Mapping[str, Any]) -> list[str]:
    """Return in words what keeps ci-bench from measuring here."""
    wrong = [f"cannot import {name}" for name, (_, trouble) in imports.items() if trouble]
    end = server.get("end") or {}
    if server.get("worker") != "works":
        wrong.append("a forked worker cannot use the GPU")
    if server.get("touched") or end.get("children") or end.get("python threads", 1) > 1:
        wrong.append("importing touches the GPU, or starts threads or processes")
    return wrong


def _print(document: Mapping[str, Any]) -> None:
    tools = (f"{name} {'yes' if path else 'NO'}" for name, path in document["tools"].items())
    versions = (f"{name} {_version(name)}" for name in SHOWN if _version(name))
    _say(f"python: {document['python']}")
    _say(f"tools: {', '.join(tools)}")
    _say(f"unmet requirements: {'; '.join(document['unmet']) or 'none'}")
    _say(f"versions: {', '.join(versions)}")
    for name, (seconds, trouble) in document["imports"].items():
        if trouble or seconds >= LONG_S:
            _say(f"import {name}: {seconds} s {trouble}")
    server = document["server"]
    for step in server.get("steps", ()):
        _say(f"server: {step}")
    _say(f"server: { {name: value for name, value in server.items() if name != 'steps'} }")
    _say(f"fork after torch.cuda.is_available(): {document['fork after is_available']}")


def preloaded() -> tuple[str, ...]:
    """Return the imports of the process behind a launch of all four suites."""
    suites = {name: find_suite(name) for name in ENTRIES}
    plan = [(suites[name], case) for name in ENTRIES for case in suites[name].plan(ENTRIES[name])]
    return ("ci_bench.worker.worker", *preload_of(plan))


def unmet(project: Path) -> list[str]:
    """Return the unmet requirements of the project, and of the packages that it needs."""
    declared = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    engine = declared["optional-dependencies"]["engine"]
    waiting = [*declared["dependencies"], *engine, *FOR_TESTS]
    visited: set[str] = set()
    missing: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        installed = _version(requirement.name)
        if installed is None or not requirement.specifier.contains(installed, prereleases=True):
            missing.add(f"{requirement.name}{requirement.specifier} (here {installed})")
        if installed is not None and requirement.name not in visited | WHOLE:
            visited.add(requirement.name)
            waiting += requires(requirement.name) or []
    return sorted(missing)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _forking(kind: str, modules: Sequence[str]) -> Any:
    """Run `benchmarks.gpu.forking`, as ci-bench starts the parents of workers."""
    environ = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"} if kind == "server" else {}
    trial = this_trial()
    try:
        done = run_module(trial, "forking", kind, *modules, limit_s=LIMIT_S, environ=environ)
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        _say(f"{kind}: no answer within {LIMIT_S * trial.patience} s")
    except (IndexError, ValueError):
        _say(f"{kind}: {done.stderr[-800:]}")
    return {}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
