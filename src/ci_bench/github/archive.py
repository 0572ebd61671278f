"""Artifacts that a stranger may have packed, read in memory: named members only, within limits.

They are never unpacked to disk. Owns what an archive may hold. The reader of the documents checks
the members' content.
"""

import re
import stat
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ +=,@()\[\]-]{0,199}")
_DEEPEST = 8
_ENTRY = b"PK\x01\x02"
"""The signature of an entry in a zip's directory. Counted before the directory is read, which costs
memory by the entry.
"""
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_ENCRYPTED = 0x1 | 0x40
_PACKINGS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


class UnsafeArchive(Exception):  # noqa: N818 - caught where the artifact is asked for
    """The archive breaks a limit or a rule; the message says which."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveLimits:
    """Limits of an archive."""

    archive: int = 20_000_000
    """Largest size of the packed archive, in bytes."""
    members: int = 50
    """Largest number of members, folders included."""
    member: int = 25_000_000
    """Largest unpacked size of one member, in bytes."""
    total: int = 50_000_000
    """Largest unpacked size of all members together, in bytes."""
    ratio: float = 200.0
    """Largest unpacked / packed size of one member."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """Members to read from an archive, if present.

    A single file that is not an archive counts as the first of them.
    """

    members: tuple[str, ...]
    limits: ArchiveLimits = ArchiveLimits()


def read_members(content: bytes, selection: Contents) -> Mapping[str, bytes]:
    """Return the selected members that an artifact's bytes have, by name.

    Raises `UnsafeArchive`.
    """
    limits = selection.limits
    if len(content) > limits.archive:
        raise UnsafeArchive(
            f"the archive has {len(content):,} bytes, {limits.archive:,} are allowed"
        )
    if content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        return {selection.members[0]: content}  # uploaded as it is, without an archive
    if not content.startswith(_ZIP):
        raise UnsafeArchive("it is neither a zip nor a JSON document")
    if content.count(_ENTRY) > 2 * limits.members:
        raise UnsafeArchive(f"it has more than {limits.members} members")
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            entries = archive.infolist()
            _check(entries, limits)
            return {
                entry.filename: _read(archive, entry)
                for entry in entries
                if entry.filename in selection.members
            }
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        ValueError,
        OverflowError,
        RuntimeError,
    ) as error:
        raise UnsafeArchive(f"it is broken: {' '.join(str(error).split())[:100]}") from error


def _check(entries: list[zipfile.ZipInfo], limits: ArchiveLimits) -> None:
    """Check every member, also unread ones: an archive with one bad member is malicious."""
    if not entries:
        raise UnsafeArchive("it is empty")
    if len(entries) > limits.members:
        raise UnsafeArchive(f"it has {len(entries)} members, {limits.members} are allowed")
    names = [entry.filename.removesuffix("/").casefold() for entry in entries]
    if len({*names}) < len(names):
        raise UnsafeArchive("it holds one name twice")
    for entry in entries:
        _check_entry(entry, limits)
    total = sum(entry.file_size for entry in entries)
    if total > limits.total:
        raise UnsafeArchive(
            f"its members have {total:,} bytes in all, {limits.total:,} are allowed"
        )


def _check_entry(entry: zipfile.ZipInfo, limits: ArchiveLimits) -> None:
    name = entry.orig_filename.removesuffix("/")
    shown = ascii(name)[:80]
    parts = name.split("/")
    if len(parts) > _DEEPEST or not all(_NAME.fullmatch(part) for part in parts):
        raise UnsafeArchive(f"the name {shown} is not allowed")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise UnsafeArchive(f"{shown} is a link or a special file")
    if entry.flag_bits & _ENCRYPTED:
        raise UnsafeArchive(f"{shown} is encrypted")
    if entry.compress_type not in _PACKINGS:
        raise UnsafeArchive(f"{shown} is packed in a way that is not allowed")
    if entry.file_size > limits.member:
        raise UnsafeArchive(f"{shown} has {entry.file_size:,} bytes, {limits.member:,} are allowed")
    if entry.file_size > limits.ratio * max(entry.compress_size, 1):
        raise UnsafeArchive(f"{shown} is packed more than {limits.ratio:,.0f} times, as bombs are")


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Read a member of the declared length.

    zipfile reads no further than that, and then checks the sum.
    """
    with archive.open(entry) as stream:
        content = stream.read(entry.file_size + 1)
    if len(content) != entry.file_size:
        raise UnsafeArchive(f"{ascii(entry.filename)[:80]} is not as long as it says")
    return content
