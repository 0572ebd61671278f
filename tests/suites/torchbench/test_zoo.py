"""The embedded zoo: complete, small, trainable, random in nothing but its seed; and real backends compute it rightly."""

import sys

import pytest
import torch
from torchbench_builders import QUICK, checks_of, context, opened, verified, word

from ci_bench.errors import BadConfig
from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Compiler, Unsupported, no_mark
from ci_bench.suites.shared.planning.inductor import COMPILE_ARGUMENTS, MODE_OPTIONS
from ci_bench.suites.torchbench.backends import set_inductor
from ci_bench.suites.torchbench.catalogue import ZOO
from ci_bench.suites.torchbench.options import parse
from ci_bench.suites.torchbench.plan import SUITE
from ci_bench.suites.torchbench.run import open_workload
from ci_bench.suites.torchbench.sources.zoo import load
from ci_bench.suites.torchbench.zoo.exhibits import EXHIBITS

pytestmark = pytest.mark.engine

MOST_PARAMETERS = 200_000


def loaded(name, **entry):
    (case,) = SUITE.plan({**QUICK, "models": [name], "mode": "training", **entry})
    return load(parse(case.params), "cpu")


def test_both_lists_name_the_same_models():
    assert sorted(EXHIBITS) == sorted(ZOO)
    assert len(ZOO) >= 12


@pytest.mark.parametrize("name", ZOO)
def test_a_model_is_small_and_its_loss_reaches_every_weight(name):
    made = loaded(name)
    assert sum(one.numel() for one in made.module.parameters()) <= MOST_PARAMETERS
    sample = made.samples[0]
    loss = made.loss(made.module(*sample.args, **sample.kwargs), sample.target)
    loss.backward()
    assert torch.isfinite(loss)
    assert [
        key for key, one in made.module.named_parameters() if one.grad is None or not one.grad.any()
    ] == []


@pytest.mark.parametrize("name", ZOO)
def test_the_seed_rules_weights_and_data(name):
    first, again, other = loaded(name), loaded(name), loaded(name, seed=5)
    assert same(first, again)
    assert not same(first, other)


def same(one, other):
    states = one.module.state_dict().items(), other.module.state_dict()
    inputs = [
        [*sample.args, *sample.kwargs.values()] for sample in (one.samples[0], other.samples[0])
    ]
    return all(torch.equal(value, states[1][key]) for key, value in states[0]) and all(
        map(torch.equal, *inputs)
    )


@pytest.mark.parametrize("name", ZOO)
def test_a_hundred_timed_steps_keep_the_loss_a_number(name):
    """Timing goes on with the weights it has trained: they must not run away."""
    _, workload = opened(models=[name], mode="training")
    program = workload.open("eager")
    for _ in range(100):
        program.step(no_mark)
    assert {check.name: check.outcome for check in program.finish()} == {
        "finite_loss": Outcome.PASS,
        "updates_weights": Outcome.PASS,
    }


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("name", ZOO)
def test_aot_eager_computes_every_model_rightly(name, mode):
    evidence = verified(models=[name], mode=mode, perturbations=3)
    check = checks_of(evidence)["accuracy"]
    assert (check.outcome, word(check)) == (Outcome.PASS, "pass"), check.detail
    assert checks_of(evidence)["runner_rule"].outcome is Outcome.PASS
    assert evidence.facts["fp64_reference"] is True


@pytest.mark.parametrize("name", ZOO)
def test_dynamo_captures_every_model_whole(name):
    """A model that dynamo leaves alone would be timed as compiled; `nn.LSTM` is one such."""
    from torch._dynamo.utils import counters

    counters.clear()
    _, workload = opened(models=[name], mode="inference", backend="eager")
    workload.open("dynamo-eager").step(no_mark)
    assert (counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())) == (1, 0)


