"""A commit against itself is clean, and 5 % is found: the benchmark `same_commit`, shorter, on the real command line."""

from pathlib import Path

import pytest
from benchmarks.same_commit import calibrate, gate

from benchmarks import sample_repository
from ci_bench.errors import ExitCode
from ci_bench.records.comparison import Verdict

pytestmark = [pytest.mark.engine, pytest.mark.slow]
pytest.importorskip("torch")
SLOWER, FASTER = "operations/fetch_rows", "operations/rank_rows"
TRIES = 3
"""On a machine that does something else, too, a gate may remain undecided. It must never say the opposite."""


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository, on a machine whose noise is known."""
    folder = tmp_path_factory.mktemp("same commit") / "repository"
    sample_repository.make(folder)
    calibrate(folder, runs=1)
    return folder


def test_the_same_commit_is_clean(sample) -> None:
    for _ in range(2):
        judged = gate(sample, base="HEAD")
        assert judged.clean, judged


def test_five_per_cent_slower_and_another_faster_are_judged_so(sample) -> None:
    sample_repository.plant(sample)
    for _ in range(TRIES):
        judged = gate(sample, base="HEAD~1")
        assert judged.verdicts[SLOWER] in {Verdict.REGRESSED, Verdict.INCONCLUSIVE}
        assert judged.verdicts[FASTER] in {Verdict.IMPROVED, Verdict.INCONCLUSIVE}
        if Verdict.INCONCLUSIVE not in judged.verdicts.values():
            assert judged.exit_code == ExitCode.POLICY_NOT_MET
            return
    pytest.fail(f"undecided {TRIES} times: {judged}")
