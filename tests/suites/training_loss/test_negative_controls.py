"""Every planted fault is caught by the loss or the gradient norm of 50 steps; what only rounds differently passes.

State: seeds 0 and 1 for faults, 0 to 3 for what is benign (`CI_BENCH_TEST_SEEDS`); fp32 unless a
test says otherwise; AdamW on a two-layer BERT with dropout 0.1; one thread. The table of scores is
printed with ``-v``.
"""

import os
from collections import defaultdict
from dataclasses import replace
from functools import cache

import pytest
import torch
from training_loss_builders import (
    ARM,
    anchors_of,
    evidence,
    judged,
    make_bench,
    start_of_model,
    stepping,
    train,
    write_model,
)

from ci_bench.judge.parity.envelope import LIMIT
from ci_bench.records.comparison import Parity, Tier
from ci_bench.records.results import Masks, Role
from ci_bench.suites.shared.planning.arms import CompiledArm
from ci_bench.suites.training_loss.corpus import Rows
from ci_bench.suites.training_loss.options import Model, TrainingPrecision
from ci_bench.suites.training_loss.recipes import OTHER_MASK_SEED, TrainingRecipe, record_training
from ci_bench.suites.training_loss.training import build_trainee

pytestmark = pytest.mark.engine

FAULT_SEEDS = (0, 1)
BENIGN_SEEDS = tuple(range(int(os.environ.get("CI_BENCH_TEST_SEEDS", "4"))))
"""More for a table of scores."""
BF16 = 2.0**-8


@pytest.fixture(scope="module")
def anchors(bench):
    """Reference and perturbed references of a seed, trained once."""

    @cache
    def of(seed, epsilon=2.0**-24):
        return anchors_of(bench, seed, epsilon=epsilon)

    return of


@pytest.fixture(scope="module")
def scores(table):
    """Collects what the judge said, and lists it in the end."""
    found = defaultdict(list)
    yield found
    for name, findings in found.items():
        verdicts = ", ".join(sorted({str(finding.verdict) for finding in findings}))
        loss, norm = (
            _range([getattr(f, key) for f in findings]) for key in ("loss_score", "grad_norm_score")
        )
        table.append(
            f"{name:<38} {len(findings):>2} seeds  loss {loss:<20} norm {norm:<20} {verdicts}"
        )


def _range(values):
    known = [value for value in values if value is not None]
    return f"{min(known):.3g} to {max(known):.3g}" if known else "-"


def each_group(trainee, **values):
    for group in trainee.optimizer.param_groups:
        group.update(values)


def each_module(trainee, kind, **values):
    found = [module for module in trainee.model.modules() if isinstance(module, kind)]
    assert found
    for module in found:
        for name, value in values.items():
            setattr(module, name, value)


def never_update(trainee):
    trainee.optimizer.step = lambda: None


def raise_lr(trainee):
    each_group(trainee, lr=1.02 * trainee.optimizer.param_groups[0]["lr"])


def drop_weight_decay(trainee):
    each_group(trainee, weight_decay=0.0)


def change_beta2(trainee):
    each_group(trainee, betas=(0.9, 0.999))


def change_layer_norm(trainee):
    each_module(trainee, torch.nn.LayerNorm, eps=1e-2)


def more_dropout(trainee):
    each_module(trainee, torch.nn.Dropout, p=0.12)


def no_dropout(trainee):
    each_module(trainee, torch.nn.Dropout, p=0.0)


def round_weights(trainee):
    with torch.no_grad():
        for parameter in trainee.model.parameters():
            parameter.copy_(parameter.bfloat16())


def freeze_layer(trainee):
    trainee.model.bert.encoder.layer[0].requires_grad_(requires_grad=False)


def roll_labels(trainee):
    return stepping(trainee, lambda batch: {**batch, "labels": batch["labels"].roll(1)})


