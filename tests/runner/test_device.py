"""The device of one run: held before anything touches it, and the one that was meant."""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from ci_bench.host.gpus import vendors
from ci_bench.host.gpus.nvidia import Nvidia
from ci_bench.host.gpus.protocol import Card
from ci_bench.host.gpus.protocol import Cards as CardsOfAVendor
from ci_bench.host.lock import cpu_key, gpu_key
from ci_bench.records.config import RunOptions
from ci_bench.records.results import Environment
from ci_bench.runner.device import Device

Cards = partial(CardsOfAVendor, vendor=Nvidia())
UUID = "GPU-5a1f0c2e-0000-4000-8000-00000000000a"
ONE = Cards(cards=(Card(uuid=UUID, name="NVIDIA H200"),), driver="580.65.06")
UNKNOWN = Cards(cards=(Card(uuid=UUID, name="NVIDIA H200", divided=True),))
ON_CPU = Environment(
    identity={"device": "cpu", "threads": 1, "torch": "2.13.0", "cuda": "13.0"}, condition={}
)
ON_GPU = Environment(
    identity={"device": "cuda", "gpu": "NVIDIA H200", "threads": 1}, condition={"gpu_uuid": UUID}
)


@pytest.fixture
def held(monkeypatch):
    """The locks that are held, by key and folder."""
    locks = []

    @contextmanager
    def hold(key, *, folder, **_):
        locks.append((key, str(folder)))
        yield
        locks.remove((key, str(folder)))

    monkeypatch.setattr("ci_bench.runner.device.device_lock", hold)
    return locks


def no_nvml():
    raise OSError("no NVML here")


def device(cards=ONE, *, on_gpu=True, name="auto", **environ):
    return Device(
        options=RunOptions(device=name),
        on_gpu=on_gpu,
        environ={"CI_BENCH_LOCKS": "/locks", **environ},
        gpus=(cards,),
        say=lambda _: None,
    )


@pytest.mark.parametrize(
    ("made", "key"),
    [(device(), gpu_key(UUID)), (device(name="cpu"), cpu_key()), (device(on_gpu=False), cpu_key())],
    ids=["a gpu", "the cpu", "nothing on the gpu"],
)
def test_the_configured_device_is_held_before_anything_touches_it(held, made, key):
    """In the folder that the environment names, which containers of one host share."""
    with made.hold():
        assert held == [(key, "/locks")]
    assert held == []


@pytest.mark.parametrize(("name", "keys"), [("auto", "GPUs of both"), ("cpu", "the CPU")])
def test_the_gpus_of_all_ranks_are_held(held, name, keys):
    pair = replace(ONE, cards=(*ONE.cards, replace(ONE.cards[0], uuid=f"{UUID}-2")))
    made = replace(device(pair, name=name), processes=2)
    both = sorted([gpu_key(UUID), gpu_key(f"{UUID}-2")])
    with made.hold():
        assert [key for key, _ in held] == (both if keys == "GPUs of both" else [cpu_key()])
    assert held == []


def test_a_device_that_only_a_worker_knows_is_held_as_soon_as_it_is_known(held, monkeypatch):
    monkeypatch.setattr(vendors, "VENDORS", (Nvidia(load=no_nvml),))
    made = device(UNKNOWN)
    with made.hold():
        assert held == [], "which part of it, NVML does not say"
        monitor = made.watch(ON_GPU)
        assert held == [(gpu_key(UUID), "/locks")]
        monitor.close()
        assert held == []


def test_what_is_held_already_is_not_waited_for(held):
    made = device(name="cpu")
    with made.hold():
        made.watch(ON_CPU).close()
        assert held == [(cpu_key(), "/locks")]


def test_a_gpu_that_torch_cannot_use_is_refused():
    assert "1 GPU (NVIDIA H200; driver 580.65.06), but torch cannot use it" in device().refuse(
        ON_CPU
    )
    assert device().refuse(ON_GPU) == device(name="cpu").refuse(ON_CPU) == ""


def test_a_gpu_that_the_action_has_provided_and_nobody_sees_is_refused():
    assert device(Cards()).refuse(ON_CPU) == ""
    assert "a GPU was asked for" in device(Cards(), CI_BENCH_REQUIRE_DEVICE="cuda").refuse(ON_CPU)
