"""Every planted defect ends in the right status, through the suite's own path; what is right passes.

State: models of `planted_models` in training, backend aot_eager unless the backend is what is
planted, one thread, CPU.
"""

import pytest
import torch
from planted_models import LazySGD
from torchbench_builders import accuracy, checks_of, opened, own, verified, word

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Unsupported, no_mark
from ci_bench.suites.shared.worker.memory_errors import OutOfMemoryError
from ci_bench.suites.torchbench import program
from ci_bench.suites.torchbench.status import ModelFailed

pytestmark = pytest.mark.engine

SGD = {"optimizer": "SGD"}


def plain(defect="none", scale=1.0, **entry):
    return own("Plain", model_options={"defect": defect, "scale": scale}, **entry)


@pytest.mark.parametrize(
    "entry",
    [
        {},
        SGD,
        {"scope": "step"},
        {"mode": "inference"},
        {"precision": "bf16"},
        {"precision": "amp_bf16"},
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_what_is_right_passes(entry, scale):
    check = accuracy(**plain(scale=scale, **entry))
    assert (check.outcome, word(check)) == (Outcome.PASS, "pass"), check.detail


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-4, 1e-6])
@pytest.mark.parametrize("defect", ["zeroed", "flipped"])
@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_wrong_gradients_of_any_size_fail(defect, scale, optimizer):
    check = accuracy(**plain(defect, scale, optimizer=optimizer))
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy")
    assert "gradients.one." in check.detail


@pytest.mark.parametrize("backend", ["zeroed_gradients", "flipped_gradients"])
@pytest.mark.parametrize("scale", [1e-3, 1e-4])
def test_a_backend_with_wrong_gradients_fails_where_the_runners_rule_passes_it(backend, scale):
    checks = checks_of(verified(**plain(scale=scale, backend=f"planted_backends:{backend}", **SGD)))
    assert (checks["accuracy"].outcome, word(checks["accuracy"])) == (Outcome.FAIL, "fail_accuracy")
    assert checks["runner_rule"].outcome is Outcome.PASS
    assert checks["runner_rule"].informative


@pytest.mark.parametrize(("defect", "named"), [
    ("scaled", "outputs.logits"),
    ("element", "outputs.logits"),
    ("second", "outputs.second"),
    ("nan", "outputs.second: 8 elements are not finite"),
    ("type", "outputs.second: float64[8] instead of float32[8]"),
    ("shape", "outputs.second: float32[8, 1] instead of float32[8]"),
    ("structure", "mapping of 3 instead of mapping of 2"),
    ("stale", "buffers.norm.num_batches_tracked: 0 instead of 1"),
])  # fmt: skip
def test_wrong_results_fail_and_are_named(defect, named):
    check = accuracy(**plain(defect))
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy")
    assert named in check.detail


@pytest.mark.parametrize("defect", ["scaled", "element", "second", "type"])
def test_wrong_results_of_inference_fail(defect):
    assert word(accuracy(**plain(defect, mode="inference"))) == "fail_accuracy"


def test_a_scaled_output_of_a_backend_fails():
    check = accuracy(**own("pair", mode="inference", backend="planted_backends:scaled_output"))
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy")


def test_a_skipped_optimizer_step_fails(monkeypatch):
    monkeypatch.setattr(torch.optim, "SGD", LazySGD)
    check = accuracy(**plain(scope="step", scale=1e-4, **SGD))
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy")
    assert "updates." in check.detail


def test_another_learning_rate_fails(monkeypatch):
    build = program.build_optimizer

    def faster(options, parameters, device, **more):
        built = build(options, parameters, device, **more)
        if options.backend == "aot_eager" and monkeypatched["candidate"]:
            built.param_groups[0]["lr"] *= 1.01
        return built

    monkeypatched = {"candidate": False}
    monkeypatch.setattr(program, "build_optimizer", faster)
    case, workload = opened(**plain())
    ready = workload._build

    def remember(*, candidate, **more):
        monkeypatched["candidate"] = candidate is not None
        return ready(candidate=candidate, **more)

    workload._build = remember
    (check, *_) = workload.verify(case.arms).checks
    assert word(check) == "fail_accuracy"
    assert "updates." in check.detail


def test_torchs_wrong_backend_fails():
    check = accuracy(**own("Relu", backend="relu_accuracy_error_TESTING_ONLY"))
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy")
    assert "outputs.second" in check.detail


