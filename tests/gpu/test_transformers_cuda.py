"""The suite `transformers` on a real GPU: formats, fused attention, CUDA graphs, memory of allocator and process, a second GPU."""

import gzip
import json

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

RUN = {"launches": 2, "blocks": 3}
SMALL = {"batch_size": 4, "sequence_length": 64, "new_tokens": 8}


def run(tmp_path, *, device="cuda:0", **entry):
    """The rows of one entry."""
    from ci_bench.cli import main

    config = {
        "schema_version": 1,
        "run": {**RUN, "device": device},
        "suites": {"transformers": [{**SMALL, **entry}]},
    }
    (tmp_path / "ci-bench.yml").write_text(json.dumps(config))
    main(["run", "--config", str(tmp_path / "ci-bench.yml"), "--output", str(tmp_path / "out")])
    return json.loads((tmp_path / "out" / "results.json").read_text())["cases"]


def one(tmp_path, **entry):
    (row,) = run(tmp_path, **entry)
    assert row["status"] == "ok", row.get("failure")
    return row


def values(row, name, arm):
    (found,) = [
        metric for metric in row["metrics"] if (metric["name"], metric["arm"]) == (name, arm)
    ]
    return [value for launch in found["launches"] for value in launch["values"]]


def red(row):
    return {
        (check["name"], check["detail"])
        for check in row["checks"]
        if check["outcome"] != "pass" and not check["informative"] and check["name"] != "steady"
    }


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16", "amp_bf16", "amp_fp16"])
def test_arms_agree_in_every_format(tmp_path, precision, mode):
    assert red(one(tmp_path, model="bert", precision=precision, mode=mode)) == set()


@pytest.mark.parametrize("model", ["bert", "gpt2", "t5", "llama", "vit", "wav2vec2", "whisper"])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_every_preset_runs_and_agrees(tmp_path, model, mode):
    assert red(one(tmp_path, model=model, mode=mode, memory=False)) == set()


@pytest.mark.parametrize(
    "candidate",
    ["reduce-overhead", "max-autotune-no-cudagraphs", "torchscript", "export", "cudagraphs"],
)
def test_every_way_of_translating_agrees(tmp_path, candidate):
    assert (
        red(one(tmp_path, model="llama", candidate=candidate, precision="bf16", memory=False))
        == set()
    )


def test_a_training_step_in_cuda_graphs_agrees(tmp_path):
    entry = {"model": "gpt2", "mode": "training", "memory": False}
    assert red(one(tmp_path, **entry, candidate="reduce-overhead")) == set()
    assert (
        red(one(tmp_path, **entry, candidate={"mode": "reduce-overhead", "whole": True})) == set()
    )


@pytest.mark.parametrize("model", ["gpt2", "llama", "t5", "whisper"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generations_agree(tmp_path, model, cache):
    row = one(tmp_path, model=model, mode="generation", cache=cache, memory=False)
    assert red(row) == set()
    first, token = (values(row, name, "eager") for name in ("first_token_time", "token_time"))
    assert min(first) > 0
    assert min(token) > 0


def test_a_static_cache_can_be_decoded_in_cuda_graphs(tmp_path):
    entry = {
        "model": "llama",
        "mode": "generation",
        "cache": "static",
        "memory": False,
        "precision": "bf16",
    }
    assert red(one(tmp_path, **entry, candidate="reduce-overhead")) == set()


def test_flash_attention_runs_or_says_why_not(tmp_path):
    (row,) = run(
        tmp_path, model="llama", attention="flash_attention_2", precision="bf16", memory=False
    )
    if row["status"] == "skipped":
        assert "flash_attention_2" in row["failure"]["reason"]
    else:
        assert (row["status"], red(row)) == ("ok", set())


def test_memory_is_the_allocators_and_the_processs(tmp_path):
    row = one(tmp_path, model="bert", mode="training", candidate="aot_eager")
    for arm in ("eager", "aot_eager"):
        allocated, reserved = values(row, "peak_allocated", arm), values(row, "peak_reserved", arm)
        assert len(allocated) == 2
        assert allocated[0] == allocated[1] > 0
        assert reserved[0] >= allocated[0]
        told = row["facts"][f"process_vram_found_{arm}"]
        if told in {"by its pid", "the only process on the GPU"}:
            assert values(row, "process_vram", arm)[0] > allocated[0], "it holds its context, too"


def test_a_timeline_names_the_lines_that_hold_the_peak(tmp_path):
    row = one(
        tmp_path, model="bert", mode="training", candidate="none", memory_timeline=True, speed=False
    )
    assert row["facts"]["step_peak_bytes_eager"] > 0
    assert "modeling_bert.py:" in row["facts"]["step_peak_lines_eager"]
    kept = tmp_path / "out" / row["facts"]["file.memory_timeline_eager.jsonl.gz"]
    assert json.loads(gzip.decompress(kept.read_bytes()).splitlines()[0])["action"]


def test_parts_of_a_training_step_fill_it(tmp_path):
    row = one(tmp_path, model="bert", mode="training", memory=False, candidate="none")
    parts = ("forward_time", "backward_time", "optimizer_time")
    whole, summed = (
        sorted(values(row, "step_time", "eager")),
        sum(min(values(row, part, "eager")) for part in parts),
    )
    assert 0.4 < summed / whole[len(whole) // 2] < 1.2


def test_work_and_peak_are_facts(tmp_path):
    from ci_bench.suites.shared.worker.roofline import peak_of
    from ci_bench.suites.transformers.options import TransformersPrecision

    facts = one(tmp_path, model="bert", candidate="none", precision="bf16", memory=False)["facts"]
    assert facts["model_flops_per_step"] > 0
    assert facts.get("peak_flops_per_s") == peak_of(
        torch.cuda.get_device_name(0), TransformersPrecision.BF16
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("loop", ["own", "generate"])
def test_drawn_tokens_of_ragged_prompts_are_those_of_the_same_random_numbers(
    tmp_path, loop, precision
):
    drawn = {
        "sampling": {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
        "ragged": True,
        "loop": loop,
        "cache": "static",
    }
    assert (
        red(
            one(
                tmp_path,
                model="llama",
                mode="generation",
                precision=precision,
                memory=False,
                **drawn,
            )
        )
        == set()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_attention_counts_as_on_the_cpu(dtype):
    from ci_bench.suites.shared.worker.roofline import count_work

    shape = (2, 4, 128, 64)
    query, key, value = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    assert (
        count_work(lambda: attend(query, key, value)).operations == 2 * 2 * 2 * 4 * 128 * 128 * 64
    )


def test_a_limit_is_kept(tmp_path):
    huge = {"path": "bert", "name": "huge", "config": {"vocab_size": 4_000_000}}
    (row,) = run(tmp_path, model=huge, candidate="none", memory_limit_bytes=500_000_000)
    assert row["status"] == "out_of_memory"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_second_gpu_is_used_and_asked(tmp_path):
    row = one(tmp_path, model="bert", device="cuda:1", candidate="none")
    assert values(row, "peak_allocated", "eager")[0] > 0
    told = row["facts"]["process_vram_found_eager"]
    assert (
        told in {"by its pid", "the only process on the GPU"} or "driver" in told or "NVML" in told
    )
