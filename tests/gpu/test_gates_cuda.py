"""The whole gate on a card, by the command: both sides in turns, captured, flushed, without room for two, every suite.

Runs on the simulated card as well, to be tried: ``SIMULATED_CARD=/…/card.json
PYTHONPATH=$PWD/tests/fixtures/simulated_device pytest tests/gpu/test_gates_cuda.py -k "not real"``.
There give the card little memory (``"memory_bytes": 67108864``): two thirds of it are taken on
either side, of the host's. What it prints goes into docs/internals/measurements.md.
"""

import statistics
import time

import pytest
from simulated_gate import OF_EACH_SUITE, SMALL, gate, repository

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs a CUDA GPU, or the simulated one"
    ),
]

LARGE = """\
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 4)
        self.register_buffer("ballast", torch.empty({elements}), persistent=False)

    def forward(self, x):
        return self.layer(x) + self.ballast[0] * 0


def small():
    return Small(), (torch.randn(8, 16),)
"""
REAL = {
    "training_loss": """\
  training_loss:
    - {name: reviews, epochs: 1, num_samples: 640, backend: [eager]}
""",
    "fastrnns": """\
  fastrnns:
    - {variants: [cudnn, aten]}
""",
    "torchbench": """\
  torchbench:
    - {models: [resnet], mode: training, backend: inductor}
""",
    "transformers": """\
  transformers:
    - {model: bert, mode: inference, batch_size: 8, sequence_length: 128, candidate: inductor}
""",
}
"""An entry of each suite at a size that a card is bought for."""


BUDGET_S, LIMIT_S, WHOLE_S = 450, 530, 560
"""Of a gate at real size, in seconds: when it begins nothing more, when it is ended, and when its
test is. A tier has 600.
"""


def timed(made, folder, *arguments, **named):
    """Run a gate on this card; return it and how long it took (s)."""
    begun = time.perf_counter()
    judged = gate(made, None, folder, *arguments, **named)
    return judged, time.perf_counter() - begun


def cycles_per_s():
    """How many cycles of `torch.cuda._sleep` this card counts a second."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(20_000_000)
    end.record()
    torch.cuda.synchronize()
    return 20_000_000 / (begin.elapsed_time(end) / 1e3)


def medians_ms(judged):
    """The median step of head's reference arm (ms)."""
    (row, *_) = judged.results["cases"]
    metric = next(one for one in row["metrics"] if one["name"] == "step_time")
    return 1e3 * statistics.median(
        value for launch in metric["launches"] for value in launch["values"]
    )


def test_the_same_commit_is_not_called_changed(tmp_path, figure):
    judged, took_s = timed(repository(tmp_path / "repository"), tmp_path / "gate")

    figure(
        "paired gate of a small model, unchanged",
        f"{took_s:.0f} s, {', '.join(sorted(set(judged.verdicts.values())))}",
    )
    assert judged.code == 0, judged.said
    assert not {"regressed", "suspected", "improved"} & set(judged.verdicts.values())
    assert judged.doubts == []


def test_a_kernel_more_in_each_call_is_found(tmp_path, figure):
    made = repository(tmp_path / "repository", cycles=int(0.001 * cycles_per_s()))

    judged, took_s = timed(made, tmp_path / "gate")

    figure(
        "the same with a kernel of 1 ms more in each call",
        f"{took_s:.0f} s, {', '.join(sorted(set(judged.verdicts.values())))}",
    )
    assert judged.code == 1, judged.said
    assert set(judged.verdicts.values()) == {"regressed"}


@pytest.mark.parametrize("option", ["cuda_graph", "flush_l2"])
def test_an_option_of_the_clock_goes_through_the_engine(tmp_path, option, figure):
    judged, took_s = timed(
        repository(tmp_path / "repository", run=f", {option}: true"), tmp_path / "gate"
    )

    figure(f"the same with {option}", f"{took_s:.0f} s, a step of {medians_ms(judged):.3f} ms")
    assert judged.code == 0, judged.said
    assert not {"regressed", "suspected", "improved"} & set(judged.verdicts.values())
    if option == "cuda_graph":
        assert {check["outcome"] for check in judged.checks if check["name"] == "graphed"} == {
            "pass"
        }


def test_sides_that_do_not_fit_together_follow_one_another(tmp_path, figure):
    """Eight copies of both arms take two thirds of the card on either side."""
    elements = int(0.04 * torch.cuda.mem_get_info()[1] / 4)
    made = repository(
        tmp_path / "repository", run=", rotate: 8", suites=f"{SMALL}      measure: performance\n"
    )
    for message in ("base", "head"):
        made.commit({"model.py": LARGE.format(elements=elements) + f"# {message}\n"}, message)

    judged, took_s = timed(made, tmp_path / "gate")

    statuses = {row["status"] for row in (*judged.results["cases"], *judged.base["cases"])}
    figure("sides that do not fit together", f"{took_s:.0f} s, {', '.join(sorted(statuses))}")
    assert statuses == {"ok"}, judged.said
    assert {check["outcome"] for check in judged.checks if check["name"] == "side_by_side"} == {
        "unknown"
    }


@pytest.mark.parametrize("suite", OF_EACH_SUITE)
def test_every_suite_is_clean(tmp_path, suite, figure):
    judged, took_s = timed(
        repository(tmp_path / "repository", blocks=3, suites=OF_EACH_SUITE[suite]),
        tmp_path / "gate",
    )

    figure(
        f"paired gate of {suite}, small and unchanged",
        f"{took_s:.0f} s, {', '.join(sorted(set(judged.verdicts.values())))}",
    )
    assert judged.code == 0, judged.said
    assert judged.doubts == []


@pytest.mark.timeout(WHOLE_S)
@pytest.mark.parametrize("suite", REAL)
def test_every_suite_is_clean_at_its_real_size(tmp_path, suite, figure):
    made = repository(tmp_path / "repository", blocks=5, suites=REAL[suite])

    judged, took_s = timed(made, tmp_path / "gate", "--budget", f"{BUDGET_S}s", limit_s=LIMIT_S)

    figure(
        f"paired gate of {suite}, real size",
        f"{took_s:.0f} s, {', '.join(sorted(set(judged.verdicts.values())))}",
    )
    assert judged.code == 0, judged.said
