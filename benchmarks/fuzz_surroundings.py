"""Feeds the readers of a run's surroundings: workers, locks, an earlier run, and GitHub.

GitHub's are events, answers and headers.

As in `fuzz_readers`, each lets its reader's own refusal through as `False`, and no other.
"""

import fcntl
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from zlib import crc32

from benchmarks.fuzz_readers import Harmful, refused, room, through_a_file
from benchmarks.fuzz_seeds import EXAMPLES
from ci_bench import __version__
from ci_bench.checkouts.sides import Side
from ci_bench.commands.baseline_files import OUTCOME, absence
from ci_bench.errors import CannotResume, DeviceBusy, GitHubFailed, NotOnGitHub
from ci_bench.github.artifacts import of_run
from ci_bench.github.client import Client
from ci_bench.github.comments import Marker, Sticky, find_own
from ci_bench.github.context import EventContext, RunId, load_context
from ci_bench.github.http import HttpAnswer, HttpClock
from ci_bench.github.pulls import find_pulls
from ci_bench.github.server import GithubServer
from ci_bench.host.lock import device_lock
from ci_bench.processes.resident import Answers
from ci_bench.records import documents
from ci_bench.records.results import Run, RunState, SideName, Source
from ci_bench.runner import resuming

_WORKFLOW = {
    "GITHUB_REPOSITORY": "o/r",
    "GITHUB_RUN_ID": "1",
    "GITHUB_SHA": "ab" * 20,
    "GITHUB_REF": "refs/heads/main",
}
_EVENTS = ("pull_request", "workflow_run", "push", "merge_group")


