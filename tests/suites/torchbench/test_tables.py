"""Tables, ours and the runner's: read, refused, applied."""

import json
from pathlib import Path

import pytest

from ci_bench.errors import BadConfig
from ci_bench.suites.torchbench.options import (
    BenchMode,
    ModelScope,
    ModelSource,
    TorchbenchOptions,
    TorchbenchPrecision,
    TorchbenchSettings,
)
from ci_bench.suites.torchbench.tables import (
    Table,
    read_tables,
    rules_for,
    settle,
    table_schema,
    unknown_models,
)

RUNNER = str(Path(__file__).parent / "runner_table.yaml")


def options(model, **more):
    settings = TorchbenchSettings(
        **{
            name: more.pop(name)
            for name in ("freezing", "nopython", "batch_size", "measure", "scope")
            if name in more
        }
    )
    given = {
        "mode": BenchMode.INFERENCE,
        "precision": TorchbenchPrecision.FP32,
        "backend": "inductor",
        **more,
    }
    return TorchbenchOptions(model=model, source=ModelSource.TORCHBENCH, settings=settings, **given)


def settled(model, device="cpu", *, table=None, no_skip=False, fast=False, **more):
    from dataclasses import replace

    one = options(model, **more)
    rules = rules_for(table or read_tables([RUNNER]), one, no_skip=no_skip, fast=fast)
    return settle(replace(one, rules=rules), device)


def test_one_list_of_frozen_models_is_for_all_devices(tmp_path):
    path = tmp_path / "torchbench.yaml"
    path.write_text("skip:\n  freezing: [moco]\n")
    table = read_tables([str(path)])
    found = {
        device: settled("moco", device, table=table, freezing=True).skip
        for device in ("cpu", "cuda")
    }
    assert found == dict.fromkeys(("cpu", "cuda"), "the table skips it (skip.freezing)")
    assert settled("moco", table=table).skip is None
    assert settled("other", table=table, freezing=True).skip is None


def own(tmp_path, *rules):
    path = tmp_path / "table.yml"
    path.write_text(json.dumps({"schema_version": 1, "rules": list(rules)}))
    return read_tables([str(path)])


TRAIN = {"mode": BenchMode.TRAINING}


@pytest.mark.parametrize(("model", "more", "field", "value"), [
    ("broken", {}, "skip", "the table skips it (skip.all)"),
    ("d_two", TRAIN, "skip", "the table skips it (skip.test.training)"),
    ("d_two", {}, "skip", None),
    ("llama", TRAIN, "skip", "the table skips it (skip.test.training)"),
    ("cuda_only", {}, "skip", "the table skips it (skip.device.cpu)"),
    ("cuda_only", {"device": "cuda:1"}, "skip", None),
    ("branchy", {"nopython": True}, "skip", "the table skips it (skip.control_flow: its graph has to break)"),
    ("branchy", {}, "skip", None),
    ("moco", {"freezing": True, "device": "cuda"}, "skip", "the table skips it (skip.freezing.cuda)"),
    ("moco", {"freezing": True}, "skip", None),
    ("many", {}, "skip", "the table skips it (skip.multiprocess: for several processes)"),
    ("huge", {}, "skip_accuracy", "too large for an fp64 copy (accuracy.skip)"),
    ("unet", TRAIN, "skip_accuracy", "eager cannot be made to repeat itself (accuracy.skip)"),
    ("unet", {}, "skip_accuracy", None),
    ("mobile", {}, "non_deterministic", True),
    ("yolo", {}, "runner_larger_multiplier", True),
    ("sam", {}, "runner_iou", 0.95),
    ("mask", {}, "runner_iou", 0.99),
    ("soft", {"precision": TorchbenchPrecision.AMP_FP16}, "runner_tolerance", 0.08),
    ("soft", {**TRAIN, "device": "cuda"}, "runner_tolerance", 0.08),
    ("soft", TRAIN, "runner_tolerance", None),
    ("drq", {"precision": TorchbenchPrecision.BF16}, "runner_tolerance", 0.01),
])  # fmt: skip
def test_a_table_of_the_runner_is_read_as_it_is(model, more, field, value):
    assert getattr(settled(model, **more), field) == value


