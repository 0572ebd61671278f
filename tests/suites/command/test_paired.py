"""Base and head in turns: what a paired run says of commands that got slower, and of tools for which more is better."""

import json
from dataclasses import replace

import pytest
from command_builders import QUICK, judge, measure, verdicts

from ci_bench.records.results import SideName, Status

BASE, HEAD = SideName.BASE, SideName.HEAD
PAIRED = replace(QUICK, launches=6, blocks=3)
"""Six launches decide where nothing is known of the machine's noise."""


def two_trees(tmp_path, **files):
    """A tree for each side; each file has base's content and head's."""
    trees = {}
    for side, position in ((BASE, 0), (HEAD, 1)):
        trees[side] = tmp_path / side
        trees[side].mkdir()
        for name, contents in files.items():
            (trees[side] / name.replace("_", ".")).write_text(contents[position])
    return trees


def judged(tmp_path, *entries, options=PAIRED, **files):
    results = measure(tmp_path, *entries, trees=two_trees(tmp_path, **files), options=options)
    assert {row.status for result in results.values() for row in result.cases} == {Status.OK}
    return judge(results)


@pytest.mark.alone
@pytest.mark.slow
def test_a_command_that_got_five_per_cent_slower_is_seen_and_one_that_did_not_is_not(
    tmp_path,
) -> None:
    """Sleeps in place of work: a busy machine changes them little.

    Where it does, what it says it can tell is more than 5 %.
    """
    entries = (
        {"name": "slower", "command": ["sh", "slower.sh"]},
        {"name": "same", "command": ["sh", "same.sh"]},
    )
    slower, same = ("exec sleep 0.12", "exec sleep 0.126"), ("exec sleep 0.05", "exec sleep 0.05")
    comparison = judged(tmp_path, *entries, slower_sh=slower, same_sh=same)
    slower_case, same_case = comparison.cases
    (slower_time,) = [pair for pair in slower_case.pairs if pair.metric == "step_time"]
    (same_time,) = [pair for pair in same_case.pairs if pair.metric == "step_time"]
    assert slower_time.verdict == "regressed" or slower_time.resolvable > 0.05, slower_time.reason
    assert slower_time.speedup == pytest.approx(
        0.12 / 0.126, abs=max(0.02, slower_time.resolvable or 0)
    )
    assert same_time.verdict != "regressed", same_time.reason


def tool(**figures):
    """A tool's output: a number for each name, and which way it is better."""
    series = [
        {"name": name, "unit": unit, "better": better, "value": value}
        for name, (unit, better, value) in figures.items()
    ]
    return json.dumps({"kind": "measurements", "schema_version": 1, "series": series})


def test_each_direction_is_judged_the_right_way_round(tmp_path) -> None:
    """Ten per cent more and less, of what is better higher and of what is better lower."""
    base = tool(
        decode=("tokens/s", "higher", 100.0),
        encode=("tokens/s", "higher", 100.0),
        wait=("ms", "lower", 100.0),
        work=("ms", "lower", 100.0),
        score=("points", "higher", 100.0),
        breaks=("count", "lower", 10.0),
    )
    head = tool(
        decode=("tokens/s", "higher", 90.0),
        encode=("tokens/s", "higher", 110.0),
        wait=("ms", "lower", 90.0),
        work=("ms", "lower", 110.0),
        score=("points", "higher", 90.0),
        breaks=("count", "lower", 11.0),
    )
    entry = {"name": "kernels", "command": "cat out.json", "format": "auto", "output": "stdout"}
    comparison = judged(tmp_path, entry, out_json=(base, head))
    assert verdicts(comparison) == {
        "decode command": "regressed",
        "encode command": "improved",
        "wait command": "improved",
        "work command": "regressed",
        "score command": "regressed",
        "breaks command": "regressed",
    }
    assert comparison.judgement.exit_code == 1


