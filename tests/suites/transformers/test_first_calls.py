"""What is timed is what was verified, and what later calls leave is compared with base, too."""

from dataclasses import replace

import pytest
from first_calls import differences
from transformers_builders import case, context, tiny, workload

from ci_bench.processes.messages import ClaimFiles, Keeping, OutputFiles
from ci_bench.records.results import Outcome
from ci_bench.suites.shared.worker import numerics
from ci_bench.suites.transformers.run import open_workload
from ci_bench.worker.comparing import compare, judge
from ci_bench.worker.keeping import FILE, Claimer, Keeper

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("fresh_dynamo")]


PLAIN = {**tiny("bert"), "mode": "training", "candidate": "none", "prepared_inputs": 1}


@pytest.fixture(scope="module")
def plain():
    """The first verified calls of a training."""
    return workload(**PLAIN).verify(case(**PLAIN).arms).begun


@pytest.mark.parametrize(
    ("timed", "said"),
    [
        ({"batch_size": 1}, "inputs int64[1, 8]"),
        ({"sequence_length": 4}, "inputs int64[2, 4]"),
        (tiny("bert", config={"num_hidden_layers": 2}), "weights"),
        ({"seed": 5}, "values of the inputs"),
        ({"precision": "bf16"}, "bfloat16"),
        (tiny("bert", config={"hidden_act": "relu"}), "values of the gradients off by"),
    ],
)
def test_another_model_when_timed_is_found(plain, timed, said):
    assert said in differences(plain, workload(**{**PLAIN, **timed}), ("eager",))["eager"]


@pytest.mark.parametrize(
    "entry",
    [
        {**tiny("bert"), "mode": "training", "prepared_inputs": 1},
        {**PLAIN, "dropout": True},
        {**tiny("gpt2"), "mode": "generation", "candidate": "none", "prepared_inputs": 1},
        {**PLAIN, "dynamic": True, "varies": ["batch"]},
    ],
)
def test_an_honest_model_is_as_verified(entry):
    one = case(**entry)
    assert differences(workload(**entry).verify(one.arms).begun, workload(**entry), one.arms) == {}


def wrong_from(number):
    """A forward pass of BERT that is 1 % off from its call `number` on, counted from 1."""
    from transformers import BertModel

    plain = BertModel.forward

    def forward(self, *values, **named):
        self.calls = getattr(self, "calls", 0) + 1
        output = plain(self, *values, **named)
        if self.calls >= number:
            output.last_hidden_state = output.last_hidden_state * 1.01
        return output

    return forward


@pytest.mark.parametrize(
    ("mode", "number", "changed"),
    [("inference", 3, True), ("training", 3, True), ("inference", 99, False)],
)
def test_a_later_call_that_is_wrong_is_a_change(tmp_path, monkeypatch, mode, number, changed):
    entry = {
        **tiny("bert"),
        "mode": mode,
        "candidate": "none",
        "prepared_inputs": 1,
        "only_pretrain_model": True,
    }
    files = []
    for side, first in (("base", 99), ("head", number)):
        (tmp_path / side).mkdir()
        keeper = Keeper(folder=tmp_path / side, keeping=Keeping.EVERYTHING)
        one = case(**entry)
        with monkeypatch.context() as patch:
            patch.setattr("transformers.BertModel.forward", wrong_from(first))
            open_workload(one, replace(context(), keep=keeper.keep)).verify(one.arms)
        files.append((str(tmp_path / side / FILE), keeper.record))
    (base, theirs), (head, ours) = files
    assert (theirs.digest != ours.digest) == changed
    beside = compare(
        OutputFiles(base=base, base_digest=theirs.file, head=head, head_digest=ours.file),
        base=theirs.digest,
    )
    wrong = [error.name for error in beside.worst if error.wrong]
    assert bool(wrong) == changed, beside


def claims(folder, **entry):
    """The check `agrees` of a case, and the files of what it claims."""
    claimer, one = Claimer(folder=folder), case(**entry)
    (check,) = open_workload(one, replace(context(), claim=claimer.claim)).verify(one.arms).checks
    files = [
        ClaimFiles(
            check=record.check,
            arm=record.arm,
            expected=str(folder / record.expected),
            expected_digest=record.expected_digest,
            seen=str(folder / record.seen),
            seen_digest=record.seen_digest,
        )
        for record in claimer.records
    ]
    return check, files


@pytest.mark.parametrize(
    "entry",
    [
        {**tiny("bert"), "mode": "training", "precision": "amp_bf16"},
        {**tiny("gpt2"), "mode": "generation"},
    ],
)
def test_an_honest_arm_is_agreed_with_again(tmp_path, entry):
    check, files = claims(tmp_path, **entry)
    assert check.outcome is Outcome.PASS
    assert [answer.outcome for answer in judge(files)] == [Outcome.PASS]


def test_a_loosened_rule_is_found_out(tmp_path, monkeypatch):
    for name in ("MULTIPLIER_FP32", "LAST_DIGITS", "ROUNDINGS", "JOLT_MULTIPLIER"):
        monkeypatch.setattr(numerics, name, 1e15)
    for name in ("BLIND", "BLIND_FP32"):
        monkeypatch.setattr(numerics, name, float("inf"))
    check, files = claims(tmp_path, **tiny("bert"), candidate="planted_compilers:stale")
    monkeypatch.undo()
    assert check.outcome is Outcome.PASS
    assert [answer.outcome for answer in judge(files)] == [Outcome.FAIL]
