"""The trial on a GPU host: every name that it uses of ci-bench exists, and its stages keep their limits."""

import importlib
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import benchmarks.gpu
import pytest
from benchmarks.gpu import card_work, figures, gates, run, setting_up, spread, stages
from benchmarks.gpu.gate_files import REPOSITORIES, WRONG
from benchmarks.gpu.gate_outcome import GateOutcome, describe, is_right
from benchmarks.gpu.measuring import Trial, quantiles, read_trial
from benchmarks.gpu.reading import figure_of, marks_of, trouble_of
from benchmarks.gpu.utilization import summarize

from ci_bench.command_line.flags import make_parser
from ci_bench.configuration.config import load_config
from ci_bench.diagnostics.gpu_check.sections import NAMES
from ci_bench.records.comparison import Pair, Verdict
from ci_bench.records.results import Better, Unit
from ci_bench.runner import planning

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "gpu"
PAGE = (ROOT / "docs" / "internals" / "gpu-trial.md").read_text(encoding="utf-8")
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
FORKING_TORCH = "card_work_worker"
TRIALS = {"card": Trial(), "simulated": Trial(simulated=True)}
SIMULATED = (
    "env",
    "clock",
    "smoke",
    "figures",
    "planted",
    "parity",
    "more-figures",
    "autotune",
    "spread",
)
"""The stages that run on the simulated card every night: both calls, and figures that these do not
have.
"""


def place(tmp_path, *, simulated=False):
    return stages.Place(
        work=tmp_path, logs=tmp_path / "logs", seconds=100, device="cuda:0", simulated=simulated
    )


@pytest.mark.parametrize("name", MODULES)
def test_every_module_imports_without_gpu(name):
    if name == FORKING_TORCH:
        pytest.importorskip("torch")
    module = importlib.import_module(f"{benchmarks.gpu.__name__}.{name}")
    assert module.__doc__


def test_the_first_process_needs_only_python(tmp_path):
    code = "import sys; sys.path.insert(0, sys.argv[1]); from benchmarks.gpu.run import main; main(['--help'])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(ROOT)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "unchanged-20" in done.stdout


