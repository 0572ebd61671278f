"""The report fits its window, whatever its names and values are: columns, labels and axes, each beside a planted defect."""

from dataclasses import replace
from html import escape

from browsing import opened
from fitting import faults, planted
from report_builders import case, comparison, memory, pair, parity, speedup
from report_documents import DIVERGES, STEPS, paired
from test_html_browser import draw_all

from ci_bench.commands.judging import page
from ci_bench.commands.page_assets import page_assets
from ci_bench.records.comparison import Parity, Verdict
from ci_bench.report.html.page import policy
from ci_bench.report.html.report import render_html

ARMS = ("inductor", "inductor-max-autotune", "inductor-reduce-overhead", "aot_eager")
OUTLIER_S = 5.0


def hard():
    """Sixty cases of four arms, with names as long as test runners make them."""
    cases = []
    for number in range(60):
        name = f"pytest/benchmark_test_speed_py_{'test_html_readme_of_a_long_name_' * 3}[size={number:05d},precision=amp_bf16]"
        worse = Verdict.REGRESSED if number < 2 else Verdict.UNCHANGED
        pairs = tuple(
            one
            for arm in ("eager", *ARMS)
            for one in (pair(arm=arm, verdict=worse), memory(arm=arm))
        )
        trained = {
            "learning": parity(Parity.NUMERIC_PARITY, arm="eager"),
            "parity": tuple(parity(arm=arm) for arm in ARMS),
        }
        cases.append(
            case(
                name,
                worse,
                **trained,
                pairs=pairs,
                speedups=tuple(speedup(arm=arm) for arm in ARMS),
                arms=("eager", *ARMS),
            )
        )
    assert len(cases[0].id) >= 130
    return render_html(
        comparison(*cases, headline="2 of 60 cases regressed."), assets=page_assets("report.js")
    )


def with_outlier(first_step: int = STEPS - 2) -> str:
    """The paired run, one step of which took 5 s, and which diverges near its end."""
    made = paired()
    row = made.head.cases[0]
    timed = next(one for one in row.metrics if (one.name, one.arm) == ("step_time", "inductor"))
    launch = timed.launches[0]
    slow = replace(
        timed,
        launches=(replace(launch, values=(OUTLIER_S, *launch.values[1:])), *timed.launches[1:]),
    )
    head = replace(
        made.head,
        cases=(
            replace(row, metrics=tuple(slow if one is timed else one for one in row.metrics)),
            *made.head.cases[1:],
        ),
    )
    told = made.comparison.cases[0]
    late = replace(
        told,
        parity=tuple(
            replace(one, first_step=first_step) if one.first_step == DIVERGES else one
            for one in told.parity
        ),
    )
    value = replace(made.comparison, cases=(late, *made.comparison.cases[1:]))
    return page(value, head=head, base=made.base)


def test_many_long_names_and_arms_fit_every_window_in_both_themes(browser, tmp_path) -> None:
    with opened(browser, hard(), tmp_path) as seen:
        assert faults(seen.page) == []
        wide = "document.querySelector('#cases th').setAttribute('class', 'x'); document.querySelector('#cases th').style.minWidth = '3000px'"
        assert any("columns cut off: cases" in fault for fault in planted(seen.page, wide))
        assert any(
            "cut off: h1" in fault
            for fault in planted(
                seen.page,
                "(() => { const style = document.querySelector('h1').style; style.width = '40px'; style.whiteSpace = 'nowrap'; style.overflow = 'hidden'; })()",
            )
        )
        seen.page.evaluate("document.querySelector('.verdict').style.width = '3000px'")
        assert any(
            "the page is" in fault for fault in faults(seen.page, widths=(390,), schemes=("dark",))
        )


