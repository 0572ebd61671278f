"""ci-bench.yml: every fault is found at its line, and what is sound becomes the frozen value."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ci_bench.configuration.config import MAX_BYTES, QUICKSTART, Overrides, load_config, parse
from ci_bench.errors import BadConfig
from ci_bench.records.config import (
    DEFAULT_THRESHOLD,
    Policy,
    Rule,
    RunOptions,
    Severity,
    SuiteEntry,
)
from ci_bench.records.metrics import MetricKind
from ci_bench.runner.planning import digest
from ci_bench.suites.registry import find_metrics

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"
MINIMAL = "schema_version: 1\nsuites:\n  training_loss:\n    - {}\n"
OPTIMIZERS = (
    "Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, ASGD, NAdam, RAdam, RMSprop, Rprop, SGD"
)

FAULTS = [
    (
        "config_alias_bomb.yml",
        "1: cannot be read as YAML: more than 20,000 values, or an alias inside itself",
    ),
    (
        "config_backend.yml",
        "5: suites.training_loss[0].backend: 'my package' does not have the form",
    ),
    (
        "config_dataset_field.yml",
        "5: suites.training_loss[0].dataset.pth: unknown field; did you mean 'path'?",
    ),
    (
        "config_ddp_mode.yml",
        (
            "6: suites.training_loss[0].layouts[0].optimize_ddp: 'no_optimisation' is not one of ddp_optimizer, python_reducer, "
            "python_reducer_without_compiled_forward, no_optimization; did you mean 'no_optimization'?"
        ),
    ),
    ("config_deep.yml", "1: cannot be read as YAML: nested more than 30 deep"),
    ("config_device.yml", "6: run.device: 'gpu' does not have the form"),
    ("config_duplicate_key.yml", "8: run.launches: the field comes twice, first on line 6"),
    ("config_empty.yml", " the file is empty; name the suites to measure"),
    ("config_empty_suite.yml", "3: suites.training_loss: 0 of at least 1 items"),
    (
        "config_infinite.yml",
        "5: suites.training_loss[0].lr: '1e999' is not a finite number; put it in quotes if it is text",
    ),
    (
        "config_large_threshold.yml",
        "6: policy.thresholds.step_time: 5 is more than 1; for example '5%'",
    ),
    ("config_launches_text.yml", "6: run.launches: '3' is not a whole number"),
    ("config_launches_zero.yml", "6: run.launches: 0 is less than 1"),
    ("config_list.yml", "1: a list is not a mapping, and a config document is one"),
    (
        "config_mapping_in_options.yml",
        "5: suites.training_loss[0].optimizer_options.betas: a mapping is not text or a number or true or false or null or a list",
    ),
    (
        "config_merge_key.yml",
        "5: ['<<']: unknown field; known are schema_version, run, budget, suites, ",
    ),
    ("config_metric_name.yml", "6: policy.thresholds: the name 'Step time' does not have the form"),
    ("config_nan.yml", "5: suites.training_loss[0].lr: '.nan' is not a number"),
    (
        "config_nested_options.yml",
        "5: suites.training_loss[0].optimizer_options.betas[0]: a list is not a number",
    ),
    (
        "config_newer_version.yml",
        "1: schema_version: schema_version 2 is for a newer ci-bench; this one reads 1",
    ),
    ("config_no_backend.yml", "5: suites.training_loss[0].backend: 0 of at least 1 items"),
    ("config_no_suites.yml", "1: suites: missing"),
    ("config_no_version.yml", "1: schema_version: missing"),
    ("config_not_utf8.yml", " not UTF-8 at byte 2; save it as UTF-8"),
    ("config_not_yaml.yml", "3: cannot be read as YAML: did not find expected node content"),
    ("config_null_launches.yml", "6: run.launches: null is not a whole number"),
    ("config_number_key.yml", "5: 1: the name of a field is text; put it in quotes"),
    ("config_one_seed.yml", "5: suites.training_loss[0].seeds: 1 is less than 2"),
    ("config_only_comment.yml", "1: null is not a mapping, and a config document is one"),
    (
        "config_optimizer.yml",
        "5: suites.training_loss[0].optimizer: 'LBFGS' is not one of Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax",
    ),
    ("config_own_tag.yml", "5: run: the tag '!run' is not allowed; leave it out"),
    ("config_percent.yml", "6: policy.default_threshold: '5 %' does not have the form"),
    ("config_perturbations.yml", "5: suites.training_loss[0].perturbations: 11 is more than 10"),
    (
        "config_policy_suite.yml",
        "7: policy.suites.training: unknown field; did you mean 'training_loss'?",
    ),
    (
        "config_precision.yml",
        "5: suites.training_loss[0].precision[1]: 'fp8' is not one of fp32, tf32, bf16, amp_bf16, amp_fp16",
    ),
    ("config_precision_twice.yml", "5: suites.training_loss[0].precision: an item comes twice"),
    (
        "config_recursive_alias.yml",
        "5: cannot be read as YAML: more than 20,000 values, or an alias inside itself",
    ),
    ("config_rule.yml", "6: policy.severities.regresed: unknown field; did you mean 'regressed'?"),
    ("config_sample_zero.yml", "6: run.sample_s: 0 is not more than 0"),
    (
        "config_severity.yml",
        "7: policy.severities.regressed: 'error' is not one of fail, warn, note",
    ),
    (
        "config_tag.yml",
        "6: run.device: the tag 'tag:yaml.org,2002:python/name:os.system' is not allowed; leave it out",
    ),
    (
        "config_text_in_list.yml",
        "5: suites.training_loss[0].optimizer_options.betas[1]: '0.99' is not a number",
    ),
    ("config_two_documents.yml", "5: cannot be read as YAML: but found another document"),
    ("config_undefined_alias.yml", "5: cannot be read as YAML: found undefined alias"),
    ("config_unknown_field.yml", "6: run.launchs: unknown field; did you mean 'launches'?"),
    (
        "config_unknown_option.yml",
        "5: suites.training_loss[0].optimiser: unknown field; did you mean 'optimizer'?",
    ),
    ("config_unknown_section.yml", "5: polizy: unknown field; did you mean 'policy'?"),
    (
        "config_unknown_suite.yml",
        "3: suites.training_los: unknown field; did you mean 'training_loss'?",
    ),
    ("config_yes.yml", "5: suites.training_loss[0].evaluation: 'yes' is not true or false"),
]
"""File, and how the one line of its message goes on: the line, the field and the words."""


@pytest.mark.parametrize(("name", "words"), FAULTS)
def test_an_invalid_example_is_refused_for_its_one_fault(name: str, words: str) -> None:
    path = EXAMPLES / "invalid" / name
    with pytest.raises(BadConfig) as caught:
        load_config(path)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{path}:{words}")


def test_the_table_names_every_invalid_example() -> None:
    assert {path.name for path in (EXAMPLES / "invalid").glob("*.yml")} == {
        name for name, _ in FAULTS
    }


def load(text: str, folder: Path, overrides: Overrides | None = None, **more: Any) -> Any:
    path = folder / "ci-bench.yml"
    path.write_text(text)
    return load_config(path, overrides, **more)


def complaints(text: str, folder: Path, overrides: Overrides | None = None) -> list[str]:
    with pytest.raises(BadConfig) as caught:
        load(text, folder, overrides)
    return [line.removeprefix(f"{folder}/") for line in str(caught.value).splitlines()]


def test_all_faults_come_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    text = """\
schema_version: 1
run:
  launchs: 3
  blocks: 4
  blocks: 5