@pytest.mark.parametrize(("backend", "error"), [
    ("relu_compile_error_TESTING_ONLY", "ReluCompileError"),
    ("relu_runtime_error_TESTING_ONLY", "ReluRuntimeError"),
    ("planted_backends:refusing", "no lowering"),
])  # fmt: skip
def test_a_backend_that_raises_fails_to_run(backend, error):
    with pytest.raises(ModelFailed, match=f"^fail_to_run: [^$]*{error}"):
        verified(**own("Relu", backend=backend))
    case, workload = opened(**own("Relu", backend=backend))
    with pytest.raises(ModelFailed, match=f"^fail_to_run: [^$]*{error}"):
        workload.open(case.arms[1]).step(no_mark)


def test_a_backend_out_of_memory_is_told_apart():
    with pytest.raises(OutOfMemoryError, match=r"^OOM: "):
        verified(**plain(backend="planted_backends:out_of_memory"))


@pytest.mark.parametrize(("model", "error", "words"), [
    ("Broken", ModelFailed, ("eager_fail_to_run: ", "eager_1st_run_fail: ")),
    ("Greedy", OutOfMemoryError, ("eager_1st_run_OOM: ", "eager_1st_run_OOM: ")),
])  # fmt: skip
def test_eager_that_fails_is_told_apart(model, error, words):
    case, workload = opened(**own(model))
    with pytest.raises(error, match=f"^{words[0]}"):
        workload.prepare()
    with pytest.raises(error, match=f"^{words[1]}"):
        workload.verify(case.arms)


@pytest.mark.parametrize(("model", "words"), [
    ("raising", "model_fail_to_load: FileNotFoundError: weights.bin"),
    ("nothing", "model_fail_to_load: TypeError: .* gave int; it has to give"),
    ("absent", "model_fail_to_load: LookupError: .* no 'absent'"),
])  # fmt: skip
def test_a_model_that_cannot_be_loaded_is_told_apart(model, words):
    _, workload = opened(**own(model))
    with pytest.raises(ModelFailed, match=words):
        workload.prepare()


def test_eager_that_does_not_repeat_itself_is_named():
    check = accuracy(**own("Restless"))
    assert (check.outcome, word(check)) == (Outcome.FAIL, "eager_two_runs_differ")
    assert "outputs.second" in check.detail


def table(tmp_path, **rule):
    import json

    path = tmp_path / "table.yml"
    path.write_text(json.dumps({"schema_version": 1, "rules": [rule]}))
    return [str(path)]


def test_known_restlessness_widens_rounding_but_hides_no_defect(tmp_path):
    tables = table(tmp_path, non_deterministic=True)
    calm = own("Restless", model_options={"size": 1e-3}, tables=tables)
    assert word(accuracy(**calm)) == "pass"
    wrong = own(
        "Restless",
        model_options={"size": 1e-3},
        tables=tables,
        backend="planted_backends:zeroed_gradients",
    )
    assert word(accuracy(**wrong)) == "fail_accuracy"


def test_without_fp64_rounding_is_measured_by_shaking():
    check = accuracy(**own("NoFp64"))
    assert word(check) == "pass"
    assert "no fp64 reference: RuntimeError: no kernel for double" in check.detail
    assert (
        word(accuracy(**own("NoFp64", backend="planted_backends:flipped_gradients")))
        == "fail_accuracy"
    )


def test_a_model_whose_gradients_are_noise_is_not_called_right():
    check = accuracy(**own("Constant"))
    assert check.outcome is Outcome.UNKNOWN
    assert "larger than its own rounding" in check.detail


@pytest.mark.parametrize(("expected", "defect", "outcome", "note"), [
    ("fail_accuracy", "scaled", Outcome.PASS, "as its table expects"),
    ("fail_accuracy", "none", Outcome.PASS, "take the row out"),
    ("pass", "scaled", Outcome.FAIL, "its table expects pass"),
    ("eager_two_runs_differ", "scaled", Outcome.FAIL, "its table expects eager_two_runs_differ"),
])  # fmt: skip
def test_an_expected_status_passes_and_so_does_better(tmp_path, expected, defect, outcome, note):
    check = accuracy(**plain(defect, tables=table(tmp_path, expected={"accuracy": expected})))
    assert (check.outcome, note in check.detail) == (outcome, True)


