"""Documents: what is written comes back, nothing is ever half written, and no input raises anything but its own error."""

import dataclasses
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from records_builders import (
    COMPARISON,
    CRASHED,
    MEASURED,
    NO_BASELINE,
    PARITY,
    RESULTS,
    STEP_TIME,
    TRACES,
)

from ci_bench.command_line.shared_flags import DEFAULT_OUTPUT
from ci_bench.errors import BadDocument, CannotWrite
from ci_bench.records.documents import (
    OUTPUT,
    Kind,
    document_kind,
    read_comparison,
    read_results,
    to_json,
    validate,
    write,
    write_text,
)
from ci_bench.records.faults import MAX_LINE, Fault
from ci_bench.records.results import Environment, Launch, NonFinite, Results, Source, Status, Trace

slow_disk = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# Round trip

seconds = st.floats(min_value=1e-9, max_value=1e9)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
facts = st.dictionaries(
    st.from_regex(r"[a-z0-9_.]{1,20}", fullmatch=True),
    st.none() | st.booleans() | st.integers() | seconds | words,
)
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | seconds | words,
    lambda inner: st.lists(inner) | st.dictionaries(words, inner),
    max_leaves=5,
)


@st.composite
def launches(draw: st.DrawFn) -> tuple[Launch, ...]:
    made = []
    for number in range(draw(st.integers(1, 3))):
        taken = tuple(draw(st.lists(seconds, max_size=5)))
        blocks = draw(st.just(()) | st.just(tuple(range(len(taken)))))
        warmup = tuple(draw(st.lists(seconds, max_size=2)))
        made.append(
            Launch(
                launch=number,
                values=taken,
                warmup=warmup,
                blocks=blocks,
                steady=draw(st.none() | st.booleans()),
            )
        )
    return tuple(made)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    losses = draw(st.lists(st.none() | st.floats(-1e9, 1e9), max_size=5))
    holes = tuple(
        NonFinite(signal="loss", step=step, value=draw(st.sampled_from(["nan", "inf", "-inf"])))
        for step, loss in enumerate(losses)
        if loss is None
    )
    return dataclasses.replace(
        TRACES[0], loss=tuple(losses), grad_norm=(1.5,) * len(losses), non_finite=holes
    )


@st.composite
def documents(draw: st.DrawFn) -> Results:
    rows = []
    for number in range(draw(st.integers(0, 3))):
        params = draw(
            st.dictionaries(st.from_regex(r"[a-z_]{1,20}", fullmatch=True), values, max_size=3)
        )
        case = dataclasses.replace(MEASURED.case, id=f"training_loss/case{number}", params=params)
        metric = dataclasses.replace(STEP_TIME, launches=draw(launches()))
        parity = dataclasses.replace(PARITY, traces=tuple(draw(st.lists(traces(), max_size=2))))
        duration = draw(st.none() | st.floats(0.001, 1e6))
        status = draw(st.sampled_from(Status))
        rows.append(
            dataclasses.replace(
                MEASURED,
                case=case,
                status=status,
                duration_s=duration,
                metrics=(metric,),
                parity=parity,
            )
        )
    environment = Environment(identity=draw(facts), condition=draw(facts))
    return dataclasses.replace(RESULTS, environment=environment, source=Source(), cases=tuple(rows))


