"""`compare` takes what other tools wrote: a slower benchmark is said, its neighbours are not, and nothing is claimed to be known."""

import json
import re
from pathlib import Path

import pytest
import tool_files
from tool_files import NEIGHBOURS, SLOWED

from ci_bench.formats.catalogue import READABLE
from ci_bench.records import documents
from ci_bench.records.comparison import Verdict

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples" / "valid"
NAMED = {"customSmallerIsBetter", "customBiggerIsBetter"}
BY_PROCESS = {"pyperf", "hyperfine"}
"""Formats in which one file tells several processes apart."""


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(folder: Path, form: str, *, factor: float, seeds: range) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{folder.name}{seed}.json" for seed in seeds]
    for path, seed in zip(paths, seeds, strict=True):
        path.write_text(tool_files.written(form, factor, seed))
    return paths


def flags(form: str) -> list[str]:
    return ["--from", form] if form in NAMED else []


def verdicts(folder: Path) -> dict[str, Verdict]:
    """By whether it is the slowed benchmark."""
    found = documents.read_comparison(folder / "comparison.json").cases
    slow = [case.verdict for case in found if "test_html" in case.called]
    others = {case.verdict for case in found if "test_html" not in case.called}
    assert (len(slow), len(found)) == (1, 3)
    assert len(others) == 1, others
    return {"slow": slow[0], "others": next(iter(others))}


def test_every_format_that_is_read_is_tried() -> None:
    assert {*tool_files.FORMS} == {*READABLE}


@pytest.mark.parametrize("form", tool_files.FORMS)
def test_of_five_files_a_side_the_slower_benchmark_regressed_and_its_neighbours_did_not(
    ci_bench, tmp_path, form
) -> None:
    base = write(tmp_path / "base", form, factor=1.0, seeds=range(5))
    head = write(tmp_path / "head", form, factor=1.5, seeds=range(5, 10))
    code, out, _ = ci_bench(
        "compare", "--base", *base, "--head", *head, *flags(form), "-o", tmp_path / "out"
    )
    assert code == 1
    assert "test_html[readme]" in out
    assert verdicts(tmp_path / "out") == {"slow": Verdict.REGRESSED, "others": Verdict.UNCHANGED}


@pytest.mark.parametrize("form", tool_files.FORMS)
def test_of_one_file_a_side_it_is_not_decided_and_the_limits_are_said(
    ci_bench, tmp_path, form
) -> None:
    (base,) = write(tmp_path / "base", form, factor=1.0, seeds=range(1))
    (head,) = write(tmp_path / "head", form, factor=1.55, seeds=range(1, 2))
    code, out, err = ci_bench("compare", base, head, *flags(form), "-o", tmp_path / "out")
    assert code == (form in BY_PROCESS)
    if form in BY_PROCESS:
        assert verdicts(tmp_path / "out") == {
            "slow": Verdict.REGRESSED,
            "others": Verdict.UNCHANGED,
        }
        assert "one launch" not in err
    else:
        assert verdicts(tmp_path / "out") == {
            "slow": Verdict.INCONCLUSIVE,
            "others": Verdict.INCONCLUSIVE,
        }
        assert "Not decided: " in out
        assert " may be " in " ".join(out.split())
        assert "base and head have one launch" in err
        assert "measure each side 5 times" in err


@pytest.mark.parametrize("form", sorted({*tool_files.FORMS} - BY_PROCESS))
def test_one_file_a_side_of_the_same_code_is_not_decided(ci_bench, tmp_path, form) -> None:
    (base,) = write(tmp_path / "base", form, factor=1.0, seeds=range(1))
    (head,) = write(tmp_path / "head", form, factor=1.0, seeds=range(1, 2))
    code, out, _ = ci_bench("compare", base, head, *flags(form))
    said = " ".join(out.split())
    assert code == 0
    assert "Not decided: 3 of 3 metrics (" in said
    assert "nothing regressed" not in said


def test_four_times_slower_is_suspected_of_one_file(ci_bench, tmp_path) -> None:
    (base,) = write(tmp_path / "base", "pytest-codspeed", factor=1.0, seeds=range(1))
    (head,) = write(tmp_path / "head", "pytest-codspeed", factor=4.0, seeds=range(1, 2))
    assert ci_bench("compare", base, head, "-o", tmp_path / "out")[0] == 1
    assert verdicts(tmp_path / "out")["slow"] is Verdict.SUSPECTED