def event(content: bytes) -> bool:
    """Read an event of GitHub; the content decides which of the four."""
    name = _EVENTS[crc32(content) % len(_EVENTS)]

    def reader(path: Path) -> None:
        load_context({**_WORKFLOW, "GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(path)})

    return through_a_file(content, ".json", reader, NotOnGitHub)


def worker(content: bytes) -> bool:
    """Read the output of a worker, in pieces."""
    answers = Answers(lambda _: None)
    for start in range(0, len(content), 1000):
        answers.feed(content[start : start + 1000])
    answers.finish()
    return not answers.garbled


@cache
def _begun() -> tuple[Run, Side, bytes]:
    """Return a run that can be resumed, the side that it measured, and its results."""
    run = Run(
        id="1",
        started_at="2030-01-31T12:00:00Z",
        state=RunState.PARTIAL,
        config_digest="sha256:00",
        device="cpu",
    )
    source = Source(commit="ab" * 20, branch="main", dirty=False)
    results = replace(
        documents.read_results(EXAMPLES / "results_empty.json"),
        tool_version=__version__,
        run=run,
        source=source,
    )
    return (
        run,
        Side(name=SideName.HEAD, environ={}, source=source),
        json.dumps(documents.to_json(results)).encode(),
    )


def resumed(content: bytes) -> bool:
    """Read the note of how far a run came, next to its results."""
    run, side, results = _begun()
    root = room().with_suffix(".run")
    root.mkdir(exist_ok=True)
    try:
        (root / "results.json").write_bytes(results)
        (root / resuming.PROGRESS).write_bytes(content)
        earlier = resuming.find_earlier(
            {SideName.HEAD: root / "results.json"},
            cases={SideName.HEAD: ()},
            sides=(side,),
            begun=run,
        )
    except CannotResume as error:
        return refused(error)
    finally:
        shutil.rmtree(root)
    if earlier is None:
        raise Harmful("a run that is there was not found")
    return True


def lock(content: bytes) -> bool:
    """Read the file of a lock that another process holds, with any text about its holder."""
    root = room().with_suffix(".locks")
    root.mkdir(exist_ok=True)
    path = root / "cpu.lock"
    path.write_bytes(content)
    messages: list[str] = []
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        try:
            with device_lock("cpu", folder=root, limit_s=0.0, say=messages.append):
                raise Harmful("a lock that another holds was taken")
        except DeviceBusy as error:
            message = str(error)
        finally:
            shutil.rmtree(root)
    if not message.isprintable() or len(message) > 1000:  # noqa: PLR2004 - a line of a log
        raise Harmful(f"a stranger's words are in the message: {message[:1000]!r}")
    return "it does not say which" not in message


def told_absence(content: bytes) -> bool:
    """Read the note of `fetch-baseline` about a missing baseline."""
    root = room().with_suffix(".baseline")
    root.mkdir(exist_ok=True)
    (root / OUTCOME).write_bytes(content)
    try:
        return absence(root) is not None
    finally:
        shutil.rmtree(root)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Said:
    """Fake connection: each request has the same answer."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def exchange(self, *_: object, **__: object) -> HttpAnswer:
        return HttpAnswer(status=self.status, headers=self.headers, content=self.content)


def _pass(seconds: float) -> None:
    """Wait for nothing."""
    if not 0 <= seconds < _PATIENCE_S:
        raise Harmful(f"a pause of {seconds} s")


_PATIENCE_S = 1e12
_STATUSES = (200, 302, 307, 400, 403, 404, 422, 429, 503)
_HEADERS = (
    "link",
    "location",
    "retry-after",
    "date",
    "x-ratelimit-reset",
    "x-accepted-github-permissions",
    "content-type",
)


def github_answer(content: bytes) -> bool:
    """Read an answer of GitHub's API.

    It goes to one of the requests for a list, or to the one for an object with a list in it.
    """
    client = _client(_Said(status=200, headers={}, content=content))
    return not _fails(
        _LISTS[crc32(content) % len(_LISTS)] if content.startswith(b"[") else _artifacts, client
    )


def github_headers(content: bytes) -> bool:
    """Read the headers of an answer, in all requests, with a status that the content decides.

    Its text is a refusal's.
    """
    headers = dict.fromkeys(_HEADERS, content.decode("latin-1"))
    status = _STATUSES[crc32(content) % len(_STATUSES)]
    body = json.dumps({"message": headers["date"][:200], "artifacts": []}).encode()
    client = _client(_Said(status=status, headers=headers, content=body))
    for ask in (*_LISTS, _artifacts, _location):
        _fails(ask, client)
    return True


Ask = Callable[[Client], object]


def _artifacts(client: Client) -> object:
    return of_run(client, 5, "ci-*")


def _location(client: Client) -> object:
    return client.location("x")


def _pull(client: Client) -> object:
    return find_pulls(client, _context())


def _comments(client: Client) -> object:
    marker = Marker(key="default", run=RunId(id=17, attempt=1), head="ab" * 20)
    return find_own(client, Sticky(number=4, marker=marker, text="x"), {"github-actions[bot]"})


_LISTS: tuple[Ask, ...] = (_pull, _comments)


def _client(transport: _Said) -> Client:
    client = Client(_SERVER, patience_s=_PATIENCE_S, clock=HttpClock(sleep=_pass))
    vars(vars(client)["_asker"])["_transport"] = transport
    return client


def _fails(ask: Ask, client: Client) -> bool:
    try:
        ask(client)
    except GitHubFailed as error:
        return not refused(error)
    return False


_SERVER = GithubServer(api_url="https://api.github.com", repository="o/r", token="x")  # noqa: S106 - nobody is asked


@cache
def _context() -> EventContext:
    """Return the context of a run for a push."""
    path = room().with_suffix(".push")
    path.write_bytes(
        b'{"ref": "refs/heads/main", "repository": {"id": 7}, "after": "%s"}' % (b"ab" * 20)
    )
    try:
        return load_context(
            {**_WORKFLOW, "GITHUB_EVENT_NAME": "push", "GITHUB_EVENT_PATH": str(path)}
        )
    finally:
        path.unlink()
