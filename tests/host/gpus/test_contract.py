"""The contract of every vendor in the table, held against each of them, and each clause shown to fail by a planted defect."""

import pytest
from gpu_subjects import SUBJECTS, subject_with
from mutants import plant

from ci_bench.host.gpus import nvidia
from ci_bench.host.gpus.protocol import ClockCause, Gpu, GpuUnreachable, Reason, Vendor
from ci_bench.host.gpus.vendors import VENDORS
from ci_bench.host.lock import gpu_key

STATE = {
    "driver": "9.8.7", "sm_mhz": 1234, "memory_mhz": 2345, "power_w": 412.345, "power_limit_w": 650.0, "energy_j": 98_765.432,
    "temperature_c": 61, "ecc": True, "thermal_s": 1.5, "bytes_by_pid": {7: 3 << 30, 8: None},
    "chosen_mhz": 1410, "persistence": True, "near_cores": frozenset({0, 3, 64, 130}),
}  # fmt: skip
NOTHING = STATE | {"power_w": 0.0, "energy_j": 0.0, "temperature_c": 0, "ecc": False, "thermal_s": 0.0, "bytes_by_pid": {}} | {
    "persistence": False, "near_cores": frozenset(),
}  # fmt: skip
QUESTIONS = sorted(name for name in vars(Gpu) if not name.startswith("_") and name != "close")
WORDS = sorted(Vendor.__annotations__)


def ask(subject, *questions):
    gpu = subject.vendor.open_gpu(subject.torch_uuid)
    try:
        return {name: getattr(gpu, name)() for name in questions}
    finally:
        gpu.close()


def answers_are_in_the_units_of_their_names(subject):
    subject.set(STATE)
    told = ask(subject, *STATE)
    for name, value in STATE.items():
        assert told[name] == (pytest.approx(value) if isinstance(value, float) else value), name
        assert type(told[name]) is type(value), name


def nought_and_nobody_are_answers(subject):
    subject.set(NOTHING)
    subject.hold_back()
    told = ask(subject, *QUESTIONS)
    assert {name: told[name] for name in NOTHING} == NOTHING
    assert (told["reasons"], told["pids"]) == ((), frozenset())


def a_usual_clock_is_nobodys_choice(subject):
    subject.set(STATE | {"chosen_mhz": None})
    assert ask(subject, "chosen_mhz") == {"chosen_mhz": None}


def processes_are_the_same_by_either_question(subject):
    subject.set(STATE)
    told = ask(subject, "pids", "bytes_by_pid")
    assert isinstance(told["pids"], frozenset)
    assert told["pids"] == told["bytes_by_pid"].keys() == {7, 8}


def what_goes_unanswered_is_none(subject):
    gpu = subject.vendor.open_gpu(subject.torch_uuid)
    subject.mute()
    assert {name: getattr(gpu, name)() for name in QUESTIONS} == dict.fromkeys(QUESTIONS)
    gpu.close()


def each_cause_of_low_clocks_is_known(subject):
    for cause, word in subject.causes.items():
        subject.hold_back(word)
        (reason,) = ask(subject, "reasons")["reasons"]
        assert (type(reason), reason.cause, bool(reason.word)) == (Reason, cause, True)
    subject.hold_back(subject.causes[ClockCause.THERMAL], subject.causes[ClockCause.POWER_CAP])
    assert {reason.cause for reason in ask(subject, "reasons")["reasons"]} == {
        ClockCause.THERMAL,
        ClockCause.POWER_CAP,
    }


def an_unknown_word_is_told_and_blames_nothing(subject):
    given, word = subject.unknown
    subject.hold_back(given)
    assert ask(subject, "reasons")["reasons"] == (Reason(cause=ClockCause.OTHER, word=word),)


def what_is_opened_is_closed(subject):
    gpu = subject.vendor.open_gpu(subject.torch_uuid)
    assert subject.left_open == 1
    gpu.close()
    assert subject.left_open == 0
    for uuid in ("GPU-another", ""):
        with pytest.raises(GpuUnreachable, match=subject.vendor.library):
            subject.vendor.open_gpu(uuid)
        assert subject.left_open == 0
    subject.vendor.look()
    assert subject.left_open == 0


def a_library_out_of_reach_says_why(subject):
    with pytest.raises(
        GpuUnreachable, match=rf"{subject.vendor.library} .*No module named 'the library'"
    ):
        subject.without_library.open_gpu(subject.torch_uuid)
    assert "No module named 'the library'" in subject.without_library.look().trouble
    subject.break_library()
    with pytest.raises(GpuUnreachable, match=subject.vendor.library):
        subject.vendor.open_gpu(subject.torch_uuid)
    gone = subject.vendor.look()
    assert (gone.cards, bool(gone.trouble), gone.seen()) == ((), True, "")


def what_is_listed_can_be_opened_and_locked(subject):
    subject.set(STATE)
    listed = subject.vendor.look()
    (card,) = listed.cards
    assert (listed.vendor, listed.driver, listed.trouble) == (subject.vendor, "9.8.7", "")
    assert card.name in listed.seen()
    assert gpu_key(card.uuid) == gpu_key(subject.torch_uuid)
    subject.vendor.open_gpu(card.uuid).close()
    assert subject.vendor.visible(listed, {}) == (card.uuid,)


def the_list_never_fails(subject):
    subject.mute()
    assert subject.vendor.look().cards == ()


