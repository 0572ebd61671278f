"""Arms are compared with their reference again, by a process without code of the tree: its answer and the worker's, the worse."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from ci_bench.records.outputs import KeptClaim  # noqa: E402
from ci_bench.records.results import Check, Outcome  # noqa: E402
from ci_bench.runner.beside import _sure  # noqa: E402 - only with torch
from ci_bench.suites.contract import Computed  # noqa: E402
from ci_bench.suites.shared.worker import numerics  # noqa: E402
from ci_bench.worker.comparing import ClaimFiles, judge  # noqa: E402 - only with torch
from ci_bench.worker.keeping import Claimer  # noqa: E402

pytestmark = pytest.mark.engine

EPSILON = numerics.FP32_EPSILON


def computed(truth, **fields):
    plain = truth.float()
    return Computed(
        arm="eager",
        epsilon=EPSILON,
        outputs={"output": plain},
        runs=[{"output": plain}],
        truth={"output": truth},
        **fields,
    )


def answers(folder, *claims):
    claimer = Claimer(folder=folder)
    for seen, expected in claims:
        claimer.claim("agrees", "mine", {"output": seen}, expected)
    kept = [one for one in claimer.records if one.seen]
    files = [
        ClaimFiles(
            check=one.check,
            arm=one.arm,
            expected=str(folder / one.expected),
            expected_digest=one.expected_digest,
            seen=str(folder / one.seen),
            seen_digest=one.seen_digest,
        )
        for one in kept
    ]
    return claimer.records, files, judge(files)


def drawn(dtype=torch.float64):
    return torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(
        dtype
    )


def test_what_agrees_passes_and_what_is_off_fails(tmp_path):
    truth = drawn()
    expected = computed(truth)
    _, files, (found,) = answers(
        tmp_path, (truth.float(), expected), (1.01 * truth.float(), expected)
    )
    assert [one.outcome for one in (*judge(files[:1]), found)] == [Outcome.PASS, Outcome.FAIL]
    assert found.detail.startswith("compared by a process without code of the tree: ")
    assert files[0].expected == files[1].expected, "what the reference computed is written once"


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(8, dtype=torch.complex64),
        torch.randn(8).bfloat16(),
        torch.arange(8),
        torch.tensor(3.0),
        torch.zeros(0),
        torch.randn(4, 6).t(),
        torch.randn(6).to_sparse(),
    ],
    ids=["complex", "bf16", "whole", "scalar", "empty", "strided", "sparse"],
)
def test_right_results_of_any_kind_pass(tmp_path, value):
    expected = Computed(
        arm="eager", epsilon=2.0**-9, outputs={"output": value}, runs=[{"output": value}]
    )
    _, _, (found,) = answers(tmp_path, (value.clone(), expected))
    assert found.outcome is not Outcome.FAIL, found


def test_a_file_that_was_written_over_fails(tmp_path):
    _, files, _ = answers(tmp_path, (drawn(torch.float32), computed(drawn())))
    (tmp_path / "claim-1.safetensors").write_bytes(b"another")
    (found,) = judge(files)
    assert found.outcome is Outcome.FAIL
    assert "not those" in found.detail


def test_what_is_too_large_is_named_without_files(tmp_path):
    claimer = Claimer(folder=tmp_path)
    claimer.left = 100
    claimer.claim("agrees", "mine", {"output": drawn()}, computed(drawn()))
    assert [(one.check, one.arm, one.seen) for one in claimer.records] == [("agrees", "mine", "")]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("loosened", [{"epsilon": 0.5}, {"epsilon": 0.01, "runs": "far"}], ids=str)
def test_an_allowance_of_the_size_of_the_values_is_no_pass(tmp_path, loosened):
    """A worker may claim any rounding and any runs: agreement with zeros then means nothing."""
    truth, plain = drawn(), drawn(torch.float32)
    runs = [{"output": plain}, {"output": 2 * plain}] if "runs" in loosened else [{"output": plain}]
    expected = Computed(
        arm="eager",
        epsilon=loosened["epsilon"],
        outputs={"output": plain},
        runs=runs,
        truth={"output": truth},
    )
    _, _, (found,) = answers(tmp_path, (1.01 * plain, expected))
    assert found.outcome is Outcome.UNKNOWN, found
    sound = computed(truth)
    _, _, (also,) = answers(tmp_path, (plain, expected), (plain, sound))
    assert also.outcome is Outcome.PASS, "another step of the same check tells"


def test_an_unknown_answer_counts_only_if_all_claims_were_kept():
    unknown = Check(
        name="agrees", arm="mine", outcome=Outcome.UNKNOWN, detail="zeros would agree as well"
    )
    whole, cut = (
        KeptClaim(check="agrees", arm="mine", seen=seen) for seen in ("claim-1.safetensors", "")
    )
    assert _sure((unknown,), (whole,)) == (unknown,)
    assert _sure((unknown,), (whole, cut)) == ()
    assert _sure((replace(unknown, outcome=Outcome.FAIL),), (whole, cut)) != ()