def test_the_policy_says_what_a_possible_change_does(ci_bench, tmp_path) -> None:
    (base,) = write(tmp_path / "base", "pytest-benchmark", factor=1.0, seeds=range(1))
    (head,) = write(tmp_path / "head", "pytest-benchmark", factor=1.55, seeds=range(1, 2))
    (tmp_path / "ci-bench.yml").write_text(
        "schema_version: 1\nsuites: {training_loss: [{}]}\npolicy: {severities: {possible: fail}}\n"
    )
    assert ci_bench("compare", base, head)[0] == 1


def test_a_folder_is_a_side_and_each_of_its_files_a_launch(ci_bench, tmp_path) -> None:
    for side, factor in (("base", 1.0), ("head", 1.5)):
        write(
            tmp_path / side,
            "pytest-benchmark",
            factor=factor,
            seeds=range(5) if side == "base" else range(5, 10),
        )
    code, _, err = ci_bench("compare", tmp_path / "base", tmp_path / "head", "-o", tmp_path / "out")
    assert code == 1
    assert "3 benchmarks of pytest-benchmark 5.3.1, 5 launches" in err
    (slow,) = [
        case
        for case in documents.read_comparison(tmp_path / "out" / "comparison.json").cases
        if case.title == SLOWED
    ]
    assert slow.pairs[0].head is not None
    assert (slow.pairs[0].head.launches, slow.pairs[0].head.samples) == (5, 100)


def test_files_of_tools_are_valid_if_they_are_read(ci_bench, tmp_path) -> None:
    good = measured(tmp_path, "good", ("sum", "ms", 1.0))
    odd = tmp_path / "odd.json"
    odd.write_text(good.read_text().replace('"unit"', '"units"'))
    assert ci_bench("validate", good)[:2] == (0, f"{good}: a valid file of measurements\n")
    code, _, err = ci_bench("validate", odd)
    assert (code, err) == (
        2,
        f"ci-bench: {odd}: $.series[0].units: unknown field; did you mean 'unit'?\n",
    )
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    assert (
        "it is neither JSON nor a text that is read; it begins with 'hello'"
        in ci_bench("validate", text)[2]
    )


def test_a_file_of_another_format_is_named(ci_bench, tmp_path) -> None:
    (file,) = write(tmp_path / "base", "pyperf", factor=1.0, seeds=range(1))
    _, _, err = ci_bench("compare", "--from", "hyperfine", file, file)
    assert "the field 'results' is missing; it looks like a file of pyperf" in err


def test_the_folders_of_a_folder_without_files_are_named(ci_bench, tmp_path) -> None:
    (tmp_path / "stored" / "Linux-CPython-3.12").mkdir(parents=True)
    code, _, err = ci_bench("compare", tmp_path / "stored", tmp_path / "stored")
    assert code == 2
    assert "no other file; name one of its folders: Linux-CPython-3.12" in err


def test_a_file_is_stored_as_results_and_compared_as_such(ci_bench, tmp_path) -> None:
    for side, factor in (("base", 1.0), ("head", 1.5)):
        write(
            tmp_path / side,
            "pytest-codspeed",
            factor=factor,
            seeds=range(5) if side == "base" else range(5, 10),
        )
        stored = tmp_path / f"stored-{side}" / "results.json"
        assert ci_bench("convert", tmp_path / side, "--to", "results", "-o", stored)[0] == 0
        assert ci_bench("validate", stored)[0] == 0
    for base in ("stored-base", "base"):
        assert (
            ci_bench("compare", tmp_path / base, tmp_path / "stored-head", "-o", tmp_path / "out")[
                0
            ]
            == 1
        )
        assert verdicts(tmp_path / "out") == {
            "slow": Verdict.REGRESSED,
            "others": Verdict.UNCHANGED,
        }
    _, out, _ = ci_bench("convert", tmp_path / "stored-base", "--to", "measurements")
    assert [
        (one["name"], one.get("measure"), len(one["runs"])) for one in json.loads(out)["series"]
    ] == [(name, None, 5) for name in (SLOWED, *NEIGHBOURS)]


def test_the_same_file_twice_is_not_taken_for_a_paired_run(ci_bench, tmp_path) -> None:
    (base,) = write(tmp_path / "base", "pytest-benchmark", factor=1.0, seeds=range(1))
    code, out, _ = ci_bench("compare", base, base)
    assert code == 0
    assert "Not decided: " in out


def test_a_benchmark_that_only_one_side_has_is_named_and_a_missing_one_fails(
    ci_bench, tmp_path
) -> None:
    (base,) = write(tmp_path / "base", "hyperfine", factor=1.0, seeds=range(1))
    raw = json.loads(base.read_text())
    raw["results"][1]["command"] = "another"
    head = tmp_path / "head.json"
    head.write_text(json.dumps(raw))
    code, _, err = ci_bench("compare", base, head)
    assert code == 1
    assert f"only in base: {NEIGHBOURS[0]}" in err
    assert "only in head: another" in err
    assert ci_bench("compare", base, base)[0] == 0


