"""What this machine cannot run is skipped with its reason, and verifying says what it compared with."""

import sys
from types import ModuleType

import pytest
import torch
from fastrnns_builders import IMAGES, make_case, make_job, open_case, verified
from torch import nn

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Evidence, Unsupported, no_mark
from ci_bench.suites.fastrnns.residual import CLASSES, build_resnet
from ci_bench.suites.fastrnns.variants import VARIANTS, FastrnnsTask, Form

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    "name", [name for name, one in VARIANTS.items() if one.form is Form.LIBRARY]
)
def test_without_a_gpu_what_needs_cudnn_is_skipped(name):
    with pytest.raises(
        Unsupported, match=f"{name} needs cuDNN, so a CUDA GPU; .* runs torch's own kernels instead"
    ) as caught:
        open_case(make_case(name))
    named = str(caught.value).split("; ")[1].split(" ")[0]
    assert VARIANTS[named].form is Form.ATEN


def test_without_tensor_cores_tf32_is_skipped():
    with pytest.raises(Unsupported, match="allow_tf32 needs an NVIDIA GPU"):
        open_case(make_case("py", allow_tf32=True))


def test_without_torchvision_its_resnets_are_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.delitem(sys.modules, "torchvision.models", raising=False)
    with pytest.raises(
        Unsupported,
        match="cnn_library torchvision: it is not installed here; install it, or take transformers",
    ):
        open_case(make_case("resnet18", cnn_library="torchvision")).open("resnet18")


class Torchvision(ModuleType):
    """What the suite uses of torchvision: a constructor by the network's name; of a network that is small and of its kind."""

    def __init__(self):
        super().__init__("torchvision.models")
        self.asked = []

    def resnet18(self, *, weights, num_classes):
        self.asked.append((weights, num_classes))
        head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, num_classes))
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(), head
        ).eval()


@pytest.fixture
def torchvision(monkeypatch):
    package, models = ModuleType("torchvision"), Torchvision()
    package.models = models
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    return models


def test_with_torchvision_its_resnets_are_run_on_request(torchvision):
    checks = verified("resnet18_jit", cnn_library="torchvision")
    assert {arm: check.outcome for arm, check in checks.items()} == {
        "resnet18": Outcome.PASS,
        "resnet18_jit": Outcome.PASS,
    }
    assert set(torchvision.asked) == {(None, CLASSES)}, "no weights are downloaded"
    program = open_case(make_case("resnet18", cnn_library="torchvision", **IMAGES)).open("resnet18")
    program.step(no_mark)
    assert [name for name, _ in program._network.parameters.items()] == [
        "0.weight",
        "1.weight",
        "1.bias",
        "3.2.weight",
        "3.2.bias",
    ]
    assert program._network.forward()[0].shape == (4, CLASSES)
    assert {check.outcome for check in program.finish()} == {Outcome.PASS}


def test_torchvisions_resnets_train_and_are_held_to_the_check_as_well(torchvision, monkeypatch):
    from ci_bench.suites.fastrnns import networks

    assert networks.build_resnet(
        make_job("resnet18", cnn_library="torchvision").options, FastrnnsTask.RESNET18
    ).training
    real = networks.build_resnet
    built = []

    def meddled(options, task):
        built.append(task)
        model = real(options, task)
        return nn.Sequential(*model, Scaled()) if len(built) == 1 else model

    monkeypatch.setattr(networks, "build_resnet", meddled)
    assert verified("resnet18", cnn_library="torchvision")["resnet18"].outcome is Outcome.FAIL


class Scaled(nn.Module):
    def forward(self, logits):
        return 1.001 * logits


def test_verifying_says_what_it_compared_with():
    evidence: Evidence = open_case(make_case("jit_milstm")).verify(("py_milstm", "jit_milstm"))
    assert evidence.facts["compared_with"] == "plain formulas in double precision"
    assert evidence.facts["parameters"] == 2 * 24 * 6 + 24 * 5 + 24 * 6 + 8 * 24


def test_parameters_are_counted_as_the_original_counted_them():
    """The figure of the original's default sizes."""
    evidence = open_case(
        make_case("aten", num_layers=1, input_size=512, hidden_size=512, batch_size=1, seq_length=1)
    ).verify(("aten",))
    assert evidence.facts["parameters"] == 2_101_248


def test_the_lower_bound_is_compared_forward_alone():
    (_, check) = verified("aten_layernorm").values()
    assert check.outcome is Outcome.PASS
    assert "nn.LSTM in double precision, forward only" in check.detail


def test_dropout_is_compared_without_masks_and_with_them():
    check = verified("aten_dropout")["aten_dropout"]
    assert "nn.LSTM in double precision" in check.detail
    assert "features, asked for 0.4" in check.detail


@pytest.mark.parametrize(
    ("task", "millions"), [(FastrnnsTask.RESNET18, 11.69), (FastrnnsTask.RESNET50, 25.56)]
)
def test_resnets_have_the_size_of_the_paper(task, millions):
    from ci_bench.suites.fastrnns.options import FastrnnsOptions

    with torch.device("meta"):
        model = build_resnet(FastrnnsOptions(), task)
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(
        millions, abs=0.005
    )
    assert model.training


def test_a_resnet_gives_a_thousand_logits_per_image():
    program = open_case(make_case("resnet18", **IMAGES)).open("resnet18")
    output, states = program._network.forward()
    assert tuple(output.shape) == (4, 1000)
    assert states == ()


def test_preparing_fetches_nothing():
    open_case(make_case("py")).prepare()