INDUCTOR = [
    ("resnet", {}),
    ("resnet", {"channels_last": True}),
    ("resnet", {"mode": "inference", "freezing": True, "nopython": True}),
    ("encoder", {}),
    ("encoder", {"scope": "step"}),
    ("encoder", {"precision": "amp_bf16"}),
    ("encoder", {"precision": "bf16"}),
    ("encoder", {"dynamic": True}),
    ("encoder", {"deterministic": True}),
    ("encoder", {"optimizer": "RAdam"}),
]
"""What has to do with convolutions by the model that has some; it compiles three times as long."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "entry"), INDUCTOR)
def test_inductor_computes_rightly(name, entry):
    check = checks_of(
        verified(
            **{
                "models": [name],
                "mode": "training",
                "backend": "inductor",
                "perturbations": 3,
                **entry,
            }
        )
    )["accuracy"]
    assert (check.outcome, word(check)) == (Outcome.PASS, "pass"), check.detail


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    ["Adadelta", "Adagrad", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"],
)
def test_every_optimizer_can_be_verified(optimizer):
    for scope in ("model", "step"):
        check = checks_of(
            verified(models=["mlp"], mode="training", optimizer=optimizer, scope=scope)
        )["accuracy"]
        assert (check.outcome, word(check)) == (Outcome.PASS, "pass"), check.detail


@pytest.mark.parametrize(("entry", "items", "parts"), [
    ({"mode": "training"}, 32, ("forward_time", "backward_time", "optimizer_time")),
    ({"mode": "training", "scope": "step"}, 32, ()),
    ({"mode": "inference"}, 32, ()),
    ({"mode": "inference", "batch_size": 7}, 7, ()),
])  # fmt: skip
def test_a_program_tells_rows_and_parts(entry, items, parts):
    case, workload = opened(models=["mlp"], **entry)
    marks = []
    for arm, compiler in zip(case.arms, (Compiler.NONE, Compiler.DYNAMO), strict=True):
        program = workload.open(arm)
        marks.clear()
        program.step(lambda: marks.append(1))
        assert (program.items, tuple(part.metric for part in program.parts), program.compiler) == (
            items,
            parts,
            compiler,
        )
        assert len(marks) == len(parts)
        assert all(check.outcome is Outcome.PASS and check.arm == arm for check in program.finish())
    assert case.details == parts


def test_a_program_that_never_stepped_fails_its_checks():
    for mode in ("training", "inference"):
        _, workload = opened(models=["mlp"], mode=mode)
        assert {check.outcome for check in workload.open("eager").finish()} == {Outcome.FAIL}


def test_outputs_that_are_no_numbers_fail(monkeypatch):
    _, workload = opened(models=["mlp"], mode="inference")
    program = workload.open("eager")
    with torch.no_grad():
        next(program._ready.module.parameters()).fill_(float("nan"))
    program.step(no_mark)
    (check,) = program.finish()
    assert (check.name, check.outcome) == ("finite_outputs", Outcome.FAIL)


def test_dynamic_steps_replay_one_sequence_of_sizes_on_both_arms():
    case, workload = opened(models=["mlp"], mode="inference", dynamic=True)
    sizes = [
        [sample.args[0].shape[0] for sample in workload.open(arm)._ready.samples]
        for arm in case.arms
    ]
    assert sizes[0] == sizes[1]
    assert sorted(sizes[0]) == [16, 24, 32, 40, 48]
    assert workload.open("eager").items == 160


@pytest.mark.parametrize(("entry", "words"), [
    ({"models": ["gnn"], "dynamic": True}, "cannot be cut"),
    ({"models": ["gnn"], "batch_size": 3}, "fixed batch of 8"),
        ({"source": "own", "models": ["planted_models:Parameterless"]}, "has no parameters to train"),
    ({"models": ["mlp"], "activation_checkpointing": True}, "gradient_checkpointing_enable"),
    ({"models": ["mlp"], "precision": "tf32"}, "compute capability"),
    ({"models": ["mlp"], "precision": "bf16", "quantization": "int8dynamic", "mode": "inference"}, "torchao is not installed"),
    ({"source": "timm", "models": ["resnet18"]}, "timm is not installed"),
])  # fmt: skip
def test_what_cannot_be_done_here_is_skipped_with_its_reason(entry, words, monkeypatch):
    for package in ("torchao", "timm"):
        monkeypatch.setitem(sys.modules, package, None)  # as where it is not installed

    def run():
        _, workload = opened(**{"mode": "training", **entry})
        workload.prepare()

    with pytest.raises(Unsupported, match=words):
        run()


@pytest.mark.parametrize(("mixed", "outcome", "words"), [
    (False, Outcome.PASS, "1 outputs alike in every bit"), (True, Outcome.FAIL, "fail_batch_invariance_at_4: outputs differs"),
])  # fmt: skip
def test_batch_invariance_is_checked_bit_by_bit(mixed, outcome, words):
    entry = {
        "source": "own",
        "models": ["planted_models:Rowwise"],
        "model_options": {"mixed": mixed},
    }
    check = checks_of(verified(**entry, mode="inference", batch_invariance=True))[
        "batch_invariance"
    ]
    assert (check.outcome, words in check.detail) == (outcome, True)


@pytest.mark.parametrize(("inductor", "words"), [
    ({"max_autotun": True}, "did you mean 'max_autotune'"),
    ({"max_autotune": 3}, "3 is not true or false"),
    ({"triton.cudagraph": True}, "triton.cudagraphs"),
])  # fmt: skip
def test_an_option_that_inductor_does_not_have_is_refused_while_planning(inductor, words):
    with pytest.raises(BadConfig, match=words):
        SUITE.plan({"models": ["mlp"], "mode": "inference", "inductor": inductor})


@pytest.mark.parametrize(("inductor", "words"), [
    ({"max_autotun": True}, "did you mean 'max_autotune'"),
    ({"max_autotune": 3}, "neither true nor false"),
])  # fmt: skip
def test_a_worker_whose_torch_is_another_asks_that_one(inductor, words):
    with pytest.raises(LookupError, match=words):
        set_inductor(inductor)


def test_what_modes_stand_for_is_what_torch_says():
    """And none of the arguments that are refused is an option of inductor."""
    from torch._inductor import config, list_mode_options

    told = list_mode_options()
    assert {name: told[name] for name in MODE_OPTIONS} == MODE_OPTIONS
    assert not COMPILE_ARGUMENTS & config.get_config_copy().keys()


def test_options_reach_inductor_and_torch():
    from torch._dynamo import config as dynamo
    from torch._inductor import config

    opened(
        models=["mlp"],
        mode="inference",
        cudagraphs=True,
        freezing=True,
        deterministic=True,
        inductor={"triton.unique_kernel_names": False},
    )
    assert (
        config.triton.cudagraphs,
        config.freezing,
        config.triton.unique_kernel_names,
        config.fallback_random,
    ) == (
        True,
        True,
        False,
        True,
    )
    assert torch.are_deterministic_algorithms_enabled()
    assert dynamo.fail_on_recompile_limit_hit


@pytest.mark.parametrize("backend", ["inductr", "no_such_module:compile", "torch:no_such_function"])
def test_an_unknown_backend_is_refused_before_anything_is_loaded(backend):
    _, workload = opened(models=["mlp"], mode="inference", backend=backend)
    with pytest.raises(LookupError, match=f"backend: .*{backend.rpartition(':')[2]}"):
        workload.prepare()


def test_every_case_of_the_default_entry_can_be_opened():
    cases = SUITE.plan({})
    assert len(cases) == 2 * len(ZOO)
    assert open_workload(cases[0], context()) is not None
