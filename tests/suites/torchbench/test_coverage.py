"""The experiment `coverage`: which operators of a step ran inside captured graphs, by hand, by torch's profiler, and as a verdict.

State: models of the zoo and of `planted_models`, one thread, CPU.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from torchbench_builders import own, verified

from ci_bench.errors import BadConfig
from ci_bench.judge.times.metrics import by_count
from ci_bench.records.comparison import Verdict
from ci_bench.records.metrics import MetricKind
from ci_bench.suites.registry import find_metrics, find_suite
from ci_bench.suites.shared.worker.coverage import LABEL, read_events

pytestmark = pytest.mark.engine

NAMES = ("coverage_ops", "coverage_time", "graph_calls", "ops_in_graphs", "ops_run")


@dataclass(frozen=True, kw_only=True)
class Event:
    name: str
    cpu_parent: "Event | None" = None
    cpu_time_total: float = 0.0
    device_time_total: float = 0.0


def counted(**entry):
    found = {
        metric.name: metric
        for metric in verified(backend="coverage", perturbations=1, **entry).metrics
    }
    return found, {name: metric.launches[0].values[0] for name, metric in found.items()}


def test_events_by_hand():
    """Three operators, one of them in a graph; what an operator or a graph calls is no operator of the step."""
    step = Event(name="ProfilerStep")
    graph = Event(name=LABEL, cpu_parent=step, cpu_time_total=50)
    linear = Event(name="aten::linear", cpu_parent=graph, cpu_time_total=30)
    inner = Event(name="aten::addmm", cpu_parent=linear, cpu_time_total=20)
    outside = [
        Event(name="aten::sin", cpu_parent=step, cpu_time_total=6),
        Event(name="aten::mul", cpu_time_total=4),
    ]
    found = read_events([step, graph, linear, inner, *outside])
    assert (found.graph_calls, found.captured, found.operators) == (1, 1, 3)
    assert (found.of_operators, found.of_time) == (1 / 3, 30 / 40)


def test_where_a_device_computed_its_time_counts():
    graph = Event(name=LABEL)
    inside = Event(name="aten::mm", cpu_parent=graph, cpu_time_total=90, device_time_total=10)
    assert (
        read_events(
            [graph, inside, Event(name="aten::sin", cpu_time_total=10, device_time_total=30)]
        ).of_time
        == 1 / 4
    )


def test_a_step_without_operators_has_no_shares():
    found = read_events([SimpleNamespace(name="x", cpu_parent=None, device_time_total=0)])
    assert (found.of_operators, found.of_time) == (None, None)


def test_all_of_a_model_without_breaks_is_in_graphs():
    _, values = counted(models=["mlp"], mode="inference")
    assert set(values) == set(NAMES)
    assert (values["coverage_ops"], values["coverage_time"], values["graph_calls"]) == (
        1.0,
        1.0,
        1.0,
    )


def test_the_optimizer_is_outside_where_the_model_alone_is_compiled():
    _, values = counted(**own("Formed", mode="training"))
    assert 0.1 < values["coverage_ops"] < 0.9
    assert values["graph_calls"] == 2  # forward and backward


def test_layers_that_leave_the_graphs_are_a_regression_and_the_same_model_is_none():
    before, first = counted(**own("Formed", mode="inference"))
    again, second = counted(**own("Formed", mode="inference"))
    after, third = counted(**own("Outside", mode="inference"))
    threshold = find_metrics()["coverage_ops"].threshold
    verdicts = [
        by_count(before["coverage_ops"], head["coverage_ops"], threshold).verdict
        for head in (again, after)
    ]
    assert verdicts == [Verdict.UNCHANGED, Verdict.REGRESSED], (first, second, third)
    assert third["coverage_time"] < 1


def test_only_the_share_of_operators_gates():
    kinds: dict[str, MetricKind] = {name: find_metrics()[name] for name in NAMES}
    assert [name for name, kind in kinds.items() if kind.gates] == ["coverage_ops"]


@pytest.mark.parametrize(
    ("suite", "entry"),
    [
        ("training_loss", {"arms": ["coverage"]}),
        ("fastrnns", {"arms": ["coverage"]}),
        ("transformers", {"model": "bert", "candidate": "coverage"}),
    ],
)
def test_other_suites_say_where_it_is(suite, entry):
    with pytest.raises(BadConfig, match=r"coverage.*; suite torchbench (does|has it)"):
        find_suite(suite).plan(entry)
