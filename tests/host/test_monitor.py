"""What is read of the machine and when: GPU and host, strangers and our own, and whatever can fail on the way."""

import pytest
from fake_nvml import QUESTIONS, UUID, FakeNvml

from ci_bench.host.gpus.nvidia import REASONS, Nvidia
from ci_bench.host.health import condition_facts
from ci_bench.host.monitor import Host, Monitor, open_monitor

OURS, STRANGER = 4000, 9999
GPU_FIELDS = ("sm_mhz", "memory_mhz", "power_w", "temperature_c", "reasons", "thermal_s", "pids")


def opening(nvml: FakeNvml):
    return Nvidia(load=lambda: nvml).open_gpu


def monitor_of(nvml: FakeNvml, tmp_path) -> Monitor:
    return open_monitor("cuda:0", UUID, open_gpu=opening(nvml), host=Host(tmp_path))


def settled(nvml: FakeNvml, tmp_path) -> Monitor:
    """A monitor whose launch has one process on the GPU."""
    monitor = monitor_of(nvml, tmp_path)
    nvml.pids = []
    monitor.vacate()
    nvml.pids = [OURS]
    monitor.settle()
    return monitor


def test_a_reading_is_what_nvml_tells(tmp_path) -> None:
    nvml = FakeNvml()
    nvml.reasons, nvml.thermal_ns, nvml.pids = 0x44, 1_500_000_000, [7, 8]
    reading = monitor_of(nvml, tmp_path).read()
    assert [getattr(reading, name) for name in GPU_FIELDS] == [
        1980, 2619, 412.345, 61, (REASONS[0x4], REASONS[0x40]), 1.5, {7, 8},
    ]  # fmt: skip


def test_a_glance_sees_clocks_and_what_holds_them_back(tmp_path) -> None:
    nvml = FakeNvml(failing={"nvmlDeviceGetComputeRunningProcesses"})
    glance = monitor_of(nvml, tmp_path).glance()
    assert (glance.sm_mhz, glance.memory_mhz, glance.reasons, glance.power_w) == (
        1980,
        2619,
        (),
        None,
    )


@pytest.mark.parametrize("bit", [1 << position for position in range(13)], ids=hex)
@pytest.mark.parametrize("when", ["before", "after"])
def test_each_reason_for_low_clocks_taints_or_is_only_recorded(
    bit: int, when: str, tmp_path
) -> None:
    nvml = FakeNvml()
    monitor = settled(nvml, tmp_path)
    readings = []
    for moment in ("before", "after"):
        nvml.reasons = bit if when == moment else 0
        readings.append(monitor.read())
    name = REASONS[bit].word if bit in REASONS else hex(bit)
    harmful = bit in {0x8, 0x20, 0x40, 0x80}
    assert monitor.taint(*readings) == (f"the GPU was slowed down ({name})" if harmful else None)
    assert monitor.facts(readings[when == "after"])["gpu_held_back_by"] == name


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_came_after_ours_taints(when: str, tmp_path) -> None:
    nvml = FakeNvml()
    monitor = settled(nvml, tmp_path)
    readings = []
    for moment in ("before", "after"):
        nvml.pids = [OURS, STRANGER] if when == moment else [OURS]
        readings.append(monitor.read())
    assert monitor.taint(*readings) == "1 process (9999) of others started using the GPU"


def test_our_own_processes_do_not_taint_though_their_numbers_are_the_hosts(tmp_path) -> None:
    monitor = settled(FakeNvml(), tmp_path)
    assert monitor.taint(monitor.read(), monitor.read()) is None
    assert monitor.notes == ()


