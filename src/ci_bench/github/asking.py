"""One request until an answer stands: retries, the budget of waiting, redirects within the API, the pace of writes."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from ci_bench.errors import GitHubBusy, GitHubFailed, GitHubOdd, GitHubUnreachable
from ci_bench.github.clipping import clipped_line
from ci_bench.github.clock import Clock
from ci_bench.github.fields import Record
from ci_bench.github.redaction import redacted
from ci_bench.github.refusals import refusal
from ci_bench.github.server import Server, parts_of
from ci_bench.github.transport import Answer, LostExchange, TooLarge, Transport
from ci_bench.github.waiting import TRIES, Trouble, trouble_of, wait_s

logger = logging.getLogger(__name__)

API_VERSION = "2022-11-28"
JSON, RAW = "application/vnd.github+json", "application/vnd.github.raw+json"
MOST_REDIRECTS = 3
MOST_SHOWN = 300
"""Characters of an address in a message."""
BETWEEN_WRITES_S = 1.0
"""GitHub's advice for requests that create content."""
_READS = {"GET", "HEAD"}
_BAD_REQUEST = 400

Seek = Callable[[], Record | None]
"""Looks whether a write whose answer was lost has been done: what it made, or `None`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to ask. `redirects` are followed unless the redirect itself is the answer."""

    method: str
    url: str
    params: Mapping[str, str | int] | None = None
    body: Mapping[str, Any] | None = None
    accept: str = JSON
    redirects: bool = True

    def __str__(self) -> str:
        """For messages: no query, and no more of a redirect's address than can be read."""
        return f"{self.method} {_readable(urlsplit(self.url).path)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tried:
    """How one try ended. Without `trouble`, the answer stands."""

    answer: Answer | None
    trouble: Trouble | None
    reason: str


class Asker:
    """Asks in the name of one token; all requests together may wait `patience_s`."""

    def __init__(self, server: Server, *, patience_s: float, clock: Clock) -> None:
        """Open no connection yet."""
        self._server = server
        self._clock = clock
        self._patience_s, self._waited_s = patience_s, 0.0
        self._last_write: float | None = None
        self._names_version = True
        self._transport = Transport(token=server.token, clock=clock)

    def ask(self, request: Request) -> Answer:
        """Send until an answer stands. Raises `GitHubFailed`; a POST whose answer was lost is not sent again."""
        answer = self._until_it_stands(request, None)
        assert isinstance(answer, Answer)  # noqa: S101 - nothing was sought
        return answer

    def ask_or_seek(self, request: Request, seek: Seek) -> Answer | Record:
        """Likewise for a write; after a lost answer, `seek` says whether it was done, before it is sent again."""
        return self._until_it_stands(request, seek)

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def wait(self, seconds: float) -> bool:
        """Wait on the budget; `False` where it does not suffice, and nothing was waited."""
        if self._waited_s + seconds > self._patience_s:
            return False
        self._waited_s += seconds
        self._clock.sleep(seconds)
        return True

    def _until_it_stands(self, request: Request, seek: Seek | None) -> Answer | Record:
        tried = 0
        while True:
            tried += 1
            ended = self._try(request)
            if ended.trouble is None and ended.answer is not None:
                return self._sound(request, ended.answer)
            trouble = ended.trouble or Trouble.LOST
            self._pause(request, replace(ended, trouble=trouble), tried, repeatable=request.method != "POST" or seek is not None)
            found = seek() if seek and trouble.unclear else None
            if found is not None:
                logger.info("%s had done its work", request)
                return found

    def _pause(self, request: Request, ended: _Tried, tried: int, *, repeatable: bool) -> None:
        """Wait before the next try, or raise where there is none."""
        trouble, reason = ended.trouble or Trouble.LOST, redacted(ended.reason, (self._server.token,))
        headers = ended.answer.headers if ended.answer else {}
        pause = wait_s(trouble, headers, tried=tried, now=self._clock.now(), chance=self._clock.chance())
        out_of_tries = tried >= TRIES or (trouble.unclear and not repeatable)
        if not out_of_tries and self.wait(pause):
            logger.info("%s: %s (%s); trying again after %.1f s", request, trouble, reason, pause)
            return
        ended_so = f"{request}: {trouble} after {tried} {'try' if tried == 1 else 'tries'}: {reason}"
        if trouble.unclear:
            raise GitHubUnreachable(ended_so)
        allowed = f"{self._patience_s:,.0f} s are allowed in all, {self._waited_s:,.0f} s are spent"
        raise GitHubBusy(f"{ended_so}; it asks to wait {pause:,.0f} s; {allowed}")

    def _try(self, request: Request) -> _Tried:
        """One try, redirects within the API included."""
        for _ in range(MOST_REDIRECTS + 1):
            self._keep_pace(request)
            version = {"X-GitHub-Api-Version": API_VERSION} if self._names_version else {}
            try:
                answer = self._transport.exchange(
                    request.method,
                    request.url,
                    headers={"Accept": request.accept, **version},
                    params=request.params,
                    body=request.body,
                )
            except LostExchange as error:
                return _Tried(answer=None, trouble=Trouble.LOST, reason=str(error))
            except TooLarge as error:
                raise GitHubOdd(f"{request} answered {error}") from None
            logger.debug("%s: %d", request, answer.status)
            if version and answer.status == _BAD_REQUEST and "version" in answer.message.lower():
                self._names_version = False  # an older GitHub Enterprise does not know this one
                continue
            if not (request.redirects and answer.is_redirect):
                message = "" if answer.is_success else answer.message or f"status {answer.status}"
                return _Tried(answer=answer, trouble=trouble_of(answer.status, answer.headers, message), reason=message)
            request = replace(request, url=self._moved(request, answer), params=None)
        raise GitHubOdd(f"{request} redirects in a circle")

    def _moved(self, request: Request, answer: Answer) -> str:
        """Where a renamed repository is now; a redirect away from the API is not followed: it would take the token along."""
        try:
            target = urljoin(request.url, answer.headers.get("location", ""))
        except ValueError:
            raise GitHubOdd(f"{request} redirects to what is no address") from None
        if not self._server.owns(target):
            raise GitHubOdd(f"{request} redirects to {_readable(str(parts_of(target).hostname))}, away from the API")
        if request.method not in _READS and answer.status not in {307, 308}:
            raise GitHubOdd(f"{request} has moved to {_readable(urlsplit(target).path)}; was the repository renamed?")
        return target

    def _keep_pace(self, request: Request) -> None:
        """Leave a second between writes."""
        if request.method in _READS:
            return
        now = self._clock.monotonic()
        if self._last_write is not None and now - self._last_write < BETWEEN_WRITES_S:
            self._clock.sleep(BETWEEN_WRITES_S - (now - self._last_write))
        self._last_write = self._clock.monotonic()

    def _sound(self, request: Request, answer: Answer) -> Answer:
        """The answer if it is a success, or the redirect that was asked for; else its error is raised."""
        if answer.is_success or (answer.is_redirect and not request.redirects):
            return answer
        error: GitHubFailed = refusal(str(request), answer, redacted(answer.message, (self._server.token,)))
        raise error


def _readable(address: str) -> str:
    """A part of an address, which a redirect can make as long as a header may be."""
    return clipped_line(address, MOST_SHOWN)
