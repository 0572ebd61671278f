"""Which device a run will measure on, told by NVML alone, and when the CPU is refused in a GPU's place."""

import sys
from functools import partial

import pytest
from fake_nvml import UUID, FakeNvml

from ci_bench.host import devices
from ci_bench.host.devices import configured_key
from ci_bench.host.gpus import vendors
from ci_bench.host.gpus.nvidia import Nvidia
from ci_bench.host.gpus.protocol import Card
from ci_bench.host.gpus.protocol import Cards as CardsOfAVendor
from ci_bench.host.lock import cpu_key, device_key, gpu_key
from ci_bench.records.results import Environment

Cards = partial(CardsOfAVendor, vendor=Nvidia())
FIRST, SECOND, PART = "GPU-aaaa0000-1111", "GPU-bbbb0000-2222", "MIG-cccc0000-3333"
TWO = Cards(
    cards=(Card(uuid=FIRST, name="NVIDIA H200"), Card(uuid=SECOND, name="NVIDIA H200")),
    driver="580.65.06",
)
UNLIKE = Cards(
    cards=(Card(uuid=FIRST, name="NVIDIA T4"), Card(uuid=SECOND, name="NVIDIA H200")),
    driver="580.65.06",
)
DIVIDED = Cards(
    cards=(Card(uuid=FIRST, divided=True, parts=(PART, "MIG-dddd")), Card(uuid=SECOND)),
    driver="580.65.06",
)
NONE = Cards(trouble="NVMLError_LibraryNotFound: NVML Shared Library Not Found")


def test_nvml_lists_the_gpus_and_their_parts_and_is_let_go(tmp_path):
    nvml = FakeNvml()
    nvml.parts = {f"{UUID} NVIDIA H200": [PART]}
    (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidiactl").touch()
    cards = Nvidia(load=lambda: nvml, dev=tmp_path).look()
    assert cards.cards == (Card(uuid=UUID, name="NVIDIA H200", divided=True, parts=(PART,)),)
    assert (cards.driver, cards.nodes, nvml.opened) == (
        "580.65.06",
        (str(tmp_path / "nvidia0"),),
        0,
    )
    assert cards.seen() == "1 GPU (NVIDIA H200; driver 580.65.06)"


@pytest.mark.parametrize(
    "failing", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"]
)
def test_an_nvml_that_fails_is_told_and_what_lies_in_dev_is_seen(tmp_path, failing):
    nvidia = Nvidia(load=lambda: FakeNvml(failing={failing}), dev=tmp_path)
    assert nvidia.look().seen() == ""
    (tmp_path / "nvidia0").touch()
    cards = nvidia.look()
    assert f"nvidia0, but NVML reports nothing about it (NVMLError: {failing})" in cards.seen()


@pytest.mark.parametrize(
    ("mode", "word"),
    [(0, ""), (1, "compute mode EXCLUSIVE_THREAD"), (2, ""), (3, "compute mode EXCLUSIVE_PROCESS")],
)
def test_a_gpu_that_takes_one_process_at_a_time_is_known(tmp_path, mode, word):
    nvml = FakeNvml()
    nvml.compute_mode = mode
    (card,) = Nvidia(load=lambda: nvml, dev=tmp_path).look().cards
    assert card.exclusive == word


@pytest.mark.parametrize(
    "failing", ["nvmlDeviceGetMigMode", "nvmlDeviceGetName", "nvmlDeviceGetComputeMode"]
)
def test_what_a_driver_does_not_know_is_left_out(tmp_path, failing):
    (card,) = Nvidia(load=lambda: FakeNvml(failing={failing}), dev=tmp_path).look().cards
    assert card.uuid == UUID


@pytest.mark.parametrize(
    ("cards", "environ", "visible"),
    [
        (TWO, {}, (FIRST, SECOND)),
        (TWO, {"CUDA_VISIBLE_DEVICES": "1"}, (SECOND,)),
        (TWO, {"CUDA_VISIBLE_DEVICES": "1,0"}, (SECOND, FIRST)),
        (TWO, {"CUDA_VISIBLE_DEVICES": "0,7,1"}, (FIRST,)),
        (TWO, {"CUDA_VISIBLE_DEVICES": "-1"}, ()),
        (TWO, {"CUDA_VISIBLE_DEVICES": ""}, ()),
        (TWO, {"CUDA_VISIBLE_DEVICES": SECOND}, (SECOND,)),
        (TWO, {"CUDA_VISIBLE_DEVICES": "GPU-b"}, (SECOND,)),
        (TWO, {"CUDA_VISIBLE_DEVICES": "GPU-"}, None),
        (TWO, {"CUDA_VISIBLE_DEVICES": "GPU-eeee"}, ()),
        (UNLIKE, {}, None),
        (UNLIKE, {"CUDA_VISIBLE_DEVICES": "0"}, None),
        (UNLIKE, {"CUDA_VISIBLE_DEVICES": SECOND}, (SECOND,)),
        (UNLIKE, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}, (SECOND,)),
        (DIVIDED, {"CUDA_VISIBLE_DEVICES": PART}, (PART,)),
        (DIVIDED, {"CUDA_VISIBLE_DEVICES": "MIG-d"}, ("MIG-dddd",)),
        (DIVIDED, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, (PART,)),
    ],
)
def test_the_gpus_that_cuda_will_number(cards, environ, visible):
    assert cards.vendor.visible(cards, environ) == visible


