"""Operations and reads are counted as by hand, also in the CPU's fused attention; peaks are known for the GPUs that are listed."""

import time

import pytest
import torch
from transformers_builders import tiny, verified

from ci_bench.suites.shared.worker.roofline import (
    DENSE_PEAKS,
    LEAST_READ,
    Work,
    bandwidth_of,
    count_work,
    measured_bandwidth,
    measured_peak,
    peak_facts,
    peak_flops_per_s,
    peak_of,
    step_facts,
    work_facts,
)
from ci_bench.suites.transformers.options import TransformersPrecision

pytestmark = pytest.mark.engine


def count_flops(step):
    return count_work(step).operations


def test_a_product_is_two_operations_for_each_pair():
    layer, rows = torch.nn.Linear(30, 50), torch.ones(7, 30)
    assert count_flops(lambda: layer(rows)) == 2 * 7 * 30 * 50
    assert count_flops(lambda: layer(rows).sum().backward()) == 2 * 2 * 7 * 30 * 50, (
        "no gradient for the input"
    )


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_of_the_cpu_counts_as_its_two_products(causal):
    batch, heads, length, width = 2, 3, 16, 8
    query, key, value = (
        torch.randn(batch, heads, length, width, requires_grad=True) for _ in range(3)
    )
    forward = 2 * 2 * batch * heads * length * length * width

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)

    assert count_flops(attend) == forward
    assert count_flops(lambda: attend().sum().backward()) >= 3 * forward


@pytest.fixture
def as_torch_2_11(monkeypatch):
    """Its formulas refuse keys and values with fewer heads than the query (pytorch#177188)."""
    import torch.utils.flop_counter as counter

    def strict(formula):
        def checked(*shapes):
            assert len({shape[1] for shape in shapes}) == 1, (
                "query/key/value shapes are incompatible"
            )
            return formula(*shapes)

        return checked

    for name in ("sdpa_flop_count", "sdpa_backward_flop_count"):
        monkeypatch.setattr(counter, name, strict(getattr(counter, name)))


@pytest.mark.usefixtures("as_torch_2_11")
def test_shared_heads_are_counted_in_torch_2_11():
    query = torch.randn(2, 8, 16, 8, requires_grad=True)
    key, value = (torch.randn(2, 2, 16, 8, requires_grad=True) for _ in range(2))

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)

    forward = 2 * 2 * 2 * 8 * 16 * 16 * 8
    assert count_flops(attend) == forward
    assert count_flops(lambda: attend().sum().backward()) >= 3 * forward


@pytest.mark.usefixtures("as_torch_2_11")
def test_a_llama_is_verified_in_torch_2_11():
    assert verified(**tiny("llama"), candidate="none").facts["model_flops_per_step"] > 0


def test_a_failing_formula_costs_one_fact(monkeypatch):
    def broken(*_, **__):
        raise AssertionError("shapes are incompatible")

    monkeypatch.setitem(torch.utils.flop_counter.flop_registry, torch.ops.aten.addmm, broken)
    layer, calls = torch.nn.Linear(3, 5), []

    def step():
        layer(torch.ones(7, 3))
        calls.append(1)

    facts = step_facts(step, "cpu", "fp32")
    assert calls == [1], "the step runs to its end"
    assert "model_flops_per_step" not in facts
    assert "shapes are incompatible" in facts["work_unknown"]
    assert facts["measured_peak_flops_per_s"] > 0
    assert (
        "shapes are incompatible"
        in verified(**tiny("bert"), candidate="none").facts["work_unknown"]
    )


def test_an_error_under_the_counter_costs_one_fact():
    def step():
        raise NotImplementedError(
            "There was no rule registered for HOP flex_attention and mode _Reads"
        )

    facts = step_facts(step, "cpu", "fp32")
    assert "flex_attention" in facts["work_unknown"]
    assert facts["measured_peak_flops_per_s"] > 0


def test_a_bert_is_counted_as_by_hand():
    """Per layer: four projections, two of the wide layer, two products of attention; then the head's two."""
    batch, length, hidden, wide, vocabulary = 2, 8, 32, 64, 64
    tokens = batch * length
    layer = (
        4 * 2 * tokens * hidden * hidden
        + 2 * 2 * tokens * hidden * wide
        + 2 * 2 * batch * length * length * hidden
    )
    head = 2 * tokens * hidden * hidden + 2 * tokens * hidden * vocabulary
    counted = {
        attention: verified(**tiny("bert"), candidate="none", attention=attention).facts[
            "model_flops_per_step"
        ]
        for attention in ("sdpa", "eager")
    }
    assert counted == {"sdpa": layer + head, "eager": layer + head}


