"""A gate on a real Ray cluster of three nodes on this machine, one of which is killed while it measures."""

import os
from collections import defaultdict

import pytest
from end_to_end_builders import outcome, prepare_slower

from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.comparison import Verdict

ray = pytest.importorskip(
    "ray", reason="the extra `ray` is not installed: pip install 'ci-bench[ray]'"
)

pytestmark = [
    pytest.mark.usefixtures("plugin"),
    pytest.mark.filterwarnings("ignore"),
]
LAUNCHES = 3


@pytest.fixture
def cluster(monkeypatch):
    """Three nodes that take one lease each, and a head that takes none."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    monkeypatch.setenv("RAY_health_check_timeout_ms", "500")
    monkeypatch.setenv("RAY_health_check_failure_threshold", "2")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.workers = [made.add_node(num_cpus=1, num_gpus=1) for _ in range(3)]
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def slower(repository, tmp_path, ci_bench):
    return prepare_slower(
        repository,
        tmp_path,
        ci_bench,
        cases=("one", "two", "three"),
        launches=LAUNCHES,
        lock_timeout_s=120,
    )


def test_a_node_that_is_killed_loses_nothing(
    cluster, slower, tmp_path, ci_bench, monkeypatch
) -> None:
    from ci_bench.fleet import ray_core

    intervals = defaultdict(list)
    killed = []
    real_submit, real_ended = ray_core.RayEngine.submit, ray_core.RayEngine._ended

    def submit(self, order):
        real_submit(self, order)
        if len(killed) == 0 and order.lease.number > 0:
            victim = next(node for node in cluster.workers if order.slot.startswith(node.node_id))
            killed.append(order)
            cluster.workers.remove(victim)
            cluster.remove_node(victim, allow_graceful=False)

    def ended(self, reference):
        found = real_ended(self, reference)
        intervals[found.order.slot].append((found.began_s, found.ended_s))
        return found

    monkeypatch.setattr(ray_core.RayEngine, "submit", submit)
    monkeypatch.setattr(ray_core.RayEngine, "_ended", ended)
    monkeypatch.setattr(ray_core.RayEngine, "_of_node", only_workers(ray_core.RayEngine._of_node))
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"])
    out = tmp_path / "out"
    words = (
        "gate",
        "--prepared",
        slower,
        "--output",
        out,
        "--device",
        "cpu",
        "--fleet",
        f"ray:{cluster.address}",
    )
    code, _, said = ci_bench(*words)
    assert code == ExitCode.POLICY_NOT_MET, said
    assert {case.verdict for case in outcome(out).cases} == {Verdict.REGRESSED}
    head = documents.read_results(out / "results.json")
    assert {len(row.origins) for row in head.cases} == {LAUNCHES}, "0 lost, 0 twice"
    assert len({(part.run.lease.number) for part in head.parts}) == len(head.parts)
    assert [(loss.lease, loss.slot) for loss in head.losses] == [
        (killed[0].lease.number, killed[0].slot)
    ]
    for spans in intervals.values():
        assert all(
            later[0] >= earlier[1]
            for earlier, later in zip(sorted(spans), sorted(spans)[1:], strict=False)
        )


def only_workers(real):
    """The head of the cluster measures nothing."""

    def of_node(self, node):
        return real(self, node) if node["Resources"].get("GPU") else []

    return of_node
