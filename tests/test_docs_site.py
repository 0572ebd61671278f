"""The docs as a site: built strictly and without a network by `make docs`, whole, and asking no other host for anything."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browsing import until

ROOT = Path(__file__).parents[1]
VENV = Path(sys.executable).parents[1]
PAGES = {
    path.relative_to(ROOT)
    for path in [
        *ROOT.glob("docs/**/*.md"),
        *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
    ]
    if path.name != "reliability_figures.md"  # a part of docs/internals/reliability.md
}
OFFLINE = """
import sys
def refuse(event, _):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.sendto"}:
        raise OSError("the network was asked for")
sys.addaudithook(refuse)
"""


def run(command, folder):
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    environ["PYTHONPATH"] = str(folder.parent / "offline")
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def make(folder, *flags):
    return run(["make", "--old-file", f"{VENV}/.ready", *flags, "docs", f"VENV={VENV}"], folder)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the checkout, whose docs `make docs` has built into `site`."""
    folder = tmp_path_factory.mktemp("docs") / "tree"
    shutil.copytree(
        ROOT,
        folder,
        ignore=shutil.ignore_patterns(".[!g]*", ".git", "__pycache__", "build", "dist", "site"),
    )
    (folder.parent / "offline").mkdir()
    (folder.parent / "offline" / "sitecustomize.py").write_text(OFFLINE)
    built = make(folder)
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    return folder


@pytest.fixture(scope="module")
def site(tree):
    """What each page of the site asks for and links to."""
    return {
        path.relative_to(tree / "site").as_posix(): read(path.read_text())
        for path in (tree / "site").rglob("*.html")
    }


class Reader(HTMLParser):
    """Collects what a page loads by itself, where its links lead, and its ids."""

    def __init__(self):
        super().__init__()
        self.loads, self.links, self.ids = [], [], {""}

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif name == "srcset":
                self.loads += [part.split()[0] for part in value.split(",")]
            elif name == "style" or (tag == "meta" and name == "content"):
                self.handle_data(value)
            elif name in {"src", "data", "poster", "action", "formaction"} or (
                name.endswith("href") and tag != "a"
            ):
                self.loads.append(value)
            elif name == "href":
                self.links.append(value)

    def handle_data(self, data):
        self.loads += re.findall(
            r"""url\(\s*["']?([^"')\s]+)|@import\s*["']([^"']+)|^\d+;\s*url=(\S+)""", data
        )


def read(page):
    reader = Reader()
    reader.feed(page)
    reader.loads = ["".join(load) for load in reader.loads]
    return reader


def elsewhere(addresses):
    return [
        address
        for address in addresses
        if re.match(r"([a-z][a-z0-9+.-]*:)?//", address, re.IGNORECASE)
    ]


def dead(site, folder):
    """Links and resources within the site that lead nowhere."""
    for name, page in site.items():
        for address in {*page.links, *page.loads}:
            parts = urlsplit(address)
            if not parts.scheme and not parts.netloc:
                path = (
                    Path(os.path.normpath(folder / name / ".." / unquote(parts.path)))
                    if parts.path
                    else folder / name
                )
                target = site.get(path.relative_to(folder).as_posix())
                if not path.is_file() or (target and unquote(parts.fragment) not in target.ids):
                    yield f"{name}: {address}"


def test_every_page_is_built_and_in_the_sidebar_and_the_readme_is_the_front(tree, site):
    built = {page.with_suffix(".html").as_posix() for page in PAGES}
    assert {*site} == {*built, "index.html", "search.html"}
    listed = {
        *site["docs/internals/adr/README.html"].links,
        *(f"../../{link}" for link in site["index.html"].links),
    }
    reached = {os.path.normpath(f"docs/internals/adr/{link.partition('#')[0]}") for link in listed}
    assert built <= {*reached, "docs/internals/adr/README.html"}
    assert (tree / "site" / "index.html").read_text() == (tree / "site" / "README.html").read_text()


def test_nothing_is_asked_of_another_host(tree, site):
    assert {name: found for name, page in site.items() if (found := elsewhere(page.loads))} == {}
    sheets = [*(tree / "site").rglob("*.css")]
    assert len(sheets) >= 3
    assert {
        path.name: found for path in sheets if (found := elsewhere(read(path.read_text()).loads))
    } == {}


