"""Archives that a stranger has packed: what is sound is read, everything else is turned down with its reason."""

import io
import stat
import struct
import warnings
import zipfile
import zlib

import pytest

from ci_bench.github.archive import ArchiveLimits, Contents, UnsafeArchive, read_members

WANTED = Contents(members=("results.json", "base/results.json"))
SOUND = b'{"kind": "results"}'


def packed(*members, packing=zipfile.ZIP_DEFLATED):
    """A zip of `(name or ZipInfo, content)`, duplicates and all."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", packing) as archive:
        warnings.simplefilter("ignore")  # that a name comes twice
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def link(name, target=b"/etc/passwd"):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry, target


def special(name):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFIFO | 0o644) << 16
    return entry, b""


def patched(content, what, offset, form, value):
    """A zip with a field of its only directory entry (``PK\\1\\2``) or local header (``PK\\3\\4``) overwritten."""
    at = content.index(what) + offset
    return content[:at] + struct.pack(form, value) + content[at + struct.calcsize(form) :]


def lying(size):
    """A member whose both headers give it another size than it has."""
    content = packed(("results.json", SOUND * 100))
    return patched(patched(content, b"PK\x01\x02", 24, "<L", size), b"PK\x03\x04", 22, "<L", size)


def encrypted():
    return patched(
        patched(packed(("results.json", SOUND)), b"PK\x01\x02", 8, "<H", 1),
        b"PK\x03\x04",
        6,
        "<H",
        1,
    )


def renamed(name):
    """A zip whose member is called what `zipfile` would not write."""
    placeholder = "x" * len(name)
    return packed((placeholder, SOUND)).replace(placeholder.encode(), name)


def many(number):
    """A zip of so many members, made from one by hand: `zipfile` takes seconds for a million."""
    return packed(*((f"member{index}", b"") for index in range(number)))


def directory_bomb():
    """Ten thousand directory entries for one member."""
    content = packed(("results.json", SOUND))
    start, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    entries = content[start:end] * 10_000
    last = content[end:]
    return (
        content[:start]
        + entries
        + last[:8]
        + struct.pack("<HHL", 10_000, 10_000, len(entries))
        + last[16:]
    )


SMALL = ArchiveLimits(archive=1000, members=5, member=400, total=700, ratio=50.0)
TURNED_DOWN = {
    "traversal": (packed(("../results.json", SOUND)), "the name '../results.json' is not allowed"),
    "traversal within": (packed(("base/../../results.json", SOUND)), "is not allowed"),
    "absolute": (packed(("/results.json", SOUND)), "is not allowed"),
    "a drive": (packed(("C:\\results.json", SOUND)), "is not allowed"),
    "a backslash": (packed(("base\\results.json", SOUND)), "is not allowed"),
    "hidden": (packed((".git/config", SOUND)), "is not allowed"),
    "a line break": (packed(("results.json\n::error::x", SOUND)), r"results.json\\n::error"),
    "a bidi override": (packed(("results\u202enosj.json", SOUND)), "is not allowed"),
    "a name with a zero byte": (renamed(b"results.json\x00.png"), "is not allowed"),
    "deep folders": (packed(("/".join("abcdefghi"), SOUND)), "is not allowed"),
    "a name without end": (packed(("x" * 5000, SOUND)), "is not allowed"),
    "twice": (packed(("results.json", SOUND), ("results.json", b"{}")), "one name twice"),
    "twice but for case": (
        packed(("results.json", SOUND), ("Results.JSON", b"{}")),
        "one name twice",
    ),
    "a folder and a file": (packed(("base/", b""), ("base", b"{}")), "one name twice"),
    "a link": (packed(link("results.json")), "a link or a special file"),
    "a link that nobody reads": (
        packed(("results.json", SOUND), link("other.json")),
        "a link or a special file",
    ),
    "a pipe": (packed(special("results.json")), "a link or a special file"),
    "a bomb": (packed(("results.json", b"0" * 10_000_000)), "as bombs are"),
    "a bomb that nobody reads": (
        packed(("results.json", SOUND), ("x.json", b"0" * 10_000_000)),
        "as bombs are",
    ),
    "a size that is too small": (lying(10), "it is broken: Bad CRC"),
    "a size that is too large": (lying(5000), "not as long as it says"),
    "encrypted": (encrypted(), "is encrypted"),
    "another packing": (
        packed(("results.json", SOUND), packing=zipfile.ZIP_LZMA),
        "packed in a way",
    ),
    "empty": (packed(), "it is empty"),
    "ten thousand members": (many(10_000), "more than 50 members"),
    "one member ten thousand times": (directory_bomb(), "more than 50 members"),
    "some members too many": (many(60), "60 members, 50 are allowed"),
    "cut short": (packed(("results.json", SOUND))[:-30], "it is broken"),
    "rubbish after the magic": (b"PK\x03\x04" + b"rubbish" * 50, "it is broken"),
    "not a zip": (b"\x1f\x8b\x08\x00", "neither a zip nor a JSON document"),
    "an error page": (b"<html>", "neither a zip nor a JSON document"),
    "nothing": (b"", "neither a zip nor a JSON document"),
}
TOO_LARGE = {
    "the archive": (b"PK\x03\x04" + b"x" * 1000, "the archive has 1,004 bytes, 1,000 are allowed"),
    "a member": (packed(("results.json", bytes(range(256)) * 2)), "has 512 bytes, 400 are allowed"),
    "all of them": (
        packed(("a", bytes(range(240))), ("b", bytes(range(240))), ("c", bytes(range(240)))),
        "have 720 bytes in all",
    ),
    "too many": (many(6), "6 members, 5 are allowed"),
}


@pytest.mark.parametrize(("content", "reason"), TURNED_DOWN.values(), ids=TURNED_DOWN)
def test_what_is_turned_down(content, reason):
    with pytest.raises(UnsafeArchive, match=reason):
        read_members(content, WANTED)


@pytest.mark.parametrize(("content", "reason"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_is_too_large(content, reason):
    with pytest.raises(UnsafeArchive, match=reason):
        read_members(content, Contents(members=("results.json",), limits=SMALL))


def test_the_wanted_members_are_read_and_no_others():
    content = packed(
        ("results.json", SOUND),
        ("base/", b""),
        ("base/results.json", b"{}"),
        ("report.md", b"# words"),
    )
    assert read_members(content, WANTED) == {"results.json": SOUND, "base/results.json": b"{}"}


def test_a_wanted_member_that_is_not_there_is_left_out():
    assert read_members(packed(("report.md", b"# words")), WANTED) == {}


@pytest.mark.parametrize("content", [SOUND, b"\n " + SOUND, b"\xef\xbb\xbf" + SOUND])
def test_a_file_that_was_uploaded_without_an_archive_is_the_first_member(content):
    assert read_members(content, WANTED) == {"results.json": content}


def test_real_results_are_far_from_the_limits(tmp_path):
    """Floats pack three to five times; a document of a thousand cases has a few megabytes."""
    numbers = ", ".join(str(zlib.crc32(str(index).encode()) / 2**32) for index in range(200_000))
    content = packed(("results.json", f'{{"values": [{numbers}]}}'))
    assert len(read_members(content, WANTED)["results.json"]) > 4_000_000
