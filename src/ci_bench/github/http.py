"""One request over HTTP until an answer stands: retries, waits, redirects, pace of writes.

The only module that imports requests. Proxies (HTTPS_PROXY, NO_PROXY) and an own certificate
authority (REQUESTS_CA_BUNDLE) are honoured by requests itself. Redirects are followed here, within
the API and never by requests, which keeps the token from other hosts. Retries are here and not in
urllib3's `Retry`, which sees no bodies and so no secondary rate limit, sleeps by its own clock, and
cannot share one budget of waiting among requests. Whether another try is worth it follows GitHub's
signals: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api. A 403 is a
rate limit only if it says so; any other is a missing permission, and asking again changes nothing.
Time is an argument, so tests need not wait.
"""

import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import AuthBase
from requests.utils import parse_header_links

from ci_bench import __version__
from ci_bench.errors import (
    GitHubBusy,
    GitHubClosed,
    GitHubFailed,
    GitHubInvalid,
    GitHubMissing,
    GitHubOdd,
    GitHubRefused,
    GitHubUnreachable,
)
from ci_bench.github.clipping import clipped_line
from ci_bench.github.server import ApiRecord, GithubServer, parts_of, quiet_http_logs, redacted


def _chance() -> float:
    return secrets.randbelow(1000) / 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpClock:
    """Time and chance: seconds since the epoch, monotonic seconds, sleeping, a share from 0 to 1.

    The share spreads waits.
    """

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = _chance


CONNECT_S, READ_S = 10.0, 30.0
EXCHANGE_S = 120.0
"""The most one exchange may take in all: reading may trickle within `READ_S`."""
MAX_ANSWER_BYTES = 20_000_000
_CHUNK = 65_536


class LostExchange(Exception):  # noqa: N818 - caught in `client`, which tries again or says why not
    """No answer came, or not all of it. Whether the request did its work is not known."""


class TooLarge(Exception):  # noqa: N818 - caught where a download is asked for
    """An answer is larger than its reader allows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpAnswer:
    """A whole answer. Names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes = field(repr=False)

    @property
    def is_success(self) -> bool:
        """Return whether the request was granted."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the class of successes

    @property
    def is_redirect(self) -> bool:
        """Return whether this is only a redirect."""
        return self.status in {301, 302, 303, 307, 308}

    @property
    def next_page(self) -> str | None:
        """Return the address of the next page of a listing."""
        links = parse_header_links(self.headers.get("link", ""))
        return next(
            (link["url"] for link in links if link.get("rel") == "next" and link.get("url")), None
        )

    def json(self) -> Any:
        """Return the content as JSON.

        Raises `GitHubOdd`.
        """
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            kind = self.headers.get("content-type", "unknown type")
            raise GitHubOdd(
                f"response {self.status} is not JSON ({kind:.80}); check for a proxy"
            ) from None

    @property
    def message(self) -> str:
        """Return GitHub's error message, in one line; empty if it has none."""
        try:
            document = json.loads(self.content)
        except (ValueError, RecursionError):
            return ""
        if not isinstance(document, dict):
            return ""
        errors = document.get("errors")
        details = [_detail(error) for error in errors[:5]] if isinstance(errors, list) else []
        return " ".join(
            "; ".join([str(document.get("message", "")), *filter(None, details)]).split()
        )[:500]


