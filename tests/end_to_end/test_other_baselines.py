"""Baselines of another moment: a file, a folder, an artifact as it was downloaded, or what was fetched before."""

import json
import zipfile
from pathlib import Path

import pytest
from end_to_end_builders import outcome

from ci_bench.errors import ExitCode
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Rule

pytestmark = pytest.mark.usefixtures("plugin")
QUICK = {"launches": 1, "blocks": 2}
WEAKER = "so only changes larger than the normal drift between runs count"


@pytest.fixture
def earlier(tmp_path, configure, ci_bench) -> Path:
    """The folder of an earlier run."""
    configure({"name": "one"}, **QUICK)
    assert ci_bench("run", "--output", tmp_path / "earlier")[0] == ExitCode.OK
    return tmp_path / "earlier"


def packed(folder: Path, *names: str) -> Path:
    with zipfile.ZipFile(folder / "artifact.zip", "w") as archive:
        for name in names:
            archive.write(folder / "results.json", name)
    return folder / "artifact.zip"


def compared_with(tmp_path, ci_bench, *arguments: object):
    code, out, said = ci_bench("gate", *arguments, "--output", tmp_path / "out")
    return (
        code,
        out,
        said,
        outcome(tmp_path / "out") if (tmp_path / "out" / "comparison.json").exists() else None,
    )


def test_a_downloaded_artifact_is_a_baseline_and_called_a_weaker_one(
    earlier, tmp_path, ci_bench
) -> None:
    _, out, said, comparison = compared_with(
        tmp_path, ci_bench, "--baseline", packed(earlier, "results.json")
    )
    assert (comparison.mode, comparison.absence) == (BaselineMode.ARTIFACT, None), said
    assert comparison.base.run.id == json.loads((earlier / "results.json").read_text())["run"]["id"]
    assert f"an earlier run's artifact, {WEAKER}" in " ".join(out.split())
    report = (tmp_path / "out" / "report.md").read_text()
    assert WEAKER in report


def test_a_file_is_called_a_weaker_one_too(earlier, tmp_path, ci_bench) -> None:
    _, _, _, comparison = compared_with(tmp_path, ci_bench, "--baseline", earlier / "results.json")
    assert comparison.mode is BaselineMode.FILE
    assert (
        f"The baseline is an earlier run, {WEAKER}" in (tmp_path / "out" / "report.md").read_text()
    )


@pytest.mark.parametrize("by_flag", [True, False])
def test_a_gate_without_a_baseline_on_purpose_passes(
    tmp_path, configure, ci_bench, by_flag
) -> None:
    path = configure({"name": "one"}, **QUICK, severities={"baseline_missing": "fail"})
    path.write_text(path.read_text() + ("" if by_flag else "baseline: none\n"))
    code, _, said, comparison = compared_with(
        tmp_path, ci_bench, *(["--baseline", "none"] if by_flag else [])
    )
    assert (code, comparison.mode) == (ExitCode.OK, BaselineMode.NONE), said
    assert Rule.BASELINE_MISSING not in {finding.rule for finding in comparison.judgement.findings}


def test_a_gate_that_names_no_baseline_fails(tmp_path, configure, ci_bench) -> None:
    configure({"name": "one"}, **QUICK, severities={"baseline_missing": "fail"})
    code, out, _, comparison = compared_with(tmp_path, ci_bench)
    assert (code, comparison.mode) == (ExitCode.POLICY_NOT_MET, BaselineMode.FILE)
    assert "none was named (--baseline PATH, paired or none)" in " ".join(out.split())


def test_what_was_fetched_before_is_the_baseline(earlier, tmp_path, ci_bench) -> None:
    (earlier / "baseline.json").write_text(
        json.dumps({"outcome": "found", "message": "of an ancestor"})
    )
    _, _, _, comparison = compared_with(
        tmp_path, ci_bench, "--baseline", "artifact", "--fetched", earlier
    )
    assert (comparison.mode, comparison.base is None) == (BaselineMode.ARTIFACT, False)


def test_the_reason_why_nothing_was_fetched_comes_through(tmp_path, configure, ci_bench) -> None:
    configure({"name": "one"}, **QUICK, severities={"baseline_missing": "fail"})
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    (fetched / "baseline.json").write_text(
        json.dumps({"outcome": "none", "reason": "expired", "message": "the artifact has expired"})
    )
    code, _, _, comparison = compared_with(
        tmp_path, ci_bench, "--baseline", "artifact", "--fetched", fetched
    )
    assert (code, comparison.mode, comparison.base) == (
        ExitCode.POLICY_NOT_MET,
        BaselineMode.ARTIFACT,
        None,
    )
    assert comparison.absence == "the artifact has expired"
    assert Rule.BASELINE_MISSING in {finding.rule for finding in comparison.judgement.findings}
    assert "the artifact has expired" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize("kind", ["artifact", "file"])
def test_another_machine_makes_it_incomparable(earlier, tmp_path, ci_bench, kind) -> None:
    document = json.loads((earlier / "results.json").read_text())
    document["environment"]["identity"] |= {"cpu": "another one"}
    (earlier / "results.json").write_text(json.dumps(document))
    named = packed(earlier, "results.json") if kind == "artifact" else earlier
    code, _, _, comparison = compared_with(tmp_path, ci_bench, "--baseline", named)
    assert code == ExitCode.INCOMPARABLE
    assert [mismatch.field for mismatch in comparison.mismatches] == ["cpu"]
    assert WEAKER not in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize(
    ("name", "said"),
    [("other.json", "the artifact has no results.json"), ("../results.json", "is not allowed")],
)
def test_an_artifact_without_results_or_made_to_harm_is_refused_before_measuring(
    earlier, tmp_path, ci_bench, name, said
) -> None:
    code, _, told, comparison = compared_with(
        tmp_path, ci_bench, "--baseline", packed(earlier, name)
    )
    assert (code, comparison) == (ExitCode.BAD_INPUT, None)
    assert said in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--baseline", "artifact"], "--baseline artifact needs --fetched DIR"),
        (
            ["--baseline", "artifact", "--fetched", ".", "--save-baseline"],
            "--save-baseline needs --baseline PATH",
        ),
        (["--baseline", "a.zip", "--save-baseline"], "--save-baseline needs --baseline PATH"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    tmp_path, configure, ci_bench, arguments, said
) -> None:
    configure({"name": "one"})
    code, _, told, _ = compared_with(tmp_path, ci_bench, *arguments)
    assert code == ExitCode.BAD_INPUT
    assert said in told
