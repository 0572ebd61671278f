"""`ci-bench run`: measure this tree."""

from ci_bench.command_line.settings import Measuring
from ci_bench.commands.judging import PAGE, Baseline, judge, page
from ci_bench.commands.measuring import Measurement, caller, ending, measurement_of, tell_row
from ci_bench.commands.output import tell
from ci_bench.commands.own_suites import load_with_suites
from ci_bench.commands.reports import ALONE
from ci_bench.commands.showing import tell_attachments
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.results import Outcome, Results, SideName
from ci_bench.report.text import clean

MOST_TOLD = 300
"""Characters of the details of a failed check."""


def run(settings: Measuring) -> int:
    """Measure this tree."""
    measurement = measurement_of("run", settings, *load_with_suites(settings))
    results = measurement.measure([caller(settings, SideName.HEAD)])[SideName.HEAD]
    for row in results.cases:
        tell_row(row)
        for check in row.checks:
            if check.outcome is Outcome.FAIL and not check.informative:
                tell(
                    f"{'':<14}{check.name} fails for {check.arm}:"
                    f" {clean(check.detail, cap=MOST_TOLD)}"
                )
    tell(f"wrote {settings.output / 'results.json'}")
    tell_attachments(settings.output)
    _report_alone(results, measurement)
    return int(ending(results))


def _report_alone(results: Results, measurement: Measurement) -> None:
    """Write the page of one run without a comparison."""
    alone = Baseline(mode=BaselineMode.NONE, absence=ALONE)
    comparison = judge(results, alone, policy=measurement.config.policy, folder=None)
    file = measurement.output / PAGE
    documents.write_text(page(comparison, head=results, base=None), file)
    tell(f"wrote {file}")
