"""Memory that timed calls keep: a leak's, of the arm that leaks, and neither garbage nor what is given back."""

import pytest

from ci_bench.worker.kept import Kept

MIB = float(1 << 20)
SIZE = 24 << 20


def held_by(**calls) -> dict[str, float]:
    kept = Kept(device="cpu")
    kept.begin()
    for arm, call in calls.items():
        for _ in range(3):
            with kept.calls_of(arm):
                call()
    return kept.by_arm()


def test_a_leak_is_its_own_arms() -> None:
    leaked: list[bytearray] = []
    found = held_by(
        leaks=lambda: leaked.append(bytearray(b"x" * SIZE)), plain=lambda: bytearray(b"x" * SIZE)
    )
    assert sum(found.values()) == pytest.approx(3 * SIZE, abs=6 * MIB)
    assert found["leaks"] > 2 * found["plain"]


def test_garbage_and_free_memory_are_not_kept() -> None:
    def call() -> None:
        cycle: list[object] = [bytearray(b"x" * SIZE)]
        cycle.append(cycle)
        blocks = [bytes(1000) for _ in range(10_000)]
        del blocks[::2]

    assert max(held_by(one=call, two=call).values()) < 6 * MIB


def test_what_the_kernel_does_not_tell_is_absent(monkeypatch) -> None:
    monkeypatch.setattr("ci_bench.worker.kept.read_held", lambda: None)
    assert held_by(one=list) == {}
