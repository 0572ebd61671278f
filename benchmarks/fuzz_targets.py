"""What can be fuzzed: every reader of what strangers write, and the renderers of what they wrote, each with inputs to start from.

A target takes bytes, and says whether they were accepted. What it must do with bytes that are not is raise the one error of its
reader; anything else is a finding, and so is a rendered page that could do harm.
"""

import importlib.util
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from ci_bench.commands.legs import DOCUMENTS
from ci_bench.config import load_config
from ci_bench.engine.process.answers import Answers
from ci_bench.errors import BadConfig, BadDocument, NotOnGitHub
from ci_bench.formats.catalogue import AUTO, READABLE, decode, read
from ci_bench.formats.series import Unreadable
from ci_bench.github.archive import Contents, UnsafeArchive, read_members
from ci_bench.github.context import load_context
from ci_bench.records import documents
from ci_bench.report.blocks import units
from ci_bench.report.markdown import render_comment, render_report

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "schemas" / "examples" / "valid"
FOREIGN = ROOT / "tests" / "formats" / "data"
COMMENT_LIMIT = 16_000
_KEPT_KEYS = {"gpu", "torch", "cuda", "driver", "python"}
_WORKFLOW = {
    "GITHUB_REPOSITORY": "o/r",
    "GITHUB_RUN_ID": "1",
    "GITHUB_SHA": "ab" * 20,
    "GITHUB_REF": "refs/heads/main",
}


class Harmful(Exception):  # noqa: N818 - it names what was found
    """A rendered page holds what no text of a stranger may bring into it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Something that is fed bytes. `feed` returns whether they were accepted, and raises on a finding; `seeds` are accepted."""

    name: str
    feed: Callable[[bytes], bool]
    seeds: Callable[[], tuple[bytes, ...]]


def _room() -> Path:
    """A file of this process for what is read from disk, in memory where there is such a place."""
    folder = Path("/dev/shm")  # noqa: S108 - the name holds the process, and the file is its own
    return (folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())) / f"ci-bench-fuzz-{os.getpid()}"


def _through_a_file(content: bytes, suffix: str, reader: Callable[[Path], object], refusal: type[Exception]) -> bool:
    path = _room().with_suffix(suffix)
    path.write_bytes(content)
    try:
        reader(path)
    except refusal:
        return False
    finally:
        path.unlink()
    return True


def _foreign(content: bytes, name: str) -> bool:
    try:
        read(decode(content), name)
    except Unreadable:
        return False
    return True


def _archive(content: bytes) -> bool:
    try:
        members = read_members(content, Contents(members=DOCUMENTS))
    except UnsafeArchive:
        return False
    if not members.keys() <= {*DOCUMENTS}:
        raise Harmful(f"names of a stranger came out of the archive: {sorted(members)}")
    return True


