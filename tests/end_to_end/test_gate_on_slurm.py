"""A gate on a real Slurm cluster of two nodes on this machine: Debian's packages, submitit, jobs and their documents."""

import os

import pytest
from benchmarks.fleet_engines import CannotStart, slurm
from end_to_end_builders import outcome, prepare_slower

from ci_bench.commands.merging import read_pair
from ci_bench.errors import ExitCode
from ci_bench.merging import merge
from ci_bench.records import documents
from ci_bench.records.comparison import Verdict

pytestmark = pytest.mark.usefixtures("plugin")
LAUNCHES = 3
FLEET = "slurm:partition=gpu,constraint=h100,time=5"


@pytest.fixture
def cluster(monkeypatch):
    try:
        with slurm(nodes=2) as made:
            monkeypatch.setenv("SLURM_CONF", made.environ["SLURM_CONF"])
            yield made
    except CannotStart as reason:
        pytest.skip(f"no Slurm: {reason}")


@pytest.fixture
def slower(repository, tmp_path, ci_bench):
    return prepare_slower(repository, tmp_path, ci_bench, cases=("one", "two"), launches=LAUNCHES, lock_timeout_s=120)


def test_leases_are_jobs_whose_documents_are_merged_and_judged(cluster, slower, tmp_path, ci_bench) -> None:
    assert os.environ["SLURM_CONF"] == str(cluster.folder / "slurm.conf")
    out = tmp_path / "out"
    code, said, _ = ci_bench("fleet", "status", FLEET)
    assert (code, said.splitlines()[-1]) == (ExitCode.OK, "2 slot(s)")
    code, _, said = ci_bench("fleet", "status", "slurm:constraint=b200")
    assert code == ExitCode.MEASURING_FAILED
    assert "node1 (idle; partition gpu; features h100)" in said
    code, _, said = ci_bench("gate", "--prepared", slower, "--output", out, "--device", "cpu", "--fleet", FLEET)
    assert code == ExitCode.POLICY_NOT_MET, said
    assert {case.verdict for case in outcome(out).cases} == {Verdict.REGRESSED}
    head = documents.read_results(out / "results.json")
    assert {len(row.origins) for row in head.cases} == {LAUNCHES}, "0 lost, 0 twice"
    assert head.losses == ()
    by_hand = merge(read_pair(folder) for folder in (out / "fleet" / "leases").iterdir())
    assert {row.case.id: row for row in by_hand.head.cases} == {row.case.id: row for row in head.cases}
