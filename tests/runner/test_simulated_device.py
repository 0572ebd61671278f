"""The simulated card keeps the contract that a real one is held to, and the whole engine runs on it unchanged."""

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_gate import FOLDER, OF_EACH_SUITE, Card, MadeUpTime, Script, Spell, gate, repository

from ci_bench.processes.environ import worker_environment
from ci_bench.processes.launch import Launcher
from ci_bench.processes.protocol import Task
from ci_bench.records.config import RunOptions

pytest.importorskip("torch")
pytestmark = pytest.mark.engine

GPU_TESTS = Path(__file__).parents[1] / "gpu"
CONTRACT = GPU_TESTS / "contract"
KERNEL_S = 5e-4
"""Long beside what the host takes to queue one, as on a card that is kept busy."""
HOST_S = 8e-6
"""What the host takes to queue one where time is made up, so that other work of this machine does
no harm. Compiling takes none.
"""


REAL = Script(
    least_kernel_s=3e-6,
    sm_mhz=1980,
    idle_mhz=345,
    bytes_per_s=1e9,
    cached_bytes_per_s=1e12,
    host_s=HOST_S,
    event_s=32e-9,
)
"""Like a real card: short kernels, a clock that idles and boosts, and a cache: half of it takes 131
µs longer when it is cold.
"""


def keeps_contract(card: Script, folder: Path, *tests: object) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "SIMULATED_CARD": str(card.write(folder / "card.json")),
        "PYTHONPATH": str(FOLDER),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-n",
        "0",
        *map(str, tests or (CONTRACT,)),
    ]
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("card", [Script(host_s=HOST_S), REAL], ids=["usual", "as a real one"])
def test_it_keeps_the_contract_of_a_real_card(tmp_path, card):
    done = keeps_contract(card, tmp_path)

    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("spoilt", [False, True], ids=["unharmed", "spoilt"])
def test_a_failed_capture_fails_no_test_of_the_clock(tmp_path, spoilt):
    card = replace(REAL, spoilt_by_capture=spoilt)
    done = keeps_contract(
        card, tmp_path, GPU_TESTS / "test_clock_cuda.py", "-k", "cannot_be_captured"
    )

    assert done.returncode == 0, done.stdout[-3000:]
    assert "3 passed" in done.stdout
    assert ("| reported as spoilt |" in done.stdout) is spoilt


def test_time_that_is_made_up_passes_by_what_is_done_alone(tmp_path):
    worker, parent = (MadeUpTime(tmp_path / "card.json", HOST_S) for _ in range(2))
    worker.moves = True
    begun, seen = worker.read(), parent.read()
    for _ in range(1000):
        parent.read()  # who has no context looks alone
    assert worker.queue() - begun == pytest.approx(HOST_S)
    worker.reach(begun + 0.01)
    assert worker.read() - begun == pytest.approx(0.01, rel=1e-3)
    assert 0.01 <= parent.read() - seen <= 0.0103
    before = parent.read()
    worker.reach(worker.read() + 0.01)
    assert 0.01 <= parent.read() - before <= 0.0101, (
        "the witness sees no less than the worker measured"
    )


def test_who_looks_while_another_process_writes_sees_all_of_it_or_nothing(tmp_path):
    """By `pack_into` some hundred thousandth look saw a card that was never born, and its counter of energy stood still for hours."""
    script = Script().write(tmp_path / "card.json")
    card = Card.open(script)
    writing = "import sys; from pathlib import Path; from simulated_card import Card; card = Card.open(Path(sys.argv[1]))\n"
    writing += "while True: card.kernel(1e-6)"
    environ = {**os.environ, "PYTHONPATH": str(FOLDER)}
    writer = subprocess.Popen([sys.executable, "-c", writing, script], env=environ)
    try:
        born, ends = card.born, time.monotonic() + 1.5
        looks = Counter(card.born == born for _ in iter(lambda: time.monotonic() < ends, False))
        worked_s = card.busy_s
    finally:
        writer.kill()
        writer.wait()
    assert worked_s > 1e-3, "it wrote meanwhile, a thousand kernels"
    assert set(looks) == {True}


