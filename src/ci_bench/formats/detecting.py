"""Find the format of a benchmark tool's file.

The formats are loaded only if it is not a document of ci-bench.
"""

from pathlib import Path

from ci_bench.errors import BadDocument, BadInput
from ci_bench.formats.tool_files import read_content
from ci_bench.records import documents

_BEGIN_BYTES = 1000
_SCHEMA, _OWN_BENCHMARK = b'"schema_version"', b'"measurements"'


def form_of_tool(path: Path) -> str:
    """Return the format of a benchmark tool's file.

    It is empty for documents of ci-bench, broken ones too.

    Raises `BadInput` for others.
    """
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