@pytest.mark.parametrize(("bounds", "outcome"), [
    ({"graph_breaks": 50, "fallbacks": 50, "graphs": 1, "ops_captured": 1}, Outcome.PASS),
    ({"graph_breaks": 0, "graphs": 50, "ops_captured": 5000}, Outcome.FAIL),
])  # fmt: skip
def test_expected_counts_are_checked_and_better_never_fails(tmp_path, bounds, outcome):
    checks = checks_of(verified(**plain(scope="step", tables=table(tmp_path, expected=bounds))))
    assert {name: checks[name].outcome for name in bounds} == dict.fromkeys(bounds, outcome)


def test_a_model_that_is_left_to_run_as_it_is_has_fallbacks_and_no_operations(tmp_path):
    tables = table(tmp_path, expected={"fallbacks": 0, "ops_captured": 1, "graphs": 1})
    checks = checks_of(verified(**own("Uncompiled", mode="inference", tables=tables)))
    assert {name: checks[name].outcome for name in ("accuracy", "ops_captured", "graphs")} == {
        "accuracy": Outcome.PASS,
        "ops_captured": Outcome.FAIL,
        "graphs": Outcome.FAIL,
    }


def test_accuracy_that_a_table_skips_is_unknown(tmp_path):
    check = accuracy(**plain("scaled", tables=table(tmp_path, skip_accuracy="too large")))
    assert (check.outcome, word(check)) == (Outcome.UNKNOWN, "pass_due_to_skip")


def test_a_skipped_model_is_unsupported(tmp_path):
    with pytest.raises(Unsupported, match="not here"):
        opened(**plain(tables=table(tmp_path, skip="not here", when={"device": "cpu"})))
    opened(**plain(tables=table(tmp_path, skip="not here", when={"device": "cuda"})))


@pytest.mark.parametrize("entry", [{}, {"dynamic": True, "mode": "inference"}])
def test_every_batch_that_takes_turns_is_verified(entry):
    evidence = verified(**own("Plain", **entry))
    (check,) = (one for one in evidence.checks if one.name == "accuracy")
    turns = 5 if entry else 1
    assert evidence.facts["verified_batches"] == turns
    assert evidence.facts["verified_steps"] == max(2, turns)
    assert f"over all {turns} {'sizes' if entry else 'batches'}" in check.detail


def test_a_size_that_is_wrong_is_seen_whenever_it_takes_its_turn():
    """Of the sizes 8, 4, 6, 10 and 12, in an order of their own, two are above nine rows."""
    assert word(accuracy(**own("LargeBatches", mode="inference"))) == "pass"
    check = accuracy(**own("LargeBatches", mode="inference", dynamic=True))
    assert (check.outcome, word(check)) == (Outcome.FAIL, "fail_accuracy")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", ["number", "list", "tensor", "object"])
def test_plain_attributes_are_put_back_between_forced_steps(kind, backend):
    options = {"backend": backend, "mode": "inference"}
    check = accuracy(**own("Counting", model_options={"kind": kind}, **options))
    assert (check.outcome, word(check)) == (Outcome.PASS, "pass"), check.detail
    wrong = accuracy(
        **own("Counting", model_options={"kind": kind, "defect": "element"}, **options)
    )
    assert word(wrong) == "fail_accuracy"


def test_a_model_with_state_that_cannot_be_put_back_is_called_stateful_not_wrong():
    check = accuracy(**own("Secretive", backend="eager"))
    assert (check.outcome, word(check)) == (Outcome.UNKNOWN, "eager_variation")
    assert "keeps state" in check.detail


MEANS = {
    "right": ("squares", "right", "bf16", Outcome.PASS, "3 of them with half of the rows blank"),
    "right in fp32": ("squares", "right", "fp32", Outcome.PASS, ""),
    "half of the rows": ("squares", "half_of_the_rows", "bf16", Outcome.FAIL, "outputs: off by"),
    "a number that says nothing": (
        "normed",
        "right",
        "bf16",
        Outcome.UNKNOWN,
        "one number in bf16",
    ),
    "an input overwritten": (
        "squares",
        "overwriting",
        "fp32",
        Outcome.FAIL,
        "inputs.0: it writes into this input",
    ),
    "an input overwritten by both": ("in place", "right", "fp32", Outcome.PASS, ""),
}


@pytest.mark.parametrize("name", MEANS)
def test_few_numbers_and_inputs_are_verified(name):
    kind, backend, precision, outcome, said = MEANS[name]
    entry = {
        "mode": "inference",
        "backend": f"planted_backends:{backend}",
        "precision": [precision],
    }
    check = accuracy(**own("Mean", model_options={"kind": kind}, **entry))
    assert check.outcome is outcome, check
    assert said in check.detail
