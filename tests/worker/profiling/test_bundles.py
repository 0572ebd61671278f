"""A graph of a compiler that is wrong, or fails, goes wrong by itself in a fresh process, and passes with the right compiler."""

import os
import subprocess
import sys
import zipfile
from multiprocessing import get_context
from pathlib import Path

import pytest

pytest.importorskip("torch._dynamo.backends.common")

import torch

from ci_bench.records.profiles import Bundle
from ci_bench.worker.profiling import bundles, minifying, replay
from ci_bench.worker.profiling.bundles import Graphs

pytestmark = pytest.mark.engine

PLANTED = Path(__file__).parents[2] / "suites" / "torchbench"


def _compile(name: str, mode: str, folder: Path, writer, minified: bool) -> None:
    """One step of a small model by a compiler, and the bundle of what is wrong of it; in a process of its own."""
    import torch

    sys.path.insert(0, str(PLANTED))
    os.environ["PYTHONPATH"] = str(PLANTED)
    os.chdir(folder)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.Dropout(0.3), torch.nn.GELU(), torch.nn.BatchNorm1d(8)
    )
    bundles.MOST_MINIFYING_S = 190.0 if minified else 0.0  # a busy machine is to reach the end
    graphs = Graphs()
    graphs.listen()
    x = torch.randn(5, 8) if mode != "large" else torch.randn(120_000, 8)
    try:
        with torch.no_grad() if mode == "inference" else torch.enable_grad():
            found = torch.compile(
                model.eval() if mode == "inference" else model, backend=replay.compiler_of(name)
            )(x)
        if mode != "inference":
            found.sum().backward()
    except Exception as error:  # noqa: BLE001 - of a planted compiler
        writer.send(("failed", type(error).__name__))
    else:
        writer.send(("ran", len(graphs.taken)))
    writer.send((graphs.bundle(folder, "arm", limit_s=390.0), graphs.note))


