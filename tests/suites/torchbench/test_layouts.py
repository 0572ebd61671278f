"""Models that several processes train, beside one process: right layouts agree with it, planted faults do not."""

import pytest

torch = pytest.importorskip("torch")

import ranked_stages  # noqa: E402
from torchbench_builders import FIXTURES, HERE  # noqa: E402

from ci_bench.records.results import Case, Outcome  # noqa: E402
from ci_bench.suites.base import Evidence  # noqa: E402
from ci_bench.suites.torchbench.plan import SUITE  # noqa: E402

pytestmark = pytest.mark.engine
QUICK = {"models": ["mlp"], "mode": "training", "perturbations": 1, "prepared": 1, "batch_size": 6}
PLANTED = "planted_layouts:"


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layouts")
    (case,) = SUITE.plan({**QUICK, "layouts": ["ddp"]})
    with ranked_stages.opened(SUITE, folder, preload=SUITE.preload_of(case), paths=(HERE, FIXTURES)) as bench:
        yield bench


def planned(**entry: object) -> Case:
    (case,) = SUITE.plan({**QUICK, **entry})
    return case


def checks(evidence: Evidence, name: str) -> dict[str, tuple[Outcome, str]]:
    return {check.arm: (check.outcome, check.detail) for check in evidence.checks if check.name == name}


def test_right_layouts_agree_with_one_process_and_planted_faults_do_not(bench) -> None:
    right = ("ddp", "fsdp", f"{PLANTED}averaged")
    wrong = tuple(f"{PLANTED}{name}" for name in ("summed", "unsynced", "same_rows", "left_out"))
    found = checks(bench.verified(planned(layouts=[*right, *wrong])), "accuracy")
    assert {arm: found[arm][0] for arm in right} == dict.fromkeys(right, Outcome.PASS), found
    assert {arm: found[arm][0] for arm in wrong} == dict.fromkeys(wrong, Outcome.FAIL), found