def test_every_package_has_its_version():
    wanted = [
        line
        for line in (FOLDER / "packages.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    pinned = {
        line.partition("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert wanted == sorted(wanted)
    assert [name for name in wanted if name not in pinned] == []
    assert subprocess.run(["bash", "-n", FOLDER / "prepare.sh"], check=False).returncode == 0


def test_git_ignores_the_kit():
    done = subprocess.run(["git", "check-ignore", "-q", ".gpu-kit/wheels"], cwd=ROOT, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("kind", TRIALS)
@pytest.mark.parametrize("name", REPOSITORIES)
def test_each_gate_has_a_valid_configuration(name, kind, tmp_path):
    repository = REPOSITORIES[name](TRIALS[kind], 100.0)
    path = tmp_path / "ci-bench.yml"
    path.write_text(repository.base["ci-bench.yml"])
    config = load_config(path)
    assert config.run.budget_s == 100.0
    if "kernels.py" in repository.base or name in {"real", "unchanged"}:
        assert config.policy.default_threshold == 0.01, "it looks for +3 %, which 2 % would hide"
    if {entry.suite for entry in config.entries} != {"functions"}:
        assert planning.plan(config, ())


@pytest.mark.engine
@pytest.mark.parametrize("name", ["planted", "unchanged"])
def test_function_gates_have_their_cases(name, tmp_path):
    gates.commit(tmp_path, REPOSITORIES[name](Trial(), 0.0).base)
    command = [sys.executable, "-m", "ci_bench.cli", "list", "--config", "ci-bench.yml"]
    done = subprocess.run(
        command, cwd=tmp_path / "repository", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("chain[") == {"planted": 5, "unchanged": 8}[name]


@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("name", stages.STAGES)
def test_commands_of_stages_exist(name, simulated, tmp_path):
    for step in stages.STAGES[name].steps(place(tmp_path, simulated=simulated)):
        words = [*step.words]
        if words[:2] == list(stages.CI_BENCH):
            assert make_parser().parse_args(words[2:]).command
        elif words[0] == "-m":
            assert words[1].rpartition(".")[2] in MODULES
            module = {"figures": figures, "gates": gates, "spread": spread}.get(
                words[1].rpartition(".")[2]
            )
            if module:
                assert module.parse_arguments(words[2:])
        elif step.python:
            tiers = words[1 : words.index("--")]
            spec = importlib.util.spec_from_file_location("gpu_tests", ROOT / words[0])
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            assert [tier for tier in tiers if tier not in module.TIERS] == []


def test_both_groups_of_sections_are_all():
    assert sorted((*stages.QUICK_SECTIONS, *stages.SLOW_SECTIONS)) == sorted(NAMES)


def test_calls_in_the_docs_name_stages():
    calls = re.findall(r"benchmarks\.gpu\.run (\d+) ([a-z0-9 -]+)$", PAGE, re.MULTILINE)
    named = {stage for _, words in calls for stage in words.split()}
    assert named == set(stages.STAGES)
    assert set(stages.STAGES) <= set(re.findall(r"`([a-z0-9-]+)`", PAGE))
    assert set(re.findall(r"`(GPU_KIT_[A-Z]+)`", PAGE)) == {
        word
        for path in FOLDER.glob("*.py")
        for word in re.findall(r"\"(GPU_KIT_[A-Z]+)\"", path.read_text())
    }


@pytest.mark.parametrize(
    ("log", "figure"),
    [
        ("FIGURE: one\nnoise\nFIGURE: two\n3 passed in 1s\n", "two"),
        ("noise\n==== 2 failed, 3 passed in 1.0s ====\nlast\n", "2 failed, 3 passed in 1.0s"),
        ("noise\nNothing is wrong.\nwritten to a file\n\n", "Nothing is wrong."),
        ("", "no output"),
    ],
)
def test_the_figure_of_a_log(log, figure):
    assert figure_of(log) == figure


def test_lines_that_explain_a_failure():
    assert trouble_of("noise\nFAILED tests/a.py::b\nE   assert 1 == 2\n") == [
        "FAILED tests/a.py::b",
        "E   assert 1 == 2",
    ]
    assert trouble_of("FIGURE: x\nlast words\n") == ["last words"]
    assert marks_of("✗  fence  slow\n| a | b |\nnoise\n") == ["✗  fence  slow", "| a | b |"]


def make_run(tmp_path, total_s=60, **environ):
    (tmp_path / "logs").mkdir()
    (tmp_path / "out").mkdir()
    return run.Run(
        python=Path(sys.executable),
        environ={**os.environ, **environ},
        work=tmp_path,
        out=tmp_path / "out",
        begun=time.monotonic(),
        total_s=total_s,
    )


@pytest.mark.parametrize(
    ("codes", "limit_s", "expected"),
    [
        (["pass"], 60, 0),
        (["import sys; sys.exit(3)", "pass"], 60, 3),
        (["import time; time.sleep(60)"], 0.5, run.TIME_OVER),
    ],
)
def test_steps_end_within_the_limit(codes, limit_s, expected, tmp_path):
    steps = [stages.Step(words=("-c", code)) for code in codes]
    begun = time.monotonic()
    assert run.run_steps(make_run(tmp_path), steps, tmp_path / "log", limit_s) == expected
    assert time.monotonic() < begun + 30


def test_a_terminated_call_ends_its_stage(tmp_path):
    child = f"import os, pathlib, time; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); time.sleep(60)"
    code = (
        "from benchmarks.gpu import run, stages\n"
        f"step = stages.Step(words=('-c', {child!r}))\n"
        "run.STAGES = {'env': stages.Stage(steps=lambda _: [step], limit_s=60, least_s=1)}\n"
        "run.main(['90', 'env'])"
    )
    own = {
        "GPU_KIT_PYTHON": sys.executable,
        "GPU_KIT_WORK": str(tmp_path / "work"),
        "OUT": str(tmp_path / "out"),
    }
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **own}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stdout=subprocess.DEVNULL
    ) as running:
        deadline = time.monotonic() + 30
        while (
            not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        running.terminate()
        assert running.wait(30) == run.TERMINATED
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


def test_optional_steps_do_not_count(tmp_path):
    missing = stages.Step(words=("no-such-program",), python=False, optional=True)
    failing = stages.Step(words=("-c", "print(7); raise SystemExit(5)"), optional=True)
    assert run.run_steps(make_run(tmp_path), [missing, failing], tmp_path / "log", 60) == 0
    assert (tmp_path / "log").read_text() == "7\n"


def test_results_are_packed_after_each_stage(tmp_path, monkeypatch, capsys):
    def saying(word, *, code=0, **fields):
        step = stages.Step(words=("-c", f"print('FIGURE: {word}'); raise SystemExit({code})"))
        return stages.Stage(steps=lambda _: [step], limit_s=30, least_s=1, **fields)

    monkeypatch.setattr(
        run,
        "STAGES",
        {
            "good": saying("fine"),
            "bad": saying("wrong", code=1),
            "forking": saying("forked", forks=True),
            "long": stages.Stage(steps=lambda _: [], limit_s=900, least_s=800),
        },
    )
    trial = make_run(tmp_path)
    (trial.logs / "no-worker").touch()
    folder = tmp_path / "gates" / "smoke" / "out" / "base"
    folder.mkdir(parents=True)
    (folder / "results.json").write_text("{}")
    assert run.run_stages(trial, ("good", "bad", "forking", "long")) == 1
    good, bad, forking, left = (trial.out / "summary.txt").read_text().splitlines()
    assert (good.startswith("good: rc 0"), good.endswith(": fine")) == (True, True)
    assert bad.startswith("bad: rc 1")
    assert forking == "-- forking: skipped, a forked worker cannot use the GPU"
    assert left.startswith("-- long: skipped, ")
    names = subprocess.run(
        ["tar", "tzf", trial.out / "gpu-kit.tgz"], capture_output=True, text=True, check=True
    ).stdout
    assert {"logs/good.log", "logs/bad.log", "logs/gates/smoke/base-results.json"} <= set(
        names.split()
    )
    assert "=== summary" in capsys.readouterr().out


def test_the_environment_of_stages(tmp_path):
    environ = setting_up.make_environ(
        {"PATH": "/usr/bin", "GPU_KIT_SIMULATED": "1"}, Path("/a/bin/python"), tmp_path
    )
    assert environ["PATH"].startswith("/a/bin:/usr/bin")
    assert environ["PYTHONPATH"] == str(setting_up.FIXTURE)
    assert Path(environ["SIMULATED_CARD"]).exists()
    assert read_trial(environ) == Trial(simulated=True)
    assert "SIMULATED_CARD" not in setting_up.make_environ(
        {"PATH": "/usr/bin"}, Path("/a/bin/python"), tmp_path
    )


def test_a_new_environment_has_the_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(setting_up, "KIT", tmp_path / "none")
    python = setting_up.make_environment(tmp_path / "env")
    code = "import ci_bench, msgspec; print(ci_bench.__file__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(ROOT / "src" / "ci_bench" / "__init__.py"), done.stderr
    assert setting_up.make_environment(tmp_path / "env") == python


def test_figures_in_words():
    assert quantiles([3e-6, 1e-6, 2e-6]) == {"min": 1.0, "p50": 2.0, "p90": 3.0, "max": 3.0}
    looks = [{"busy": 0.0, "joules": 5.0}, {"busy": 50.0, "joules": 8.0}, {}]
    assert summarize(looks) == {
        "looks": 3,
        "busy_mean": 25.0,
        "idle_share": 0.5,
        "joules": 3.0,
        "most_bytes": None,
    }
    assert summarize([])["busy_mean"] is None


@pytest.mark.parametrize(
    ("case", "verdict", "right"),
    [
        ("chain[change=five,kind=tiny]", Verdict.REGRESSED, True),
        ("chain[change=five,kind=tiny]", Verdict.SUSPECTED, False),
        ("chain[change=none,kind=tiny]", Verdict.INCONCLUSIVE, True),
        ("chain[change=none,kind=tiny]", Verdict.IMPROVED, False),
    ],
)
def test_right_verdicts_of_chains(case, verdict, right):
    assert is_right(case, verdict) is right


def gate_with(verdicts, *, code=0):
    """A gate whose times have these verdicts, by case."""
    cases = [
        SimpleNamespace(
            id=case,
            pairs=(
                Pair(
                    metric="step_time",
                    arm="a",
                    unit=Unit.SECONDS,
                    better=Better.LOWER,
                    verdict=verdict,
                    reason="",
                    threshold=0.01,
                ),
            ),
        )
        for case, verdict in verdicts.items()
    ]
    comparison = SimpleNamespace(cases=cases, judgement=SimpleNamespace(findings=()))
    watched = {"busy_mean": 50.0, "idle_share": 0.25, "joules": None}
    return GateOutcome(
        seconds=3.0,
        code=code,
        output="last",
        comparison=comparison,
        head=None,
        base=None,
        watched=watched,
    )


FOUND = {"chain[change=five]": Verdict.REGRESSED, "chain[change=none]": Verdict.UNCHANGED}
MISSED = {"chain[change=five]": Verdict.INCONCLUSIVE, "chain[change=none]": Verdict.SUSPECTED}


def test_gates_are_judged_by_their_changes():
    assert gates.judge("planted", gate_with(FOUND, code=1)) == ("2 of 2 verdicts right", True)
    assert gates.judge("planted", gate_with(MISSED)) == ("0 of 2 verdicts right", False)
    assert gates.judge("planted", gate_with({}))[1] is False
    assert gates.judge("quiet", gate_with(MISSED))[1] is False
    assert gates.judge("real", gate_with(FOUND))[1] is False
    *_, last = describe(gate_with(FOUND, code=1), "x", every=True)
    assert "FIGURE: x; exit 1; 3 s" in last
    assert "GPU busy 50 %, idle in 25% of looks, 0 J; 1 regressed, 1 unchanged" in last


def test_repeated_gates_are_tallied(tmp_path, monkeypatch, capsys):
    outcomes = iter([gate_with(FOUND, code=1), gate_with(MISSED)])
    monkeypatch.setattr(gates, "run_gate", lambda _: next(outcomes))
    request = gates.Request(name="changes", folder=tmp_path, budget_s=0.0, trial=Trial())
    assert gates.repeat(request, 2) == 0
    assert (
        "FIGURE: 2 of 2 gates, 2 red; regressed: change=five 1; change=none 0"
        in capsys.readouterr().out
    )
    assert len((tmp_path / "gates.jsonl").read_text().splitlines()) == 2
    monkeypatch.setattr(gates, "run_gate", lambda _: gate_with(MISSED))
    assert gates.repeat(replace(request, name="quiet"), 1) == 1


def test_the_spread_between_launches():
    rows = [
        {
            "case": "tiny",
            "launch": launch,
            "side": side,
            "metric": "step_time",
            "values": [level, level],
        }
        for launch in range(2)
        for side, level in (("base", 1.0), ("head", 1.01))
    ]
    (one,) = spread.spreads(
        [*rows, {"case": "tiny", "launch": 2, "side": "base", "failure": "gone"}]
    )
    assert (one.case, one.between, one.within) == ("tiny", pytest.approx(0.00995, abs=1e-5), 0.0)


@pytest.mark.engine
def test_every_kind_of_work_has_a_step():
    pytest.importorskip("torch")
    from benchmarks.gpu.card_work_worker import PIECES, SMALL

    assert tuple(PIECES) == card_work.WORK
    for piece in PIECES.values():
        piece("cpu", SMALL)()


@pytest.mark.engine
def test_wrong_backends_compute_something_else():
    torch = pytest.importorskip("torch")
    wrong = {}
    exec(WRONG, wrong)  # noqa: S102 - as a worker imports it
    model, x = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)), torch.ones(1, 2)
    expected = model(x)
    assert torch.allclose(torch.compile(model, backend=wrong["scaled"])(x), 1.01 * expected)
    assert torch.allclose(
        torch.compile(model, backend=wrong["unbiased"])(x), expected - model[1].bias
    )


def run_stage(name, folder):
    environ = {
        "GPU_KIT_SIMULATED": "1",
        "GPU_KIT_PATIENCE": "5",
        "GPU_KIT_PYTHON": sys.executable,
        "GPU_KIT_WORK": str(folder / "work"),
        "OUT": str(folder / "out"),
    }
    command = [sys.executable, "-m", "benchmarks.gpu.run", "1200", name]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert (folder / "out" / "summary.txt").read_text().startswith(f"{name}: rc 0, ")


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(1300)
@pytest.mark.parametrize("name", SIMULATED)
def test_stages_on_the_simulated_card(name, tmp_path):
    pytest.importorskip("torch")
    run_stage(name, tmp_path)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("name", ["contract", "gpu-check"])
def test_checks_on_the_simulated_card(name, tmp_path):
    pytest.importorskip("torch")
    run_stage(name, tmp_path)