@pytest.mark.parametrize(
    "planted",
    [
        "<script src='https://cdn.example/x.js'></script>",
        "<link rel=stylesheet href='//fonts.example/css'>",
        "<link rel=preconnect href='HTTPS://fonts.example'>",
        "<img src='http://x.example/badge.svg'>",
        "<img srcset='a.png 1x, https://x.example/b.png 2x'>",
        "<style>@import 'https://x.example/a.css';</style>",
        "<p style='background: url(https://x.example/a.png)'>x</p>",
        "<svg><use xlink:href='https://x.example/a.svg#b' /></svg>",
        "<meta http-equiv=refresh content='0; url=https://x.example'>",
    ],
)
def test_what_asks_another_host_is_seen(planted):
    assert (
        len(elsewhere(read(f"<p><a href='https://x.example'>a link</a></p>{planted}").loads)) == 1
    )


def test_every_link_of_the_finished_pages_leads_somewhere(tree, site):
    assert [*dead(site, tree / "site")] == []
    assert sum(len(page.links) for page in site.values()) > 1000


def test_links_to_what_is_no_page_lead_to_the_repository(tree, site):
    begin = "https://github.com/ci-bench/ci-bench/"
    found = {link for page in site.values() for link in page.links if link.startswith(begin)}
    places = {
        match[1]
        for link in found
        if (match := re.fullmatch(rf"{begin}(?:blob|tree)/main/([^?]+)", unquote(link)))
    }
    assert {
        "examples/workflows",
        "requirements.lock",
        "tests/faults/test_lock.py",
        "tests/formats/data/README.md",
    } <= places
    assert [place for place in places if not (tree / place).exists()] == []
    assert f"{begin}tree/main/examples/workflows" in found


@pytest.mark.parametrize(
    "planted",
    ["<a href='gone.html'>", "<a href='#gone'>", "<a href='b.html#gone'>", "<img src='gone.png'>"],
)
def test_a_dead_link_is_seen(planted, tmp_path):
    pages = {"a.html": f"<a href='b.html#x'>{planted}", "b.html": "<p id=x>"}
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    assert len([*dead({name: read(text) for name, text in pages.items()}, tmp_path)]) == 1


@pytest.mark.parametrize(
    ("page", "planted", "complaint"),
    [
        ("docs/judging.md", "[x](suites/gone.md)", "judging.md:.*suites/gone.md"),
        ("docs/judging.md", "[x](configuration.md#gone)", "judging.md:.*gone"),
        ("docs/judging.md", "[x](#gone)", "judging.md:.*gone"),
        ("docs/suites/command.md", "[x](../../src/gone.py)", "command.md:.*src/gone.py"),
        ("docs/judging.md", "![x](images/gone.png)", "judging.md:.*images/gone.png"),
        ("docs/new.md", "# In no list", "new.md:.*toctree"),
        ("docs/internals/adr/9999-new.md", "# In no list", "9999-new.md:.*toctree"),
    ],
    ids=[
        "page",
        "heading",
        "own heading",
        "source",
        "image",
        "page in no list",
        "decision in no list",
    ],
)
def test_what_is_broken_fails_the_build(tree, page, planted, complaint):
    *_, command = make(tree, "--dry-run").stdout.splitlines()
    path = tree / page
    before = path.read_text() if path.exists() else None
    path.write_text(f"{before or ''}\n{planted}\n")
    try:
        built = run(
            [*shlex.split(command), "--builder", "dummy"], tree
        )  # reads what has changed, and resolves all
    finally:
        path.unlink() if before is None else path.write_text(before)
    assert built.returncode == 1
    warnings = [line for line in built.stderr.splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert re.search(complaint, warnings[0])


def test_a_build_that_asked_for_the_network_would_fail(tree):
    asked = run(
        [sys.executable, "-c", "import socket; socket.create_connection(('127.0.0.1', 9))"], tree
    )
    assert "the network was asked for" in asked.stderr


def test_search_works_from_a_folder_and_lines_are_short(tree, browser):
    context = browser.new_context(viewport={"width": 1920, "height": 900}, offline=True)
    page, requests = context.new_page(), []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((tree / "site" / "index.html").as_uri())
    length = "(p => p.innerText.length / Math.floor(p.clientHeight / parseFloat(getComputedStyle(p).lineHeight)))"
    assert 60 < page.evaluate(f"{length}(document.querySelector('article p'))") < 100
    page.goto((tree / "site" / "search.html").as_uri() + "?q=referee")
    until(page, "document.querySelectorAll('#search-results li a').length > 3")
    results = page.evaluate(
        "[...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))"
    )
    context.close()
    assert "docs/internals/adr/0023-timed-calls-are-checked.html" in results
    assert len(requests) > 10
    assert [address for address in requests if not address.startswith(("file:", "data:"))] == []