@slow_disk
@given(document=documents())
def test_results_come_back_as_they_were(document: Results, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write(document, path)
    assert read_results(path) == document


@pytest.mark.parametrize("document", [COMPARISON, NO_BASELINE], ids=["whole", "no_baseline"])
def test_a_comparison_comes_back_as_it_was(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "comparison.json"
    write(document, path)
    assert read_comparison(path) == document
    assert validate(to_json(document), Kind.COMPARISON) == ()


@pytest.mark.parametrize(
    ("epsilon", "said", "own"),
    [(0, None, True), (1.2e-07, None, False), (0, False, False), (0, True, True)],
    ids=[
        "earlier, of a program",
        "earlier, of perturbed weights",
        "of a suite that perturbs by nothing",
        "of a program",
    ],
)
def test_evidence_of_earlier_versions_is_of_a_program_where_its_epsilon_is_0(
    epsilon, said, own, tmp_path: Path
) -> None:
    raw = to_json(RESULTS)
    (row,) = [row for row in raw["cases"] if row["parity"]]
    row["parity"] |= {"epsilon": epsilon, "own_program": said}
    if said is None:
        del row["parity"]["own_program"]
    (tmp_path / "results.json").write_text(json.dumps(raw))
    parity = [row.parity for row in read_results(tmp_path / "results.json").cases if row.parity]
    assert [(one.epsilon, one.own_program) for one in parity] == [(epsilon, own)]


def test_samples_stay_on_one_line(tmp_path: Path) -> None:
    write(RESULTS, tmp_path / "results.json")
    assert '       "values": [0.0101, 0.0102, 0.01],\n' in (tmp_path / "results.json").read_text()


def test_half_a_surrogate_pair_of_a_log_does_not_lose_the_document(tmp_path: Path) -> None:
    assert CRASHED.failure is not None
    failure = dataclasses.replace(CRASHED.failure, log_tail="a\udcffb")
    write(
        dataclasses.replace(RESULTS, cases=(dataclasses.replace(CRASHED, failure=failure),)),
        tmp_path / "results.json",
    )
    read = read_results(tmp_path / "results.json").cases[0].failure
    assert read is not None
    assert read.log_tail == "a?b"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_never_written(value: float, tmp_path: Path) -> None:
    broken = dataclasses.replace(RESULTS, cases=(dataclasses.replace(MEASURED, duration_s=value),))
    with pytest.raises(
        BadDocument, match=r"\$\.cases\[0\]\.duration_s: -?(nan|inf) is not a finite number"
    ):
        write(broken, tmp_path / "results.json")
    assert list(tmp_path.iterdir()) == []


# Writing all or nothing


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "killed"]
)
def test_a_write_that_is_cut_off_leaves_the_old_file_whole(
    step: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.json"
    write(RESULTS, path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(CannotWrite if isinstance(error, OSError) else KeyboardInterrupt):
        write(dataclasses.replace(RESULTS, cases=()), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_can_be_read_by_others_as_the_umask_says(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write(RESULTS, tmp_path / "results.json")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "results.json").stat().st_mode) == 0o644


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        CannotWrite,
        match=r"file/results\.json: cannot be written: .*; choose another output folder",
    ):
        write(RESULTS, tmp_path / "file" / "results.json")


# Reading what others wrote

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
anything: Any = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4)
    ),
    max_leaves=20,
)


def refuse_or_read(path: Path) -> None:
    for reader in (read_results, read_comparison, document_kind):
        try:
            reader(path)
        except BadDocument as error:
            assert all(  # noqa: PT017 - it may be read as well
                len(line) < MAX_LINE + len(str(path)) + 60 for line in str(error).splitlines()
            )


