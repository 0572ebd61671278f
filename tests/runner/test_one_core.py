"""On a CPU both sides of a launch take their samples on one core, where neither uses more."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fake_suite import QUICK, FakeRun, fake_environ

from ci_bench.records.results import Status

ALL = ",".join(map(str, sorted(os.sched_getaffinity(0))))
LAUNCHES = 4

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def cores_of(folder: Path, *, launches: int = 1, sides: int = 2, **base: str) -> list[list[str]]:
    """What each worker could use, step by step, and as it was asked what its program says in the end."""
    run = FakeRun(
        folder,
        replace(QUICK, launches=launches),
        environ=fake_environ(FAKE_CORES=str(folder / "cores")),
    )
    (folder / "cores").mkdir()
    of_sides = (
        run.measure_both({"name": "one"}, base=base)
        if sides > 1
        else {"alone": run.measure({"name": "one"})}
    )
    assert {row.status for rows in of_sides.values() for row in rows.values()} == {Status.OK}
    return [file.read_text().splitlines() for file in sorted((folder / "cores").iterdir())]


def test_both_sides_have_one_core_while_samples_are_taken_and_all_before_and_after(
    tmp_path: Path,
) -> None:
    workers = cores_of(tmp_path)
    assert len(workers) == 2
    for seen in workers:
        assert (seen[0], seen[-1]) == (f"step {ALL}", f"finish {ALL}")
    while_sampling = [{line.split()[1] for line in seen} - {ALL} for seen in workers]
    assert while_sampling[0] == while_sampling[1]
    assert len(while_sampling[0]) == 1


def test_launches_do_not_prefer_a_core(tmp_path: Path) -> None:
    workers = cores_of(tmp_path, launches=LAUNCHES)
    assert len(workers) == 2 * LAUNCHES
    each = [{line.split()[1] for line in seen} - {ALL} for seen in workers]
    assert all(len(one) == 1 for one in each)
    assert len(set.union(*each)) > 1


def test_where_one_side_has_cores_of_its_own_it_keeps_them_to_the_end_and_the_other_keeps_all(
    tmp_path: Path,
) -> None:
    seen = cores_of(tmp_path, FAKE_OWN_CORES="1")
    own = str(min(os.sched_getaffinity(0)))
    assert {frozenset(line.split()[1] for line in lines) for lines in seen} == {
        frozenset({ALL}),
        frozenset({own}),
    }


def test_a_side_alone_keeps_all(tmp_path: Path) -> None:
    (seen,) = cores_of(tmp_path, sides=1)
    assert {line.split()[1] for line in seen} == {ALL}