def test_the_direction_of_a_custom_file_is_that_of_its_format_unless_a_rule_turns_it_round(
    tmp_path,
) -> None:
    files = [
        json.dumps([{"name": "throughput", "unit": "req/s", "value": value}])
        for value in (100.0, 80.0)
    ]
    common = {"command": "cat out.json", "output": "stdout"}
    entries = [
        {"name": "bigger", "format": "customBiggerIsBetter", **common},
        {"name": "smaller", "format": "customSmallerIsBetter", **common},
        {
            "name": "turned",
            "format": "customBiggerIsBetter",
            "metrics": [{"match": "throughput", "better": "lower"}],
            **common,
        },
    ]
    comparison = judged(tmp_path, *entries, out_json=files)
    assert [str(pair.verdict) for case in comparison.cases for pair in case.pairs] == [
        "regressed",
        "improved",
        "improved",
    ]


def test_a_unit_of_unknown_scale_that_changes_compares_nothing(tmp_path) -> None:
    """A tool that writes W instead of mW shows a thousandth of the number."""
    files = [
        json.dumps([{"name": "power", "unit": unit, "value": value}])
        for unit, value in (("mW", 300.0), ("W", 0.6))
    ]
    entry = {
        "name": "power",
        "command": "cat out.json",
        "output": "stdout",
        "format": "customSmallerIsBetter",
    }
    comparison = judged(tmp_path, entry, out_json=files)
    (pair,) = (pair for case in comparison.cases for pair in case.pairs)
    assert str(pair.verdict) == "incomparable"
    assert pair.reason == "base and head differ in unit (mW and W): convert one of them"
    assert comparison.judgement.exit_code != 0


def test_a_benchmark_that_vanishes_or_breaks_is_not_a_pass(tmp_path) -> None:
    both = tool(sort=("ms", "lower", 1.0), join=("ms", "lower", 1.0))
    fewer = tool(sort=("ms", "lower", 1.0))
    broken = json.loads(fewer) | {"failed": [{"name": "join", "reason": "out of range"}]}
    entries = [
        {"name": name, "command": f"cat {name}.json", "format": "auto", "output": "stdout"}
        for name in ("fewer", "broken")
    ]
    comparison = judged(
        tmp_path,
        *entries,
        options=QUICK,
        fewer_json=(both, fewer),
        broken_json=(both, json.dumps(broken)),
    )
    fewer_case, broken_case = comparison.cases
    assert {pair.metric: str(pair.verdict) for pair in fewer_case.pairs}["join"] == "removed"
    (check,) = [check for check in broken_case.checks if check.name == "benchmarks"]
    assert (str(check.outcome), check.detail) == ("fail", "failed: join (out of range)")
    assert comparison.judgement.exit_code == 1
    assert {"metric_removed", "check_failed"} <= {
        str(finding.rule) for finding in comparison.judgement.findings
    }


def test_a_command_that_takes_more_memory_is_seen(tmp_path) -> None:
    hold = "import time; held = bytearray({} << 20); time.sleep(0.01)"
    entry = {"name": "memory", "command": ["python3", "hold.py"]}
    options = replace(PAIRED, launches=2, blocks=1)
    comparison = judged(
        tmp_path, entry, options=options, hold_py=(hold.format(40), hold.format(60))
    )
    assert verdicts(comparison)["peak_rss command"] == "regressed"


def test_each_side_runs_what_lies_in_its_own_tree(tmp_path) -> None:
    trees = two_trees(
        tmp_path, out_json=(tool(a=("ms", "lower", 1.0)), tool(a=("ms", "lower", 2.0)))
    )
    entry = {"name": "own", "command": "cat out.json", "format": "auto", "output": "stdout"}
    results = measure(tmp_path, entry, trees=trees)
    assert {side: result.cases[0].metrics[0].launches[0].values for side, result in results.items()} == {
        BASE: (0.001,), HEAD: (0.002,),
    }  # fmt: skip
