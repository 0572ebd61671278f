"""The docs name no package or image that nobody can install or pull yet."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "suites").glob("*.md"),
    *(path for path in (ROOT / "examples").rglob("*") if path.suffix in {".md", ".yml"}),
]
LATER = {
    "README.md": ["from the first release on"],
    "docs/security.md": ["cosign verify", "gh attestation verify"],
    "docs/upgrading.md": ["| `pip install"],
}
"""What is said of releases to come, by the words around it."""


def unpublished(page, text):
    """The lines that install or pull ci-bench by a name that is published with the first release only."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        named = re.search(
            r"pip install [^`]*?['\" ]ci-bench(\[[a-z,]+\])?(?! @ git\+)['\"]|ghcr\.io/ci-bench/",
            line,
        )
        around = "\n".join(lines[max(0, number - 1) : number + 1])
        if named and not any(words in around for words in LATER.get(page, [])):
            yield f"{page}:{number + 1}: {line.strip()}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_what_exists(page):
    assert [*unpublished(str(page.relative_to(ROOT)), page.read_text())] == []


@pytest.mark.parametrize(
    "line",
    [
        "$ pip install 'ci-bench[engine,ray]' && ray start",
        '`pip install "ci-bench[slurm]"`',
        "image: ghcr.io/ci-bench/ci-bench:0.1.0",
    ],
)
def test_what_does_not_exist_yet_is_seen(line):
    assert [*unpublished("docs/x.md", line)] != []
    assert [
        *unpublished(
            "docs/x.md",
            '$ pip install "ci-bench[engine] @ git+https://github.com/ci-bench/ci-bench"',
        )
    ] == []