@slow_disk
@given(
    content=st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
)
def test_no_bytes_raise_anything_but_bad_document(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    refuse_or_read(tmp_path / "x.json")


@slow_disk
@given(value=anything, kind=st.sampled_from(["results", "comparison"]))
def test_no_json_raises_anything_but_bad_document(value: Any, kind: str, tmp_path: Path) -> None:
    wrapped = {"kind": kind, "schema_version": 1, "cases": [value], "run": value}
    for raw in (value, wrapped):
        (tmp_path / "x.json").write_text(json.dumps(raw))
        refuse_or_read(tmp_path / "x.json")


def places(raw: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value of a document."""
    items = (
        raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    )
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


@slow_disk
@given(data=st.data(), value=anything)
def test_a_document_with_anything_anywhere_raises_nothing_but_bad_document(
    data: st.DataObject, value: Any, tmp_path: Path
) -> None:
    whole = to_json(data.draw(st.sampled_from([RESULTS]) | st.sampled_from([COMPARISON])))
    place = data.draw(st.sampled_from([path for path in places(whole) if path]))
    spot: Any = whole
    for part in place[:-1]:
        spot = spot[part]
    spot[place[-1]] = value
    (tmp_path / "x.json").write_text(json.dumps(whole))
    refuse_or_read(tmp_path / "x.json")


def test_hostile_text_is_repeated_short_and_on_one_line(tmp_path: Path) -> None:
    evil = "::error::\n\u202e<script>" * 1000
    raw = {**to_json(RESULTS), evil: 1, "tool_version": evil}
    raw["cases"][0]["status"] = evil
    raw["environment"]["identity"][evil] = evil
    (tmp_path / "x.json").write_text(json.dumps(raw))
    with pytest.raises(BadDocument) as caught:
        read_results(tmp_path / "x.json")
    _, *lines = str(caught.value).splitlines()
    assert lines
    assert all(
        line.startswith("  $") and len(line) <= MAX_LINE + 2 and "\u202e" not in line
        for line in lines
    )


def test_every_fault_is_listed_in_the_order_of_the_document(tmp_path: Path) -> None:
    raw = to_json(dataclasses.replace(RESULTS, cases=(CRASHED,) * 70))
    for row in raw["cases"]:
        row["status"] = "okay"
    (tmp_path / "x.json").write_text(json.dumps(raw))
    with pytest.raises(BadDocument) as caught:
        read_results(tmp_path / "x.json")
    _, *lines = str(caught.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[:50]] == [
        f"$.cases[{index}].status" for index in range(50)
    ]
    assert lines[50:] == ["  and 20 more"]


def test_a_file_beyond_the_cap_is_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 2000)
    with pytest.raises(BadDocument, match="larger than 1,000 bytes"):
        read_results(tmp_path / "x.json", max_bytes=1000)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        BadDocument, match=r"none\.json: cannot be read: No such file or directory; check the path"
    ):
        read_results(tmp_path / "none.json")


def test_a_value_nested_deep_inside_a_document_is_refused() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert validate({**to_json(RESULTS), "source": deep}, Kind.RESULTS) == (
        Fault("$", "nested too deep"),
    )


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("ci-bench.yml", "", Kind.CONFIG),
        ("ci-bench.yaml", "", Kind.CONFIG),
        ("ci-bench-accepted.yml", "", Kind.ACCEPTED),
        ("x.json", '{"kind": "results"}', Kind.RESULTS),
        ("x.json", '{"kind": "comparison"}', Kind.COMPARISON),
    ],
)
def test_the_kind_of_a_file_is_told(name: str, content: str, kind: Kind, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert document_kind(tmp_path / name) is kind


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"kind": "config"}', '{"kind": ["results"]}', '{"kind": null}']
)
def test_a_file_of_no_kind_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(
        BadDocument,
        match=r"\$\.kind is .*, not 'results', 'comparison', 'calibration' or 'history'",
    ):
        document_kind(tmp_path / "x.json")


@pytest.mark.parametrize("module", ["ci_bench.records.documents", "ci_bench.configuration.config"])
def test_importing_loads_no_library(module: str) -> None:
    code = f"import sys, {module}; print([name for name in ('jsonschema', 'msgspec', 'yaml') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_git_ignores_the_default_output_folder(tmp_path):
    folder = tmp_path / OUTPUT
    write_text("1", folder / "base" / "results.json")
    assert (folder / ".gitignore").read_text() == "*\n"
    (folder / ".gitignore").write_text("")
    write_text("2", folder / "report.md")
    assert (folder / ".gitignore").read_text() == ""
    write_text("3", tmp_path / "kept" / "results.json")
    assert not (tmp_path / "kept" / ".gitignore").exists()
    assert DEFAULT_OUTPUT.name == OUTPUT
