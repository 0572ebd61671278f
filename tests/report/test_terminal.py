"""The terminal at 80 columns."""

import io

import pytest
from endings import BUILDERS, compared
from report_builders import ENDINGS, case, comparison, fail, no_baseline, passed, regressed
from rich.cells import cell_len
from rich.console import Console
from test_markdown import assert_golden

from ci_bench.records.comparison import Comparison, Mismatch
from ci_bench.records.config import Rule
from ci_bench.report.terminal import print_comparison


def printed(value: Comparison, *, width: int = 80, terminal: bool = False) -> str:
    shown = io.StringIO()
    print_comparison(
        value,
        Console(
            file=shown,
            width=width,
            force_terminal=terminal,
            color_system="standard" if terminal else None,
        ),
    )
    return shown.getvalue()


@pytest.mark.parametrize("ending", BUILDERS)
def test_terminal_is_golden(ending: str) -> None:
    text = "\n".join(line.rstrip() for line in printed(compared(ending)).splitlines()) + "\n"
    assert_golden(f"terminal_{ending}.txt", text)


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_wider_than_the_terminal(ending: str) -> None:
    lines = printed(ENDINGS[ending]()).splitlines()
    assert [line for line in lines if cell_len(line) > 80 and "ci-bench run" not in line] == []


def test_colour_is_for_terminals_only() -> None:
    assert "\x1b[" in printed(regressed(), terminal=True)
    assert "\x1b[" not in printed(regressed())


def test_the_next_step_is_the_command_of_the_first_finding() -> None:
    assert (
        printed(regressed())
        .splitlines()[-1]
        .strip()
        .startswith("ci-bench run --filter 'training_loss/reviews")
    )
    assert "Reproduce the worst case:" in printed(regressed())
    assert "Next" not in printed(passed())
    assert "Run ci-bench on the base branch" in printed(no_baseline())


def test_a_large_run_is_counted_not_printed() -> None:
    findings = tuple(fail(Rule.REGRESSED, f"finding {n}") for n in range(15))
    text = printed(
        comparison(*(case(f"command/{n}") for n in range(40)), headline="x", findings=findings)
    )
    assert "… and 10 more cases" in text
    assert "… and 5 more findings" in text
    assert "✔ 35:" not in text


def test_markup_in_a_name_is_shown_as_it_is() -> None:
    assert "[red]x[/red]" in printed(
        comparison(case("command/[red]x[/red]"), headline="[bold]a[/bold]")
    )


def test_a_fact_that_nobody_knows_is_unknown() -> None:
    differing = (Mismatch(field="cuda", base="13.0", head=None),)
    text = printed(comparison(case(), headline="x", mismatches=differing))
    assert "cuda: 13.0 on base, unknown on head" in text
