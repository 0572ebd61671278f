"""The probe tells matching dropout masks from others, and models that draw none."""

import pytest
import torch
from training_loss_builders import start_of_model

from ci_bench.records.case import Masks
from ci_bench.suites.training_loss.masks import PROBE_ELEMENTS, model_is_random, probe_masks
from ci_bench.suites.training_loss.training import build_trainee

pytestmark = pytest.mark.engine

DRAWING = """
import torch


def compile(graph, inputs):
    def run(*values):
        torch.rand(1)
        return graph.forward(*values)

    return run
"""


@pytest.fixture(autouse=True)
def fresh_compiler(compiler_cache):
    torch.compiler.reset()


@pytest.fixture
def drawing_backend(tmp_path, monkeypatch):
    """A backend that is right, and draws a random number of its own."""
    (tmp_path / "drawing_backend.py").write_text(DRAWING)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "drawing_backend:compile"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_masks_match_where_the_backend_draws_as_eager_does(backend):
    found = probe_masks("arm", backend, device="cpu", random=True)
    assert (found.arm, found.masks, found.detail) == ("arm", Masks.ALIGNED, "a probe mask equals eager's")


def test_masks_differ_where_the_backend_draws_more(drawing_backend):
    found = probe_masks("arm", drawing_backend, device="cpu", random=True)
    assert found.masks is Masks.DIFFER
    assert found.detail.endswith(f"of {PROBE_ELEMENTS} elements of a probe mask differ from eager's")
    assert PROBE_ELEMENTS / 3 < int(found.detail.split()[0]) < 2 * PROBE_ELEMENTS / 3


def test_nothing_is_probed_where_the_model_draws_nothing():
    found = probe_masks("arm", "no such backend", device="cpu", random=False)
    assert found.masks is Masks.NO_DROPOUT


@pytest.mark.slow
@pytest.mark.parametrize(("fallback", "masks"), [(True, Masks.ALIGNED), (False, Masks.DIFFER)])
def test_inductor_draws_as_eager_does_only_when_asked(fallback, masks):
    from torch._inductor import config

    with config.patch(fallback_random=fallback):
        assert probe_masks("arm", "inductor", device="cpu", random=True).masks is masks


@pytest.mark.parametrize("share", [0.0, 0.1])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_model_is_random_when_it_has_dropout(share, kind, bench):
    trainee = build_trainee(bench.options, start_of_model(bench.options.model, 0), device="cpu", backend=None)
    trainee.model.to(kind)
    for module in trainee.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = share
    assert model_is_random(trainee, bench.rows.batch(torch.arange(2))) is (share > 0)


def test_a_bf16_loss_that_rounds_alike_hides_no_dropout(bench):
    """The losses of one of these batches are equal in bf16 under both masks; its logits are not."""
    trainee = build_trainee(bench.options, start_of_model(bench.options.model, 0), device="cpu", backend=None)
    trainee.model.to(torch.bfloat16)
    batches = [bench.rows.batch(torch.arange(row, row + 2)) for row in range(0, 64, 2)]
    assert all(model_is_random(trainee, batch) for batch in batches)
