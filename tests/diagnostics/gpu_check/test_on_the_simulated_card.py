"""`ci-bench doctor --gpu`, the command, on the simulated card: as it is, and with what a bad card, driver or neighbour does."""

import json
import os
import subprocess
import time

import jsonschema
import pytest
from gpu_check_figures import SCHEMA
from simulated_gate import ALONE, CI_BENCH, Script, Spell, with_card

pytest.importorskip("torch")
pytestmark = pytest.mark.engine

THROTTLED = 0x40
"""NVML's SW thermal slowdown."""


def on_the_card(folder, script, *arguments):
    environ = {**os.environ, **ALONE, **with_card(script, folder)}
    command = [*CI_BENCH, "doctor", "--gpu", "-o", folder, *arguments]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=False, timeout=300
    )
    whole = (
        json.loads((folder / "gpu-check.json").read_text())
        if (folder / "gpu-check.json").exists()
        else {"sections": []}
    )
    return done, whole, {one["name"]: one for one in whole["sections"]}


def only(*names):
    return [word for name in names for word in ("--only", name)]


@pytest.mark.alone
@pytest.mark.slow
def test_it_runs_through_in_a_minute_and_nothing_is_wrong(tmp_path):
    begun = time.monotonic()
    done, whole, sections = on_the_card(tmp_path, Script(least_kernel_s=2e-4))
    elapsed_s = time.monotonic() - begun

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing is wrong with this card." in done.stdout
    assert {one["outcome"] for name, one in sections.items() if name != "unchanged"} == {"pass"}
    assert sections["unchanged"]["outcome"] != "fail"
    assert sections["unchanged"]["figures"]["doubts"] == 0
    assert elapsed_s < 60 * (2 if os.environ.get("CI") else 1)
    jsonschema.Draft202012Validator(SCHEMA).validate(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "name", "outcome", "words"),
    [
        (Script(event_s=5e-4), "events", "fail", "coarse"),
        (
            Script(spells=(Spell(sm_mhz=750, reasons=THROTTLED, celsius=91),)),
            "clocks",
            "fail",
            "slowed down",
        ),
        (Script(refuses_capture=True), "capture", "unknown", "called plainly"),
        (
            Script(failing=("nvmlDeviceGetTotalEnergyConsumption",)),
            "energy",
            "unknown",
            "no figure",
        ),
        (Script(persistent=False), "device", "pass", "driver unloads"),
        (Script(compute_mode=3), "device", "unknown", "one after the other"),
        (Script(compute_mode=3), "hand_over", "unknown", "one after the other"),
        (Script(failing=("nvmlInit",)), "device", "unknown", "will not be noticed"),
        (Script(cards=0), "fence", "fail", ""),
    ],
)
def test_what_is_wrong_with_a_card_is_told(tmp_path, script, name, outcome, words):
    done, _, sections = on_the_card(tmp_path, script, *only(name))

    assert list(sections) == [name], done.stderr
    assert sections[name]["outcome"] == outcome, sections
    assert words in sections[name]["means"]
    assert done.returncode == (1 if outcome == "fail" else 0)


def test_an_unknown_section_is_refused_before_anything_starts(tmp_path):
    done, _, _ = on_the_card(tmp_path, Script(), *only("fences"))

    assert done.returncode == 2
    assert "--only fences: no such section; choose from device, events, fence" in done.stderr


@pytest.mark.parametrize("failing", [(), ("nvmlInit",)])
def test_sections_that_fork_use_the_card(tmp_path, failing):
    """`is_available` poisons forks unless NVML answers (torch/csrc/cuda/Module.cpp, `poison_fork`)."""
    done, _, sections = on_the_card(tmp_path, Script(failing=failing), *only("hand_over"))

    assert "alone_s" in sections["hand_over"]["figures"], done.stdout + done.stderr


def test_a_short_call_is_timed_by_the_card_and_not_by_its_launch(tmp_path):
    """The simulated card has no cache: hot and cold calls of 12.4 µs take the same time.

    Queueing one takes the host 10 µs of made-up time, whatever the machine.
    """
    script = Script(least_kernel_s=3e-6, bytes_per_s=1.4e10, host_s=10e-6)
    done, _, sections = on_the_card(tmp_path, script, *only("flush"))

    figures = sections["flush"]["figures"]
    assert figures["cold_s"] < 1.5 * figures["hot_s"] < 20e-6, done.stdout + done.stderr
