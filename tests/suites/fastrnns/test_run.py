"""What this machine cannot run is skipped with its reason, and verifying says what it compared with."""

import pytest
import torch
from fastrnns_builders import IMAGES, make_case, open_case, verified

from ci_bench.records.case import Outcome
from ci_bench.suites.base import Evidence, Unsupported
from ci_bench.suites.fastrnns.residual import build_resnet
from ci_bench.suites.fastrnns.variants import VARIANTS, Form, Task

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("name", [name for name, one in VARIANTS.items() if one.form is Form.LIBRARY])
def test_without_a_gpu_what_needs_cudnn_is_skipped(name):
    with pytest.raises(Unsupported, match=f"{name} needs cuDNN, so a CUDA GPU; .* runs torch's own kernels instead") as caught:
        open_case(make_case(name))
    named = str(caught.value).split("; ")[1].split(" ")[0]
    assert VARIANTS[named].form is Form.ATEN


def test_without_tensor_cores_tf32_is_skipped():
    with pytest.raises(Unsupported, match="allow_tf32 needs an NVIDIA GPU"):
        open_case(make_case("py", allow_tf32=True))


def test_without_torchvision_its_resnets_are_skipped():
    if pytest.importorskip("importlib.util").find_spec("torchvision"):
        pytest.skip("torchvision is installed")
    with pytest.raises(Unsupported, match="cnn_library torchvision: it is not installed here; install it, or take transformers"):
        open_case(make_case("resnet18", cnn_library="torchvision")).open("resnet18")


def test_verifying_says_what_it_compared_with():
    evidence: Evidence = open_case(make_case("jit_milstm")).verify(("py_milstm", "jit_milstm"))
    assert evidence.facts["compared_with"] == "plain formulas in double precision"
    assert evidence.facts["parameters"] == 2 * 24 * 6 + 24 * 5 + 24 * 6 + 8 * 24


def test_parameters_are_counted_as_the_original_counted_them():
    """The figure of the original's default sizes."""
    evidence = open_case(make_case("aten", num_layers=1, input_size=512, hidden_size=512, batch_size=1, seq_length=1)).verify(
        ("aten",)
    )
    assert evidence.facts["parameters"] == 2_101_248


def test_the_lower_bound_is_compared_forward_alone():
    (_, check) = verified("aten_layernorm").values()
    assert check.outcome is Outcome.PASS
    assert "nn.LSTM in double precision, forward alone" in check.detail


def test_dropout_is_compared_without_masks_and_with_them():
    check = verified("aten_dropout")["aten_dropout"]
    assert "nn.LSTM in double precision" in check.detail
    assert "features, asked for 0.4" in check.detail


@pytest.mark.parametrize(("task", "millions"), [(Task.RESNET18, 11.69), (Task.RESNET50, 25.56)])
def test_resnets_have_the_size_of_the_paper(task, millions):
    from ci_bench.suites.fastrnns.options import Options

    with torch.device("meta"):
        model = build_resnet(Options(), task)
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.005)
    assert model.training


def test_a_resnet_gives_a_thousand_logits_per_image():
    program = open_case(make_case("resnet18", **IMAGES)).open("resnet18")
    output, states = program._network.forward()
    assert tuple(output.shape) == (4, 1000)
    assert states == ()


def test_preparing_fetches_nothing():
    open_case(make_case("py")).prepare()
