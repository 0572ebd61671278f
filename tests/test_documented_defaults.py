"""Defaults that pages, schema and help mention are those of the code: none can drift without a failing test.

What can be generated is (`docs/configuration.md`, from the schema, which is held against the
dataclasses here and in `test_schemas`). A sentence of prose is listed below as a claim: the page,
its words around the figure, and where the code has it. Each claim is shown to fail where the code
has another figure.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ci_bench.configuration.config import QUICKSTART, load_config
from ci_bench.records.config import (
    DEFAULT_DRIFT,
    DEFAULT_SEVERITIES,
    DEFAULT_THRESHOLD,
    Policy,
    Severity,
)
from ci_bench.records.documents import Kind, schema
from ci_bench.suites.registry import find_metrics

ROOT = Path(__file__).parents[1]
WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 8: "eight", 10: "ten"}
SEVERITY_WORDS = {Severity.FAIL: "a failure", Severity.WARN: "a warning", Severity.NOTE: "a note"}

JUDGING, GITHUB, README = "docs/judging.md", "docs/github.md", "README.md"
STATISTICS, SUITES = "docs/internals/judging.md", "docs/internals/suites.md"
SCREENS = "docs/internals/adr/0005-saved-baselines-and-history.md"
POLICY, RUN = "ci_bench.records.config", "ci_bench.records.config"
LOSSES = "ci_bench.suites.torchbench.quantization:LIMITS"
LIMITS = "ci_bench.github.archive:ArchiveLimits"


def percent(value: float) -> str:
    return f"{100 * value:g}%"


def word(value: float) -> str:
    return WORDS.get(int(value), f"{value:g}")


def figure(value: float) -> str:
    return f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


def megabytes(value: float) -> str:
    return f"{value / 1e6:g} MB"


def mebibytes(value: float) -> str:
    return f"{value / 2**20:g} MiB"


def listed(values: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, values[:-1]))} and {values[-1]}"


@dataclass(frozen=True)
class Claim:
    """A sentence of a page with the figure left out, and where the code has the figure: ``module:NAME``, or inside of it."""

    page: str
    words: str
    source: str
    written: Callable[[Any], str] = figure

    def value(self) -> Any:
        module, _, path = self.source.partition(":")
        found: Any = import_module(module)
        for step in path.split("."):
            found = (
                found() if isinstance(found, type) else found
            )  # a frozen value with its defaults
            found = found[step] if isinstance(found, Mapping) else getattr(found, step)
        return found

    def holds(self, value: Any) -> bool:
        """Whether the page says so of this figure.

        Marks of Markdown and breaks of lines don't count.
        """
        return plain(self.words.format(self.written(value))) in plain(
            (ROOT / self.page).read_text()
        )


def plain(text: str) -> str:
    return re.sub(r"(?<=\d) %", "%", " ".join(re.sub(r"[*>]", "", text).split()))


CLAIMS = [
    Claim(
        README, "a time counts as changed only from {} on", f"{POLICY}:DEFAULT_DRIFT.cuda", percent
    ),
    Claim(README, "({} on a CPU; `policy.drift`)", f"{POLICY}:DEFAULT_DRIFT.cpu", percent),
    Claim(SCREENS, "{} on a CPU,", f"{POLICY}:DEFAULT_DRIFT.cpu", percent),
    Claim(SCREENS, "on a CPU, {} on a GPU", f"{POLICY}:DEFAULT_DRIFT.cuda", percent),
    Claim(JUDGING, "than the normal drift, {} on a CPU", f"{POLICY}:DEFAULT_DRIFT.cpu", percent),
    Claim(STATISTICS, "than the normal drift, {} on a CPU", f"{POLICY}:DEFAULT_DRIFT.cpu", percent),
    Claim(
        JUDGING,
        "and {} on a GPU unless `policy.drift` says otherwise",
        f"{POLICY}:DEFAULT_DRIFT.cuda",
        percent,
    ),
    Claim(
        STATISTICS,
        "and {} on a GPU unless `policy.drift` says otherwise",
        f"{POLICY}:DEFAULT_DRIFT.cuda",
        percent,
    ),
    Claim(
        "schemas/config.json", "Null takes {} on the CPU", f"{POLICY}:DEFAULT_DRIFT.cpu", percent
    ),
    Claim(
        "schemas/config.json",
        "on the CPU and {} on a GPU.",
        f"{POLICY}:DEFAULT_DRIFT.cuda",
        percent,
    ),
    Claim(JUDGING, "The default is {}. It is the same", f"{POLICY}:DEFAULT_THRESHOLD", percent),
    Claim(
        JUDGING,
        "such as {} for latencies of compilation",
        "ci_bench.records.metrics:COMPILE_COLD.threshold",
        percent,
    ),
    Claim(
        JUDGING,
        "and {} for the peak of allocated memory",
        "ci_bench.records.metrics:PEAK_ALLOCATED.threshold",
        percent,
    ),
    Claim(
        JUDGING,
        "numbers that your code or another tool reports, {},",
        f"{POLICY}:REPORTED_NUMBER",
        percent,
    ),
    Claim(
        JUDGING,
        "twice the threshold, and at least {} |",
        "ci_bench.judge.times.paired:LEAST_MARGIN",
        percent,
    ),
    Claim(
        JUDGING,
        "and a change is called from {} launches on",
        "ci_bench.judge.times.sequential:COLD_LAUNCHES",
        word,
    ),
    Claim(
        STATISTICS,
        "twice the threshold, and at least {}.",
        "ci_bench.judge.times.paired:LEAST_MARGIN",
        percent,
    ),
    Claim(
        STATISTICS, "trimmed means ({} off each end)", "ci_bench.judge.times.noise:TRIMMED", percent
    ),
    Claim(
        STATISTICS,
        "A change is called from {} launches on",
        "ci_bench.judge.times.sequential:COLD_LAUNCHES",
        word,
    ),
    Claim(
        JUDGING,
        "be called unchanged from {} launches on",
        "ci_bench.judge.times.sequential:COLD_UNCHANGED",
        word,
    ),
    Claim(
        STATISTICS,
        "be called unchanged from {} launches on",
        "ci_bench.judge.times.sequential:COLD_UNCHANGED",
        word,
    ),
    Claim(
        STATISTICS, "a usual spread of {},", "ci_bench.judge.times.sequential:COLD_SPREAD", percent
    ),
    Claim(
        STATISTICS,
        "or {} of the spread inside",
        "ci_bench.judge.times.sequential:COLD_SHARE",
        percent,
    ),
    Claim(
        STATISTICS, "worth {} launches more", "ci_bench.judge.times.sequential:COLD_FREEDOM", word
    ),
    Claim(
        JUDGING,
        "evaluated after {} launches",
        "ci_bench.judge.times.sequential:SequentialRule.looks",
        listed,
    ),
    Claim(
        STATISTICS,
        "evaluated after {} launches",
        "ci_bench.judge.times.sequential:SequentialRule.looks",
        listed,
    ),
    Claim(
        JUDGING,
        "is called regressed is at most {}, shared out",
        "ci_bench.judge.times.sequential:SequentialRule.alpha",
        percent,
    ),
    Claim(
        STATISTICS,
        "is called regressed is at most {}, shared out",
        "ci_bench.judge.times.sequential:SequentialRule.alpha",
        percent,
    ),
    Claim(
        STATISTICS,
        "with a {} interval that takes launches",
        "ci_bench.judge.times.ratios:LEVEL",
        percent,
    ),
    Claim(
        JUDGING,
        "If a suite has {} or more times",
        "ci_bench.judge.times.screening:LEAST_TIMES",
        word,
    ),
    Claim(
        STATISTICS,
        "If a suite has {} or more times",
        "ci_bench.judge.times.screening:LEAST_TIMES",
        word,
    ),
    Claim(
        JUDGING,
        "and beyond {}; if a side's own launches differ",
        "ci_bench.records.metrics:LEAST_BYTES",
        mebibytes,
    ),
    Claim(JUDGING, "over the first {} steps", "ci_bench.judge.parity.verdict:STEPS"),
    Claim(STATISTICS, "over the first {} steps", "ci_bench.judge.parity.verdict:STEPS"),
    Claim(JUDGING, "both scores are at most {} |", "ci_bench.judge.parity.verdict:LIMIT"),
    Claim(STATISTICS, "both scores are at most {} |", "ci_bench.judge.parity.verdict:LIMIT"),
    Claim(JUDGING, "a score is above {};", "ci_bench.judge.parity.verdict:LIMIT"),
    Claim(STATISTICS, "a score is above {};", "ci_bench.judge.parity.verdict:LIMIT"),
    Claim(
        JUDGING,
        "fewer than {} steps, no perturbed run",
        "ci_bench.judge.parity.verdict:LEAST_STEPS",
    ),
    Claim(
        STATISTICS,
        "fewer than {} steps, no perturbed run",
        "ci_bench.judge.parity.verdict:LEAST_STEPS",
    ),
    Claim(
        STATISTICS,
        "loss difference over the last {} steps",
        "ci_bench.judge.parity.over_seeds:WINDOW",
    ),
    Claim(
        JUDGING,
        "another seed on the loss, at least {} and",
        "ci_bench.judge.parity.over_seeds:LEAST_MARGIN",
        percent,
    ),
    Claim(
        STATISTICS,
        "another seed on the loss, at least {} and",
        "ci_bench.judge.parity.over_seeds:LEAST_MARGIN",
        percent,
    ),
    Claim(
        JUDGING,
        "and at most {}. At least",
        "ci_bench.judge.parity.over_seeds:LARGEST_MARGIN",
        percent,
    ),
    Claim(
        STATISTICS,
        "and at most {}. At least",
        "ci_bench.judge.parity.over_seeds:LARGEST_MARGIN",
        percent,
    ),
    Claim(JUDGING, "At least {} steps and", "ci_bench.judge.parity.over_seeds:LEAST_STEPS"),
    Claim(STATISTICS, "At least {} steps and", "ci_bench.judge.parity.over_seeds:LEAST_STEPS"),
    Claim(
        JUDGING,
        "steps and {} seeds, or it is",
        "ci_bench.judge.parity.over_seeds:LEAST_SEEDS",
        word,
    ),
    Claim(
        STATISTICS,
        "steps and {} seeds, or it is",
        "ci_bench.judge.parity.over_seeds:LEAST_SEEDS",
        word,
    ),
    Claim(
        JUDGING,
        "more than {} of rows flipping breaks accuracy",
        "ci_bench.judge.parity.over_seeds:FLIPPED",
        percent,
    ),
    Claim(
        STATISTICS,
        "more than {} of rows flipping breaks accuracy",
        "ci_bench.judge.parity.over_seeds:FLIPPED",
        percent,
    ),
    Claim(STATISTICS, "last {} windows of", "ci_bench.judge.parity.runs:TAIL", word),
    Claim(STATISTICS, "windows of {} batches", "ci_bench.judge.parity.runs:WINDOW"),
    Claim(STATISTICS, "batches within +{})", "ci_bench.judge.parity.runs:ALLOWANCE"),
    Claim(GITHUB, "at most {} commits back", "ci_bench.github.baseline:FARTHEST"),
    Claim(GITHUB, "at most {} packed,", f"{LIMITS}.archive", megabytes),
    Claim(GITHUB, "packed, {} unpacked", f"{LIMITS}.total", megabytes),
    Claim(GITHUB, "unpacked, {} members", f"{LIMITS}.members"),
    Claim(GITHUB, "members, {} each", f"{LIMITS}.member", megabytes),
    Claim(GITHUB, "packed at most {} times", f"{LIMITS}.ratio"),
    Claim(GITHUB, "Requests are tried {} times at most", "ci_bench.github.http:TRIES", word),
    Claim("docs/reports.md", "{} for a file", "ci_bench.runner.attachments:MOST_BYTES", megabytes),
    Claim(
        "docs/reports.md",
        "for a file and {} and",
        "ci_bench.runner.attachments:MOST_BYTES_IN_ALL",
        megabytes,
    ),
    Claim("docs/reports.md", "and {} files for a side", "ci_bench.runner.attachments:MOST_FILES"),
    Claim(
        "docs/suites/command.md",
        "prints more than {},",
        "ci_bench.suites.command.process:MOST_OUTPUT_BYTES",
        mebibytes,
    ),
    Claim(
        "docs/suites/command.md", "kept up to {}, thinned", "ci_bench.formats.importing:MOST_VALUES"
    ),
    Claim(
        "docs/formats.md",
        "do between two moments, {}",
        "ci_bench.commands.sides:MOST_DRIFT",
        percent,
    ),
    Claim(
        JUDGING,
        "`inconclusive` is {} by default",
        f"{POLICY}:DEFAULT_SEVERITIES.inconclusive",
        SEVERITY_WORDS.__getitem__,
    ),
    Claim(
        JUDGING,
        "it is `learning_unknown`, {}",
        f"{POLICY}:DEFAULT_SEVERITIES.learning_unknown",
        SEVERITY_WORDS.__getitem__,
    ),
    Claim(
        STATISTICS,
        "it is `learning_unknown`, {}",
        f"{POLICY}:DEFAULT_SEVERITIES.learning_unknown",
        SEVERITY_WORDS.__getitem__,
    ),
]
NUMERICS = "ci_bench.suites.shared.worker.numerics"
COMPUTED = [
    Claim(SUITES, "distance from fp64, plus {} roundings", f"{NUMERICS}:ROUNDINGS"),
    Claim("docs/plugins.md", "be off by {} times that", f"{NUMERICS}:MULTIPLIER"),
    Claim("docs/plugins.md", "times that ({} times in fp32,", f"{NUMERICS}:MULTIPLIER_FP32"),
    Claim("docs/plugins.md", "by {} roundings of the tensor's own size", f"{NUMERICS}:ROUNDINGS"),
    Claim(
        "docs/suites/transformers.md",
        "A file holds {} of",
        "ci_bench.suites.transformers.process_memory:MOST_BYTES",
        megabytes,
    ),
    Claim(SUITES, "({} in fp32,", f"{NUMERICS}:MULTIPLIER_FP32"),
    Claim(SUITES, "in fp32, {} in narrower formats)", f"{NUMERICS}:MULTIPLIER"),
    Claim(SUITES, "plus {} roundings of the tensor's", f"{NUMERICS}:ROUNDINGS"),
    Claim(
        "docs/suites/torchbench.md",
        "Up to {} is allowed for `int8weightonly`",
        f"{LOSSES}.int8weightonly",
    ),
    Claim("docs/suites/torchbench.md", "{} for `int8dynamic`,", f"{LOSSES}.int8dynamic"),
    Claim(
        "docs/suites/torchbench.md",
        "{} for `int4weightonly`, and on top",
        f"{LOSSES}.int4weightonly",
    ),
    Claim("docs/configuration.md", "Null takes {} for int8weightonly", f"{LOSSES}.int8weightonly"),
    Claim("docs/configuration.md", "{} for int8dynamic,", f"{LOSSES}.int8dynamic"),
    Claim("docs/configuration.md", "{} for int4weightonly.", f"{LOSSES}.int4weightonly"),
    Claim(
        "docs/suites/fastrnns.md",
        "uniform from {} to below",
        "ci_bench.suites.fastrnns.initial_state:SHORTEST",
        percent,
    ),
]
"""Figures of modules that import torch."""
EVERY = [*CLAIMS, *(pytest.param(claim, marks=pytest.mark.engine) for claim in COMPUTED)]


def name_of(claim: Claim) -> str:
    return f"{claim.page}: {claim.words}"


def other_than(value: Any) -> Any:
    """Another figure, a little off."""
    if isinstance(value, Severity):
        return next(one for one in Severity if one is not value)
    if isinstance(value, tuple):
        return (*value, value[-1] + 1)
    return value + 1 if isinstance(value, int) and value < 1000 else value * 1.1


@pytest.mark.parametrize("claim", EVERY, ids=name_of)
def test_a_page_says_what_the_code_does(claim: Claim) -> None:
    assert claim.holds(claim.value()), (
        f"{claim.page} does not say {claim.words.format(claim.written(claim.value()))!r}"
    )


@pytest.mark.parametrize("claim", EVERY, ids=name_of)
def test_a_figure_that_drifts_is_seen(claim: Claim) -> None:
    assert not claim.holds(other_than(claim.value()))


PROSE = (
    README,
    JUDGING,
    STATISTICS,
    "docs/paired.md",
    GITHUB,
    "docs/history.md",
    "docs/suites/command.md",
)
SET_OTHERWISE = re.compile(r"\b(unless|by default)\b")
FIGURE = re.compile(r"\b\d+(?:\.\d+)?(?:%| s\b| MB\b| MiB\b| launches\b)")


def unclaimed(text: str, said: list[str]) -> list[str]:
    """The sentences that give a figure and say that it can be set otherwise, but for figures within the words of a claim."""
    letters = list(text)
    for words in said:
        for found in re.finditer(re.escape(words), text):
            letters[found.start() : found.end()] = re.sub(r"\d", "#", found.group())
    sentences = re.split(r"(?<=[.:;|]) ", "".join(letters))
    return [
        sentence
        for sentence in sentences
        if SET_OTHERWISE.search(sentence) and FIGURE.search(sentence)
    ]


@pytest.mark.parametrize("page", PROSE)
def test_no_figure_by_default_is_without_a_claim(page: str) -> None:
    said = [
        plain(claim.words.format(claim.written(claim.value())))
        for claim in CLAIMS
        if claim.page == page
    ]
    assert unclaimed(plain((ROOT / page).read_text()), said) == []


def test_a_new_figure_by_default_is_seen() -> None:
    text = plain(
        "It counts from 7 % on, unless `x` says otherwise. A run has 3 launches by default. It takes 5 s."
    )
    assert len(unclaimed(text, [])) == 2
    assert unclaimed(text, ["from 7% on", "has 3 launches"]) == []


def test_severities_and_thresholds_of_the_schema_are_the_codes() -> None:
    """The page of the configuration is made from the schema."""
    defs = schema(Kind.CONFIG)["$defs"]
    assert {name: node["default"] for name, node in defs["severities"]["properties"].items()} == {
        str(rule): str(severity) for rule, severity in DEFAULT_SEVERITIES.items()
    }
    assert (
        defs["policy"]["properties"]["default_threshold"]["default"] is Policy().default_threshold
    )
    assert defs["policy"]["properties"]["drift"]["default"] is Policy().drift


THRESHOLDS = {
    kind.name: kind.threshold for kind in find_metrics().values() if kind.threshold is not None
}


@pytest.mark.parametrize("metric", THRESHOLDS)
def test_the_configuration_page_lists_each_built_in_threshold(metric: str) -> None:
    row = f"| `{metric}` | {find_metrics()[metric].title} | {percent(THRESHOLDS[metric])} |"
    assert row in (ROOT / "docs" / "configuration.md").read_text()


OWN_STATEMENT = "The default is 2%. It is the same"
STATES_A_DEFAULT = re.compile(
    r"default threshold\W+(?:is |of )?\d|threshold[^.|]{0,40}\d%(?: by default| unless| if nothing)"
)


def states_the_default(text: str) -> bool:
    """Whether a text says which threshold holds if nobody sets one."""
    return OWN_STATEMENT in plain(text) or bool(STATES_A_DEFAULT.search(plain(text)))


def test_the_default_threshold_is_stated_once() -> None:
    """Other pages and the schema refer to docs/judging.md."""
    pages = [
        ROOT / README,
        ROOT / "schemas" / "config.json",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "suites").glob("*.md"),
    ]
    assert {path.name for path in pages if states_the_default(path.read_text())} == {"judging.md"}


@pytest.mark.parametrize(
    "text",
    [
        "a change beyond the threshold (5 % by default) counts",
        "the ratio is beyond the threshold (`policy.thresholds`, 5 % unless set)",
        "The default threshold is 5 %.",
    ],
)
def test_a_second_statement_is_noticed(text: str) -> None:
    assert states_the_default(text)


def test_the_quickstart_says_that_its_threshold_is_wider_than_the_default() -> None:
    policy = load_config(QUICKSTART).policy
    assert policy.default_threshold is not None
    assert policy.default_threshold > DEFAULT_THRESHOLD
    text = files("ci_bench").joinpath("default.yml").read_text()
    assert "wider than the default, so that a minute or two is enough" in text


@pytest.mark.parametrize(
    ("part", "kind", "renamed"),
    [
        ("run", "ci_bench.records.config:RunOptions", {}),
        ("setup", "ci_bench.records.config:Setup", {}),
        ("torchbench", "ci_bench.suites.torchbench.options:TorchbenchSettings", {}),
        ("fastrnns", "ci_bench.suites.fastrnns.options:FastrnnsOptions", {}),
        ("command", "ci_bench.suites.command.options:CommandOptions", {}),
    ],
)
def test_the_defaults_of_the_schema_are_those_of_the_dataclasses(
    part: str, kind: str, renamed: Mapping[str, str]
) -> None:
    module, _, name = kind.partition(":")
    described = schema(Kind.CONFIG)["$defs"][part]["properties"]
    told = {field: node["default"] for field, node in described.items() if "default" in node}
    own = {
        renamed.get(one.name, one.name): _default(one)
        for one in dataclasses.fields(getattr(import_module(module), name))
    }
    shared = {field for field in told if field in own and own[field] is not MISSING}
    assert len(shared) > 2
    assert {field: told[field] for field in shared} == {field: own[field] for field in shared}


def _default(field: dataclasses.Field[Any]) -> Any:
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    return list(value) if isinstance(value, tuple) else value


def test_what_a_gpu_and_a_cpu_drift_is_all_there_is() -> None:
    """A third kind of device would need its words in every page above."""
    assert {*DEFAULT_DRIFT} == {"cpu", "cuda"}


def test_patience_in_the_page_is_that_of_the_commands() -> None:
    from ci_bench.commands.trusted.publishing import HOSTED_PATIENCE_S, PATIENCE_S

    text = plain((ROOT / "docs" / "github.md").read_text())
    found = re.search(r"(\d+) s in the job that measures, else (\d+) s", text)
    assert found
    assert (float(found[1]), float(found[2])) == (PATIENCE_S, HOSTED_PATIENCE_S)
