"""Which models are chosen, and how they are shared out."""

import pytest

from ci_bench.errors import BadConfig
from ci_bench.suites.torchbench.plan import (
    ModelSelection,
    balanced,
    costs_of,
    select,
    selection_from,
)

KNOWN = ("alexnet", "BERT_pytorch", "dcgan", "resnet18", "resnet50", "vgg16")


@pytest.mark.parametrize(("wanted", "chosen"), [
    ({}, KNOWN),
    ({"models": ["vgg16", "dcgan"]}, ("dcgan", "vgg16")),
    ({"filter": ["RES", "^bert"]}, ("BERT_pytorch", "resnet18", "resnet50")),
    ({"filter": ["res"], "exclude": ["50$"]}, ("resnet18",)),
    ({"exclude_exact": ["resnet18", "alexnet"]}, ("BERT_pytorch", "dcgan", "resnet50", "vgg16")),
])  # fmt: skip
def test_names_and_patterns(wanted, chosen):
    assert select(KNOWN, selection_from(wanted)) == chosen


@pytest.mark.parametrize(("wanted", "words"), [
    (ModelSelection(models=("resnet",)), "none of the 6 models is called 'resnet'; did you mean 'resnet"),
    (ModelSelection(exclude_exact=("vgg",)), r"exclude_exact: none of the \d+ models is called 'vgg'"),
    (ModelSelection(filter=("(",)), r"filter: '\(' is not a regular expression"),
    (ModelSelection(filter=("nothing",)), "none of 6 models is chosen"),
    (ModelSelection(partitions=3, partition=3), "partition: 3 is not in 0..2"),
    (ModelSelection(partitions=7, partition=6), "would leave some empty"),
])  # fmt: skip
def test_an_empty_choice_or_share_is_refused(wanted, words):
    with pytest.raises(BadConfig, match=words):
        select(KNOWN, wanted)


@pytest.mark.parametrize("partitions", range(1, 7))
def test_shares_hold_every_model_once_and_none_is_empty(partitions):
    shares = [
        select(KNOWN, ModelSelection(partitions=partitions, partition=index))
        for index in range(partitions)
    ]
    assert sorted(name for share in shares for name in share) == sorted(KNOWN)
    assert all(shares)


def test_shares_are_balanced_by_what_models_took():
    """By hand: 60 alone; 30 and 20 and 10 together.

    In order of names, one share would have 90 of 120.
    """
    shares = balanced({"a": 60.0, "b": 30.0, "c": 20.0, "d": 10.0}, 2)
    assert shares == [["a"], ["b", "c", "d"]]


def test_an_unknown_duration_is_the_median_of_the_known():
    assert costs_of(("a", "b", "c", "d"), {"a": 1.0, "b": 9.0, "c": 2.0}) == {
        "a": 1.0,
        "b": 9.0,
        "c": 2.0,
        "d": 2.0,
    }
    assert costs_of(("a", "b"), {}) == {"a": 1.0, "b": 1.0}


def test_free_models_still_leave_no_share_empty():
    assert all(balanced({"a": 5.0, "b": 0.0, "c": 0.0}, 3))


def test_durations_come_from_earlier_results(tmp_path):
    from dataclasses import replace

    from ci_bench.records.documents import write
    from ci_bench.records.results import CaseResult, Status
    from ci_bench.runner.ledger import _SOUND
    from ci_bench.suites.torchbench.plan import SUITE

    cost = {"mlp": 50.0, "cnn": 10.0, "vit": 20.0, "gnn": 15.0}
    rows = tuple(
        CaseResult(case=case, status=Status.OK, reproduce="x", duration_s=cost[case.name] / 2)
        for case in SUITE.plan({"models": [*cost]})
    )
    path = tmp_path / "results.json"
    write(replace(_SOUND, cases=rows), path)
    shares = [
        {
            case.name
            for case in SUITE.plan(
                {"models": [*cost], "partitions": 2, "partition": index, "durations": str(path)}
            )
        }
        for index in range(2)
    ]
    assert shares == [{"mlp"}, {"cnn", "vit", "gnn"}]
