"""Simulated weeks of gates that teach: the promise holds, launches are saved, and a noisier machine is noticed."""

import math
from functools import partial

import pytest

from benchmarks import gate_noise
from ci_bench.judge.times.noise import Learned
from ci_bench.judge.times.sequential import SequentialRule


@pytest.fixture(scope="module")
def counted():
    return gate_noise.simulate(1, count=20, weeks=12, cases=5, blind=False)


def test_what_gates_teach_saves_launches_and_raises_no_alarm(counted):
    cold, gates = counted["cold"], counted["gates"]
    assert cold["runs"] == gates["runs"] == 240
    assert gates["launches"] < 0.9 * cold["launches"]
    assert gates["alarms"] <= 2
    assert gates["found5"] > 0.9 * gates["runs"]


def test_the_control_a_history_that_believes_a_tenth_of_the_noise_raises_alarms(monkeypatch):
    learn = gate_noise.learn_from_gates

    def credulous(past, within):
        taught = learn(past, within)
        return Learned(spread=taught.spread / 10, freedom=taught.freedom, within=taught.within / 10)

    monkeypatch.setattr(gate_noise, "learn_from_gates", credulous)
    monkeypatch.setattr(
        gate_noise,
        "SequentialRule",
        partial(SequentialRule, tau=math.log(1.01), margin=math.log(1.02)),
    )
    monkeypatch.setattr(
        "ci_bench.judge.times.sequential.inflation",
        lambda d, *_: 0 * d[..., 0].sum(axis=-1, keepdims=True) + 1,
    )
    assert gate_noise.simulate(1, count=20, weeks=12, cases=5, blind=True)["gates"]["alarms"] > 2


def test_a_machine_three_times_as_noisy_is_heard_within_three_gates():
    after = gate_noise.heard(1, cases=2, count=50)
    assert after == sorted(after)
    assert after[2] > 1.3


def test_the_table_and_the_document_are_of_all_rules(capsys, tmp_path):
    gate_noise.main(
        [
            "--weeks",
            "8",
            "--machines",
            "4",
            "--cases",
            "2",
            "--json",
            str(tmp_path / "figures.json"),
        ]
    )
    told = capsys.readouterr().out
    assert all(told.count(f" {rule} ") >= 1 for rule in gate_noise.RULES)
    assert (tmp_path / "figures.json").stat().st_size > 100