def lag_one_batch(trainee):
    held = []

    def earlier(batch):
        held.append(batch)
        return held[max(0, len(held) - 2)]

    return stepping(trainee, earlier)


def ignore_padding(trainee):
    return stepping(
        trainee, lambda batch: {**batch, "attention_mask": torch.ones_like(batch["attention_mask"])}
    )


def scale_backward(trainee):
    """The loss is reported as it is, and only its gradients are off."""
    trainee.model.register_forward_hook(
        lambda module, given, output: output.loss.register_hook(lambda g: 1.01 * g) and None
    )


def scale_one_gradient(factor):
    def change(trainee):
        trainee.model.bert.encoder.layer[0].output.dense.weight.register_hook(
            lambda gradient: factor * gradient
        )

    return change


def use_tanh_gelu(trainee):
    for layer in trainee.model.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn = torch.nn.GELU(approximate="tanh")


def clip_beyond_reach(trainee):
    parameters = list(trainee.model.parameters())
    trainee.optimizer.register_step_pre_hook(
        lambda *_: torch.nn.utils.clip_grad_norm_(parameters, 1e6) and None
    )


FAULTS = {
    "never updates a weight": never_update,
    "lr x1.02": raise_lr,
    "weight decay off": drop_weight_decay,
    "beta2 0.999 for 0.99": change_beta2,
    "LayerNorm eps 1e-2": change_layer_norm,
    "dropout 0.12": more_dropout,
    "dropout 0": no_dropout,
    "bf16-rounded weights": round_weights,
    "one layer frozen": freeze_layer,
    "labels rolled within a batch": roll_labels,
    "data lags by one batch": lag_one_batch,
    "padding attended to": ignore_padding,
    "tanh GELU": use_tanh_gelu,
}
HIDDEN_FAULTS = {
    "gradients x1.01": scale_backward,
    "one gradient x0.9": scale_one_gradient(0.9),
    "one gradient x0.5": scale_one_gradient(0.5),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named_different_math(name, bench, anchors, scores):
    for seed in FAULT_SEEDS:
        finding = judged(*anchors(seed), train(bench, seed, change=FAULTS[name]))
        scores[name].append(finding)
        assert finding.verdict is Parity.DIFFERENT_MATH
        assert finding.tier is Tier.NUMERIC
        assert finding.first_step is not None
        assert max(finding.loss_score, finding.grad_norm_score) > 3 * LIMIT


@pytest.mark.parametrize("name", HIDDEN_FAULTS)
def test_a_fault_that_adam_hides_in_the_loss_is_caught_by_the_gradient_norm(
    name, bench, anchors, scores
):
    for seed in FAULT_SEEDS:
        finding = judged(*anchors(seed), train(bench, seed, change=HIDDEN_FAULTS[name]))
        scores[name].append(finding)
        assert (finding.verdict, finding.signal, finding.first_step) == (
            Parity.DIFFERENT_MATH,
            "grad_norm",
            0,
        )
        assert finding.grad_norm_score > 3 * LIMIT


def test_other_dropout_masks_are_never_parity_step_by_step(bench, anchors, scores):
    for seed in FAULT_SEEDS:
        candidate = train(bench, seed, mask_seed=OTHER_MASK_SEED)
        finding = judged(*anchors(seed), candidate)
        scores["other dropout masks"].append(finding)
        assert (finding.verdict, finding.first_step) == (Parity.DIFFERENT_MATH, 0)
        named = judged(*anchors(seed), candidate, masks=Masks.DIFFER)
        assert (named.verdict, named.tier) == (Parity.INSUFFICIENT_DATA, Tier.STATISTICAL)
        assert "dropout masks differ" in named.detail


def test_data_shifted_by_one_batch_cannot_be_compared(bench, anchors, scores):
    for seed in FAULT_SEEDS:
        size = bench.options.batch_size
        shifted = Rows(
            inputs={name: values.roll(size, 0) for name, values in bench.rows.inputs.items()},
            labels=bench.rows.labels.roll(size, 0),
        )
        finding = judged(*anchors(seed), train(bench, seed, rows=shifted))
        scores["data shifted by one batch"].append(finding)
        assert finding.verdict is Parity.INSUFFICIENT_DATA
        assert "did not see the same data" in finding.detail


def test_another_order_of_the_same_rows_cannot_be_compared(bench, anchors):
    other = replace(train(bench, 1, steps=12), seed=0, start=anchors(0)[0].start)
    finding = judged(*anchors(0), other)
    assert finding.verdict is Parity.INSUFFICIENT_DATA
    assert "did not see the same data" in finding.detail


def test_other_weights_to_start_from_cannot_be_compared(bench, anchors):
    finding = judged(*anchors(0), replace(anchors(0)[1], arm=ARM, role=Role.CANDIDATE))
    assert finding.verdict is Parity.INSUFFICIENT_DATA
    assert "did not start from the same state" in finding.detail


def passes(finding):
    return finding.verdict in {Parity.BITWISE, Parity.NUMERIC_PARITY}


@pytest.mark.parametrize(
    "change", [None, clip_beyond_reach], ids=["repeat", "clipping that is never active"]
)
def test_the_same_math_is_equal_in_every_bit(change, bench, anchors, scores, request):
    for seed in BENIGN_SEEDS:
        finding = judged(*anchors(seed), train(bench, seed, change=change))
        scores[request.node.callspec.id].append(finding)
        assert finding.verdict is Parity.BITWISE


def test_two_threads_pass(bench, anchors, scores):
    for seed in BENIGN_SEEDS:
        torch.set_num_threads(2)
        candidate = train(bench, seed)
        torch.set_num_threads(1)
        finding = judged(*anchors(seed), candidate)
        scores["two threads"].append(finding)
        assert passes(finding)


def test_a_perturbation_that_the_envelope_has_not_seen_passes(bench, anchors, scores):
    for seed in BENIGN_SEEDS:
        finding = judged(*anchors(seed), train(bench, seed, index=99, epsilon=2.0**-24))
        scores["held-out perturbation"].append(finding)
        assert finding.verdict is Parity.NUMERIC_PARITY


def test_float64_from_the_same_weights_passes(bench, anchors, scores):
    for seed in BENIGN_SEEDS:
        finding = judged(
            *anchors(seed),
            train(bench, seed, change=lambda trainee: trainee.model.double() and None),
        )
        scores["fp64"].append(finding)
        assert finding.verdict is Parity.NUMERIC_PARITY


@pytest.mark.slow
def test_bf16_autocast_passes_inside_the_envelope_of_bf16_and_not_inside_that_of_fp32(
    bench, anchors, scores
):
    autocast = replace(bench.options, precision=TrainingPrecision.AMP_BF16)
    for seed in BENIGN_SEEDS:
        candidate = train(bench, seed, options=autocast)
        finding = judged(
            *anchors(seed, BF16), candidate, twin=evidence(*anchors(seed), train(bench, seed))
        )
        scores["bf16 autocast against fp32"].append(finding)
        assert finding.verdict is Parity.NUMERIC_PARITY
        assert max(finding.loss_score, finding.grad_norm_score) < finding.limit
        assert judged(*anchors(seed), candidate).verdict is Parity.DIFFERENT_MATH


@pytest.mark.slow
def test_bf16_autocast_passes_against_itself(bench, anchors, scores):
    autocast = replace(bench.options, precision=TrainingPrecision.AMP_BF16)
    for seed in BENIGN_SEEDS:
        candidate = train(bench, seed, options=autocast, index=99, epsilon=BF16)
        twin = evidence(*anchors(seed), train(bench, seed))
        finding = judged(
            *anchors_of(bench, seed, options=autocast, epsilon=BF16), candidate, twin=twin
        )
        scores["bf16 autocast against itself, held-out"].append(finding)
        assert finding.verdict is Parity.NUMERIC_PARITY
        assert max(finding.loss_score, finding.grad_norm_score) < finding.limit


def rewind(trainee, state):
    """Back to the first step, in place, so that what is compiled stays valid."""
    trainee.model.load_state_dict(state)
    for slot in trainee.optimizer.state.values():
        for value in slot.values():
            value.zero_()


def compiled_findings(bench, anchors, backend):
    trainee = build_trainee(
        bench.options,
        start_of_model(bench.options.model, 0),
        device="cpu",
        candidate=CompiledArm(backend=backend),
    )
    for seed in BENIGN_SEEDS:
        state = start_of_model(bench.options.model, seed)
        rewind(trainee, state)
        recipe = TrainingRecipe(arm=ARM, role=Role.CANDIDATE, seed=seed)
        yield judged(
            *anchors(seed), record_training(trainee, recipe, state=state, trainer=bench.verifier())
        )


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_step_with_aligned_masks_passes(backend, bench, anchors, scores):
    torch.compiler.reset()
    with bench.verifier()._aligned():
        for finding in compiled_findings(bench, anchors, backend):
            scores[f"torch.compile, {backend}"].append(finding)
            assert passes(finding)


def break_at(step, value, signal):
    """A trainee whose loss, or one gradient, is no number from some step on."""

    def change(trainee):
        done = []

        def run(batch):
            loss = trainee.step(batch)
            done.append(loss)
            if len(done) <= step:
                return loss
            if signal == "grad_norm":
                trainee.model.classifier.bias.grad[0] = value
                return loss
            return loss * value

        return replace(trainee, step=run)

    return change


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "nan"), (float("inf"), "inf")])
@pytest.mark.parametrize("signal", ["loss", "grad_norm"])
def test_a_value_that_is_no_number_is_named_with_its_step(signal, value, word, bench, anchors):
    candidate = train(bench, 0, change=break_at(7, value, signal), steps=12)
    reference = train(bench, 0, role=Role.REFERENCE, steps=12)
    finding = judged(reference, *anchors(0)[1:], candidate)
    assert (finding.verdict, finding.first_step, finding.signal) == (Parity.NON_FINITE, 7, signal)
    assert f"{signal} is {word} at step 7" in finding.detail


