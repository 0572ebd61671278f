"""What must not be said: tokens, passwords in addresses, and queries, since the query of a signed address opens what it names.

Owns how text is freed of them, and the filter that frees the log of the HTTP library, which prints whole addresses.
"""

import logging
import re
from collections.abc import Iterable

HIDDEN = "***"
_QUERY = re.compile(r"(?<=[\w/%.-])\?[^\s'\"<>()]+")
_USER = re.compile(r"(?<=://)[^/\s@'\"]+@")
_LOGGERS = ("urllib3.connectionpool", "urllib3.util.retry", "urllib3.poolmanager")


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without queries, without users and passwords in addresses, and without `secrets`."""
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
