"""GitHub's REST API as this package needs it: objects, files, writes, listings, downloads.

Callers interpret the answers; `http` obtains them.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from ci_bench.errors import GitHubMissing, GitHubOdd, GitHubUnreachable
from ci_bench.github.http import RAW, Asker, HttpClock, HttpRequest, LostExchange, Seek, Transport
from ci_bench.github.server import ApiRecord, GithubServer, parts_of

logger = logging.getLogger(__name__)

Params = Mapping[str, str | int]

PER_PAGE = 100
MOST_ITEMS = 10_000
"""Items of one page.

Servers may have other limits on how many they give, but not millions.
"""
MOST_PAGES = 50
_OK = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class PagedListing:
    """The items of a listing; not `complete` if there are more pages than were read."""

    items: Sequence[Any]
    complete: bool


class Client:
    """One repository, one token. `patience_s` is what all retries together may wait."""

    def __init__(
        self, server: GithubServer, *, patience_s: float = 120.0, clock: HttpClock | None = None
    ) -> None:
        """Open no connection yet."""
        self.server = server
        self.clock = clock or HttpClock()
        self._asker = Asker(server, patience_s=patience_s, clock=self.clock)
        self._bare = Transport(token=None, clock=self.clock)

    def __enter__(self) -> Self:
        """Enter a block at whose end the connections are closed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self._asker.close()
        self._bare.close()

    def get(self, path: str, params: Params | None = None) -> ApiRecord:
        """Return one object below the repository.

        Raises `GitHubFailed`, as all methods do.
        """
        return ApiRecord.of(
            self._asker.ask(
                HttpRequest(method="GET", url=self.server.url(path), params=params)
            ).json()
        )

    def raw(self, path: str, params: Params | None = None) -> bytes:
        """Return a file of the repository as it is."""
        return self._asker.ask(
            HttpRequest(method="GET", url=self.server.url(path), params=params, accept=RAW)
        ).content

    def write(
        self, method: str, path: str, body: Mapping[str, Any], *, seek: Seek | None = None
    ) -> ApiRecord:
        """Create or change something, and return it.

        After a lost answer, `seek` is asked first, to make nothing twice; without it, a POST is not
        sent again.
        """
        request = HttpRequest(method=method, url=self.server.url(path), body=body)
        answer = self._asker.ask_or_seek(request, seek) if seek else self._asker.ask(request)
        return answer if isinstance(answer, ApiRecord) else ApiRecord.of(answer.json())

    def delete(self, path: str) -> None:
        """Delete an object; one that is already gone does not raise."""
        try:
            self._asker.ask(HttpRequest(method="DELETE", url=self.server.url(path)))
        except GitHubMissing:
            logger.debug("%s was gone already", path)

    def pages(
        self,
        path: str,
        params: Params | None = None,
        *,
        key: str | None = None,
        most: int = MOST_PAGES,
    ) -> PagedListing:
        """Return every item of a listing, page by page, `most` pages at most.

        `key` names the list if a page is an object.
        """
        request = HttpRequest(
            method="GET", url=self.server.url(path), params={"per_page": PER_PAGE, **(params or {})}
        )
        items: list[Any] = []
        for _ in range(most):
            answer = self._asker.ask(request)
            page = answer.json()
            part = page.get(key) if key is not None and isinstance(page, dict) else page
            if not isinstance(part, list):
                raise GitHubOdd(f"the listing {path} holds no list")
            if len(part) > MOST_ITEMS:
                raise GitHubOdd(
                    f"a page of {path} holds {len(part):,} items, and {PER_PAGE} were asked for"
                )
            items += part
            if answer.next_page is None:
                return PagedListing(items=items, complete=True)
            if not self.server.owns(answer.next_page):
                raise GitHubOdd(
                    f"the next page of {path} is at {parts_of(answer.next_page).hostname}, away"
                    " from the API"
                )
            request = HttpRequest(method="GET", url=answer.next_page)
        return PagedListing(items=items, complete=False)

    def location(self, path: str) -> str:
        """Return a download's redirect target.

        The address opens the file without a token: it is a secret, and short-lived.
        """
        answer = self._asker.ask(
            HttpRequest(method="GET", url=self.server.url(path), redirects=False)
        )
        target = parts_of(answer.headers.get("location", ""))
        secure = target.scheme == "https" or (
            target.scheme,
            urlsplit(self.server.api_url).scheme,
        ) == ("http", "http")
        if not answer.is_redirect or not target.hostname or not secure:
            raise GitHubOdd(
                f"{path} answered {answer.status} without a secure address to download from"
            )
        return target.geturl()

    def fetch(self, url: str, *, most_bytes: int) -> bytes:
        """Download from a signed address, without the token and without a further redirect.

        Storage would refuse the token. Raises `GitHubUnreachable` if this address does not work, or
        no longer: ask for a new one. Raises `TooLarge`.
        """
        host = urlsplit(url).hostname
        try:
            answer = self._bare.exchange("GET", url, most_bytes=most_bytes)
        except LostExchange as error:
            raise GitHubUnreachable(f"the download from {host} broke off: {error}") from None
        if answer.status != _OK:
            raise GitHubUnreachable(f"the download from {host} answered {answer.status}")
        return answer.content

    def wait(self, seconds: float) -> bool:
        """Wait on the budget of the retries; return `False`, without waiting, if it is too low."""
        return self._asker.wait(seconds)