def test_a_stranger_who_was_there_first_is_said_once_and_does_not_taint(tmp_path, caplog) -> None:
    nvml = FakeNvml()
    monitor = monitor_of(nvml, tmp_path)
    nvml.pids = [STRANGER]
    for launch in range(3):
        monitor.vacate()
        nvml.pids = [STRANGER, OURS + launch]
        assert monitor.residents() == {STRANGER, OURS + launch}
        monitor.settle()
        assert monitor.taint(monitor.read(), monitor.read()) is None
        nvml.pids = [STRANGER, OURS + 100]
        assert monitor.taint(monitor.read(), monitor.read()) is not None
        nvml.pids = [STRANGER]
    assert monitor.notes == (
        "others use the GPU before measuring, 1 process (9999): they may affect the times",
    )
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_what_was_ours_in_one_launch_is_a_stranger_in_the_next(tmp_path) -> None:
    nvml = FakeNvml()
    monitor = settled(nvml, tmp_path)
    nvml.pids = []
    monitor.vacate()
    nvml.pids = [OURS + 1]
    monitor.settle()
    nvml.pids = [OURS + 1, OURS]
    assert monitor.taint(monitor.read(), monitor.read()) is not None


def test_a_list_without_our_own_processes_is_blind_and_says_so(tmp_path) -> None:
    nvml = FakeNvml()
    monitor = monitor_of(nvml, tmp_path)
    nvml.pids = []
    monitor.vacate()
    monitor.settle()
    assert "does not list our own processes" in monitor.notes[0]
    nvml.pids = [STRANGER]  # should one be listed all the same, it is a stranger
    assert monitor.taint(monitor.read(), monitor.read()) is not None


def test_who_never_settled_is_not_told_from_strangers(tmp_path) -> None:
    monitor = monitor_of(FakeNvml(), tmp_path)
    assert monitor.taint(monitor.read(), monitor.read()) is None


