"""What a candidate makes of a model, and when it cannot."""

import pytest
import torch
from transformers_builders import agrees, outcomes, program, steps, tiny, workload

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Compiler, Unsupported
from ci_bench.suites.transformers.options import Candidate, Mode, Way
from ci_bench.suites.transformers.translate import (
    Translated,
    check_candidate,
    compiler_of,
    forward_of,
    has_cuda_graphs,
    tensors_of,
)

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("fresh_dynamo")]


def passthrough(graph, inputs):
    return graph.forward


@pytest.mark.parametrize("way", ["torchscript", "export"])
@pytest.mark.parametrize("model", ["bert", "t5", "vit"])
def test_tracing_takes_every_input_and_agrees(way, model):
    assert agrees(**tiny(model), candidate=way).outcome is Outcome.PASS


@pytest.mark.parametrize("way", ["torchscript", "export"])
def test_translating_is_in_the_first_call(way, monkeypatch):
    called = []
    real = Translated._translate
    monkeypatch.setattr(
        Translated, "_translate", lambda self, batch: called.append(1) or real(self, batch)
    )
    one = program(way, **tiny("bert"), candidate=way)
    assert called == []
    steps(one, 3)
    assert called == [1]
    assert one.compiler is Compiler.OTHER
    assert outcomes(one) == {"finite_output": Outcome.PASS, "timed_output_agrees": Outcome.PASS}


def test_torchscript_really_is_torchscript(monkeypatch):
    seen = []
    real = torch.jit.trace
    monkeypatch.setattr(
        torch.jit, "trace", lambda *values, **named: seen.append(real(*values, **named)) or seen[-1]
    )
    steps(program("torchscript", **tiny("bert"), candidate="torchscript"), 1)
    assert isinstance(seen[0], torch.jit.ScriptModule)


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.GENERATION])
@pytest.mark.parametrize("way", [Way.TORCHSCRIPT, Way.EXPORT])
def test_tracing_is_for_inference_alone(way, mode):
    with pytest.raises(
        Unsupported, match=f"{way} translates a forward pass .* mode {mode} needs torch.compile"
    ):
        check_candidate(Candidate(way=way), mode)


def test_a_backend_by_name_or_import_or_not_at_all():
    check_candidate(Candidate(backend="inductor"), Mode.INFERENCE)
    check_candidate(Candidate(backend=f"{__name__}:passthrough"), Mode.INFERENCE)
    with pytest.raises(
        LookupError,
        match=r"candidate: 'inducto' is not a backend of torch .*registered: none, torchscript, export, .*inductor",
    ):
        check_candidate(Candidate(backend="inducto"), Mode.INFERENCE)
    with pytest.raises(LookupError, match=r"candidate: .* cannot be imported"):
        check_candidate(Candidate(backend="no.such.module:thing"), Mode.INFERENCE)


def test_a_mode_belongs_to_inductor():
    check_candidate(Candidate(mode="max-autotune"), Mode.INFERENCE)
    with pytest.raises(ValueError, match="is a mode of inductor; backend aot_eager has none"):
        check_candidate(Candidate(backend="aot_eager", mode="max-autotune"), Mode.INFERENCE)


def test_the_engine_is_told_what_translates():
    assert [compiler_of(one) for one in (None, Candidate(), Candidate(way=Way.EXPORT))] == [
        Compiler.NONE,
        Compiler.DYNAMO,
        Compiler.OTHER,
    ]


def test_arguments_reach_torch_compile(monkeypatch):
    seen = {}
    monkeypatch.setattr(torch, "compile", lambda model, **named: seen.update(named) or model)
    forward_of(
        Candidate(mode="reduce-overhead", fullgraph=True, dynamic=False), torch.nn.Linear(2, 2), {}
    )
    assert seen == {
        "backend": "inductor",
        "mode": "reduce-overhead",
        "fullgraph": True,
        "dynamic": False,
    }


def test_replays_of_cuda_graphs_begin_a_step(monkeypatch):
    begun = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: begun.append(1))
    model = torch.nn.Linear(2, 2)
    monkeypatch.setattr(torch, "compile", lambda module, **named: module)
    for candidate in (
        Candidate(mode="reduce-overhead"),
        Candidate(backend="cudagraphs"),
        Candidate(),
    ):
        forward_of(candidate, model, {})(input=torch.ones(1, 2))
    assert len(begun) == 2
    assert not has_cuda_graphs(None)


def test_preparing_finds_what_cannot_run():
    with pytest.raises(LookupError, match="is not a backend"):
        workload(**tiny("bert"), candidate="inducto").prepare()
    with pytest.raises(Unsupported, match="torchscript translates"):
        workload(**tiny("bert"), candidate="torchscript", mode="training").prepare()


def test_tensors_are_named_by_their_place():
    nested = {"a": torch.ones(1), "b": (torch.zeros(2), None, 3), "c": [torch.ones(3)]}
    assert {name: tuple(value.shape) for name, value in tensors_of(nested).items()} == {
        "0": (1,),
        "1": (2,),
        "2": (3,),
    }
