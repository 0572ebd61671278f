"""What the figures of each section say: as they should be, as they should not, and where there is no telling."""

import pytest
from gpu_check_figures import GOOD, OTHERS

from ci_bench.diagnostics.gpu_check.sections import NAMES, SECTIONS
from ci_bench.records.results import Outcome

BY_NAME = {section.name: section for section in SECTIONS}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_as_it_should_be_passes(name):
    found = BY_NAME[name].judge(GOOD[name])
    assert found.outcome is Outcome.PASS
    assert found.found


@pytest.mark.parametrize(("name", "changed", "outcome", "words"), OTHERS)
def test_what_figures_say(name, changed, outcome, words):
    found = BY_NAME[name].judge({**GOOD[name], **changed})
    assert found.outcome is outcome
    assert words in found.means.replace("\N{NO-BREAK SPACE}", " ")


def test_every_section_can_fail_or_say_that_there_is_no_telling():
    assert {name for name, _, outcome, _ in OTHERS if outcome is not Outcome.PASS} == {*NAMES} - {
        "caches"
    }


def test_all_of_it_fits_into_ten_minutes_whatever_hangs():
    assert sum(section.limit_s for section in SECTIONS) <= 600