@pytest.mark.parametrize(
    ("gpu", "precision", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 PCIe", "fp16", 756.0),
        ("NVIDIA H100 NVL", "amp_bf16", 835.5),
        ("NVIDIA H200", "tf32", 494.5),
        ("NVIDIA A100-SXM4-80GB", "fp32", 19.5),
        ("NVIDIA A100-PCIE-40GB", "amp_fp16", 312.0),
        ("NVIDIA A10", "bf16", 125.0),
        ("NVIDIA A10G", "bf16", None),
        ("NVIDIA L4", "fp16", 121.0),
        ("NVIDIA L40S", "fp32", 91.6),
        ("NVIDIA L40", "fp32", 90.5),
        ("NVIDIA B200", "bf16", 2250.0),
        ("NVIDIA GB200", "tf32", 1250.0),
        ("NVIDIA GH200 480GB", "bf16", 989.5),
        ("AMD Instinct MI300X", "fp16", 1307.4),
        ("Tesla T4", "fp16", 65.0),
        ("Tesla T4", "bf16", None),
        ("Tesla V100-SXM2-16GB", "tf32", None),
        ("Tesla V100-PCIE-16GB", "fp32", 14.0),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", None),
        ("NVIDIA GeForce RTX 4090", "bf16", None),
    ],
)
def test_the_peak_of_a_gpu_in_a_format(gpu, precision, tera):
    peak = peak_of(gpu, TransformersPrecision(precision))
    assert peak == (None if tera is None else pytest.approx(tera * 1e12))


def test_an_unknown_peak_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA GeForce RTX 5090")
    facts = peak_facts("cuda:0", "bf16")
    assert "peak_flops_per_s" not in facts
    assert "NVIDIA GeForce RTX 5090 in bf16" in facts["peak_unknown"]


def test_wider_formats_are_never_faster():
    for _, peaks in DENSE_PEAKS:
        order = [peaks[kind] for kind in ("fp32", "tf32", "fp16", "half") if kind in peaks]
        assert order == sorted(order)


def test_the_cpu_has_no_known_peak():
    assert peak_flops_per_s("cpu", TransformersPrecision.FP32) is None
    assert "peak_flops_per_s" not in verified(**tiny("bert"), candidate="none").facts


def test_a_cpus_peak_is_measured_and_a_plain_product_does_not_exceed_it_by_far():
    assert peak_facts("cpu", "fp32").keys() == {"measured_peak_flops_per_s"}
    side, best = 512, 0.0
    one, peak = torch.ones(side, side), measured_peak("amp_bf16")
    for _ in range(10):
        begun = time.perf_counter()
        one @ one
        best = max(best, 2 * side**3 / (time.perf_counter() - begun))
    assert 0 < best < 2 * peak


def reads(step):
    return count_work(step).read_bytes


def test_weights_and_inputs_are_read_once_and_what_a_step_made_itself_is_not_read():
    layer, rows = torch.nn.Linear(30, 50, bias=False), torch.ones(7, 30)
    owed = 4 * (30 * 50 + 7 * 30)
    assert reads(lambda: layer(rows)) == owed
    assert reads(lambda: [layer(rows), layer(rows)]) == owed, "once, however often it is used"
    assert reads(lambda: layer(rows).sum().backward()) == owed
    assert reads(lambda: layer(rows * 1)) == 4 * 30 * 50, "its own product"


def test_rows_of_a_table_that_nobody_asked_for_are_not_read():
    table, head, ids = (
        torch.nn.Embedding(1000, 16),
        torch.nn.Linear(16, 4, bias=False),
        torch.arange(5),
    )
    assert reads(lambda: head(table(ids))) == 4 * 16 * 4


def test_what_is_expanded_is_read_as_large_as_it_is():
    one, rows = torch.ones(1, 8, 8), torch.ones(6, 8, 8)
    assert reads(lambda: torch.bmm(one.expand(6, 8, 8), rows)) == 4 * (64 + 6 * 64)


@pytest.mark.parametrize(("gpu", "tera"), [
    ("NVIDIA H100 80GB HBM3", 3.35), ("NVIDIA H100 PCIe", 2.0), ("NVIDIA H100 NVL", 3.9), ("NVIDIA H200", 4.8),
    ("NVIDIA A100-SXM4-80GB", 2.039), ("NVIDIA A100-PCIE-40GB", 1.555), ("NVIDIA A10", 0.6), ("NVIDIA A10G", None),
    ("NVIDIA L4", 0.3), ("NVIDIA L40S", 0.864), ("NVIDIA L40", 0.864), ("NVIDIA B200", 8.0), ("NVIDIA GH200 480GB", 4.9), ("AMD Instinct MI300X", 5.3), ("Tesla T4", 0.32), ("Tesla V100-SXM2-16GB", 0.9),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
])  # fmt: skip
def test_the_bandwidth_of_a_gpu(gpu, tera):
    assert bandwidth_of(gpu) == (None if tera is None else pytest.approx(tera * 1e12))


def test_a_cpus_bandwidth_is_measured_where_reading_may_be_the_limit():
    few, many = (
        work_facts(Work(operations=1, read_bytes=size), "cpu", "fp32")
        for size in (LEAST_READ - 1, LEAST_READ)
    )
    assert "read_bytes_per_step" not in few
    assert (many["read_bytes_per_step"], many["measured_peak_bytes_per_s"] > 0) == (
        LEAST_READ,
        True,
    )


def test_a_plain_product_does_not_read_faster_than_the_measured_bandwidth_by_far():
    weights, vector = torch.ones(4096, 2048), torch.ones(2048)
    size, best_s = reads(lambda: torch.mm(weights, vector[:, None])), 1.0
    for _ in range(10):
        begun = time.perf_counter()
        torch.mv(weights, vector)
        best_s = min(best_s, time.perf_counter() - begun)
    assert size / best_s < 2 * measured_bandwidth(size)
