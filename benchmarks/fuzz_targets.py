"""The targets of fuzzing, each with its first inputs: all readers and renderers.

Readers are those of what strangers write; renderers those of what they wrote. A target takes bytes,
and returns whether they were accepted. It must refuse other bytes with the one error of its reader;
anything else is a finding, and so is a page that could do harm. The test (tests/fuzz) lists which
module of the package is fed by which target, and why some need none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from benchmarks import fuzz_pages as pages
from benchmarks import fuzz_readers as readers
from benchmarks import fuzz_seeds as seeds
from benchmarks import fuzz_surroundings as surroundings
from benchmarks.fuzz_mutator import slim
from benchmarks.fuzz_seeds import EXAMPLES, FOREIGN, ROOT
from ci_bench.configuration.accepting import load_accepted
from ci_bench.errors import BadAcceptance, BadConfig, BadDocument
from ci_bench.formats.catalogue import AUTO, READABLE
from ci_bench.records import documents

__all__ = ["EXAMPLES", "RENDERERS", "TARGETS", "Target"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Something that is fed bytes.

    `feed` returns whether they were accepted, and raises on a finding; `seeds` are accepted.
    """

    name: str
    feed: Callable[[bytes], bool]
    seeds: Callable[[], tuple[bytes, ...]]


def _document(name: str, reader: Callable[[Path], object], *examples: str) -> Target:
    feed = partial(readers.through_a_file, suffix=".json", reader=reader, refusal=BadDocument)
    return Target(
        name=name,
        feed=feed,
        seeds=lambda: seeds.files(*(EXAMPLES / example for example in examples)),
    )


def _configuration(
    name: str, reader: Callable[[Path], object], examples: Callable[[], tuple[Path, ...]]
) -> Target:
    feed = partial(readers.through_a_file, suffix=".yml", reader=reader, refusal=BadConfig)
    return Target(name=name, feed=feed, seeds=lambda: seeds.files(*examples()))


DATA_JS = "github_action_benchmark-form-data.js"
_FILES = {
    AUTO: "*-*",
    "bmf": "bencher-*",
    "customBiggerIsBetter": "github_action_benchmark-form-custom.json",
    "customSmallerIsBetter": "github_action_benchmark-form-custom.json",
    "dynamo-csv": "dynamo-form-*",
    "github-action-benchmark": "*-form-data.js",
}
"""Patterns of files of formats that are not called by the format's name."""


def _format(name: str) -> Target:
    """Return the target of a format, which starts from its own files, large ones slimmed too."""
    feed = partial(readers.foreign, name=name)

    @cache
    def format_seeds() -> tuple[bytes, ...]:
        paths = sorted(FOREIGN.glob(_FILES.get(name, f"{name.replace('-', '_')}-*")))
        return tuple(slim(content, feed) for content in seeds.files(*paths)) or (
            seeds.measurements(),
        )

    return Target(name=f"format {name}", feed=feed, seeds=format_seeds)


def _configurations() -> tuple[Path, ...]:
    return (
        EXAMPLES / "config.yml",
        EXAMPLES / "config_minimal.yml",
        *sorted(ROOT.glob("examples/*.yml")),
    )


_RENDERERS: Mapping[str, Callable[[bytes], bool]] = {
    "markdown": pages.markdown,
    "html": pages.html,
    "trend page": pages.trend,
    "issue": pages.issue,
    "terminal and badge": pages.terminal,
}
RENDERERS = frozenset(_RENDERERS)
"""Targets whose input are the texts in a page, and whose output is read again."""

_READERS = (
    _configuration("config", readers.config, _configurations),
    _configuration(
        "config of plugins", readers.config_of_plugins, lambda: (EXAMPLES / "config.yml",)
    ),
    Target(
        name="accepted",
        feed=partial(
            readers.through_a_file, suffix=".yml", reader=load_accepted, refusal=BadAcceptance
        ),
        seeds=lambda: seeds.files(EXAMPLES / documents.ACCEPTED_FILE),
    ),
    _document("results", documents.read_results, "results.json", "results_empty.json"),
    _document(
        "comparison",
        documents.read_comparison,
        "comparison.json",
        "comparison_without_baseline.json",
    ),
    _document("calibration", documents.read_calibration, "calibration.json"),
    _document("history", documents.read_history, "history.json"),
    _document("kind of a document", documents.document_kind, "results.json", "calibration.json"),
    Target(
        name="benchmarks",
        feed=readers.benchmarks,
        seeds=lambda: seeds.files(*sorted(ROOT.glob("examples/*/benchmarks/*.py"))),
    ),
    Target(name="repository", feed=readers.repository, seeds=seeds.repositories),
    Target(name="store of histories", feed=readers.store, seeds=seeds.histories),
    Target(
        name="history of github-action-benchmark",
        feed=readers.action_history,
        seeds=lambda: seeds.files(FOREIGN / DATA_JS),
    ),
    Target(name="artifact", feed=readers.archive, seeds=seeds.archives),
    Target(name="losses of a training", feed=readers.training, seeds=seeds.training),
    Target(
        name="event files of a training",
        feed=readers.training_events_file,
        seeds=seeds.training_events,
    ),
    Target(name="GitHub's event", feed=surroundings.event, seeds=seeds.events),
    Target(name="GitHub's answer", feed=surroundings.github_answer, seeds=seeds.github_answers),
    Target(name="GitHub's headers", feed=surroundings.github_headers, seeds=seeds.headers),
    Target(name="worker's answers", feed=surroundings.worker, seeds=seeds.answers),
    Target(name="run to resume", feed=surroundings.resumed, seeds=seeds.progress),
    Target(name="lock of a device", feed=surroundings.lock, seeds=seeds.holders),
    Target(name="why there is no baseline", feed=surroundings.told_absence, seeds=seeds.absences),
    *map(_format, (AUTO, *READABLE)),
)

TARGETS: Mapping[str, Target] = {
    target.name: target
    for target in (
        *_READERS,
        *(Target(name=name, feed=feed, seeds=seeds.nasty) for name, feed in _RENDERERS.items()),
    )
}
"""Every reader and every renderer, by name."""