def alike():
    """Many series whose names differ only in the middle, or only at the end, and are longer than a label."""
    arms = [
        f"{place}_backend_of_the_fused_attention_kernels_{number}"
        for place in ("early", "later")
        for number in range(3)
    ]
    cases = [
        case(
            f"functions/decode_{size:06d}_of_a_model_with_a_long_name[dtype={dtype}]",
            Verdict.REGRESSED,
            pairs=pairs,
            arms=tuple(arms),
        )
        for size in (1, 10)
        for dtype in ("bf16", "fp16")
        for pairs in [
            tuple(
                pair(metric=metric, arm=arm, verdict=Verdict.REGRESSED)
                for arm in arms
                for metric in ("step_time", "compile_cold")
            )
        ]
    ]
    return render_html(
        comparison(*cases, headline="4 of 4 cases regressed."), assets=page_assets("report.js")
    )


def test_no_labels_are_cut_to_look_alike(browser, tmp_path) -> None:
    with opened(browser, alike(), tmp_path) as seen:
        assert (
            seen.page.evaluate(
                "document.querySelectorAll('[aria-label=\"y-axis tick label\"] text').length"
            )
            > 0
        )
        assert faults(seen.page) == []
        cut = """[...document.querySelectorAll('[aria-label="y-axis tick label"] text')]
          .forEach((one) => { [...one.childNodes].filter((node) => node.nodeName !== 'title').forEach((node) => { node.textContent = 'decode…'; }); })"""
        assert any("looks alike: decode…" in fault for fault in planted(seen.page, cut))


def spans(page, kind: str):
    """How much of a chart's frame all but the utmost samples take, across or along, and the titles of what is at its edge."""
    script = """(kind) => {
      const chart = document.querySelector(`#case-0 [data-chart=${kind}]`);
      const side = kind === 'spread' ? ['left', 'right'] : ['top', 'bottom'];
      const boxes = [...chart.querySelectorAll('g.samples > *')].map((one) => one.getBoundingClientRect());
      const frame = chart.getBoundingClientRect();
      const middles = boxes.map((box) => (box[side[0]] + box[side[1]]) / 2).sort((a, b) => a - b);
      const taken = middles[Math.floor(0.98 * (middles.length - 1))] - middles[Math.floor(0.02 * middles.length)];
      return {share: taken / (frame[side[1]] - frame[side[0]]), titles: [...chart.querySelectorAll('g.beyond title')].map((one) => one.textContent)};
    }"""
    return page.evaluate(script, kind)


def test_an_outlier_squashes_no_axis_and_late_labels_stay_in_their_chart(browser, tmp_path) -> None:
    with opened(browser, with_outlier(), tmp_path) as seen:
        draw_all(seen.page)
        for kind in ("spread", "order"):
            drawn = spans(seen.page, kind)
            assert drawn["share"] > 0.4
            assert len(drawn["titles"]) == 1
            assert (
                "5000 ms, beyond the axis" in drawn["titles"][0]
                or "5 s, beyond the axis" in drawn["titles"][0]
            )
        assert faults(seen.page, widths=(390, 1024, 1440), schemes=("light",)) == []
        moved = "document.querySelector('g.divergence text').setAttribute('text-anchor', 'start'); document.querySelector('g.divergence text').setAttribute('dx', '80')"
        assert any("leaves its chart: diverges" in fault for fault in planted(seen.page, moved))


def test_an_axis_over_all_values_is_seen_as_squashed(browser, tmp_path) -> None:
    """The outlier alone must not pass for the spread of the samples: with it on the axis, every other one is within a sliver."""
    assets = page_assets("report.js")
    spoilt = replace(
        assets,
        scripts=tuple(
            one.replace("const REACH = 6;", "const REACH = 1e9;") for one in assets.scripts
        ),
    )
    assert spoilt != assets
    text = with_outlier().replace(escape(policy(assets)), escape(policy(spoilt)))
    for before, after in zip(assets.scripts, spoilt.scripts, strict=True):
        text = text.replace(before, after)
    with opened(browser, text, tmp_path) as seen:
        draw_all(seen.page)
        assert seen.complaints == []
        for kind in ("spread", "order"):
            drawn = spans(seen.page, kind)
            assert (drawn["titles"], drawn["share"] < 0.4) == ([], True)
