"""Options of the tools before are named with their equivalents, in a configuration and on the command line."""

import json
from pathlib import Path

import pytest

from ci_bench.command_line.flags import make_parser
from ci_bench.errors import BadConfig
from ci_bench.records.documents import Kind, schema
from ci_bench.records.predecessors import describe_field, describe_flags

OPTIONS = (Path(__file__).parents[1] / "fixtures" / "dynamo_runner_options.txt").read_text().split()
_LISTED = """
models batch_sizes sequence_lengths inference training cuda tpu fp16 verbose speed memory env_print multi_process
trace_memory_line_by_line save_to_csv log_print only_pretrain_model repeat torchscript no_inference no_speed no_memory no_cuda
no_tpu no_env_print no_multi_process inference_time_csv_file inference_memory_csv_file train_time_csv_file
train_memory_csv_file env_info_csv_file log_filename device_idx n_gpu fp16_opt_level torch_xla_tpu_print_metrics use_xla
eager_mode
"""
ARGUMENTS = _LISTED.split()
"""Of `PyTorchBenchmarkArguments` and `TensorFlowBenchmarkArguments`."""
LOSS = ["epochs", "num_samples", "batch_size", "lr", "backend", "optimizer"]


def fields(suite):
    form = schema(Kind.CONFIG)["properties"]["suites"]["properties"][suite]
    return resolved(form["items"])


def resolved(node):
    node = schema(Kind.CONFIG)["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    return set(node.get("properties", {})).union(*(resolved(one) for one in node.get("allOf", ())))


def found(name, suite):
    """The place of an option in an entry of a suite: a field, one of another place, or a sentence."""
    plain = name.removeprefix("--").replace("-", "_")
    return plain in fields(suite) or describe_field(name, sorted(fields(suite)))


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_the_dynamo_runner_is_found(option) -> None:
    elsewhere = {"--output", "--baseline"}
    assert found(option, "torchbench") or option in elsewhere
    assert describe_flags([option]) or option in {*elsewhere, "--threads", "--dynamic-shapes"}


@pytest.mark.parametrize("option", ARGUMENTS)
def test_an_argument_of_transformers_is_found(option) -> None:
    assert found(option, "transformers") or option in {"models", "batch_sizes", "sequence_lengths"}


@pytest.mark.parametrize("option", LOSS)
def test_an_option_of_training_loss_is_a_field(option) -> None:
    assert option in fields("training_loss")
    assert describe_flags([f"--{option.replace('_', '-')}"])


@pytest.mark.parametrize(("suite", "name", "words"), [
    ("torchbench", "only", "; here it is `models`"), ("torchbench", "fp16", "; here it is `precision: fp16`"),
    ("transformers", "torchscript", "; here it is `candidate: torchscript`"),
    ("torchbench", "torchscript_jit_trace", "; here it is `backend: torchscript`"),
    ("transformers", "env_print", "; here it is always reported"), ("torchbench", "cosine", "; it has no equivalent here"),
    ("transformers", "only", ""), ("torchbench", "colour", ""),
])  # fmt: skip
def test_the_sentence_names_what_the_suite_has(suite, name, words) -> None:
    assert describe_field(name, sorted(fields(suite))) == words


def test_old_flags_are_named_on_the_command_line(capsys) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args(["run", "--performance", "--only", "resnet50", "--colour"])
    assert (
        "in ci-bench.yml --performance is `measure: performance`, --only is `models`\n"
        in capsys.readouterr().err
    )


def test_old_fields_are_named_in_a_configuration(tmp_path) -> None:
    from ci_bench.configuration.config import load_config

    entry = {"model": "hub/model", "fp16": True}
    (tmp_path / "ci-bench.yml").write_text(
        json.dumps({"schema_version": 1, "suites": {"transformers": [entry]}})
    )
    with pytest.raises(BadConfig, match="unknown field; here it is `precision: fp16`"):
        load_config(tmp_path / "ci-bench.yml", {}, more_suites={})
