"""Who asks for no fleet pays nothing for it; and Ray and submitit are imported where a cluster is asked for, and nowhere else."""

import subprocess
import sys

import pytest

LOADED = "import sys; {act}; print(*sorted(name for name in sys.modules if name.partition('.')[0] in {{'ray', 'submitit'}} or name.startswith('ci_bench.fleet')))"


def loaded(act: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(act=act)], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    "act",
    [
        "import ci_bench.commands.gate",
        "import ci_bench.commands.run",
        "import ci_bench.cli, ci_bench.commands.dispatch",
    ],
)
def test_no_command_loads_a_fleet_before_it_is_asked_for(act: str) -> None:
    assert loaded(act) == []


def test_a_local_fleet_needs_neither_ray_nor_submitit() -> None:
    engines = "ci_bench.fleet.local, ci_bench.fleet.ray_core, ci_bench.fleet.slurm"
    act = f"import ci_bench.fleet.coordinator, ci_bench.fleet.session, {engines}"
    assert [name for name in loaded(act) if not name.startswith("ci_bench")] == []


def test_the_check_sees_what_is_loaded() -> None:
    assert "ci_bench.fleet.protocol" in loaded("import ci_bench.fleet.protocol")
