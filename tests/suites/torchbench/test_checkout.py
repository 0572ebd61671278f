"""A folder laid out like a TorchBench checkout, through the adapter."""

import json
import sys
from pathlib import Path

import pytest
from checkout_builders import write_checkout
from torchbench_builders import QUICK, opened, word

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.torchbench.plan import SUITE
from ci_bench.suites.torchbench.status import ModelFailed

pytestmark = pytest.mark.engine


@pytest.fixture
def checkout(tmp_path):
    """A fresh folder, and none of its modules left over afterwards."""
    yield str(write_checkout(tmp_path / "benchmark"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchbenchmark"]:
        del sys.modules[name]
    sys.path[:] = [entry for entry in sys.path if str(tmp_path) not in entry]


def of(checkout, model, **entry):
    return opened(
        source="torchbench", path=checkout, models=[model], **{"mode": "inference", **entry}
    )


def test_models_are_listed_by_folder_and_canaries_only_by_name(checkout, tmp_path):
    entry = {"source": "torchbench", "path": checkout, "mode": "inference"}
    assert [case.name for case in SUITE.plan(entry)] == [
        "broken",
        "empty",
        "eval_only",
        "fixed",
        "listed",
        "not_here",
        "plain",
    ]
    table = tmp_path / "runner.yaml"
    table.write_text(json.dumps({"canary_models": ["canary"], "skip": {"all": ["empty"]}}))
    assert "canary" in [case.name for case in SUITE.plan({**entry, "tables": [str(table)]})]
    assert [case.name for case in SUITE.plan({**entry, "models": ["hidden_canary"]})] == [
        "hidden_canary"
    ]


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("model", ["plain", "listed", "fixed", "canary"])
def test_a_model_runs_and_is_verified(checkout, model, mode):
    case, workload = of(checkout, model, mode=mode)
    workload.prepare()
    check = workload.verify(case.arms).checks[0]
    assert word(check) == "pass", check.detail


@pytest.mark.parametrize(("model", "more", "items"), [
    ("plain", {}, 8), ("plain", {"mode": "training"}, 4), ("plain", {"batch_size": 6}, 6),
    ("listed", {}, 5), ("listed", {"mode": "training"}, 3), ("listed", {"batch_size": 7}, 7),
    ("fixed", {}, 2), ("fixed", {"batch_size": 9}, 2),
])  # fmt: skip
def test_the_order_of_batch_sizes(checkout, model, more, items):
    assert of(checkout, model, **more)[1].open("eager").items == items


@pytest.mark.parametrize(("model", "more", "words"), [
    ("not_here", {}, "not_here does not do eval on cpu: not_here is skipped on cpu by its metadata.yaml"),
    ("eval_only", {"mode": "training"}, "eval_only does not do train on cpu: no default batch size for train"),
])  # fmt: skip
def test_what_is_not_implemented_is_skipped_with_its_reason(checkout, model, more, words):
    with pytest.raises(Unsupported, match=words):
        of(checkout, model, **more)[1].prepare()


@pytest.mark.parametrize(("model", "words"), [
    ("broken", "ModuleNotFoundError: No module named 'a_package_that_is_not_installed'"),
    ("empty", "LookupError: torchbenchmark.models.empty has no class Model"),
])  # fmt: skip
def test_a_model_that_cannot_be_imported_fails_to_load(checkout, model, words):
    before = Path.cwd()
    with pytest.raises(ModelFailed, match=f"^model_fail_to_load: {words}"):
        of(checkout, model)[1].prepare()
    assert Path.cwd() == before


def test_both_arms_start_from_the_same_bytes(checkout):
    import torch

    case, workload = of(checkout, "plain", mode="training")
    first, second = (workload.open(arm)._ready.module.state_dict() for arm in case.arms)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_a_relative_path_and_the_quick_defaults_plan_alike(checkout, monkeypatch):
    monkeypatch.chdir(Path(checkout).parent)
    cases = SUITE.plan(
        {
            **QUICK,
            "source": "torchbench",
            "path": "benchmark",
            "models": ["plain"],
            "mode": "inference",
        }
    )
    assert [case.id for case in cases] == [
        "torchbench/plain[backend=aot_eager,mode=inference,precision=fp32]"
    ]
