"""Address and credentials of GitHub, reading of its JSON, and what may be shown of both.

A field that is missing, null or of another type is `None`, never a guess. Tokens, passwords in
addresses, and queries (that of a signed address opens what it names) are taken out of every text,
and of the log of the HTTP library, which prints whole addresses.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ci_bench.errors import GitHubOdd, NotOnGitHub


@dataclass(frozen=True, slots=True)
class ApiRecord:
    """One JSON object.

    Every accessor takes the names on the way: ``record.text("user", "login")``.
    """

    fields: Mapping[str, Any]

    @classmethod
    def of(cls, value: Any) -> "ApiRecord":
        """Take parsed JSON for an object.

        Raises `GitHubOdd` for anything else.
        """
        if not isinstance(value, Mapping):
            raise GitHubOdd("the answer holds no object where one is expected")
        return cls(value)

    @classmethod
    def each(cls, items: Sequence[Any]) -> Iterator["ApiRecord"]:
        """Return the objects of a list; anything else in it is skipped."""
        return (cls(item) for item in items if isinstance(item, Mapping))

    def text(self, *names: str) -> str | None:
        """Return a text."""
        value = self._at(names)
        return value if isinstance(value, str) else None

    def number(self, *names: str) -> int | None:
        """Return an integer, such as an id."""
        value = self._at(names)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def truth(self, *names: str) -> bool | None:
        """Return true or false."""
        value = self._at(names)
        return value if isinstance(value, bool) else None

    def inner(self, *names: str) -> "ApiRecord | None":
        """Return an object within."""
        value = self._at(names)
        return ApiRecord(value) if isinstance(value, Mapping) else None

    def need_text(self, *names: str) -> str:
        """Return a text that has to be there.

        Raises `GitHubOdd`.
        """
        value = self.text(*names)
        if value is None:
            raise GitHubOdd(f"the answer lacks the text {'.'.join(names)}")
        return value

    def need_number(self, *names: str) -> int:
        """Return an integer that has to be there.

        Raises `GitHubOdd`.
        """
        value = self.number(*names)
        if value is None:
            raise GitHubOdd(f"the answer lacks the number {'.'.join(names)}")
        return value

    def _at(self, names: Sequence[str]) -> Any:
        value: Any = self.fields
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value


HIDDEN = "***"
_QUERY = re.compile(r"(?<=[\w/%.-])\?[^\s'\"<>()]+")
_USER = re.compile(r"(?<=://)[^/\s@'\"]+@")
_LOGGERS = ("urllib3.connectionpool", "urllib3.util.retry", "urllib3.poolmanager")


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without queries, users and passwords in addresses, and `secrets`."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN) if secret else text
    return _USER.sub(f"{HIDDEN}@", _QUERY.sub(f"?{HIDDEN}", text))


class _WithoutQueries(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redacted(record.getMessage()), ()
        return True


_FILTER = _WithoutQueries()


def quiet_http_logs() -> None:
    """Free the HTTP library's log records of queries; harmless to call again."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)


PUBLIC_API = "https://api.github.com"
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class GithubServer:
    """The API at `api_url`, about `repository` (``owner/name``).

    GitHub Enterprise's address ends in ``/api/v3``. Raises `NotOnGitHub` if one of them cannot be
    what it should be. The token is in no message, and not in `repr`.
    """

    repository: str
    token: str = field(repr=False)
    api_url: str = PUBLIC_API

    def __post_init__(self) -> None:
        """Check all three before anything is sent."""
        address = urlsplit(self.api_url)
        if (
            address.scheme not in {"http", "https"}
            or not address.hostname
            or address.username
            or address.query
        ):
            raise NotOnGitHub(
                "the API's address (GITHUB_API_URL) is not a URL like https://api.github.com"
            )
        if not _REPOSITORY.fullmatch(self.repository) or {".", ".."} & {
            *self.repository.split("/")
        }:
            raise NotOnGitHub(
                f"the repository (GITHUB_REPOSITORY) is {self.repository!r:.120}, not of the form"
                " owner/name"
            )
        if not _TOKEN.fullmatch(self.token):
            raise NotOnGitHub(
                "the token (GITHUB_TOKEN) is empty or holds spaces or line breaks; pass ${{"
                " github.token }} by env"
            )

    def url(self, path: str) -> str:
        """Return the address of a path below the repository: ``issues/1/comments``."""
        return f"{self.api_url.rstrip('/')}/repos/{self.repository}/{path}"

    def owns(self, url: str) -> bool:
        """Return whether an address is this API's, which allows sending the token."""
        return origin(url) == origin(self.api_url)


def origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port, the port spelled out."""
    parts = parts_of(url)
    try:
        port = parts.port
    except ValueError:
        return parts.scheme, "", None
    return (
        parts.scheme,
        (parts.hostname or "").lower(),
        port or {"https": 443, "http": 80}.get(parts.scheme),
    )


def parts_of(url: str) -> SplitResult:
    """Return an address in its parts.

    All are empty if it cannot be one (``http://[``): an answer may name any.
    """
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")