def test_two_formats_are_not_compared_and_both_are_named(ci_bench, tmp_path) -> None:
    (base,) = write(tmp_path / "base", "hyperfine", factor=1.0, seeds=range(1))
    (head,) = write(tmp_path / "head", "pyperf", factor=1.0, seeds=range(1))
    code, out, _ = ci_bench("compare", base, head)
    assert code == 4
    assert "imported_from" in out
    code, _, err = ci_bench("compare", "--base", base, head, "--head", base)
    assert code == 2
    assert "pyperf" in err
    assert "hyperfine" in err


def test_two_machines_are_not_compared(ci_bench, tmp_path) -> None:
    (base,) = write(tmp_path / "base", "pytest-benchmark", factor=1.0, seeds=range(1))
    head = tmp_path / "head.json"
    head.write_text(base.read_text().replace("a processor", "another processor"))
    code, out, _ = ci_bench("compare", base, head)
    assert code == 4
    assert "differ in cpu" in " ".join(out.split())
    code, out, _ = ci_bench("compare", "--across", "cpu", base, head, "-o", tmp_path / "out")
    assert code == 0
    assert "; compared across cpu (a processor on base, another processor on head)" in " ".join(
        out.split()
    )
    found = documents.read_comparison(tmp_path / "out" / "comparison.json")
    assert (found.mismatches, [one.field for one in found.across]) == ((), ["cpu"])
    code, _, err = ci_bench("compare", "--across", "cpus", base, head)
    assert code == 2
    assert "--across: neither side records 'cpus'; did you mean 'cpu'?" in err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["one.json"], "--base FILE"),
        (["one.json", "one.json", "one.json"], "--base FILE"),
        (["one.json", "one.json", "--base", "one.json"], "--base FILE"),
        (["--base", "one.json"], "--base FILE"),
        (["one.json", "missing.json"], "missing.json"),
        (["one.json", "empty"], "empty"),
        (["custom.json", "custom.json"], "customSmallerIsBetter"),
        (["one.json", "one.json", "--from", "pyperff"], "pyperf"),
        (
            ["--base", str(EXAMPLES / "results.json"), "one.json", "--head", "one.json"],
            "pass only this one",
        ),
    ],
)
def test_what_cannot_be_read_as_two_sides_is_said(ci_bench, tmp_path, arguments, word) -> None:
    (tmp_path / "one.json").write_text(tool_files.written("hyperfine", 1.0, 0))
    (tmp_path / "custom.json").write_text(tool_files.written("customSmallerIsBetter", 1.0, 0))
    (tmp_path / "empty").mkdir()
    code, out, err = ci_bench("compare", *arguments)
    assert (code, out) == (2, "")
    assert word in err


def test_names_are_those_that_the_tool_gave(ci_bench, tmp_path) -> None:
    (base,) = write(tmp_path / "base", "pytest-codspeed", factor=1.0, seeds=range(1))
    (head,) = write(tmp_path / "head", "pytest-codspeed", factor=4.0, seeds=range(1, 2))
    _, comment, _ = ci_bench("compare", base, head, "--format", "comment")
    assert f"`{SLOWED}`" in comment
    assert "digest=" not in comment
    _, page, _ = ci_bench("compare", base, head, "-o", tmp_path / "out")
    assert "digest=" not in page
    assert (
        f"<h3><span class=id>{SLOWED}</span></h3>" in (tmp_path / "out" / "report.html").read_text()
    )


def measured(tmp_path, name, *series, **more):
    """A file of `measurements`: pairs of a name and a value, in a unit, lower is better but for rates."""
    rows = [
        {
            "name": one,
            "unit": unit,
            "better": "higher" if unit.endswith("/s") else "lower",
            "value": value,
        }
        for one, unit, value in series
    ]
    path = tmp_path / f"{name}.json"
    path.write_text(
        json.dumps({"kind": "measurements", "schema_version": 1, "series": rows, **more})
    )
    return path


def verdict_of(tmp_path, called):
    found = documents.read_comparison(tmp_path / "out" / "comparison.json").cases
    (case,) = [case for case in found if case.title == called]
    return case.verdict