def its_names_are_words(subject):
    assert all(getattr(subject.vendor, name).strip() for name in WORDS)
    assert subject.vendor.torch_build.isidentifier()
    assert subject.vendor.advice("nobody knows", subject.vendor.look(), "1.0") == ""


CLAUSES = [
    answers_are_in_the_units_of_their_names,
    nought_and_nobody_are_answers,
    a_usual_clock_is_nobodys_choice,
    processes_are_the_same_by_either_question,
    what_goes_unanswered_is_none,
    each_cause_of_low_clocks_is_known,
    an_unknown_word_is_told_and_blames_nothing,
    what_is_opened_is_closed,
    a_library_out_of_reach_says_why,
    what_is_listed_can_be_opened_and_locked,
    the_list_never_fails,
    its_names_are_words,
]


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_vendor_keeps_to(clause, name, tmp_path):
    clause(SUBJECTS[name](tmp_path))


def test_every_vendor_in_the_table_is_held_against_it_and_has_names_of_its_own():
    assert {vendor.name for vendor in VENDORS} <= SUBJECTS.keys()
    for word in ("name", "library", "toolkit", "torch_build", "command"):
        assert len({getattr(vendor, word) for vendor in VENDORS}) == len(VENDORS)


DEFECTS = {
    "milliwatts": ("nvmlDeviceGetPowerUsage(self._chip) / 1000", "nvmlDeviceGetPowerUsage(self._chip)"),
    "a limit in milliwatts": ("EnforcedPowerLimit(self._chip) / 1000", "EnforcedPowerLimit(self._chip)"),
    "millijoules": ("TotalEnergyConsumption(self._handle) / 1000", "TotalEnergyConsumption(self._handle)"),
    "nanoseconds": ("violationTime / 1e9", "violationTime"),
    "one clock for the other": ("self._nvml.NVML_CLOCK_MEM)", "self._nvml.NVML_CLOCK_SM)"),
    "no energy where none was drawn": (
        "TotalEnergyConsumption(self._handle) / 1000", "TotalEnergyConsumption(self._handle) / 1000 or None",
    ),
    "whether it could correct errors": ("nvmlDeviceGetEccMode(self._chip)[0]", "nvmlDeviceGetEccMode(self._chip)[1]"),
    "a mask in bytes": ("64 * place + bit", "8 * place + bit"),
    "persistence as a number": ("bool(self._nvml.nvmlDeviceGetPersistenceMode", "int(self._nvml.nvmlDeviceGetPersistenceMode"),
    "the usual clock is a chosen one": ("usual is None or chosen == usual", "usual is None"),
    "a list of processes": ("frozenset(int(process.pid)", "list(int(process.pid)"),
    "what is not known raises": ("    try:\n        return ask()\n    except Exception:", "    try:\n        return ask()\n    except KeyError:"),
    "heat is no heat": ("0x20: Reason(cause=ClockCause.THERMAL", "0x20: Reason(cause=ClockCause.OTHER"),
    "a cap is harm": ("0x4: Reason(cause=ClockCause.POWER_CAP", "0x4: Reason(cause=ClockCause.HARDWARE"),
    "an unknown reason is left out": ("for bit in bits\n", "for bit in bits if bit in REASONS\n"),
    "an unknown reason is harm": ("Reason(cause=ClockCause.OTHER, word=hex(bit))", "Reason(cause=ClockCause.HARDWARE, word=hex(bit))"),
    "nothing is closed": ("        _ask(self._nvml.nvmlShutdown)", "        return"),
    "left open where there is no GPU": ("        _ask(nvml.nvmlShutdown)\n", ""),
    "left open by the list": ("        nvml.nvmlShutdown()\n\n", "        pass\n\n"),
    "another error": ("        except Exception as error:\n            message", "        except KeyError as error:\n            message"),
    "a list that fails": ("except Exception as error:  # noqa: BLE001", "except KeyError as error:  # noqa: BLE001"),
    "only with its prefix": ('(f"{prefix}{uuid}" for prefix in PREFIXES)', "(uuid,)"),
    "no driver": ("driver=driver, nodes", "nodes"),
    "no reason for an empty list": ('trouble=f"{type(error).__name__}: {error}"', 'trouble=""'),
    "nothing is visible": ("_in_order(cards, environ, range(len(cards.cards)))", "()"),
    "advice for everything": ('        return ""\n', '        return "reboot"\n'),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_breaks_a_clause(defect, tmp_path):
    subject = subject_with(plant(nvidia, tmp_path, *DEFECTS[defect]))
    assert any(is_broken(clause, subject(tmp_path)) for clause in CLAUSES)


def test_each_clause_is_broken_by_some_defect_and_by_nothing_else(tmp_path):
    sound = subject_with(plant(nvidia, tmp_path, *(DEFECTS["milliwatts"][0],) * 2))
    assert [clause.__name__ for clause in CLAUSES if is_broken(clause, sound(tmp_path))] == []
    mutants = [subject_with(plant(nvidia, tmp_path, *defect)) for defect in DEFECTS.values()]
    assert [
        clause.__name__
        for clause in CLAUSES
        if not any(is_broken(clause, one(tmp_path)) for one in mutants)
    ] == []


def is_broken(clause, subject):
    try:
        clause(subject)
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a defect may raise anything
        return True
    return False