@pytest.mark.parametrize(("model", "more", "batch"), [
    ("demucs", TRAIN, None),
    ("demucs", {**TRAIN, "batch_size": 16}, None),
    ("detector", {}, 32),
    ("detector", {"batch_size": 8}, 8),
    ("detector", TRAIN, None),
    ("unet", {"batch_size": 8, "measure": "accuracy"}, 2),
    ("unet", {"batch_size": 8}, 8),
])  # fmt: skip
def test_the_order_of_batch_sizes(model, more, batch):
    assert settled(model, **more).options.settings.batch_size == batch


@pytest.mark.parametrize(("model", "asked", "taken"), [
    ("tts", "fp16", "amp_fp16"), ("tts", "bf16", "amp_bf16"), ("tts", "fp32", "fp32"), ("mask", "bf16", "fp16"), ("nano", "amp_fp16", "amp_bf16"),
])  # fmt: skip
def test_types_that_a_table_forces(model, asked, taken):
    assert settled(model, precision=TorchbenchPrecision(asked)).options.precision == taken


def test_slow_models_are_skipped_where_it_is_to_go_fast():
    assert settled("BERT").skip is None
    assert (
        settled("BERT", fast=True).skip
        == "slow: more than a minute on a desktop CPU, and this entry is fast"
    )


def test_no_skip_takes_reasons_to_skip_away_and_nothing_else():
    assert settled("broken", no_skip=True).skip is None
    assert settled("BERT", no_skip=True, fast=True).skip is None
    assert settled("mobile", no_skip=True).non_deterministic


def test_canaries_and_cudagraphs():
    assert read_tables([RUNNER]).canaries == {"dlrm"}
    assert settled("tts").options.settings.cudagraphs is False


def test_what_a_table_says_is_part_of_the_case():
    rules = rules_for(read_tables([RUNNER]), options("cuda_only"), no_skip=False, fast=False)
    assert rules == ({"skip": "the table skips it (skip.device.cpu)", "when": {"device": "cpu"}},)


def test_later_rules_win_field_by_field(tmp_path):
    table = own(
        tmp_path,
        {"tolerance": 0.01, "batch_size": 4},
        {"models": ["res*"], "tolerance": 0.02},
        {
            "models": ["resnet18"],
            "when": {"mode": ["training"], "device": ["cuda", "xpu"]},
            "batch_size": 1,
        },
    )
    found = settled("resnet18", table=table)
    assert (found.tolerance, found.options.settings.batch_size) == (0.02, 4)
    found = settled("resnet18", "cuda:0", table=table, **TRAIN)
    assert (found.tolerance, found.options.settings.batch_size) == (0.02, 1)
    assert settled("vgg", table=table).tolerance == 0.01


def test_what_is_expected(tmp_path):
    table = own(
        tmp_path,
        {
            "models": ["a"],
            "expected": {"accuracy": "fail_accuracy", "graph_breaks": 3, "graphs": 2},
        },
    )
    found = settled("a", table=table)
    assert (found.expected, found.most, found.least) == (
        "fail_accuracy",
        {"graph_breaks": 3},
        {"graphs": 2},
    )


def test_what_is_expected_is_merged_field_by_field(tmp_path):
    table = own(
        tmp_path,
        {"expected": {"accuracy": "pass", "graphs": 2}},
        {"models": ["a"], "expected": {"graphs": 1, "fallbacks": 0}},
    )
    found = settled("a", table=table)
    assert (found.expected, found.most, found.least) == ("pass", {"fallbacks": 0}, {"graphs": 1})


def test_a_rule_may_be_for_one_scope(tmp_path):
    table = own(
        tmp_path, {"when": {"scope": "step", "mode": "training"}, "expected": {"graph_breaks": 3}}
    )
    most = [
        settled("a", table=table, mode=BenchMode.TRAINING, scope=scope).most
        for scope in (ModelScope.STEP, ModelScope.MODEL)
    ]
    assert most == [{"graph_breaks": 3}, {}]


