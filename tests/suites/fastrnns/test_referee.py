"""Timed rounds of recurrent networks under a referee: every task, and a network that replays."""

from dataclasses import replace
from pathlib import Path

import pytest
from fastrnns_builders import make_case, open_case
from refereeing import referee_checks

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Context
from ci_bench.suites.fastrnns import run

pytestmark = pytest.mark.engine
CONTEXT = Context(device="cpu", scratch=Path(), progress=lambda arm, done, total: None)


def refereed(name, **options):
    case = make_case(name)
    return referee_checks(open_case(case), case.arms, CONTEXT, **options)[case.arms[-1]]


@pytest.mark.parametrize("name", ["jit_premul", "py_simple", "vl_py", "jit_gru", "py_rnn_relu"])
def test_a_right_network_agrees(name):
    check = refereed(name)
    assert check.outcome is Outcome.PASS, check


def test_a_network_that_drops_out_is_held_to_what_other_masks_change():
    check = refereed("py_dropout")
    assert check.outcome is not Outcome.FAIL, check


def test_what_is_not_the_references_result_is_not_refereed():
    check = refereed("aten_layernorm")
    assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True)
    assert "norms next to the module" in check.detail


@pytest.mark.parametrize("what", ["forward", "zero"])
def test_a_network_that_replays_is_refused(what, monkeypatch):
    built = run.build_network

    def replaying(job, given):
        network, kept = built(job, given), []
        if job.variant.name != "py":
            return network

        def forward():
            output, states = network.forward()
            kept.append((output.detach(), states))
            return output - output.detach() + kept[0][0], states

        def doubling():
            output, states = network.forward()
            return 1.5 * output, states

        return replace(network, forward=forward if what == "forward" else doubling)

    monkeypatch.setattr(run, "build_network", replaying)
    check = refereed("py")
    assert check.outcome is Outcome.FAIL, check
