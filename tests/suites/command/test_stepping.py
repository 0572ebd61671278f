"""What a loop of one's own calls: lines that the reader of trainings reads, nothing outside of ci-bench, and one rounding."""

import json
from types import SimpleNamespace

import pytest

import ci_bench
from ci_bench.formats.training_log import read


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("CI_BENCH_OUTPUT", str(tmp_path / "steps"))
    return tmp_path / "steps"


def test_a_step_is_a_line_that_is_read(file) -> None:
    for loss in (2.5, 2.25):
        ci_bench.step(loss=loss, grad_norm=1.5, tokens=64)
    ((first, second),) = read(file.read_text(), {}).ranks
    assert (first.loss, second.loss, first.grad_norm, first.tokens, first.rank) == (
        2.5,
        2.25,
        1.5,
        64,
        0,
    )
    assert 0 <= second.clock_s - first.clock_s < 60


def test_every_process_of_torchrun_writes_as_itself(file, monkeypatch) -> None:
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        ci_bench.step(loss=float(rank))
    assert [[record.loss for record in steps] for steps in read(file.read_text(), {}).ranks] == [
        [0.0],
        [1.0],
    ]


def test_a_loss_that_is_part_of_a_graph_is_detached(file) -> None:
    ci_bench.step(loss=SimpleNamespace(detach=lambda: 3.5))
    assert json.loads(file.read_text())["loss"] == 3.5


def test_outside_of_ci_bench_nothing_happens(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CI_BENCH_OUTPUT", "CI_BENCH_ROUNDING"):
        monkeypatch.delenv(name, raising=False)
    ci_bench.step(loss=1.0)
    ci_bench.perturb([None])
    assert not [*tmp_path.iterdir()]


@pytest.mark.engine
def test_weights_are_shaken_by_one_rounding_the_same_way_for_the_same_number(monkeypatch) -> None:
    import torch

    def shaken(number, dtype):
        monkeypatch.setenv("CI_BENCH_ROUNDING", number)
        weights = [torch.ones(3, dtype=dtype) for _ in range(20)]
        ci_bench.perturb(weights)
        return torch.stack(weights)

    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        first, again, other = shaken("1", dtype), shaken("1", dtype), shaken("2", dtype)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        away = (first.double() - 1).abs()
        assert 0 < float(away.max()) <= torch.finfo(dtype).eps