ERRORS = {
    "nvml": FakeNvml.NVMLError,
    "versions differ": FakeNvml.NVMLLibraryMismatchError,
    "no such function": AttributeError,
    "no text": lambda name: UnicodeDecodeError("utf-8", b"", 0, 1, name),
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("error", ERRORS)
def test_any_question_may_fail(name: str, error: str, tmp_path) -> None:
    nvml = FakeNvml(error=ERRORS[error])
    monitor = settled(nvml, tmp_path)
    whole = condition_facts(monitor.read())
    nvml.failing = {name}
    before, after = monitor.read(), monitor.read()
    assert monitor.taint(before, after) is None
    assert condition_facts(after).items() <= whole.items()
    monitor.vacate()
    monitor.settle()
    assert monitor.taint(before, after) is None


def test_all_questions_may_fail(tmp_path) -> None:
    nvml = FakeNvml()
    monitor = settled(nvml, tmp_path)
    nvml.failing = {*QUESTIONS, "nvmlShutdown"}
    reading = monitor.read()
    assert {getattr(reading, name) for name in GPU_FIELDS} == {None}
    assert monitor.residents() is None
    monitor.close()


def test_an_older_driver_knows_the_reasons_by_their_older_name(tmp_path) -> None:
    nvml = FakeNvml(failing={"nvmlDeviceGetCurrentClocksEventReasons"})
    nvml.reasons = 0x8
    assert monitor_of(nvml, tmp_path).read().reasons == (REASONS[0x8],)


def _no_library() -> FakeNvml:
    raise ModuleNotFoundError("No module named 'pynvml'")


@pytest.mark.parametrize(
    ("load", "uuid", "why"),
    [
        (_no_library, UUID, "No module named 'pynvml'"),
        (lambda: FakeNvml(failing={"nvmlInit"}), UUID, "NVMLError: nvmlInit"),
        (FakeNvml, "GPU-other", "knows no GPU GPU-other"),
        (FakeNvml, None, "torch told no UUID"),
    ],
)
def test_without_nvml_nothing_taints_and_it_is_said_why_once(load, uuid, why, caplog) -> None:
    monitor = open_monitor("cuda:0", uuid, open_gpu=Nvidia(load=load).open_gpu)
    monitor.vacate()
    monitor.settle()
    before, after = monitor.read(), monitor.read()
    assert monitor.taint(before, after) is None
    assert {getattr(after, name) for name in GPU_FIELDS} == {None}
    assert monitor.residents() is None
    (note,) = monitor.notes
    assert why in note
    assert note.endswith("throttling and other processes on the GPU will not be noticed")
    assert [record.getMessage() for record in caplog.records] == [note]
    monitor.close()


def test_nvml_is_let_go_also_where_the_gpu_is_not_found() -> None:
    nvml = FakeNvml()
    monitor = open_monitor("cuda", UUID.removeprefix("GPU-"), open_gpu=opening(nvml))
    assert nvml.opened == 1
    monitor.close()
    assert nvml.opened == 0
    open_monitor("cuda", "GPU-other", open_gpu=opening(nvml))
    assert nvml.opened == 0


def test_a_part_of_a_gpu_is_found_by_its_own_prefix() -> None:
    nvml = FakeNvml(uuid="MIG-1234")
    assert open_monitor("cuda", "1234", open_gpu=opening(nvml)).read().sm_mhz == 1980


def test_a_part_of_a_gpu_is_throttled_with_the_whole_and_its_processes_are_its_own() -> None:
    nvml = FakeNvml(uuid="MIG-1234")
    nvml.reasons = 0x40
    reading = open_monitor("cuda", "1234", open_gpu=opening(nvml)).read()
    assert [reason.word for reason in reading.reasons] == ["hw_thermal_slowdown"]
    assert (reading.temperature_c, reading.power_w) == (61, 412.345)
    assert reading.pids == {4000}


def test_the_energy_of_a_part_is_unknown() -> None:
    """The counter of the whole has its other parts in it."""
    gpu = opening(FakeNvml(uuid="MIG-1234"))("1234")
    assert gpu.energy_j() is None
    assert gpu.power_limit_w() == 700


def test_on_the_cpu_nothing_taints_and_no_vendor_is_asked() -> None:
    monitor = open_monitor("cpu", None, open_gpu=lambda _: pytest.fail("there is no GPU to open"))
    monitor.vacate()
    monitor.settle()
    assert monitor.taint(monitor.read(), monitor.read()) is None
    assert monitor.notes == ()
    assert monitor.glance().sm_mhz is None


def test_facts_of_the_last_reading_tell_of_the_time_before_it(tmp_path) -> None:
    status = tmp_path / "proc" / "7" / "task" / "7" / "status"
    status.parent.mkdir(parents=True)
    monitor = Monitor(None, Host(tmp_path))
    readings = []
    for switches in (10, 15, 45):
        status.write_text(f"nonvoluntary_ctxt_switches:\t{switches}\n")
        readings.append(monitor.read(workers=[7]))
        if len(readings) == 1:
            assert monitor.facts(readings[0]) == {}
    assert monitor.facts(readings[2]) == {"involuntary_switches": 30}
    assert monitor.facts(readings[1]) == {}
    assert condition_facts(readings[1], since=readings[0]) == {"involuntary_switches": 5}


def test_a_stranger_who_was_there_before_ours_may_come_back(tmp_path) -> None:
    nvml = FakeNvml()
    monitor = monitor_of(nvml, tmp_path)
    nvml.pids = [STRANGER]
    monitor.vacate()
    nvml.pids = [OURS]
    monitor.settle()
    nvml.pids = [OURS, STRANGER]
    assert monitor.taint(monitor.read(), monitor.read()) is None


@pytest.mark.engine
def test_the_fake_has_the_names_and_as_many_arguments_as_pynvml() -> None:
    import inspect

    pynvml = pytest.importorskip("pynvml")
    for name, answer in FakeNvml().answers().items():
        required = [
            one
            for one in inspect.signature(getattr(pynvml, name)).parameters.values()
            if one.default is one.empty
        ]
        assert len(inspect.signature(answer).parameters) == len(required), name
    for name in [name for name in vars(FakeNvml) if name.startswith("NVML_")]:
        assert getattr(pynvml, name) == getattr(FakeNvml, name), name
    assert issubclass(pynvml.NVMLError, Exception)
    assert not issubclass(pynvml.NVMLLibraryMismatchError, pynvml.NVMLError)
    events = {
        value: name
        for name, value in vars(pynvml).items()
        if name.startswith("nvmlClocksEventReason")
    }
    for bit, reason in REASONS.items():
        spelled = events.get(bit, "").removeprefix("nvmlClocksEventReason").lower()
        assert spelled in {"", reason.word.replace("_", ""), "userdefinedclocks"}, reason
    assert (
        pynvml.nvmlClocksThrottleReasonBoardLimit,
        pynvml.nvmlClocksThrottleReasonReliability,
    ) == (0x200, 0x400)
