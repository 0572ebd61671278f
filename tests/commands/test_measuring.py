"""Lines that `ci-bench run` and `fastrnns` print about cases."""

from ci_bench.commands import measuring
from ci_bench.records.results import Case, CaseResult, Failure, Status


def test_a_reason_is_one_line_without_escapes(capsys) -> None:
    case = Case(
        id="fastrnns/lstm",
        suite="fastrnns",
        name="lstm",
        params={},
        arms=("eager",),
        reference="eager",
    )
    reason = "RuntimeError: \x1b[31mno\x1b[0m\n  kernel\x07" + "x" * 5000
    failure = Failure(stage="verify", arms=("eager",), reason=reason)
    measuring.tell_row(CaseResult(case=case, status=Status.FAILED, reproduce="", failure=failure))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("failed        fastrnns/lstm: RuntimeError: no kernel")
    assert line.isprintable()
    assert len(line) < measuring.MOST_REASON + 100
