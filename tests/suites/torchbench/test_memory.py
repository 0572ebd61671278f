"""What a change does to memory, from the models' code to the verdict of the judge."""

import os
import subprocess
import sys

import pytest
import yaml
from torchbench_builders import HERE

from ci_bench.records.comparison import Verdict
from ci_bench.records.documents import read_comparison

pytestmark = [pytest.mark.engine, pytest.mark.slow]

RUN = {
    "device": "cpu", "threads": 1, "sampling": "fixed", "launches": 2, "blocks": 1, "sample_s": 0.002, "warmup_s": 0.1,
    "stage_timeout_s": 90,
}  # fmt: skip
MODELS = ["Plain", "Buffered", "Leaking", "Caching"]
ENTRY = {"source": "own", "backend": "torchscript", "mode": "inference", "measure": "performance"}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Verdict and reason by model and metric, of the eager arm: base is plain, head has what is planted."""
    folder = tmp_path_factory.mktemp("memory")
    entries = [{**ENTRY, "models": [f"planted_memory:{model}"]} for model in MODELS]
    config = folder / "ci-bench.yml"
    config.write_text(
        yaml.safe_dump({"schema_version": 1, "run": RUN, "suites": {"torchbench": entries}})
    )
    environ = {**os.environ, "PYTHONPATH": str(HERE)}

    def run(*arguments, **more):
        command = [
            sys.executable,
            "-m",
            "ci_bench.cli",
            *map(str, arguments),
            "--config",
            str(config),
        ]
        return subprocess.run(
            command, cwd=folder, env=environ | more, check=False, timeout=500, capture_output=True
        )

    run("run", "--output", folder / "base")
    run("run", "--output", folder / "head", PLANT_MEMORY="1")
    told = run(
        "compare",
        folder / "base" / "results.json",
        folder / "head" / "results.json",
        "--output",
        folder / "out",
    )
    assert told.returncode == 1, told.stderr
    cases = read_comparison(folder / "out" / "comparison.json").cases
    return {
        (case.id.partition("[")[0].rpartition("_")[2], pair.metric): (
            pair.verdict,
            pair.reason,
            pair.detail,
        )
        for case in cases
        for pair in case.pairs
        if pair.arm == "eager"
    }


@pytest.mark.parametrize(("model", "peak", "growth"), [
    ("Plain", Verdict.UNCHANGED, Verdict.UNCHANGED),
    ("Buffered", Verdict.REGRESSED, Verdict.UNCHANGED),
    ("Leaking", Verdict.REGRESSED, Verdict.REGRESSED),
    ("Caching", Verdict.REGRESSED, Verdict.UNCHANGED),
])  # fmt: skip
def test_two_mib_are_found_in_a_model_of_twenty_and_one_mib_a_step(verdicts, model, peak, growth):
    assert verdicts[model, "peak_anonymous"][0] is peak, verdicts[model, "peak_anonymous"]
    assert verdicts[model, "memory_growth"][0] is growth, verdicts[model, "memory_growth"]


def test_pages_of_files_fail_nothing(verdicts):
    assert verdicts["Plain", "file_backed"][2]