def test_an_empty_history_never_passes(anchors):
    reference, *shaken = (replace(trace, loss=(), grad_norm=()) for trace in anchors(0))
    candidate = replace(reference, arm=ARM, role=Role.CANDIDATE)
    assert judged(reference, *shaken, candidate).verdict is Parity.INSUFFICIENT_DATA


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [(1, Parity.INSUFFICIENT_DATA), (9, Parity.INSUFFICIENT_DATA), (10, Parity.BITWISE)],
)
def test_fewer_than_ten_steps_never_pass(steps, verdict, bench):
    traces = anchors_of(bench, 0, steps=steps)
    assert judged(*traces, train(bench, 0, steps=steps)).verdict is verdict


@pytest.mark.slow
def test_tanh_gelu_is_equivalent_over_seeds(tmp_path):
    """Named in the numeric tier, and harmless: what the statistical tier is for."""
    bench = make_bench(tmp_path, num_samples=480, epochs=2, lr=1e-4)
    model = Model(path=write_model(tmp_path / "narrow", initializer_range=0.1), pretrained=False)
    options = replace(bench.options, model=model)
    traces = [
        trace
        for seed in range(6)
        for trace in (
            train(bench, seed, role=Role.REFERENCE, options=options),
            train(bench, seed, role=Role.OTHER_MASKS, options=options, mask_seed=OTHER_MASK_SEED),
            train(bench, seed, options=options, change=use_tanh_gelu),
        )
    ]
    finding = judged(*traces, masks=Masks.DIFFER)
    assert (finding.verdict, finding.tier) == (Parity.EQUIVALENT, Tier.STATISTICAL)
