"""Functions that return plain values: equal ones pass, and a message shows where others differ."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from functions_builders import agrees, evidence

from ci_bench.judge.parity.verdict import outputs_of
from ci_bench.processes.messages import Keeping, OutputFiles
from ci_bench.records.outputs import Sameness
from ci_bench.records.results import Case, CaseResult, Outcome, Status
from ci_bench.worker.comparing import compare
from ci_bench.worker.keeping import FILE, Keeper

pytestmark = pytest.mark.engine

HEAD = "import dataclasses, datetime, decimal, enum, numpy, pathlib, typing\n"
PAIRS = {
    "text": (
        '\'{"name": "Ada", "born": 1815}\'',
        '\'{"name": "Ada", "born": 1816}\'',
        "'born\": 1816}' instead of 'born\": 1815}'",
    ),
    "longer text": ("'ab'", "'abc'", "'abc' instead of 'ab' at character 3"),
    "bytes": ("b'ab'", "b'ac'", "b'ac' instead of b'ab' at byte 2"),
    "bytes, no longer text": ("'ab'", "b'ab'", "(text)"),
    "a number, no longer text": ("'3'", "3", "(text)"),
    "number": ("3", "4", "output: 4 instead of 3"),
    "numbers": ("[1, 2, 3]", "[1, 2, 4]", "4 instead of 3 at [2]; 1 of 3 differ"),
    "a real number": ("0.5", "0.6", "output"),
    "truth": ("True", "False", "False instead of True"),
    "nothing": ("'ab'", "None", "output (text)"),
    "mapping": ("{'a': 1, 'b': 'x'}", "{'a': 1, 'b': 'y'}", "output: b (text): 'y' instead of 'x'"),
    "another key": ("{'a': 1}", "{'b': 1}", "output: a"),
    "set": ("{'a', 'b'}", "{'a', 'c'}", "'c'\" instead of \"'b'"),
    "decimal": ("decimal.Decimal('1.5')", "decimal.Decimal('1.6')", "'1.6' instead of '1.5'"),
    "date": (
        "datetime.date(2026, 1, 2)",
        "datetime.date(2026, 1, 3)",
        "'2026-01-03' instead of '2026-01-02'",
    ),
    "path": ("pathlib.Path('a/b')", "pathlib.Path('a/c')", "'a/c' instead of 'a/b'"),
    "member": (
        "enum.Enum('C', 'RED BLUE').RED",
        "enum.Enum('C', 'RED BLUE').BLUE",
        "'C.BLUE' instead of 'C.RED'",
    ),
    "dataclass": ("P(1, 'x')", "P(1, 'y')", "b (text): 'y' instead of 'x'"),
    "named tuple": ("N(1, 'x')", "N(1, 'y')", "1 (text): 'y' instead of 'x'"),
    "scalar of numpy": ("numpy.int32(3)", "numpy.int32(4)", "4 instead of 3"),
    "mixed": (
        "[{'a': torch.ones(3), 'b': ['x', None]}]",
        "[{'a': torch.ones(3), 'b': ['y', None]}]",
        "'y' instead of 'x'",
    ),
    "many texts": (
        "[str(n) for n in range(99)]",
        "[str(n) for n in range(98)] + ['no']",
        "str 'no'",
    ),
}
MADE = "P = dataclasses.make_dataclass('P', ['a', 'b'])\nN = typing.NamedTuple('N', [('a', int), ('b', str)])\n"
ALONE = HEAD + MADE + "@ci_bench.benchmark\ndef f():\n    return lambda: {}\n"
CASE = Case(id="functions/f", name="f", suite="functions", arms=("f",), reference="f", params={})


@pytest.fixture
def outputs_finding(tree):
    """Compares what two functions return, as base and head."""

    def run(name, returned):
        (tree / name).mkdir(exist_ok=True)
        keeper = Keeper(folder=tree / name, keeping=Keeping.EVERYTHING)
        evidence(tree, ALONE.replace("{}", returned), keep=keeper.keep)
        return keeper.record, tree / name / FILE

    def compared(base, head):
        (theirs, base_file), (ours, head_file) = run("base", base), run("head", head)
        files = OutputFiles(
            base=str(base_file), base_digest=theirs.file, head=str(head_file), head_digest=ours.file
        )
        ours = replace(ours, beside=compare(files, base=theirs.digest))
        rows = [
            CaseResult(case=CASE, status=Status.OK, reproduce="", outputs=one)
            for one in (theirs, ours)
        ]
        return outputs_of(*rows)

    return compared


@pytest.mark.parametrize("kind", PAIRS)
def test_base_and_head_are_equal_or_not(outputs_finding, kind) -> None:
    value, other, words = PAIRS[kind]
    assert outputs_finding(value, value).verdict is Sameness.BITWISE
    found = outputs_finding(value, other)
    assert (found.verdict, words in found.detail) == (Sameness.CHANGED, True), found.detail
    assert len(found.detail) < 220


@pytest.mark.parametrize("kind", sorted(PAIRS.keys() - {"nothing"}))
def test_a_provider_is_equal_or_not(tree, kind) -> None:
    value, other, words = PAIRS[kind]
    providers = "".join(
        f"@f.provider('{name}')\ndef _():\n    return lambda: {one}\n"
        for name, one in (("same", value), ("other", other))
    )
    found = agrees(tree, ALONE.replace("{}", value) + providers)
    assert (found["same"].outcome, found["other"].outcome) == (Outcome.PASS, Outcome.FAIL), found
    assert words in found["other"].detail


@pytest.mark.parametrize(("base", "head"), [("None", "None"), ("None", "'ab'")])
def test_nothing_on_base_is_no_change(outputs_finding, base, head) -> None:
    found = outputs_finding(base, head)
    assert found is None or found.verdict is Sameness.UNKNOWN


def test_text_that_rounding_decides_is_no_change(tree) -> None:
    source = "@ci_bench.benchmark\ndef f():\n    (x,) = ci_bench.inputs(1, (999,))\n    return lambda: repr({}.item())\n"
    provider = "@f.provider('g')\ndef _():\n    (x,) = ci_bench.inputs(1, (999,))\n    return lambda: repr({}.item())\n"
    found = agrees(
        tree, source.replace("{}", "x.sum()") + provider.replace("{}", "x.double().sum().float()")
    )
    assert found["g"].outcome is not Outcome.FAIL, found["g"].detail