def test_no_sample_knows_how_long_anything_took_where_time_is_made_up(tmp_path):
    card = Script(host_s=HOST_S, least_kernel_s=1e-3).write(tmp_path / "card.json")
    timing = (
        "import time, torch; x = torch.ones(4, device='cuda'); torch.cuda.synchronize(); begun = time.perf_counter(); "
        "[x.add_(1) for _ in range(10)]; time.sleep(0.3); torch.cuda.synchronize(); print(time.perf_counter() - begun)"
    )
    environ = {**os.environ, "SIMULATED_CARD": str(card), "PYTHONPATH": str(FOLDER)}
    said = subprocess.run(
        [sys.executable, "-c", timing],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert float(said.stdout) == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize(
    ("card", "broken"),
    [
        (Script(event_s=0.05), "test_events_time_the_queue_and_not_the_host"),
        (
            Script(failing=("nvmlDeviceGetTotalEnergyConsumption",)),
            "test_energy_goes_up_with_work_and_never_back",
        ),
        (replace(REAL, boost_s=3.0), "test_events_time_the_queue_and_not_the_host"),
        (
            replace(REAL, failing=("cuCtxResetPersistingL2Cache",)),
            "test_a_flush_evicts_what_persists_in_the_cache",
        ),
        (
            Script(refuses_capture=True),
            "test_a_captured_step_is_replayed_in_the_time_of_its_kernels",
        ),
    ],
)
def test_a_card_that_breaks_the_contract_is_told(tmp_path, card, broken):
    done = keeps_contract(card, tmp_path)

    assert done.returncode == 1
    assert f"::{broken}" in done.stdout


@pytest.mark.slow
def test_the_same_commit_is_clean_on_it(tmp_path):
    judged = gate(
        repository(tmp_path / "repository"),
        Script(least_kernel_s=KERNEL_S, host_s=HOST_S),
        tmp_path / "gate",
    )

    assert judged.code == 0, judged.said
    assert set(judged.verdicts) == {
        f"{arm} {metric}"
        for arm in ("eager", "dynamo-eager")
        for metric in ("step_time", "device_time")
    }
    assert set(judged.verdicts.values()) == {"unchanged"}
    assert judged.doubts == []
    assert judged.troubled == []


@pytest.mark.alone
@pytest.mark.slow
def test_a_kernel_more_in_each_call_is_found_on_it(tmp_path):
    # By need it ends with the verdict on its steps, after two launches mostly, and energy is read
    # once in each.
    made = repository(
        tmp_path / "repository", cycles=600_000, run=", energy_s: 0.5, sampling: fixed"
    )

    judged = gate(made, Script(least_kernel_s=KERNEL_S, energy_step_s=0.02), tmp_path / "gate")

    assert judged.code == 1, judged.said
    assert set(judged.verdicts.values()) == {"regressed"}
    assert judged.of("energy_per_step") == {"eager": "regressed", "dynamo-eager": "regressed"}
    assert judged.troubled == []


@pytest.mark.slow
def test_steps_are_captured_and_replayed_on_it(tmp_path):
    made = repository(tmp_path / "repository", run=", cuda_graph: true")

    judged = gate(made, Script(least_kernel_s=KERNEL_S, host_s=HOST_S), tmp_path / "gate")

    assert {check["outcome"] for check in judged.checks if check["name"] == "graphed"} == {
        "pass"
    }, judged.said
    assert not {"regressed", "improved"} & set(judged.verdicts.values())


@pytest.mark.slow
@pytest.mark.parametrize("spoilt", [False, True], ids=["unharmed", "spoilt"])
def test_a_card_that_refuses_captures_is_timed_plainly(tmp_path, spoilt):
    """Spoilt: as some versions of torch do, the attempt leaves the allocator in a capture, and the process unfit."""
    made = repository(tmp_path / "repository", run=", cuda_graph: true")
    card = Script(
        least_kernel_s=KERNEL_S, host_s=HOST_S, refuses_capture=True, spoilt_by_capture=spoilt
    )

    judged = gate(made, card, tmp_path / "gate")

    assert {row["status"] for row in (*judged.results["cases"], *judged.base["cases"])} == {"ok"}
    assert {check["outcome"] for check in judged.checks if check["name"] == "graphed"} == {
        "unknown"
    }
    assert not {"regressed", "improved"} & set(judged.verdicts.values())


@pytest.mark.slow
def test_on_a_card_for_one_process_at_a_time_the_sides_follow_one_another(tmp_path):
    judged = gate(
        repository(tmp_path / "repository"),
        Script(least_kernel_s=KERNEL_S, host_s=HOST_S, compute_mode=3),
        tmp_path / "gate",
    )

    assert {check["outcome"] for check in judged.checks if check["name"] == "side_by_side"} == {
        "unknown"
    }, judged.said
    assert {row["status"] for row in (*judged.results["cases"], *judged.base["cases"])} == {"ok"}
    assert not {"regressed", "improved"} & set(judged.verdicts.values())


@pytest.mark.slow
@pytest.mark.parametrize("suite", OF_EACH_SUITE)
def test_every_suite_is_clean_on_it(tmp_path, suite):
    made = repository(tmp_path / "repository", blocks=3, suites=OF_EACH_SUITE[suite])

    judged = gate(made, Script(least_kernel_s=1e-4, host_s=HOST_S), tmp_path / "gate")

    assert judged.code == 0, judged.said
    assert judged.verdicts
    assert not {"regressed", "improved", "suspected"} & set(judged.verdicts.values())
    assert (judged.doubts, judged.redone) == ([], [])
    assert {row["status"] for row in (*judged.results["cases"], *judged.base["cases"])} == {"ok"}


THROTTLED, POWER_CAP = 0x40, 0x4


def waves(**what):
    """For two seconds of every four, whenever timing takes place."""
    return tuple(
        Spell(begins_s=begins_s, ends_s=begins_s + 2, **what) for begins_s in range(6, 200, 4)
    )


@pytest.mark.alone
@pytest.mark.slow
def test_a_throttled_card_is_told_and_what_it_disturbed_measured_again(tmp_path):
    """It runs at half its clock now and then."""
    hot = waves(sm_mhz=750, reasons=THROTTLED, celsius=90)

    judged = gate(
        repository(tmp_path / "repository"),
        Script(least_kernel_s=KERNEL_S, spells=hot),
        tmp_path / "gate",
    )

    assert any(
        "the GPU was slowed down (hw_thermal_slowdown)" in one
        for one in (*judged.redone, *judged.doubts)
    )
    assert not {"regressed", "improved"} & set(judged.verdicts.values()), judged.said


@pytest.mark.slow
def test_a_power_cap_that_holds_all_the_time_is_recorded_and_no_doubt(tmp_path):
    capped = Spell(sm_mhz=1400, reasons=POWER_CAP)

    judged = gate(
        repository(tmp_path / "repository"),
        Script(least_kernel_s=KERNEL_S, host_s=HOST_S, spells=(capped,)),
        tmp_path / "gate",
    )

    assert judged.code == 0, judged.said
    assert (judged.doubts, judged.redone) == ([], [])
    assert {
        block["facts"]["gpu_held_back_by"]
        for row in judged.results["cases"]
        for block in row["blocks"]
    } == {"sw_power_cap"}


@pytest.mark.slow
def test_a_slowdown_under_a_power_cap_is_found_all_the_same(tmp_path):
    capped = Spell(sm_mhz=1400, reasons=POWER_CAP)
    made = repository(tmp_path / "repository", cycles=600_000)

    judged = gate(
        made, Script(least_kernel_s=KERNEL_S, host_s=HOST_S, spells=(capped,)), tmp_path / "gate"
    )

    assert judged.code == 1, judged.said
    assert set(judged.verdicts.values()) == {"regressed"}


@pytest.mark.alone
@pytest.mark.slow
def test_a_neighbour_on_the_card_is_told_and_what_it_disturbed_measured_again(tmp_path):
    """Another one each time: who was there when the workers opened is none that came."""
    busy = tuple(
        replace(wave, neighbour_pid=1 + place)
        for place, wave in enumerate(waves(neighbour_share=0.4))
    )

    judged = gate(
        repository(tmp_path / "repository"),
        Script(least_kernel_s=KERNEL_S, spells=busy),
        tmp_path / "gate",
    )

    assert any("of others started using the GPU" in one for one in (*judged.redone, *judged.doubts))
    assert not {"regressed", "improved"} & set(judged.verdicts.values()), judged.said


@pytest.mark.slow
def test_where_the_sides_do_not_fit_together_they_follow_one_another(tmp_path):
    """Eight copies of each arm of either side take more than there is; those of one side fit."""
    made = repository(tmp_path / "repository", run=", rotate: 8")

    judged = gate(
        made,
        Script(least_kernel_s=KERNEL_S, host_s=HOST_S, memory_bytes=100_000),
        tmp_path / "gate",
    )

    assert {check["outcome"] for check in judged.checks if check["name"] == "side_by_side"} == {
        "unknown"
    }, judged.said
    assert {row["status"] for row in (*judged.results["cases"], *judged.base["cases"])} == {"ok"}
    assert not {"regressed", "improved"} & set(judged.verdicts.values())


def seen_by(row):
    return row["environment"]["identity"] | row["environment"]["condition"]


@pytest.mark.slow
def test_a_gate_runs_on_a_slice_of_a_card_by_its_own_name_and_memory(tmp_path):
    """CUDA shows a process the first slice alone; its clocks are those of the card."""
    card = Script(
        least_kernel_s=2e-4,
        host_s=HOST_S,
        slice_bytes=1 << 30,
        spells=(Spell(sm_mhz=1400, reasons=POWER_CAP),),
    )

    judged = gate(
        repository(tmp_path / "repository", blocks=3, suites=OF_EACH_SUITE["fastrnns"]),
        card,
        tmp_path / "gate",
    )

    assert judged.code == 0, judged.said
    assert judged.verdicts
    assert not {"regressed", "improved", "suspected"} & set(judged.verdicts.values())
    for side in (judged.results, judged.base):
        assert (seen_by(side)["gpu"], seen_by(side)["gpu_memory_bytes"]) == (
            "Simulated H1 MIG 1g",
            1 << 30,
        )
        assert f"MIG-{seen_by(side)['gpu_uuid']}" == card.slice_uuid
    facts = [block["facts"] for row in judged.results["cases"] for block in row["blocks"]]
    assert {(one["gpu_sm_mhz"], one["gpu_held_back_by"]) for one in facts} == {
        (1400, "sw_power_cap")
    }
    assert (judged.doubts, judged.redone) == ([], [])


@pytest.mark.slow
def test_what_does_not_fit_into_a_slice_is_out_of_memory_whatever_the_card_has(tmp_path):
    card = Script(least_kernel_s=2e-4, host_s=HOST_S, slice_bytes=4096)

    judged = gate(repository(tmp_path / "repository"), card, tmp_path / "gate")

    assert judged.code != 0
    assert {row["status"] for row in (*judged.results["cases"], *judged.base["cases"])} == {
        "out_of_memory"
    }


@pytest.mark.slow
def test_gate_uses_second_card_only(tmp_path):
    card = Script(least_kernel_s=2e-4, host_s=HOST_S, cards=2)
    made = repository(
        tmp_path / "repository", device="cuda:1", blocks=3, suites=OF_EACH_SUITE["fastrnns"]
    )

    judged = gate(made, card, tmp_path / "gate")

    assert judged.code == 0, judged.said
    assert judged.verdicts
    assert not {"regressed", "improved", "suspected"} & set(judged.verdicts.values())
    assert {f"GPU-{seen_by(side)['gpu_uuid']}" for side in (judged.results, judged.base)} == {
        card.uuid_of(1)
    }
    file = tmp_path / "gate" / "card.json"
    assert Card.open(file, 1).busy_s > 0
    assert Card.open(file, 0).busy_s == 0


@pytest.mark.slow
def test_graph_replay_needs_no_parts(tmp_path):
    """The suite owes forward and backward, which a graph does not have."""
    made = repository(
        tmp_path / "repository",
        run=", cuda_graph: true",
        blocks=3,
        suites=OF_EACH_SUITE["fastrnns"],
    )

    judged = gate(made, Script(least_kernel_s=2e-4, host_s=HOST_S), tmp_path / "gate")

    assert judged.code == 0, judged.said
    assert {check["outcome"] for check in judged.checks if check["name"] == "graphed"} == {"pass"}
    assert set(judged.verdicts.values()) == {"unchanged"}


@pytest.mark.slow
def test_a_card_that_is_full_is_out_of_memory_and_not_broken(tmp_path):
    judged = gate(
        repository(tmp_path / "repository"),
        Script(least_kernel_s=KERNEL_S, host_s=HOST_S, memory_bytes=10_000),
        tmp_path / "gate",
    )

    assert judged.code != 0
    assert {row["status"] for row in (*judged.results["cases"], *judged.base["cases"])} == {
        "out_of_memory"
    }


def test_workers_use_a_card_without_nvml(tmp_path):
    """Inductor of torch 2.11 asks for devices as it is imported, after which no fork of the server could use one."""
    (tmp_path / "asks.py").write_text("import torch\ntorch.cuda.is_available()\n")
    card = Script(failing=("nvmlInit",)).write(tmp_path / "card.json")
    environ = {
        **worker_environment(os.environ),
        "SIMULATED_CARD": str(card),
        "PYTHONPATH": f"{FOLDER}:{tmp_path}",
    }
    task = Task(launch=0, device="cuda", options=RunOptions(), scratch=str(tmp_path))

    with Launcher(preload=("asks",), environ=environ, folder=tmp_path / "launch") as launcher:
        ended = launcher.run(task, timeout_s=60, on_answer=lambda _: None)
        touched = launcher.has_touched_gpu
    with Launcher(
        preload=("torch",),
        environ={**environ, "CUDA_LAUNCH_BLOCKING": "1"},
        folder=tmp_path / "blocking",
    ) as launcher:
        refused = launcher.run(task, timeout_s=60, on_answer=lambda _: None)

    assert touched
    assert ended.answers[0].environment["identity"]["gpu"] == "Simulated H1", ended
    assert "CUDA_LAUNCH_BLOCKING is set" in refused.answers[0].fault.message