@pytest.mark.parametrize(
    ("device", "cards", "environ", "key"),
    [
        ("cpu", TWO, {}, cpu_key()),
        ("auto", NONE, {}, cpu_key()),
        ("auto", TWO, {}, gpu_key(FIRST)),
        ("cuda:1", TWO, {}, gpu_key(SECOND)),
        ("cuda:1", TWO, {"CUDA_VISIBLE_DEVICES": "1,0"}, gpu_key(FIRST)),
        ("cuda:2", TWO, {}, None),
        ("cuda", NONE, {}, None),
        ("auto", UNLIKE, {}, None),
        ("auto", DIVIDED, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, gpu_key(FIRST)),
        ("auto", DIVIDED, {"CUDA_VISIBLE_DEVICES": "MIG-d"}, gpu_key(FIRST)),
        ("auto", DIVIDED, {"CUDA_VISIBLE_DEVICES": "1"}, gpu_key(SECOND)),
    ],
)
def test_the_lock_of_the_configured_device_is_known_before_anything_touches_it(
    device, cards, environ, key
):
    assert configured_key(device, [cards], environ, on_gpu=True) == key
    assert configured_key("auto", [cards], environ, on_gpu=False) == cpu_key()


@pytest.mark.parametrize("uuid", [FIRST, PART])
def test_the_parents_key_is_the_one_that_a_workers_torch_gives(uuid):
    bare = uuid.partition("-")[2]
    seen = Environment(
        identity={"device": "cuda", "gpu": "NVIDIA H200"}, condition={"gpu_uuid": bare}
    )
    assert gpu_key(uuid) == device_key(seen)


def test_parts_of_one_gpu_share_its_lock_and_parts_of_another_do_not():
    def key(uuid):
        seen = Environment(
            identity={"device": "cuda"}, condition={"gpu_uuid": uuid.partition("-")[2]}
        )
        return device_key(seen, [DIVIDED])

    assert key(PART) == key("MIG-dddd") == key(FIRST) == gpu_key(FIRST)
    assert key(SECOND) == gpu_key(SECOND) != gpu_key(FIRST)


def refusal(environment, cards, environ, **asked):
    return devices.refusal(environment, [cards], environ, **asked)


def on_the_cpu(*, built_for="13.0", trouble=None, **identity):
    facts = {"device": "cpu", "threads": 4, "torch": "2.13.0", "cuda": built_for, **identity}
    return Environment(identity=facts, condition={"cuda_trouble": trouble} if trouble else {})


OLD = Cards(cards=(Card(uuid=FIRST, name="NVIDIA H200"),), driver="535.104.05")
UPDATED = Cards(
    trouble="NVMLError_LibRmVersionMismatch: Driver/library version mismatch",
    nodes=("/dev/nvidia0",),
)
HIDDEN = Cards(trouble="NVMLError_NoPermission: Insufficient Permissions", nodes=("/dev/nvidia0",))


@pytest.mark.parametrize(
    ("environment", "cards", "words"),
    [
        (
            on_the_cpu(built_for=None),
            TWO,
            "torch 2.13.0 is a build for the CPU: install a build for CUDA",
        ),
        (
            on_the_cpu(trouble="driver is too old (found version 12020)"),
            OLD,
            "needs driver 580 or newer, and 535.104.05 is here",
        ),
        (
            on_the_cpu(trouble="Error 803: system has unsupported display driver"),
            UPDATED,
            "reboot the machine",
        ),
        (on_the_cpu(trouble="initialization error"), UPDATED, "reboot the machine"),
        (
            on_the_cpu(trouble="initialization error"),
            HIDDEN,
            "give this user access to the device files",
        ),
        (on_the_cpu(trouble="out of luck"), TWO, "torch 2.13.0 for CUDA 13.0 says: out of luck"),
        (on_the_cpu(), TWO, "it sees no CUDA device"),
    ],
)
def test_the_cpu_is_not_measured_in_a_gpus_place(environment, cards, words):
    told = refusal(environment, cards, {}, device="auto")
    assert words in told
    assert cards.seen() in told
    assert "set `device: cpu`" in told


@pytest.mark.parametrize(
    ("environment", "cards", "environ", "device", "required"),
    [
        (on_the_cpu(), NONE, {}, "auto", ""),
        (on_the_cpu(), TWO, {}, "cpu", ""),
        (on_the_cpu(), TWO, {}, "cpu", "cuda"),
        (on_the_cpu(), TWO, {"CUDA_VISIBLE_DEVICES": ""}, "auto", ""),
        (
            Environment(identity={"device": "cuda", "threads": 4}, condition={}),
            TWO,
            {},
            "auto",
            "cuda",
        ),
        (Environment(identity={"device": "cpu"}, condition={}), TWO, {}, "auto", "cuda"),
    ],
    ids=[
        "no gpu",
        "asked for",
        "asked for by the configuration",
        "hidden on purpose",
        "a gpu",
        "without torch",
    ],
)
def test_what_was_asked_for_is_not_refused(environment, cards, environ, device, required):
    assert refusal(environment, cards, environ, device=device, required=required) == ""


@pytest.mark.parametrize("environ", [{}, {"CUDA_VISIBLE_DEVICES": ""}])
def test_where_a_gpu_was_provided_its_absence_is_refused(environ):
    told = refusal(on_the_cpu(), NONE, environ, device="auto", required="cuda")
    assert "a GPU was asked for (input `gpus`), and neither NVML nor /dev shows one here" in told


def test_this_machine_is_looked_at_without_an_error_and_without_torch():
    before = "torch" in sys.modules
    assert all(cards.seen() is not None for cards in vendors.look())
    assert ("torch" in sys.modules) == before
