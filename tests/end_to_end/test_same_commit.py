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
    """It never says the opposite, and is undecided only where it says that it can't tell as little as was planted."""
    sample_repository.plant(sample)
    judged = gate(sample, base="HEAD~1")
    for case, verdict, planted in (
        (SLOWER, Verdict.REGRESSED, 0.05),
        (FASTER, Verdict.IMPROVED, 0.6),
    ):
        assert judged.verdicts[case] is verdict or judged.resolvable[case] > planted, judged
    assert not {judged.verdicts[SLOWER], judged.verdicts[FASTER]} - {
        Verdict.REGRESSED,
        Verdict.IMPROVED,
        Verdict.INCONCLUSIVE,
    }
    assert judged.verdicts[SLOWER] is not Verdict.IMPROVED
    assert judged.verdicts[FASTER] is not Verdict.REGRESSED
    assert (judged.exit_code == ExitCode.POLICY_NOT_MET) is (
        judged.verdicts[SLOWER] is Verdict.REGRESSED
    )
