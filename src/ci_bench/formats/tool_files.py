"""Files of other tools: their content, and the format that reads one.

The formats are loaded only if a file is not a document of ci-bench.
"""

from pathlib import Path

from ci_bench.errors import BadDocument, BadInput
from ci_bench.records import documents

MAX_BYTES = 64 << 20
_BEGIN_BYTES = 1000
_SCHEMA, _OWN_BENCHMARK = b'"schema_version"', b'"measurements"'


def read_content(path: Path) -> bytes:
    """A file's bytes, one more at most than are read of any. Raises `BadInput`."""
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}; check the path") from error


def form_of_tool(path: Path) -> str:
    """The format of a benchmark tool's file; empty for documents of ci-bench, broken ones too. Raises `BadInput` for others."""
    if not path.is_file():
        return ""
    try:
        documents.document_kind(path)
    except BadDocument:
        content = read_content(path)
        if _SCHEMA in content[:_BEGIN_BYTES] and _OWN_BENCHMARK not in content[:_BEGIN_BYTES]:
            return ""
        return _form(path, content)
    return ""


def _form(path: Path, content: bytes) -> str:
    from ci_bench.formats.catalogue import decode, read
    from ci_bench.formats.series import Unreadable

    try:
        return read(decode(content)).form
    except Unreadable as error:
        raise BadInput(f"{path}: {error}") from error
