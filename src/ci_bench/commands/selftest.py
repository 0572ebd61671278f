"""`ci-bench doctor --selftest`: gate an example with injected faults; each must be found."""

from ci_bench.command_line.settings import SelfTesting
from ci_bench.commands.judging import judge, paired_with
from ci_bench.commands.measuring import Measurement, caller
from ci_bench.commands.output import say
from ci_bench.commands.showing import show, tell_files
from ci_bench.diagnostics.selftest import FAULTS, POLICY, examine, rule, selftest_config
from ci_bench.errors import ExitCode
from ci_bench.records.results import SideName
from ci_bench.runner import planning


def selftest(settings: SelfTesting) -> int:
    """Gate an example pull request with injected faults, and check that each is found."""
    config = selftest_config(settings.device)
    measurement = Measurement(
        config=config,
        plan=planning.plan(config, ()),
        output=settings.output,
        reproduce=("ci-bench", "doctor", "--selftest"),
        environ=settings.environ,
        choose=None,
    )
    results = measurement.measure(
        [
            caller(settings, SideName.BASE),
            caller(settings, SideName.HEAD, {"CI_BENCH_PLANT": FAULTS}),
        ]
    )
    base, head = results[SideName.BASE], results[SideName.HEAD]
    comparison = judge(head, paired_with(base), policy=POLICY, folder=settings.output, rule=rule())
    show(comparison)
    tell_files(settings.output, sides=results)
    answers = list(examine(base, head))
    say(
        "\n"
        + "".join(
            f"{'ok   ' if answer.right else 'WRONG'} {answer.question}: {answer.said}\n"
            for answer in answers
        )
    )
    wrong = sum(not answer.right for answer in answers)
    verdict = (
        f"{wrong} wrong answer(s): do not trust this gate on this machine"
        if wrong
        else "the gate goes red where it should"
    )
    say(f"{verdict}\n")
    return int(ExitCode.POLICY_NOT_MET if wrong else ExitCode.OK)