@pytest.mark.parametrize(
    ("unit", "values", "verdict"),
    [
        ("bytes", (0, 48e6), Verdict.REGRESSED),
        ("bytes", (48e6, 0), Verdict.IMPROVED),
        ("bytes", (0, 0), Verdict.UNCHANGED),
        ("ms", (0, 40), Verdict.REGRESSED),
        ("ms", (40, 0), Verdict.IMPROVED),
        ("ms", (0, 0), Verdict.INCONCLUSIVE),
        ("ms", (0, 0.3), Verdict.INCONCLUSIVE),
        ("tokens/s", (0, 12), Verdict.IMPROVED),
        ("tokens/s", (12, 0), Verdict.REGRESSED),
        ("count", (0, 7), Verdict.REGRESSED),
        ("count", (0, 0), Verdict.UNCHANGED),
    ],
)
def test_what_appears_or_goes_is_a_change(ci_bench, tmp_path, unit, values, verdict) -> None:
    base, head = values
    sides = [
        measured(tmp_path, name, ("odd", unit, value), ("sum", "ms", 5.0))
        for name, value in (("b", base), ("h", head))
    ]
    code, out, _ = ci_bench("compare", *sides, "-o", tmp_path / "out")
    assert verdict_of(tmp_path, "odd") is verdict
    assert code == (verdict is Verdict.REGRESSED)
    assert "measure again" not in out
    assert (tmp_path / "out" / "report.html").is_file()


def test_zeros_next_to_other_times_are_named_with_what_to_do(ci_bench, tmp_path) -> None:
    rows = [{"name": "true", "unit": "s", "better": "lower", "runs": [[0.0002], [0.0], [0.0003]]}]
    for name in "bh":
        (tmp_path / f"{name}.json").write_text(
            json.dumps({"kind": "measurements", "schema_version": 1, "series": rows})
        )
    code, out, _ = ci_bench("compare", tmp_path / "b.json", tmp_path / "h.json")
    said = " ".join(out.split())
    assert code == 0
    assert (
        "base has values of 0 next to others, which have no ratio: let each run do more work"
        in said
    )
    assert "Measure each side five times, in turns, and compare all files" in said
    assert "baseline: paired, by which" not in said


@pytest.mark.parametrize(
    ("values", "fails"), [((48, 4800), True), ((40_000, 800_000), True), ((64, 64), False)]
)
@pytest.mark.parametrize("unit", ["B/op", "KB"])
def test_bytes_that_repeat_are_judged_by_their_ratio(
    ci_bench, tmp_path, values, fails, unit
) -> None:
    base, head = values
    sides = [
        measured(tmp_path, name, ("alloc", unit, value))
        for name, value in (("b", base), ("h", head))
    ]
    code, out, _ = ci_bench("compare", *sides, "-o", tmp_path / "out")
    assert code == fails
    assert "within 1 MiB" not in out


def test_a_time_that_vanishes_is_in_doubt(ci_bench, tmp_path) -> None:
    sides = [
        measured(tmp_path, name, ("fit", "ms", value)) for name, value in (("b", 40), ("h", 0))
    ]
    code, out, _ = ci_bench("compare", *sides)
    assert (code, out.split()[:3]) == (0, ["?", "Not", "decided:"])
    assert "40 ms to 0 ms: was it run?" in " ".join(out.split())


@pytest.mark.parametrize(
    ("values", "fails"), [((3, 300), True), ((5000, 5600), False), ((5000, 9000), True)]
)
def test_small_peaks_have_no_floor(ci_bench, tmp_path, values, fails) -> None:
    sides = []
    for name, value in zip("bh", values, strict=True):
        (tmp_path / name).mkdir()
        row = {
            "name": "add",
            "measure": "peak memory",
            "unit": "KB",
            "better": "lower",
            "value": value,
        }
        for number in range(5):
            document = {"kind": "measurements", "schema_version": 1, "series": [row]}
            (tmp_path / name / f"{number}.json").write_text(json.dumps(document))
        sides.append(tmp_path / name)
    assert ci_bench("compare", *sides)[0] == fails


def test_a_number_below_zero_is_named_once(ci_bench, tmp_path) -> None:
    odd = measured(
        tmp_path,
        "odd",
        ("a very long name of a benchmark, which is longer than a line of it can be", "ms", -1),
    )
    code, _, err = ci_bench("compare", "--base", odd, odd, "--head", odd, odd)
    assert code == 2
    assert err.count("-1 ms, which cannot be compared") == 1


def test_a_number_below_zero_is_named_and_the_others_are_compared(ci_bench, tmp_path) -> None:
    sides = [
        measured(tmp_path, name, ("used", "J", -150.9), ("copies", "count", 3))
        for name in ("b", "h")
    ]
    code, _, err = ci_bench("compare", *sides, "-o", tmp_path / "out")
    assert code == 0
    assert err.count("not compared: ") == 2
    assert "'used' is -150.9 J, which cannot be compared" in err
    assert verdict_of(tmp_path, "copies") is Verdict.UNCHANGED