def bundled(
    name: str, folder: Path, *, mode: str = "training", minified: bool = False
) -> tuple[Bundle | None, str]:
    """The bundle that a compiler leaves in a folder, and what is noted; never of a fork of this process: torch has threads here."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["ci_bench.worker.profiling.bundles"])
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_compile, args=(name, mode, folder, writer, minified))
    child.start()
    writer.close()
    reader.recv()
    answer = reader.recv()
    child.join()
    return answer


def replayed(path: Path, *arguments: str):
    """What a user sees who runs it: nothing of ci-bench is on the path but what is installed."""
    environ = {**os.environ, "PYTHONPATH": str(PLANTED)}
    command = [sys.executable, str(path), *arguments]
    return subprocess.run(
        command,
        cwd=path.parent,
        env=environ,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "says", "size"),
    [
        ("planted_backends:scaled_output", "output 0 is off by", "1 of 5"),
        ("planted_backends:flipped_gradients", "gradient of input", "all 5"),
        ("planted_backends:refusing", "compiling fails: BackendCompilerFailed", "all 5"),
    ],
)
def test_a_planted_compiler_has_a_bundle_that_fails_for_it_and_passes_for_the_right_one(
    tmp_path, name, says, size
) -> None:
    bundle, note = bundled(name, tmp_path, minified=size != "all 5")
    assert bundle is not None, note
    assert bundle.file == "repro-arm.pyz"
    assert says in bundle.says
    assert bundle.says.endswith(f"(the graph has {size} operators)")
    assert [one.name for one in tmp_path.iterdir()] == [bundle.file]
    path = tmp_path / bundle.file
    right = replayed(path, "--compiler", "aot_eager")
    assert right.returncode == replay.RIGHT, right.stdout + right.stderr
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == ["__main__.py", "inputs.safetensors", "replay.py"]
        text = archive.read("__main__.py").decode() + archive.read("replay.py").decode()
        assert "class Repro(torch.nn.Module):" in text
        assert "pickle" not in text.replace("unpickled", "")


@pytest.mark.parametrize(
    ("name", "mode"),
    [("planted_backends:right", "training"), ("eager", "inference"), ("aot_eager", "training")],
)
def test_the_right_compiler_has_none(tmp_path, name, mode) -> None:
    bundle, note = bundled(name, tmp_path, mode=mode)
    assert (bundle, note, list(tmp_path.iterdir())) == (None, "", [])


def test_inputs_that_are_too_large_are_drawn_and_it_goes_wrong_all_the_same(tmp_path) -> None:
    bundle, note = bundled("planted_backends:scaled_output", tmp_path, mode="large")
    assert bundle is not None, note
    assert (tmp_path / bundle.file).stat().st_size < 100_000, (
        "the file is small, and it went wrong in a fresh process"
    )
    with zipfile.ZipFile(tmp_path / bundle.file) as archive:
        assert "'spread'" in archive.read("__main__.py").decode()


def test_what_goes_wrong_only_here_is_noted_and_not_kept(tmp_path, monkeypatch) -> None:
    graphs = Graphs()
    import torch

    graph = torch.fx.symbolic_trace(torch.nn.Tanh())
    fields = {"compiler": "eager", "options": {}, "grad": False, "autocast": "", "device": "cpu"}
    captured = bundles.CapturedBundle(
        graph=graph, inputs=(torch.ones(3),), compiled=lambda x: 2 * x, **fields
    )
    assert captured.is_suspect()
    graphs.taken.append(captured)
    monkeypatch.setattr(
        bundles,
        "check",
        lambda *_, **__: replay.ReplayOutcome(code=replay.RIGHT, says="1 tensors agree"),
    )
    monkeypatch.setattr(bundles, "minify", lambda *_, **__: False)
    assert graphs.bundle(tmp_path, "arm", limit_s=100.0) is None
    assert (
        graphs.note
        == "a graph seemed wrong, but its reproducer does not confirm that: 1 tensors agree"
    )
    assert list(tmp_path.iterdir()) == []


def test_no_time_is_spent_beyond_the_limit(tmp_path) -> None:
    graphs = Graphs(
        taken=[
            bundles.CapturedBundle(
                graph=None,
                inputs=(),
                compiler="x",
                options={},
                grad=False,
                autocast="",
                device="cpu",
            )
        ]
    )
    graphs.taken[0].failed = True
    assert graphs.bundle(tmp_path, "arm", limit_s=bundles.LEAST_CHECK_S - 1) is None


def test_a_bundle_that_cannot_run_says_nothing_of_the_compiler(tmp_path) -> None:
    import torch

    fields = {
        "compiler": "no_such_module:backend",
        "options": {},
        "grad": False,
        "autocast": "",
        "device": "cpu",
    }
    bundles.write(
        tmp_path / "it.pyz",
        bundles.CapturedBundle(
            graph=torch.fx.symbolic_trace(torch.nn.Tanh()),
            inputs=(torch.ones(3),),
            failed=True,
            **fields,
        ),
    )
    done = replayed(tmp_path / "it.pyz")
    assert done.returncode == replay.UNKNOWN
    assert "No module named 'no_such_module'" in done.stdout


class Several(torch.nn.Module):
    """A graph of which one operator may be wrong."""

    def forward(self, x):
        return torch.tanh(0.1 * torch.nn.functional.gelu(torch.relu(x) + 0.5) @ x.t())


def smaller_graphs(name):
    """What the minifier reaches with a compiler, as operators by name, and what else it says."""
    settings = {"compiler": name, "options": {}, "grad": True, "autocast": "", "device": "cpu"}
    graph, inputs = minifying.recaptured(Several(), [torch.randn(4, 4)], settings)
    kept = []
    minifying.minified(graph, inputs, settings, lambda one, given: kept.append((one, given)))
    return bundles.operators_of(graph), [
        [node.name for node in one.graph.nodes if node.op.startswith("call_")] for one, _ in kept
    ]


@pytest.mark.parametrize(
    "name", ["planted_backends:gelu_as_relu", "planted_backends:refusing_gelu"]
)
def test_what_is_left_is_the_operator_that_goes_wrong(name, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(PLANTED))
    operators, kept = smaller_graphs(name)
    assert operators == 7
    assert kept[-1] == ["gelu"]
    assert sorted(map(len, kept), reverse=True) == [len(one) for one in kept], (
        "each is smaller than the one before"
    )


def test_a_right_compiler_leaves_nothing_to_minify(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(PLANTED))
    with pytest.raises(ValueError, match="the recaptured graph is right"):
        smaller_graphs("planted_backends:right")


def test_what_goes_wrong_another_way_is_not_what_is_looked_for(monkeypatch) -> None:
    """The whole graph is refused for its GELU; without it, it computes something else."""
    monkeypatch.syspath_prepend(str(PLANTED))
    _, kept = smaller_graphs("planted_backends:refusing_gelu_else_wrong")
    assert kept[-1] == ["gelu"]
    assert all("gelu" in names for names in kept)


def test_minifying_ends_with_its_time(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing.py").write_text("raise SystemExit(1)")
    (tmp_path / "endless.py").write_text(
        "import pathlib, sys, time\npathlib.Path(sys.argv[2]).write_text('reached so far')\ntime.sleep(1000)\n"
    )
    monkeypatch.setattr(bundles, "MINIFYING", "failing")
    assert not bundles.minify(tmp_path / "a", tmp_path / "b", limit_s=20.0)
    monkeypatch.setattr(bundles, "MINIFYING", "endless")
    assert bundles.minify(tmp_path / "a", tmp_path / "b", limit_s=1.0)
    assert (tmp_path / "b").read_text() == "reached so far"


@pytest.mark.parametrize("smaller", ["right", "broken"])
def test_where_what_is_left_goes_wrong_no_more_the_whole_graph_is_kept(
    tmp_path, monkeypatch, smaller
) -> None:
    looked = []

    def check(path, *, limit_s):
        looked.append(path.name)
        if path.name.startswith("smaller-") and smaller == "broken":
            raise ValueError("it ended with -9")
        code = replay.RIGHT if path.name.startswith("smaller-") else replay.WRONG
        return replay.ReplayOutcome(code=code, says=f"{code}")

    monkeypatch.setattr(
        bundles, "minify", lambda _, smaller, **__: smaller.write_text("a smaller one") > 0
    )
    monkeypatch.setattr(bundles, "check", check)
    fields = {"compiler": "eager", "options": {}, "grad": False, "autocast": "", "device": "cpu"}
    captured = bundles.CapturedBundle(
        graph=torch.fx.symbolic_trace(Several()), inputs=(torch.ones(4, 4),), failed=True, **fields
    )
    bundle = Graphs(taken=[captured]).bundle(tmp_path, "arm", limit_s=100.0)
    assert looked == ["smaller-repro-arm.pyz", "repro-arm.pyz"]
    assert (bundle.says, [one.name for one in tmp_path.iterdir()]) == (
        "eager: 1",
        ["repro-arm.pyz"],
    )
    assert zipfile.is_zipfile(tmp_path / bundle.file)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (lambda x: x * (1 + 1e-6), ""),
        (lambda x: x * 1.001, "output 0 is off by"),
        (lambda x: x.double(), "of torch.float64"),
        (lambda x: x[:1], "output 0 is (1,)"),
        (lambda x: x / 0, "not finite"),
        (lambda x: (x, x), "3 tensors instead of 2"),
        (lambda x: x.mul_(3) / 3, "input 0 as it is left is off by 2"),
    ],
)
def test_what_differs_by_more_than_rounding_is_wrong(own, says) -> None:
    import torch

    settings = {"grad": False, "autocast": "", "device": "cpu"}
    outcome = replay.replayed(torch.nn.Identity(), [torch.ones(4)], lambda: own, settings)
    assert outcome.code == (replay.WRONG if says else replay.RIGHT)
    assert says in outcome.says
