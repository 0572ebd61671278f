"""CUDA graphs: what is replayed, when a step is called plainly instead, and what a failed capture leaves behind."""

from functools import partial

import pytest
from fake_cuda import LAUNCH_S, FakeCuda, Machine, Steps
from mutants import plant

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Part
from ci_bench.worker import cuda_clock
from ci_bench.worker.cuda_clock import CudaClock

exactly = pytest.approx


def clock_of(cuda: FakeCuda, *, flush=None) -> CudaClock:
    draw = partial(cuda.machine.random_kernel, 1e-6)
    return CudaClock(
        cuda, "cuda:0", flush=flush, graphs=True, draw=draw, now=cuda.machine.read_clock
    )


def a_graph_is_replayed_without_the_hosts_share() -> None:
    cuda = FakeCuda()
    clock = clock_of(cuda)
    program = Steps(cuda, (0.001, 0), (0.001, 0), host_s=0.01)
    clock.prepare(program)
    called = program.calls
    taken = clock.take(program, calls=10)
    assert (program.calls, cuda.replayed) == (called, 10)
    assert taken.wall_s == exactly(0.002 + LAUNCH_S / 10)
    assert taken.device_s == exactly(0.002 + LAUNCH_S / 10)
    (check,) = clock.checks(program, arm="eager")
    assert (check.name, check.arm, check.outcome) == ("graphed", "eager", Outcome.PASS)


def a_step_that_waits_is_found_before_it_spoils_anything() -> None:
    cuda = FakeCuda()
    clock = clock_of(cuda)
    program = Steps(cuda, (0.001, 0), trouble=cuda.machine.item)
    taken = clock.take(program, calls=4)
    assert cuda.replayed == 0
    assert not cuda.machine.spoilt
    assert taken.wall_s == exactly(0.001 + LAUNCH_S, rel=1e-2)
    assert cuda.get_sync_debug_mode() == 0
    check, late = clock.checks(program, arm="eager")
    assert check.outcome is Outcome.UNKNOWN
    assert "called plainly" in check.detail
    assert "waited for the host" in late.detail
    assert "RuntimeError: called a synchronizing CUDA operation" in check.detail


def a_failed_capture_leaves_stream_and_generators_as_they_were() -> None:
    cuda = FakeCuda()
    clock = clock_of(cuda)
    program = Steps(cuda, (0.001, 0), trouble=cuda.machine.wait_unseen)
    taken = clock.take(
        program, calls=4
    )  # recording an event asserts that the program's stream is current
    assert cuda.current is cuda.home
    assert not cuda.machine.spoilt
    assert taken.device_s == exactly(0.001 + LAUNCH_S, rel=1e-2)
    assert (
        "operation failed due to a previous error" in clock.checks(program, arm="eager")[0].detail
    )
    assert "advice" not in clock.checks(program, arm="eager")[0].detail


def an_empty_graph_is_no_graph() -> None:
    cuda = FakeCuda()
    clock = clock_of(cuda)
    program = Steps(cuda, host_s=0.001)
    taken = clock.take(program, calls=10)
    assert taken.wall_s == exactly(0.001)
    assert "launched no GPU work" in clock.checks(program, arm="eager")[0].detail


def a_process_that_was_spoilt_is_an_error_with_both_reasons() -> None:
    cuda = FakeCuda()
    cuda.reset_repairs = False
    program = Steps(cuda)
    program.step = lambda mark: [cuda.machine.random_kernel(0.001), cuda.machine.wait_unseen()]
    with pytest.raises(
        RuntimeError,
        match=r"previous error during capture\).*Offset increment.*set run.cuda_graph to false",
    ):
        clock_of(cuda).take(program, calls=1)


def an_allocator_that_stays_in_a_capture_is_found_though_the_step_runs() -> None:
    cuda = FakeCuda()
    cuda.reset_repairs = cuda.spoils_generators = False
    program = Steps(cuda, (0.001, 0), trouble=cuda.machine.wait_unseen)
    with pytest.raises(RuntimeError, match=r"previous error during capture\).*captures_underway"):
        clock_of(cuda).prepare(program)


def generators_that_stay_in_a_capture_are_found_though_the_step_draws_nothing() -> None:
    cuda = FakeCuda()
    cuda.reset_repairs = False
    cuda.empty_cache = lambda: None
    program = Steps(cuda, (0.001, 0), trouble=cuda.machine.wait_unseen)
    with pytest.raises(RuntimeError, match="Offset increment"):
        clock_of(cuda).prepare(program)


def warming_up_is_done_on_another_stream_that_waits_and_is_waited_for() -> None:
    cuda = FakeCuda()
    seen = []
    program = Steps(
        cuda,
        (0.001, 0),
        trouble=lambda: seen.append((cuda.current, cuda.machine.capturing is not None)),
    )
    clock_of(cuda).prepare(program)
    *warm, captured = seen
    (side,) = {stream for stream, _ in warm}
    assert len(warm) == cuda_clock.WARMUP_CALLS
    assert side.waited_for == [cuda.home]
    assert cuda.home.waited_for == [side]
    assert not any(capturing for _, capturing in warm)
    assert captured[0] is not cuda.home
    assert captured[1]
    assert cuda.machine.log[-1] == "step"  # nothing was replayed yet


