"""One exchange over HTTP: a request out, a whole answer in, or the reason why none came. The only module that imports requests.

Proxies (HTTPS_PROXY, NO_PROXY) and an own certificate authority (REQUESTS_CA_BUNDLE) are honoured by requests itself. Redirects
are never followed here: whether the token may go along is for the caller to decide. Retries are in `client`, not in urllib3's
`Retry`, which sees no bodies and so no secondary rate limit, sleeps by its own clock, and cannot share out one patience among
requests.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
from requests.auth import AuthBase
from requests.utils import parse_header_links

from ci_bench import __version__
from ci_bench.errors import GitHubOdd, GitHubUnreachable
from ci_bench.github.clock import Clock
from ci_bench.github.redaction import quiet_http_logs, redacted

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
class Answer:
    """A whole answer. Names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes = field(repr=False)

    @property
    def is_success(self) -> bool:
        """Whether the request was granted."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the class of successes

    @property
    def is_redirect(self) -> bool:
        """Whether this only says where to go."""
        return self.status in {301, 302, 303, 307, 308}

    @property
    def next_page(self) -> str | None:
        """The address of the next page of a listing."""
        links = parse_header_links(self.headers.get("link", ""))
        return next((link["url"] for link in links if link.get("rel") == "next" and link.get("url")), None)

    def json(self) -> Any:
        """The content as JSON. Raises `GitHubOdd`."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            kind = self.headers.get("content-type", "unknown type")
            raise GitHubOdd(f"the answer with status {self.status} is no JSON ({kind:.80}); is a proxy in between?") from None

    @property
    def message(self) -> str:
        """What GitHub says about an error, in one line; empty where it says nothing."""
        try:
            said = json.loads(self.content)
        except (ValueError, RecursionError):
            return ""
        if not isinstance(said, dict):
            return ""
        errors = said.get("errors")
        details = [_detail(error) for error in errors[:5]] if isinstance(errors, list) else []
        return " ".join("; ".join([str(said.get("message", "")), *filter(None, details)]).split())[:500]


def _detail(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    return " ".join(str(error[key]) for key in ("field", "code", "message") if error.get(key))


class _Bearer(AuthBase):
    """The token, or nothing. As an `auth` it wins over a .netrc file, whose password requests would send instead."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.pop("Authorization", None)
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class Transport:
    """Sends requests with one token, or, with `None`, without any."""

    def __init__(self, *, token: str | None, clock: Clock) -> None:
        """Open no connection yet. Queries are kept out of the HTTP library's log from here on."""
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
    ) -> Answer:
        """Send one request and read its whole answer, `most_bytes` at most.

        Raises `LostExchange` where it may be worth another try, `TooLarge`, and `GitHubUnreachable` where it is not.
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
                return Answer(status=response.status_code, headers=lower, content=content)
        except requests.exceptions.SSLError as error:
            raise GitHubUnreachable(
                f"{self._said(error)}; behind a proxy or on GitHub Enterprise, name its certificates in REQUESTS_CA_BUNDLE"
            ) from None
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema) as error:
            raise GitHubUnreachable(f"{self._said(error)}; check GITHUB_API_URL, and HTTPS_PROXY if it is set") from None
        except requests.RequestException as error:
            raise LostExchange(self._said(error)) from None
        except OSError as error:
            raise GitHubUnreachable(f"{self._said(error)}; check REQUESTS_CA_BUNDLE") from None

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def _read(self, response: requests.Response, most_bytes: int) -> bytes:
        """The content, unpacked if it was compressed, but never more than `most_bytes`."""
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

    def _said(self, error: Exception) -> str:
        """What went wrong in one line, without secrets. The exception itself is not chained: it holds the request."""
        words = " ".join(redacted(str(error), self._secrets).split())
        return f"{type(error).__name__}: {words}"[:400]