def _event(content: bytes) -> bool:
    def reader(path: Path, name: str) -> None:
        load_context({**_WORKFLOW, "GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(path)})

    every = ("pull_request", "workflow_run", "push", "merge_group")
    accepted = [_through_a_file(content, ".json", partial(reader, name=name), NotOnGitHub) for name in every]
    return all(accepted)


def _worker(content: bytes) -> bool:
    answers = Answers(lambda _: None)
    for start in range(0, len(content), 1000):
        answers.feed(content[start : start + 1000])
    answers.finish()
    return not answers.garbled


@cache
def _harm() -> Callable[[str], list[str]]:
    """The rules that the tests of the report hold every page to, by GitHub's own parser."""
    spec = importlib.util.spec_from_file_location("rendered", ROOT / "tests" / "report" / "rendered.py")
    assert spec is not None  # noqa: S101 - the path ends in .py
    assert spec.loader is not None  # noqa: S101 - likewise
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    faults: Callable[[str], list[str]] = module.faults
    return faults


@cache
def _comparison() -> Any:
    return documents.read_comparison(EXAMPLES / "comparison.json")


def poisoned(value: Any, texts: Sequence[str], seen: dict[str, str]) -> Any:
    """The same value with a hostile text in each of its strings; equal strings stay equal, and others stay apart."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return seen.setdefault(value, f"x{len(seen)} {texts[len(seen) % len(texts)]}")
    if isinstance(value, tuple):
        return tuple(poisoned(item, texts, seen) for item in value)
    if isinstance(value, Mapping):
        return {key if key in _KEPT_KEYS else poisoned(key, texts, seen): poisoned(v, texts, seen) for key, v in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.name != "kind"]
        return replace(value, **{name: poisoned(getattr(value, name), texts, seen) for name in names})
    return value


def _markdown(content: bytes) -> bool:
    texts = content.decode("utf-8", "surrogatepass" if content.isascii() else "replace").split("\x1e")
    hostile = poisoned(_comparison(), texts, {})
    comment = render_comment(hostile, marker="<!-- ci-bench:v1 key=default -->", limit=COMMENT_LIMIT)
    if units(comment) > COMMENT_LIMIT:
        raise Harmful(f"a comment of {units(comment)} units, and {COMMENT_LIMIT} are the most")
    for page in (comment, render_report(hostile)):
        if found := _harm()(page):
            raise Harmful("; ".join(found)[:1000])
    return True


def _files(*paths: Path) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in paths)


def _archives() -> tuple[bytes, ...]:
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr("results.json", (EXAMPLES / "results.json").read_bytes())
        archive.writestr("base/results.json", b"{}")
    return (packed.getvalue(), *_files(EXAMPLES / "results.json"))


def _answers() -> tuple[bytes, ...]:
    progress = b'{"progress": {"arm": "plain", "done": 1, "total": 2}}\n'
    evidence = b'{"evidence": {"metrics": [], "checks": [], "parity": null, "facts": {"n": 1}}}\n'
    return (progress + b'{"done": {"calls": 3}}\n', evidence, b'{"fault": {"kind": "failed", "message": "no"}}\n')


def _events() -> tuple[bytes, ...]:
    """The examples of GitHub's events, all in one: each reader takes what is its own."""
    events = json.loads((ROOT / "tests" / "github" / "data" / "events.json").read_text())
    kinds = [event for event in events.values() if isinstance(event, dict)]
    return (json.dumps({key: value for event in kinds for key, value in event.items()}).encode(),)


def _nasty() -> tuple[bytes, ...]:
    return (
        b"@user #1 https://a.b",
        "| ` ``` </details> <!-- -->\x1e[a](b)\x1e\u202e".encode(),
        b"\n# x\n- [ ] y\n> z\x1e<img src=x>\x1e&lt;",
    )


def _document(name: str, reader: Callable[[Path], object], *seeds: str) -> Target:
    feed = partial(_through_a_file, suffix=".json", reader=reader, refusal=BadDocument)
    return Target(name=name, feed=feed, seeds=lambda: _files(*(EXAMPLES / seed for seed in seeds)))


_FILES = {
    AUTO: "*-*",
    "bmf": "bencher-*",
    "customBiggerIsBetter": "github_action_benchmark-form-custom.json",
    "customSmallerIsBetter": "github_action_benchmark-form-custom.json",
    "dynamo-csv": "dynamo-form-*",
    "github-action-benchmark": "*-form-data.js",
}
"""Where the files of a format are not called by its name."""
_MEASUREMENTS = json.dumps(
    {
        "kind": "measurements",
        "schema_version": 1,
        "tool": "t",
        "series": [
            {"name": "sum", "measure": "step_time", "unit": "ms", "better": "lower", "values": [1.2, 1.3]},
            {"name": "fill", "unit": "1/s", "better": "higher", "runs": [[1.0, 2.0], [3.0]], "warmups": [[9.0], [8.0]]},
        ],
        "failed": [{"name": "x", "reason": "it broke"}],
    }
).encode()


def _format(name: str) -> Target:
    """A format, with its own files to start from."""
    own = sorted(FOREIGN.glob(_FILES.get(name, f"{name.replace('-', '_')}-*")))
    feed = partial(_foreign, name=name)
    return Target(name=f"format {name}", feed=feed, seeds=lambda: _files(*own) or (_MEASUREMENTS,))


RENDERERS = frozenset({"markdown", "html"})
"""Targets whose input are the texts in a page, and whose output is read again."""

TARGETS: Mapping[str, Target] = {
    one.name: one
    for one in (
        Target(
            name="config",
            feed=partial(_through_a_file, suffix=".yml", reader=load_config, refusal=BadConfig),
            seeds=lambda: _files(EXAMPLES / "config.yml", EXAMPLES / "config_minimal.yml", *sorted(ROOT.glob("examples/*.yml"))),
        ),
        _document("results", documents.read_results, "results.json", "results_empty.json"),
        _document("comparison", documents.read_comparison, "comparison.json", "comparison_without_baseline.json"),
        _document("calibration", documents.read_calibration, "calibration.json"),
        _document("kind of a document", documents.document_kind, "results.json", "calibration.json"),
        Target(name="artifact", feed=_archive, seeds=_archives),
        Target(name="GitHub's event", feed=_event, seeds=_events),
        Target(name="worker's answers", feed=_worker, seeds=_answers),
        *map(_format, (AUTO, *READABLE)),
        Target(name="markdown", feed=_markdown, seeds=_nasty),
    )
}
"""Every reader and every renderer, by name."""