PROPERTIES = [
    a_graph_is_replayed_without_the_hosts_share,
    a_step_that_waits_is_found_before_it_spoils_anything,
    a_failed_capture_leaves_stream_and_generators_as_they_were,
    an_empty_graph_is_no_graph,
    a_process_that_was_spoilt_is_an_error_with_both_reasons,
    an_allocator_that_stays_in_a_capture_is_found_though_the_step_runs,
    generators_that_stay_in_a_capture_are_found_though_the_step_draws_nothing,
    warming_up_is_done_on_another_stream_that_waits_and_is_waited_for,
]
DEFECTS = {
    "calls instead of replaying": (
        "return Captured(replay=graph.replay)",
        "return Captured(replay=step)",
    ),
    "does not look for waiting first": (
        "        with _no_waiting(cuda):\n            step()\n",
        "        step()\n",
    ),
    "leaves the debug mode on": ("        cuda.set_sync_debug_mode(before)", "        pass"),
    "stays on the capture's stream": ("        cuda.set_stream(home)\n", ""),
    "does not reset the graph": ("            graph.reset()", "            pass"),
    "replays nothing": ('if any("graph is empty"', 'if False and any("graph is empty"'),
    "does not try the step afterwards": (
        "        _prove_health(step, cuda, device, draw, error)\n",
        "",
    ),
    "does not free memory afterwards": ("        cuda.empty_cache()\n", ""),
    "does not draw afterwards": ("        draw()\n", ""),
    "warms up at home": ("    with cuda.stream(side):\n", "    with contextlib.nullcontext():\n"),
    "does not wait for what came before": ("    side.wait_stream(home)\n", ""),
    "is not waited for": ("    home.wait_stream(side)\n", ""),
    "captures without warming up": ("        _warm_up(step, cuda, device, home)\n", ""),
    "shows all of an error": ("lines[0]", "' '.join(lines)"),
}


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
def test_a_step_is_captured_as_it_should_be(holds) -> None:
    holds()


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_seen(monkeypatch, defect: str, tmp_path) -> None:
    monkeypatch.setattr(
        cuda_clock, "capture", plant(cuda_clock, tmp_path, *DEFECTS[defect]).capture
    )
    assert any(_fails(holds) for holds in PROPERTIES)


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
def test_each_property_is_broken_by_a_defect(monkeypatch, holds, tmp_path) -> None:
    broken = []
    for change in DEFECTS.values():
        monkeypatch.setattr(cuda_clock, "capture", plant(cuda_clock, tmp_path, *change).capture)
        broken.append(_fails(holds))
    assert any(broken)


def _fails(holds) -> bool:
    try:
        holds()
    except (AssertionError, RuntimeError, ValueError, pytest.fail.Exception):
        return True
    return False


def test_a_program_is_captured_once() -> None:
    cuda = FakeCuda()
    clock = clock_of(cuda)
    program, other = Steps(cuda, (0.001, 0)), Steps(cuda, (0.002, 0))
    clock.call(program)
    assert cuda.replayed == 1
    called = program.calls
    clock.prepare(program)
    clock.call(program)
    assert (cuda.replayed, program.calls) == (2, called)
    assert clock.take(other, calls=1).wall_s == exactly(0.002 + LAUNCH_S)


def test_parts_do_not_exist_in_a_graph_and_the_check_says_so() -> None:
    cuda = FakeCuda()
    clock = clock_of(cuda)
    program = Steps(cuda, (0.001, 0), (0.001, 0), parts=(Part(metric="forward_time"),))
    assert clock.take(program, calls=2).parts_s == ()
    assert "its parts are not timed" in clock.checks(program, arm="eager")[0].detail


def test_a_program_that_is_called_plainly_keeps_its_parts() -> None:
    cuda = FakeCuda()
    program = Steps(
        cuda,
        (0.001, 0),
        (0.001, 0),
        parts=(Part(metric="forward_time"),),
        trouble=cuda.machine.item,
    )
    assert clock_of(cuda).take(program, calls=2).parts_s == exactly((0.001 + LAUNCH_S,), rel=1e-2)


def test_replays_are_cold_where_a_flush_is_asked_for() -> None:
    machine = Machine()
    cuda = FakeCuda(machine)

    def flush() -> None:
        machine.kernel(60e-6)
        machine.cached = False

    taken = clock_of(cuda, flush=flush).take(Steps(cuda, (20e-6, 30e-6)), calls=16)
    assert (taken.wall_s, taken.device_s) == exactly((50e-6 + LAUNCH_S, 50e-6))
    assert cuda.replayed == 32


def test_a_step_that_is_broken_anyway_says_so() -> None:
    cuda = FakeCuda()

    def broken() -> None:
        raise ValueError("no such layer")

    with pytest.raises(
        RuntimeError, match="does not run without one either \\(ValueError: no such layer\\)"
    ):
        clock_of(cuda).prepare(Steps(cuda, trouble=broken))