@pytest.mark.parametrize(("text", "words"), [
    ("[1, 2]", "is not a mapping|not a sound table"),
    ("{schema_version: 2, rules: []}", r"\\$.schema_version"),
    ("{schema_version: 1, rules: [{modles: [a]}]}", "modles.*did you mean 'models'"),
    ("{schema_version: 1, rules: [{batch_size: 0}]}", r"\\$.rules\\[0\\].batch_size"),
    ("{schema_version: 1, rules: [{tolerance: 0.9}]}", r"\\$.rules\\[0\\].tolerance"),
    ("{schema_version: 1, rules: [{expected: {accuracy: fine}}]}", r"\\$.rules\\[0\\].expected.accuracy"),
    ("a: [", "cannot be read as YAML"),
])  # fmt: skip
def test_an_unsound_table_is_refused(tmp_path, text, words):
    path = tmp_path / "table.yml"
    path.write_text(text)
    with pytest.raises(BadConfig, match=words.replace("\\\\", "\\")):
        read_tables([str(path)])


def test_a_strict_entry_refuses_models_that_the_source_does_not_have(tmp_path):
    from ci_bench.suites.torchbench.plan import SUITE

    table = Table(rules=({"models": ["resnet", "resnt", "vi*", "vgg*"]},))
    assert unknown_models(table, ["resnet", "vit"]) == ["resnt", "vgg*"]
    path = tmp_path / "table.yml"
    path.write_text('{"schema_version": 1, "rules": [{"models": ["resnt"], "slow": true}]}')
    assert SUITE.plan({"tables": [str(path)], "models": ["mlp"]})
    with pytest.raises(BadConfig, match="strict, and zoo has no model resnt"):
        SUITE.plan({"tables": [str(path)], "models": ["mlp"], "strict": True})


def test_the_schema_is_sound_and_closed():
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(table_schema())

    def walk(node):
        if isinstance(node, dict):
            if node.get("type") == "object":
                assert node["additionalProperties"] is False
            for item in node.values():
                walk(item)

    walk(table_schema())


def test_every_field_of_a_rule_is_used(tmp_path):
    """A field that the schema allows and nothing reads would be a promise."""
    import inspect

    from ci_bench.suites.torchbench import tables

    source = inspect.getsource(tables)
    assert [
        name for name in table_schema()["$defs"]["rule"]["properties"] if f'"{name}"' not in source
    ] == []


EXPECTED = """name,accuracy,graph_breaks,calls_captured,unique_graphs,fallbacks_to_eager
good,pass,2,100,3,0
bad,fail_accuracy,0,,,
dead,fail_to_run,0,0,0,0
large,pass_due_to_skip,5,1,1,0
"""


def test_a_file_of_expected_results_is_a_table(tmp_path):
    path = tmp_path / "inductor_torchbench_training.csv"
    path.write_text(EXPECTED)
    table = read_tables([str(path)])
    good, bad, dead, large = (
        settled(name, table=table) for name in ("good", "bad", "dead", "large")
    )
    most, least = {"graph_breaks": 2, "fallbacks": 0}, {"graphs": 3, "ops_captured": 100}
    assert (good.expected, good.most, good.least) == ("pass", most, least)
    assert (bad.expected, bad.most, bad.least) == ("fail_accuracy", {"graph_breaks": 0}, {})
    assert dead.skip == "it is expected to end in fail_to_run"
    assert (large.expected, large.most) == (None, {"graph_breaks": 5, "fallbacks": 0})
    training = settled("good", table=table, mode=BenchMode.TRAINING)
    assert (training.expected, training.most, training.least) == (
        "pass",
        {"graph_breaks": 2},
        {},
    ), "their step has other graphs"


@pytest.mark.parametrize("text", ["", "name,speedup\na,1\n", "name,accuracy\n"])
def test_another_csv_is_refused(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(BadConfig, match="not the runner's expected results"):
        read_tables([str(path)])
