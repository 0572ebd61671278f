"""Turn a survey into the files that measure the repository, and describe what they measure.

Pure.

The workflow is one of `examples/workflows`, with the lines changed that depend on the repository.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from ci_bench.starting.sources import LossReport
from ci_bench.starting.survey import Survey

CONFIG = "ci-bench.yml"
WORKFLOW = ".github/workflows/ci-bench.yml"
PAGES = "https://github.com/ci-bench/ci-bench/blob/main/docs"
EXAMPLES = "https://github.com/ci-bench/ci-bench/tree/main/examples/workflows"
MOST_PATHS, MOST_TRAININGS, MOST_SCRIPTS = 100, 3, 20
"""Entries that are written: the schema's limit, and what a gate can measure in an hour."""
MINUTES_A_CASE = 1
"""Duration of a gate of one case on two CPU cores, rounded up (docs/internals/measurements.md, A
new user's first hour).
"""
_GPU_RUNNER, _HOSTED = "    runs-on: [self-hosted, gpu]", "    runs-on: ubuntu-24.04"
_LAST_INPUT = '          timeout_minutes: "35"'

_WORDS_OF_YAML = {"null", "true", "false"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProposedEntry:
    """One entry of a configuration: its suite, its lines of YAML, and what it measures in words."""

    suite: str
    lines: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """Files to write, and a description of what they measure."""

    files: Mapping[str, str]
    """Texts of the files to write, by path from the repository's root."""
    entries: tuple[ProposedEntry, ...]
    """Entries of the configuration."""
    cases: int
    """The number of cases, as far as the sources show it."""
    trains: bool = False
    """A training script is among them, whose duration is unknown."""
    remarks: tuple[str, ...] = ()
    """Sentences on what the configuration leaves out."""


def propose(survey: Survey, workflow: str, example: str) -> Proposal:
    """Make the files for a repository.

    `workflow` is the example's text, `example` the path of a benchmark to write.
    """
    entries, files = [*_entries(survey)], {}
    if not entries:
        entry, text = _example(survey, example)
        entries = [entry]
        files = {example: text} if text else {}
    files = {
        CONFIG: config_text(survey, entries),
        WORKFLOW: workflow_text(survey, workflow),
        **files,
    }
    counted = sum(
        benchmark.cases or sum(benchmark.tools.values()) for benchmark in survey.benchmarks
    )
    others = sum(entry.suite != "functions" for entry in entries)
    return Proposal(
        files=files,
        entries=tuple(entries),
        cases=max(1, counted + others),
        trains=bool(survey.trainings),
        remarks=(*_left_out(survey),),
    )


def config_text(survey: Survey, entries: list[ProposedEntry]) -> str:
    """Return the text of the configuration."""
    lines = [
        f"# What ci-bench measures in each pull request. All fields: {PAGES}/configuration.md",
        "schema_version: 1",
    ]
    lines += [
        "baseline: paired    # base and head take turns in one job",
        *_setup(survey),
        "",
        "suites:",
    ]
    for suite in dict.fromkeys(entry.suite for entry in entries):
        lines += [
            f"  {suite}:",
            *(f"    {line}" for entry in entries if entry.suite == suite for line in entry.lines),
        ]
    return "\n".join(lines) + "\n"


def workflow_text(survey: Survey, example: str) -> str:
    """Return the workflow of an example, adapted to the repository.

    It has a hosted runner if nothing computes on a GPU, and a network if set-up downloads.
    """
    more = [] if survey.gpu else ["          gpus: none"]
    more += (
        ['          setup_network: "true" # for `setup.network` of ci-bench.yml']
        if _downloads(survey)
        else []
    )
    lines = example.splitlines()
    assert sum(line.startswith(_GPU_RUNNER) for line in lines) == lines.count(_LAST_INPUT) == 1  # noqa: S101 - our own file
    runner = [
        _HOSTED if line.startswith(_GPU_RUNNER) and not survey.gpu else line for line in lines
    ]
    place = runner.index(_LAST_INPUT) + 1
    return "\n".join([*runner[:place], *more, *runner[place:]]) + "\n"


def _setup(survey: Survey) -> list[str]:
    """Return the lines of `setup`, if code has to be installed before it can be measured."""
    package = survey.package
    requirements = (
        ["pytest"]
        if any("pytest-benchmark" in benchmark.tools for benchmark in survey.benchmarks)
        else []
    )
    if package is not None and package.dependencies:
        requirements.append("-e .")
    requirements += [f"-e ./{folder}" for folder in survey.projects]
    if requirements:
        lines = [
            f"  commands: [pip install {' '.join(requirements)}]",
            "  network: true    # set-up may download; measuring may not",
        ]
    elif package is not None and package.compiled:
        lines = ["  commands: [pip install --no-deps --no-build-isolation -e .]"]
    else:
        return []
    return ["", "setup:    # runs once for each side, before it is measured", *lines]


def _downloads(survey: Survey) -> bool:
    return any("network: true" in line for line in _setup(survey))


def _entries(survey: Survey) -> Iterator[ProposedEntry]:
    """Yield the entries for the contents of the repository."""
    if survey.paths:
        paths = survey.paths[:MOST_PATHS]
        path_lines = (
            [f"- path: {paths[0]}"]
            if len(paths) == 1
            else ["- path:", *(f"    - {path}" for path in paths)]
        )
        words = []
        for benchmark in survey.benchmarks:
            counted = ", ".join(
                f"{_counted(number, 'benchmark')} of {tool}"
                for tool, number in benchmark.tools.items()
            )
            words.append(
                f"{benchmark.file}: {counted}"
                + (f", {_counted(benchmark.cases, 'case')}" if benchmark.cases is not None else "")
            )
        yield ProposedEntry(suite="functions", lines=tuple(path_lines), words=tuple(words))
    trainings = (training.file for training in survey.trainings)
    names = _names([*trainings, *survey.loops, *survey.scripts])
    for training in survey.trainings[:MOST_TRAININGS]:
        reading = ["  output: stdout"] if training.losses is LossReport.PRINTED else []
        yield ProposedEntry(
            suite="command",
            lines=(
                f"- name: {names[training.file]}",
                (
                    "  # Keep a run short: a few dozen steps are enough. Add the script's own"
                    " arguments to the list."
                ),
                f"  command: [python, {training.file}]",
                "  losses: {warmup_steps: 3}",
                *reading,
            ),
            words=(
                (
                    f"{training.file}: losses and step times of a training, which runs ten times or"
                    " more"
                ),
            ),
        )
    for loop in survey.loops[:MOST_TRAININGS]:
        lines = (
            f"- name: {names[loop]}",
            f'  loop: "{loop}"',
            "  losses: {steps: 30, warmup_steps: 5}",
        )
        yield ProposedEntry(
            suite="command", lines=lines, words=(f"{loop}: losses and step times of 30 steps",)
        )
    for script in survey.scripts[:MOST_SCRIPTS]:
        timed = (f"- name: {names[script]}", f"  command: [python, {script}]")
        yield ProposedEntry(
            suite="command", lines=timed, words=(f"{script}: its wall time and peak memory",)
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _names(places: list[str]) -> dict[str, str]:
    """Return a name for each entry of `command`: the file's, or the function's of a loop.

    A number is added if two are alike.
    """
    names: dict[str, str] = {}
    for place in places:
        stem = place.rpartition(":")[2] if ":" in place else PurePosixPath(place).stem
        name = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in stem)[
            :50
        ]
        name = name if name[0].isalpha() and name.lower() not in _WORDS_OF_YAML else f"run_{name}"
        number = sum(other == name or other.rpartition("-")[0] == name for other in names.values())
        names[place] = f"{name}-{number + 1}" if number else name
    return names


def _left_out(survey: Survey) -> Iterator[str]:
    """Yield a sentence on each kind of contents that the configuration leaves out."""
    yield from survey.remarks
    for what, number, most in (
        ("training scripts", len(survey.trainings), MOST_TRAININGS),
        ("training loops", len(survey.loops), MOST_TRAININGS),
        ("benchmark scripts", len(survey.scripts), MOST_SCRIPTS),
        ("files and folders of benchmarks", len(survey.paths), MOST_PATHS),
    ):
        if number > most:
            yield f"{number - most} more {what} were found; {CONFIG} has the first {most}"


def _example(survey: Survey, file: str) -> tuple[ProposedEntry, str]:
    """Return an entry for a repository without benchmarks, and the text of its file.

    The text is empty if the entry needs no file.
    """
    functions = (f"- path: {file}",)
    if survey.modules:
        module, network = survey.modules[0]
        arguments = [
            str(network.shape),
            *([f'"int64", high={network.high}'] if network.high else []),
        ]
        words = (
            f"{file}: an example, the forward pass of {network.name}; check the shape of its input"
        )
        text = _MODULE.format(
            name=network.name,
            module=module,
            function=_function(network.name),
            inputs=", ".join(arguments),
        )
        return ProposedEntry(suite="functions", lines=functions, words=(words,)), text
    if survey.package is not None:
        name = survey.package.name
        lines = (f"- name: import_{name[:50]}", f'  command: [python, -c, "import {name}"]')
        words = (
            f"import {name}: an example, the time and memory of the import; add benchmarks of"
            " your own"
        )
        return ProposedEntry(suite="command", lines=lines, words=(words,)), ""
    words = f"{file}: an example to replace, a matrix product"
    return ProposedEntry(suite="functions", lines=functions, words=(words,)), _PLAIN


def _function(name: str) -> str:
    """Return ``SmallNet`` as the name of a function: ``small_net_forward``."""
    lower = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).strip(
        "_"
    )
    return f"{lower}_forward"


_MODULE = (
    '"""An example to start from: the forward pass of {name}.'
    ' {pages}/suites/functions.md has all options."""\n'
    """
import torch

import ci_bench
from {module} import {name}


@ci_bench.benchmark
def {function}():
    # The shape is a guess by the first layer. Use that of your own batches.
    (x,) = ci_bench.inputs(1, {inputs})
    torch.manual_seed(0)
    model = {name}().to(x.device).eval()
    return lambda: model(x)
"""
).replace("{pages}", PAGES)
_PLAIN = (
    '"""An example to replace: import your own code and time it.'
    f' {PAGES}/suites/functions.md has all options."""\n'
    """
import ci_bench


@ci_bench.benchmark(shape=[(512, 512)])
def product(shape):
    a, b = ci_bench.inputs(2, shape)
    return lambda: a @ b
"""
)
