"""A gate on a real Slurm cluster of two nodes on this machine: Debian's packages, submitit, jobs and their documents."""

import os
import statistics

import pytest
import yaml
from benchmarks.fleet_engines import CannotStart, slurm
from end_to_end_builders import commit, outcome, prepare_slower

from ci_bench.commands.merge import read_pair
from ci_bench.errors import ExitCode
from ci_bench.fleet.merging import merge
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
def apart(monkeypatch, repository, tmp_path):
    """A cluster whose nodes see nothing of the checkout, and nothing of what another node makes of its sources."""
    depot = tmp_path / "node"
    depot.mkdir(mode=0o700)
    monkeypatch.setenv("CI_BENCH_SOURCES", str(depot))
    try:
        with slurm(nodes=2, private=[repository, depot]) as made:
            monkeypatch.setenv("SLURM_CONF", made.environ["SLURM_CONF"])
            yield made
    except CannotStart as reason:
        pytest.skip(f"no Slurm: {reason}")


@pytest.fixture
def slower(repository, tmp_path, ci_bench):
    return prepare_slower(
        repository, tmp_path, ci_bench, cases=("one", "two"), launches=LAUNCHES, lock_timeout_s=120
    )


def test_leases_are_jobs_whose_documents_are_merged_and_judged(
    cluster, slower, tmp_path, ci_bench
) -> None:
    assert os.environ["SLURM_CONF"] == str(cluster.folder / "slurm.conf")
    out = tmp_path / "out"
    code, said, _ = ci_bench("fleet", "status", FLEET)
    assert (code, said.splitlines()[-1]) == (ExitCode.OK, "2 slot(s)")
    code, _, said = ci_bench("fleet", "status", "slurm:constraint=b200")
    assert code == ExitCode.MEASURING_FAILED
    assert "node1 (idle; partition gpu; features h100)" in said
    code, _, said = ci_bench(
        "gate", "--prepared", slower, "--output", out, "--device", "cpu", "--fleet", FLEET
    )
    assert code == ExitCode.POLICY_NOT_MET, said
    assert {case.verdict for case in outcome(out).cases} == {Verdict.REGRESSED}
    head = documents.read_results(out / "results.json")
    assert {len(row.origins) for row in head.cases} == {LAUNCHES}, "0 lost, 0 twice"
    assert head.losses == ()
    by_hand = merge(read_pair(folder) for folder in (out / "fleet" / "leases").iterdir())
    assert {row.case.id: row for row in by_hand.head.cases} == {
        row.case.id: row for row in head.cases
    }


@pytest.mark.usefixtures("plugin", "apart")
def test_nodes_that_see_nothing_of_the_checkout_measure_what_they_are_sent(
    repository, tmp_path, ci_bench
) -> None:
    """By a bundle in the folder that submitit needs anyway; each node makes both sides once, for all of its leases."""
    config = yaml.safe_load((repository / "ci-bench.yml").read_text())
    config["suites"]["fake"] = [{"name": "one"}, {"name": "two"}]
    config["run"] |= {
        "sampling": "fixed",
        "blocks": 2,
        "sample_s": 0.002,
        "launches": 2,
        "lock_timeout_s": 120,
    }
    config["setup"] = {"commands": [f'echo "$CI_BENCH_SIDE $PWD" >> {tmp_path}/made']}
    elsewhere = tmp_path / "elsewhere.yml"
    elsewhere.write_text(yaml.safe_dump(config))
    commit(repository, "0.03")
    out = tmp_path / "out"
    code, _, said = ci_bench(
        "gate", "--config", elsewhere, "--output", out, "--device", "cpu", "--fleet", FLEET
    )
    assert code in {ExitCode.OK, ExitCode.POLICY_NOT_MET}, said
    head, base = (
        documents.read_results(out / place) for place in ("results.json", "base/results.json")
    )
    assert head.losses == ()
    assert {len(row.origins) for row in head.cases} == {2}
    assert max(medians(base)) < 0.02 < min(medians(head)), "each side measured its own commit"
    made = [line.partition(" ")[::2] for line in (tmp_path / "made").read_text().splitlines()]
    assert all(place.startswith(str(tmp_path / "node")) for _, place in made)
    sides = sorted(side for side, _ in made)
    assert sides in (["base", "head"], ["base", "base", "head", "head"]), (
        "once on each node that measured"
    )
    assert not [*(tmp_path / "node").iterdir()], "nodes made them on disks of their own"


def medians(side):
    return [
        statistics.median(each.values) for row in side.cases for each in row.metrics[0].launches
    ]