def _detail(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    return " ".join(str(error[key]) for key in ("field", "code", "message") if error.get(key))


class _Bearer(AuthBase):
    """The token, or nothing.

    As an `auth` it wins over a .netrc file, whose password requests would send instead.
    """

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.pop("Authorization", None)
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class Transport:
    """Sends requests with one token, or, with `None`, without any."""

    def __init__(self, *, token: str | None, clock: HttpClock) -> None:
        """Open no connection yet.

        Queries are kept out of the HTTP library's log from here on.
        """
        quiet_http_logs()
        self._clock = clock
        self._secrets = (token or "",)
        self._session = requests.Session()
        self._session.auth = _Bearer(token)
        self._session.headers["User-Agent"] = f"ci-bench/{__version__}"

    def exchange(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        most_bytes: int = MAX_ANSWER_BYTES,
    ) -> HttpAnswer:
        """Send one request and read its whole answer, `most_bytes` at most.

        Raises `LostExchange` if it may be worth another try, `TooLarge`, and `GitHubUnreachable` if
        it is not.
        """
        try:
            with self._session.request(
                method,
                url,
                headers=dict(headers or {}),
                params=dict(params) if params else None,
                json=body,
                timeout=(CONNECT_S, READ_S),
                allow_redirects=False,
                stream=True,
            ) as response:
                content = self._read(response, most_bytes)
                lower = {name.lower(): value for name, value in response.headers.items()}
                return HttpAnswer(status=response.status_code, headers=lower, content=content)
        except requests.exceptions.SSLError as error:
            raise GitHubUnreachable(
                f"{self._describe_error(error)}; behind a proxy or on GitHub Enterprise, name its"
                " certificates in REQUESTS_CA_BUNDLE"
            ) from None
        except (
            requests.exceptions.InvalidURL,
            requests.exceptions.InvalidSchema,
            requests.exceptions.MissingSchema,
        ) as error:
            raise GitHubUnreachable(
                f"{self._describe_error(error)}; check GITHUB_API_URL, and HTTPS_PROXY if it is set"
            ) from None
        except requests.RequestException as error:
            raise LostExchange(self._describe_error(error)) from None
        except OSError as error:
            raise GitHubUnreachable(
                f"{self._describe_error(error)}; check REQUESTS_CA_BUNDLE"
            ) from None

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def _read(self, response: requests.Response, most_bytes: int) -> bytes:
        """Return the content, unpacked if it was compressed, up to `most_bytes`."""
        ends = self._clock.monotonic() + EXCHANGE_S
        parts, size = [], 0
        for part in response.iter_content(_CHUNK):
            size += len(part)
            if size > most_bytes:
                raise TooLarge(f"more than {most_bytes:,} bytes")
            if self._clock.monotonic() > ends:
                raise LostExchange(f"the answer was not complete after {EXCHANGE_S:.0f} s")
            parts.append(part)
        return b"".join(parts)

    def _describe_error(self, error: Exception) -> str:
        """Describe an error in one line, without secrets.

        The exception itself is not chained: it holds the request.
        """
        words = " ".join(redacted(str(error), self._secrets).split())
        return f"{type(error).__name__}: {words}"[:400]


_CLOSED = re.compile(
    r"(?i)\blocked\b|\barchived\b|\binteractions?\b.*\b(?:limit|restrict)"
    r"|\blimited the ability\b|\bcommenting is disabled\b"
)
"""GitHub's words for a place that takes no comment whatever the token may do."""


def refusal(request: str, answer: HttpAnswer, message: str) -> GitHubFailed:
    """Return the error for an answer to `request`, with GitHub's `message` and a remedy.

    `request` is its method and path.
    """
    text = f"{request} answered {answer.status}: {message or 'no reason given'}"
    needed = answer.headers.get("x-accepted-github-permissions")
    permission = f"; it needs {needed:.100}" if needed else ""
    if answer.status in {403, 410, 422, 423} and _CLOSED.search(message):
        return GitHubClosed(f"GitHub takes nothing there: {message} ({request})")
    match answer.status:
        case 401:
            return GitHubRefused(f"{text}; the token is not valid, or has expired")
        case 403 | 429:
            return GitHubRefused(
                f"{text}{permission}; give the job this permission (`permissions:` in the workflow)"
            )
        case 404 | 410:
            return GitHubMissing(
                f"{text}{permission}; GitHub also answers this if the token may not see it"
            )
        case 400 | 405 | 406 | 409 | 413 | 415 | 422:
            return GitHubInvalid(text)
    return GitHubOdd(text)


TRIES = 5
"""The most times that one request is sent."""
BACKOFF_S = 1.0
SECONDARY_S = 60.0
"""The least wait after a secondary limit that names none."""
MOST_BACKOFF_S = 30.0
_SECONDARY = re.compile(r"secondary rate limit|abuse detection", re.IGNORECASE)


class Trouble(StrEnum):
    """Reason for sending a request again."""

    PRIMARY_LIMIT = "the rate limit is used up"
    SECONDARY_LIMIT = "a secondary rate limit"
    SERVER = "a server error"
    LOST = "no answer"

    @property
    def unclear(self) -> bool:
        """Return whether the request may still have taken effect."""
        return self in {Trouble.SERVER, Trouble.LOST}


def trouble_of(status: int, headers: Mapping[str, str], message: str) -> Trouble | None:
    """Return the trouble with an answer that a retry may fix; `None` for every other answer."""
    if status in {500, 502, 503, 504}:
        return Trouble.SERVER
    if status not in {403, 429}:
        return None
    if _SECONDARY.search(message):
        return Trouble.SECONDARY_LIMIT
    if headers.get("x-ratelimit-remaining", "").strip() == "0":
        return Trouble.PRIMARY_LIMIT
    return Trouble.SECONDARY_LIMIT if status == 429 or "retry-after" in headers else None  # noqa: PLR2004 - Too Many Requests


def wait_s(
    trouble: Trouble, headers: Mapping[str, str], *, tried: int, now: float, chance: float
) -> float:
    """Return the seconds to wait after the `tried`-th try.

    `chance`, from 0 to 1, spreads clients that failed together.

    The server's own request comes first: ``retry-after``, then, of a used-up limit,
    ``x-ratelimit-reset``, read by the server's own clock.
    """
    retry_s = _retry_after(headers, now)
    if retry_s is not None:
        return retry_s + chance
    if trouble is Trouble.PRIMARY_LIMIT:
        reset = _number(headers.get("x-ratelimit-reset"))
        return (
            SECONDARY_S
            if reset is None
            else max(0.0, reset - _server_time(headers, now)) + 1.0 + chance
        )
    doubled = 2.0 ** (tried - 1)
    if trouble is Trouble.SECONDARY_LIMIT:
        return SECONDARY_S * doubled + chance
    return min(BACKOFF_S * doubled, MOST_BACKOFF_S) * (1.0 + 0.5 * chance)


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return ``retry-after`` in seconds: a number, or a date."""
    header = headers.get("retry-after")
    seconds = _number(header)
    if seconds is None and header:
        moment = _date(header)
        seconds = None if moment is None else moment - _server_time(headers, now)
    return None if seconds is None else max(0.0, seconds)


def _server_time(headers: Mapping[str, str], now: float) -> float:
    moment = _date(headers.get("date", ""))
    return now if moment is None else moment


def _date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):  # the last for a year of twenty digits
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _number(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"[ \t]*[0-9]{1,12}[ \t]*", text) else None


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

Seek = Callable[[], ApiRecord | None]
"""Looks whether a write whose answer was lost has been done: what it made, or `None`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpRequest:
    """A request."""

    method: str
    """The HTTP method, in capitals."""
    url: str
    """The whole address."""
    params: Mapping[str, str | int] | None = None
    """The query; `None` without one, or if the address has it already."""
    body: Mapping[str, Any] | None = None
    """The JSON object to send, or `None`."""
    accept: str = JSON
    """The media type of the answer."""
    redirects: bool = True
    """Whether redirects are followed; if not, the redirect is the answer."""

    def __str__(self) -> str:
        """Return the address for messages, without query; a redirect's is shortened."""
        return f"{self.method} {_readable(urlsplit(self.url).path)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tried:
    """Result of one try. Without `trouble`, the answer stands."""

    answer: HttpAnswer | None
    trouble: Trouble | None
    reason: str


class Asker:
    """Asks in the name of one token; all requests together may wait `patience_s`."""

    def __init__(self, server: GithubServer, *, patience_s: float, clock: HttpClock) -> None:
        """Open no connection yet."""
        self._server = server
        self._clock = clock
        self._patience_s, self._waited_s = patience_s, 0.0
        self._last_write: float | None = None
        self._names_version = True
        self._transport = Transport(token=server.token, clock=clock)

    def ask(self, request: HttpRequest) -> HttpAnswer:
        """Send until an answer stands.

        Raises `GitHubFailed`; a POST whose answer was lost is not sent again.
        """
        answer = self._until_it_stands(request, None)
        assert isinstance(answer, HttpAnswer)  # noqa: S101 - nothing was sought
        return answer

    def ask_or_seek(self, request: HttpRequest, seek: Seek) -> HttpAnswer | ApiRecord:
        """Write, and return the answer or the record that `seek` finds.

        After a lost answer, `seek` says whether it was done, before it is sent again.
        """
        return self._until_it_stands(request, seek)

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def wait(self, seconds: float) -> bool:
        """Wait on the budget; `False` if it does not suffice, and nothing was waited."""
        if self._waited_s + seconds > self._patience_s:
            return False
        self._waited_s += seconds
        self._clock.sleep(seconds)
        return True

    def _until_it_stands(self, request: HttpRequest, seek: Seek | None) -> HttpAnswer | ApiRecord:
        tried = 0
        while True:
            tried += 1
            ended = self._try(request)
            if ended.trouble is None and ended.answer is not None:
                return self._sound(request, ended.answer)
            trouble = ended.trouble or Trouble.LOST
            self._pause(
                request,
                replace(ended, trouble=trouble),
                tried,
                repeatable=request.method != "POST" or seek is not None,
            )
            record = seek() if seek and trouble.unclear else None
            if record is not None:
                logger.info("%s had done its work", request)
                return record

    def _pause(self, request: HttpRequest, ended: _Tried, tried: int, *, repeatable: bool) -> None:
        """Wait before the next try, or raise if none is left."""
        trouble, reason = (
            ended.trouble or Trouble.LOST,
            redacted(ended.reason, (self._server.token,)),
        )
        headers = ended.answer.headers if ended.answer else {}
        pause = wait_s(
            trouble, headers, tried=tried, now=self._clock.now(), chance=self._clock.chance()
        )
        out_of_tries = tried >= TRIES or (trouble.unclear and not repeatable)
        if not out_of_tries and self.wait(pause):
            logger.info("%s: %s (%s); trying again after %.1f s", request, trouble, reason, pause)
            return
        ended_so = (
            f"{request}: {trouble} after {tried} {'try' if tried == 1 else 'tries'}: {reason}"
        )
        if trouble.unclear:
            raise GitHubUnreachable(ended_so)
        allowed = f"{self._patience_s:,.0f} s are allowed in all, {self._waited_s:,.0f} s are spent"
        raise GitHubBusy(f"{ended_so}; it asks to wait {pause:,.0f} s; {allowed}")

    def _try(self, request: HttpRequest) -> _Tried:
        """Try once, redirects within the API included."""
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
                return _Tried(
                    answer=answer,
                    trouble=trouble_of(answer.status, answer.headers, message),
                    reason=message,
                )
            request = replace(request, url=self._moved(request, answer), params=None)
        raise GitHubOdd(f"{request} ends in a redirect loop")

    def _moved(self, request: HttpRequest, answer: HttpAnswer) -> str:
        """Return a renamed repository's new path.

        A redirect away from the API is not followed: it would receive the token.
        """
        try:
            target = urljoin(request.url, answer.headers.get("location", ""))
        except ValueError:
            raise GitHubOdd(f"{request} redirects to an invalid URL") from None
        if not self._server.owns(target):
            raise GitHubOdd(
                f"{request} redirects to {_readable(str(parts_of(target).hostname))}, away from"
                " the API"
            )
        if request.method not in _READS and answer.status not in {307, 308}:
            raise GitHubOdd(
                f"{request} has moved to {_readable(urlsplit(target).path)}; was the repository"
                " renamed?"
            )
        return target

    def _keep_pace(self, request: HttpRequest) -> None:
        """Leave a second between writes."""
        if request.method in _READS:
            return
        now = self._clock.monotonic()
        if self._last_write is not None and now - self._last_write < BETWEEN_WRITES_S:
            self._clock.sleep(BETWEEN_WRITES_S - (now - self._last_write))
        self._last_write = self._clock.monotonic()

    def _sound(self, request: HttpRequest, answer: HttpAnswer) -> HttpAnswer:
        """Return the answer if it is a success or a requested redirect, or raise its error."""
        if answer.is_success or (answer.is_redirect and not request.redirects):
            return answer
        error: GitHubFailed = refusal(
            str(request), answer, redacted(answer.message, (self._server.token,))
        )
        raise error


def _readable(address: str) -> str:
    """Shorten an address, which a redirect can make as long as a header may be."""
    return clipped_line(address, MOST_SHOWN)
