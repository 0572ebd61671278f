"""The content of files of other tools."""

from pathlib import Path

from ci_bench.errors import BadInput

MAX_BYTES = 64 << 20


def read_content(path: Path) -> bytes:
    """Return a file's bytes, at most one more than are read of any file.

    Raises `BadInput`.
    """
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be read: {error.strerror or error}; check the path"
        ) from error
