"""Where GitHub is and who asks: the address of its API, the repository, the token."""

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from ci_bench.errors import NotOnGitHub

PUBLIC_API = "https://api.github.com"
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """The API at `api_url` (GitHub Enterprise's ends in ``/api/v3``), about `repository` (``owner/name``).

    Raises `NotOnGitHub` where one of them cannot be what it should be. The token is in no message, and not in `repr`.
    """

    repository: str
    token: str = field(repr=False)
    api_url: str = PUBLIC_API

    def __post_init__(self) -> None:
        """Check all three before anything is sent."""
        address = urlsplit(self.api_url)
        if address.scheme not in {"http", "https"} or not address.hostname or address.username or address.query:
            raise NotOnGitHub("the API's address (GITHUB_API_URL) is no address like https://api.github.com")
        if not _REPOSITORY.fullmatch(self.repository) or {".", ".."} & {*self.repository.split("/")}:
            raise NotOnGitHub(f"the repository (GITHUB_REPOSITORY) is {self.repository!r:.120}, not of the form owner/name")
        if not _TOKEN.fullmatch(self.token):
            raise NotOnGitHub("the token (GITHUB_TOKEN) is empty or holds spaces or line breaks; pass ${{ github.token }} by env")

    def url(self, path: str) -> str:
        """The address of a path below the repository: ``issues/1/comments``."""
        return f"{self.api_url.rstrip('/')}/repos/{self.repository}/{path}"

    def owns(self, url: str) -> bool:
        """Whether an address is this API's, so that the token may be sent there."""
        return origin(url) == origin(self.api_url)


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port, the port spelled out."""
    parts = parts_of(url)
    try:
        port = parts.port
    except ValueError:
        return parts.scheme, "", None
    return parts.scheme, (parts.hostname or "").lower(), port or {"https": 443, "http": 80}.get(parts.scheme)


def parts_of(url: str) -> SplitResult:
    """An address in its parts, all of them empty where it cannot be one (``http://[``): an answer may name any."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")