suites:
  training_loss:
    - lr: fast
      optimizer: [adam]
polizy: {}
"""
    assert complaints(text, tmp_path, Overrides(launches=0)) == [
        "ci-bench.yml:3: run.launchs: unknown field; did you mean 'launches'?",
        "ci-bench.yml:5: run.blocks: the field comes twice, first on line 4",
        "ci-bench.yml:8: suites.training_loss[0].lr: 'fast' is not a number",
        f"ci-bench.yml:9: suites.training_loss[0].optimizer: a list is not one of {OPTIMIZERS}",
        "ci-bench.yml:10: polizy: unknown field; did you mean 'policy'?",
        "flag for launches: 0 is less than 1",
    ]


def test_more_faults_than_anyone_reads_are_counted(tmp_path: Path) -> None:
    lines = complaints(MINIMAL + "".join(f"field_{index}: 0\n" for index in range(60)), tmp_path)
    assert len(lines) == 51
    assert lines[-1] == "and 10 more"


def test_the_built_in_configuration_is_the_defaults_but_for_one_thread_little_work_and_a_lenient_baseline() -> (
    None
):
    config = load_config(QUICKSTART)
    assert config.run == RunOptions(
        threads=1, compile_budget_s=0.0, blocks=6, most_blocks=8, max_launches=6, sample_s=0.01
    )
    model = {"factory": "ci_bench.suites.training_loss.small_model:Classifier"}
    small = {"backend": "aot_eager", "num_samples": 240, "max_length": 32, "epochs": 2}
    small |= {"model": model, "loss": "torch.nn.functional:cross_entropy"}
    assert config.entries[0] == SuiteEntry(
        suite="training_loss", options={"name": "reviews", **small}
    )
    assert [entry.suite for entry in config.entries] == [
        "training_loss",
        "fastrnns",
        "torchbench",
        "transformers",
    ]
    assert config.policy.severities == {Rule.BASELINE_MISSING: Severity.NOTE}
    assert (
        config.policy.default_threshold == 0.10
    )  # wider than the default, to be decided in a minute or two
    assert Policy().threshold(suite="training_loss", metric="anything") == DEFAULT_THRESHOLD


def test_everything_that_can_be_set_is_read() -> None:
    config = load_config(EXAMPLES / "valid" / "config.yml")
    assert config.run == RunOptions(
        device="cuda:1",
        threads=2,
        launches=5,
        blocks=10,
        sample_s=0.05,
        warmup_s=20.0,
        stage_timeout_s=600.0,
        budget_s=1500.0,
    )
    assert type(config.run.warmup_s) is float
    whole, own, again = (entry.options for entry in config.entries)
    assert whole["lr"] == 0.001
    assert whole["optimizer_options"] == {
        "betas": [0.9, 0.99],
        "weight_decay": 0.01,
        "foreach": False,
        "fused": None,
    }
    assert whole["model"]["revision"] == "2024-01-01"
    assert own == again
    policy = config.policy
    assert policy.default_threshold == 0.025
    assert policy.thresholds == {"step_time": 0.03, "peak_rss": 0.1, "graphs": 0.0}
    assert policy.threshold(suite="training_loss", metric="step_time") == 0.1
    assert policy.severity(Rule.REGRESSED, suite="training_loss") is Severity.WARN
    assert policy.severity(Rule.CASE_SKIPPED) is Severity.NOTE


def test_a_small_file_leaves_everything_else_at_its_default(tmp_path: Path) -> None:
    config = load(MINIMAL, tmp_path)
    assert (config.run, config.entries) == (
        RunOptions(),
        (SuiteEntry(suite="training_loss", options={}),),
    )


def test_threads_need_no_file(tmp_path: Path) -> None:
    """The same benchmark, named on the command line and in a file of four lines."""
    (tmp_path / "b.py").touch()
    named = load_config(None, benchmarks=["b.py"])
    written = load("schema_version: 1\nsuites: {functions: [{path: b.py}]}\n", tmp_path)
    assert (named.run.threads, written.run.threads) == (1, 1)
    cores = load(
        "schema_version: 1\nrun: {threads: null}\nsuites: {functions: [{path: b.py}]}\n", tmp_path
    )
    assert cores.run.threads is None


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    text = MINIMAL + "run: {device: cpu, launches: 9, budget_s: 5, blocks: 2}\n"
    given_flags = Overrides(device="cuda:0", launches=1, budget_s=60)
    run = load(text, tmp_path, given_flags).run
    assert run == RunOptions(device="cuda:0", launches=1, budget_s=60.0, blocks=2)


@pytest.mark.parametrize(
    ("word", "budget_s"), [("5m", 300.0), ("90s", 90.0), ("1h30m", 5400.0), ("null", None)]
)
def test_a_budget_can_be_said_in_words(tmp_path: Path, word, budget_s) -> None:
    in_words = load(MINIMAL + f"budget: {word}\n", tmp_path)
    assert in_words.run == RunOptions(budget_s=budget_s)
    in_seconds = load(
        MINIMAL + f"run: {{budget_s: {'null' if budget_s is None else budget_s}}}\n", tmp_path
    )
    assert digest(in_words) == digest(in_seconds)
    flag = load(MINIMAL + f"budget: {word}\n", tmp_path, Overrides(budget_s=7))
    assert (flag.run.budget_s, flag.written.budget_s) == (7.0, budget_s)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("budget: 5 minutes\n", "budget: '5 minutes' does not have the form"),
        ("budget: 5x\n", "budget: '5x' does not have the form"),
        ("budget: 300\n", "budget: 300 is not text or null"),
        ("budget: 0s\n", "budget: 0.0 is not more than 0"),
        ("budget: 999h\n", "budget: 3596400.0 is more than 604800"),
        (
            "budget: 5m\nrun: {budget_s: 300}\n",
            "budget: run.budget_s is set, too; remove one of them",
        ),
    ],
)
def test_a_budget_that_cannot_be_is_refused(tmp_path: Path, more, complaint) -> None:
    (line,) = complaints(MINIMAL + more, tmp_path)
    assert complaint in line


def test_a_plugins_suite_can_be_named_wherever_a_suite_can(tmp_path: Path) -> None:
    entry = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"size": {"type": "integer"}},
    }
    text = "schema_version: 1\nsuites: {kernels: [{size: 3}]}\npolicy: {suites: {kernels: {severities: {regressed: note}}}}\n"
    config = load(text, tmp_path, more_suites={"kernels": entry})
    assert config.entries == (SuiteEntry(suite="kernels", options={"size": 3}),)
    with pytest.raises(
        BadConfig, match=r"ci-bench\.yml:2: suites\.kernels\[0\]\.size: '3' is not a whole number"
    ):
        load(text.replace("3", "'3'"), tmp_path, more_suites={"kernels": entry})
    with pytest.raises(BadConfig, match=r"suites\.kernels: unknown field"):
        load(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "share"),
    [("5%", 0.05), ("0.7%", 0.007), ("0%", 0.0), ("100%", 1.0), ("0.05", 0.05), ("0", 0.0)],
)
def test_a_threshold_is_a_percentage_or_a_share(text: str, share: float, tmp_path: Path) -> None:
    assert (
        load(
            MINIMAL + f"policy: {{default_threshold: {text}}}\n", tmp_path
        ).policy.default_threshold
        == share
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 0.0005),
        ("1E3", 1000.0),
        ("-.5", -0.5),
        ("0123", 123),
        ("true", True),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ("!!str 5", "5"),
        (".nan", ".nan"),
    ],
)
def test_scalars_are_read_as_yaml_1_2_says(text: str, value: object) -> None:
    parsed = parse(f"a: {text}\n")
    assert parsed.faults == ()
    assert parsed.value == {"a": value}
    assert type(parsed.value["a"]) is type(value)


def test_a_file_beyond_the_cap_is_not_parsed(tmp_path: Path) -> None:
    assert complaints("#" * (MAX_BYTES + 1), tmp_path) == [
        "ci-bench.yml: larger than 1,000,000 bytes, the most that is read"
    ]


def test_a_missing_file_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(
        BadConfig, match=r"none\.yml: cannot be read: No such file .*; check the path"
    ):
        load_config(tmp_path / "none.yml")


def test_a_file_that_nests_without_end_does_not_take_the_process_down(tmp_path: Path) -> None:
    assert complaints("[" * 200_000, tmp_path) == [
        "ci-bench.yml:1: cannot be read as YAML: nested more than 30 deep"
    ]


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
names = st.sampled_from(
    ["schema_version", "run", "suites", "policy", "training_loss", "launches", "thresholds"]
) | st.text(max_size=10)
anything: Any = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)
quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@quick
@given(
    content=st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
)
def test_no_bytes_raise_anything_but_bad_config(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ci-bench.yml"
    path.write_bytes(content)
    with pytest.raises(BadConfig):
        load_config(path)


@quick
@given(text=st.text(st.sampled_from("a1:-{}[],&*!?|>'\"#% \n\t"), max_size=60))
def test_no_yaml_raises_anything_but_bad_config(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig):
        load(text, tmp_path)


@quick
@given(value=anything)
def test_no_values_raise_anything_but_bad_config(value: Any, tmp_path: Path) -> None:
    import yaml

    for raw in (
        value,
        {"schema_version": 1, "suites": {"training_loss": [value]}, "run": value, "policy": value},
    ):
        path = tmp_path / "ci-bench.yml"
        path.write_text(yaml.safe_dump(raw), encoding="utf-8", errors="replace")
        try:
            load_config(path)
        except BadConfig as error:
            assert all(  # noqa: PT017 - it may be read as well
                str(path) in line or line.startswith("and ") for line in str(error).splitlines()
            )


def test_a_threshold_for_no_metric_is_refused_unless_a_plugin_may_have_it(tmp_path: Path) -> None:
    path = tmp_path / "ci-bench.yml"
    path.write_text(
        "schema_version: 1\nsuites: {training_loss: [{name: a}]}\npolicy:\n  thresholds: {step_tme: 3%}\n"
        "  suites: {training_loss: {thresholds: {graph_break: 0}}}\n"
    )

    with pytest.raises(BadConfig) as told:
        load_config(path)
    assert load_config(path, more_suites={"mine": {"type": "object"}}).policy.thresholds == {
        "step_tme": 0.03
    }
    assert [line.partition(":")[2] for line in str(told.value).splitlines()] == [
        "4: policy.thresholds.step_tme: no suite has a metric of this name; did you mean 'step_time'?",
        "5: policy.suites.training_loss.thresholds.graph_break: no suite has a metric of this name; did you mean 'graph_breaks'?",
    ]


@pytest.mark.parametrize(
    "kind", [kind for kind in find_metrics().values() if kind.gates], ids=lambda kind: kind.name
)
def test_every_declared_metric_that_gates_may_have_a_threshold(
    kind: MetricKind, tmp_path: Path
) -> None:
    config = load(
        f"schema_version: 1\nsuites: {{training_loss: [{{name: a}}]}}\npolicy: {{thresholds: {{{kind.name}: 7%}}}}\n",
        tmp_path,
    )
    assert config.policy.threshold(suite="training_loss", metric=kind.name, unit=kind.unit) == 0.07


def test_a_threshold_for_what_is_only_shown_is_refused(tmp_path: Path) -> None:
    told = complaints(
        "schema_version: 1\nsuites: {training_loss: [{name: a}]}\npolicy: {thresholds: {ops_captured: 7%}}\n",
        tmp_path,
    )
    assert told == [
        "ci-bench.yml:3: policy.thresholds.ops_captured: this metric is only shown and never fails; remove its threshold"
    ]


def test_without_a_file_the_defaults_count_and_not_what_the_quickstart_allows(
    tmp_path: Path,
) -> None:
    """Wide thresholds are the embedded configuration's own: they never judge the code of someone else."""
    (tmp_path / "b.py").touch()
    written = load("schema_version: 1\nsuites: {functions: [{path: b.py}]}\n", tmp_path)
    for found in (load_config(None, benchmarks=["b.py"]), load_config(None)):
        assert found.run == written.run == RunOptions()
        assert replace(found.policy, severities={}) == written.policy
        assert found.policy.severities == {Rule.BASELINE_MISSING: Severity.NOTE}
