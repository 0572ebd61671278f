"""`ci-bench fastrnns`: run PyTorch's fastrnns benchmark with its own flags."""

import sys

from ci_bench.command_line.fastrnns_flags import print_results
from ci_bench.command_line.settings import Fastrnns
from ci_bench.commands.measuring import Measurement, caller, ending, tell_row
from ci_bench.commands.output import say, tell
from ci_bench.records.results import SideName
from ci_bench.runner import planning


def fastrnns(settings: Fastrnns) -> int:
    """Run PyTorch's fastrnns benchmark with its own flags."""
    request = settings.request
    for remark in request.remarks:
        tell(remark)
    plan = planning.plan(request.config, settings.filter, tell=tell)
    measurement = Measurement(
        config=request.config,
        plan=plan,
        output=settings.output,
        reproduce=("ci-bench", "fastrnns", *request.again),
        environ=settings.environ,
    )
    results = measurement.measure([caller(settings, SideName.HEAD)])[SideName.HEAD]
    printed = print_results(results, request)
    say(printed.out)
    sys.stderr.write(printed.err)
    for row in results.cases:
        if row.failure is not None:
            tell_row(row)
    return int(ending(results))