@pytest.mark.parametrize(
    ("head", "verdict"),
    [(-150.9, Verdict.REGRESSED), (-123.4, Verdict.UNCHANGED), (-99.0, Verdict.IMPROVED)],
)
def test_a_signed_score_is_compared(ci_bench, tmp_path, head, verdict) -> None:
    sides = [
        measured(tmp_path, name, ("score", "nats", value))
        for name, value in (("b", -123.4), ("h", head))
    ]
    text = [Path(side).read_text().replace("lower", "higher") for side in sides]
    for side, new in zip(sides, text, strict=True):
        Path(side).write_text(new)
    code, _, _ = ci_bench("compare", *sides, "-o", tmp_path / "out")
    assert (code, verdict_of(tmp_path, "score")) == (int(verdict is Verdict.REGRESSED), verdict)


def test_what_failed_on_both_sides_fails_nothing_and_what_fails_on_head_alone_does(
    ci_bench, tmp_path
) -> None:
    broken = {"failed": [{"name": "conv", "reason": "no such device"}]}
    works = ("sum", "count", 5)
    known = measured(tmp_path, "known", works, **broken)
    code, out, _ = ci_bench("compare", known, measured(tmp_path, "still", works, **broken))
    assert code == 0
    assert (
        "conv: baseline failed: it failed on both sides: failed in stage benchmark: no such device"
        in " ".join(out.split())
    )
    whole = measured(tmp_path, "whole", works, ("conv", "count", 1))
    assert ci_bench("compare", whole, known)[0] == 1
    assert ci_bench("compare", known, whole)[0] == 0
    nothing = measured(tmp_path, "nothing", **broken)
    assert ci_bench("compare", nothing, nothing)[0] == 3, (
        "where nothing was compared, nothing passed"
    )


def test_a_benchmark_whose_own_code_changed_is_not_compared(ci_bench, tmp_path) -> None:
    (base,) = write(tmp_path / "base", "asv", factor=1.0, seeds=range(1))
    raw = json.loads(base.read_text())
    raw["result_columns"].append("version")
    sides = {"base": "v1", "same": "v1", "edited": "v2"}
    for name, version in sides.items():
        for row in raw["results"].values():
            row[3:] = ["v0"]
        raw["results"]["benchmarks.time_test_html[readme]"][3] = version
        (tmp_path / f"{name}.json").write_text(json.dumps(raw))
    code, out, _ = ci_bench(
        "compare", tmp_path / "base.json", tmp_path / "edited.json", "-o", tmp_path / "out"
    )
    assert code == 0
    assert "own code changed" in " ".join(out.split())
    assert verdicts(tmp_path / "out") == {
        "slow": Verdict.INCOMPARABLE,
        "others": Verdict.INCONCLUSIVE,
    }
    ci_bench("compare", tmp_path / "base.json", tmp_path / "same.json", "-o", tmp_path / "out")
    assert verdicts(tmp_path / "out") == {
        "slow": Verdict.INCONCLUSIVE,
        "others": Verdict.INCONCLUSIVE,
    }
    for name in ("base", "edited"):
        raw = json.loads((tmp_path / f"{name}.json").read_text())
        raw["results"] = {key: row for key, row in raw["results"].items() if "test_html" in key}
        (tmp_path / f"{name}.json").write_text(json.dumps(raw))
    _, out, _ = ci_bench("compare", tmp_path / "base.json", tmp_path / "edited.json")
    assert "Measure base again with head's benchmarks, then compare." in " ".join(out.split())


def test_a_training_log_is_named(ci_bench, tmp_path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"step {step} loss {4 - step / 10}\n" for step in range(12)))
    code, _, said = ci_bench("compare", log, log)
    assert code == 2
    assert "a training log; compare it with the option `losses`" in said


def test_a_changed_unit_of_no_known_scale_is_named(ci_bench, tmp_path) -> None:
    sides = [
        measured(tmp_path, name, ("power", unit, 300), ("sort", "ms", 1))
        for name, unit in (("base", "mW"), ("head", "W"))
    ]
    code, _, said = ci_bench("compare", *sides)
    assert code == 2
    assert re.search(r"'power' has the unit 'W' in .*, and 'mW' in .*; convert one of them", said)


def test_show_names_the_tool_of_a_file(ci_bench, tmp_path) -> None:
    file = tmp_path / "summary.json"
    file.write_text('{"metrics": {}, "root_group": {}}')
    code, _, said = ci_bench("show", file)
    assert code == 2
    assert "nor a training log: it looks like a load test's results, which are not read" in said
