"""The site of the docs: Sphinx and MyST on the Markdown files that GitHub shows.

It is built from the root of the repository (`make docs`).

A link from page to page, or to a heading, is checked by Sphinx. A link to any other file of the
repository leads to GitHub; that the file is there is checked here. The site asks no other host for
anything.
"""

import os
import re
import shutil
from pathlib import Path
from urllib.parse import quote

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/ci-bench/ci-bench"

DECISIONS = "docs/internals/adr/README"
"""Lists the decisions below it by itself."""
CONTENTS = {
    "Using it": {
        "Getting started": "docs/getting-started",
        "A GPU runner": "docs/runner",
        "By hand, in a container": "docs/docker",
        "Other CI hosts": "docs/other-ci",
        "Looking at a run": "docs/reports",
        "History": "docs/history",
        "Several machines": "docs/fleet",
        "Troubleshooting": "docs/troubleshooting",
        "Upgrading": "docs/upgrading",
    },
    "Suites": {
        "training_loss": "docs/suites/training_loss",
        "torchbench": "docs/suites/torchbench",
        "transformers": "docs/suites/transformers",
        "fastrnns": "docs/suites/fastrnns",
        "functions": "docs/suites/functions",
        "command": "docs/suites/command",
        "Your own": "docs/plugins",
    },
    "Reference": {
        "Configuration": "docs/configuration",
        "Commands": "docs/commands",
        "Inputs and outputs": "docs/inputs",
        "Formats": "docs/formats",
    },
    "How it works": {
        "Definition of a time": "docs/measuring",
        "Judging": "docs/judging",
        "Base against head": "docs/paired",
        "Talking to GitHub": "docs/github",
        "Security": "docs/security",
    },
    "Internals": {
        "Development": "docs/internals/development",
        "The judge in full": "docs/internals/judging",
        "The dynamo runner's options": "docs/internals/dynamo_runner",
        "Suites with several processes": "docs/internals/ranked_suites",
        "How suites verify": "docs/internals/suites",
        "Formats of other tools": "docs/internals/formats",
        "Supply chain": "docs/internals/supply_chain",
        "Outcomes on GitHub": "docs/internals/outcomes",
        "Tools that suites replace": "docs/internals/predecessors",
        "Attacks": "docs/internals/attacks",
        "Measurements": "docs/internals/measurements",
        "A trial on a GPU host": "docs/internals/gpu-trial",
        "Reliability": "docs/internals/reliability",
        "Decisions": DECISIONS,
    },
    "The project": {
        "Changes": "CHANGELOG",
        "Contributing": "CONTRIBUTING",
        "Reporting a vulnerability": "SECURITY",
    },
}
"""The pages by their heading in the sidebar; Sphinx complains about a page that is in no list."""

project = "ci-bench"
author = "the ci-bench authors"
release = re.search(
    r'__version__ = "(.+)"', (ROOT / "src" / "ci_bench" / "__init__.py").read_text(encoding="utf-8")
)[1]

extensions = ["myst_parser"]
root_doc = "README"
include_patterns = [
    *(f"{page}.md" for page in (root_doc, *CONTENTS["The project"].values())),
    "docs/**",
]
exclude_patterns = [
    *sorted(
        {"site", *(place.name for place in ROOT.iterdir() if place.is_dir())} - {"docs"}
    ),  # so that nothing there is walked
    "docs/internals/reliability_figures.md",  # a part of docs/internals/reliability.md
]
myst_heading_anchors = 6  # as GitHub names them

html_theme = "furo"
html_title = f"ci-bench {release}"
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "",
}


def add_contents(_app: Sphinx, page: str, source: list[str]) -> None:
    """Give the front page and that of the decisions their part of the sidebar.

    GitHub would show it as a block of text.
    """
    if page == root_doc:
        for caption, pages in CONTENTS.items():
            add_list(
                source,
                [f":caption: {caption}"],
                [f"{title} </{name}>" for title, name in pages.items()],
            )
    elif page == DECISIONS:
        add_list(source, [], re.findall(r"^- \[\d+\]\((.+)\.md\)", source[0], re.MULTILINE))


def add_list(source: list[str], options: list[str], pages: list[str]) -> None:
    """Add pages to the sidebar below the page of this text."""
    source[0] += "\n".join(["", "```{toctree}", ":hidden:", *options, "", *pages, "```", ""])


class LinksToTheRepository(SphinxTransform):
    """Leads a link to a file or folder outside the site to the repository on GitHub."""

    default_priority = 400

    def apply(self, **_: object) -> None:
        """Replace such links; Sphinx complains about those that lead nowhere."""
        for kind in (addnodes.download_reference, addnodes.pending_xref):
            for link in [*self.document.findall(kind)]:
                if link["reftype"] == "myst" and (place := self._place(link)):
                    tree = "tree" if (ROOT / place).is_dir() else "blob"
                    address = f"{REPOSITORY}/{tree}/main/{quote(place)}"
                    link.replace_self(
                        nodes.reference("", "", *link.children, refuri=address, internal=False)
                    )

    def _place(self, link: nodes.Element) -> str | None:
        """Return the path from the root that a link leads to.

        `None` for a page, and for a missing file.
        """
        target = link["reftarget"]
        if (
            link.get("refdomain") == "doc"
        ):  # MyST has made the name of a page of every path to Markdown
            if target in self.env.found_docs:
                return None
            place = ROOT / f"{target}.md"
        else:
            place = Path(os.path.normpath(ROOT / self.env.docname / ".." / target))
        return (
            place.relative_to(ROOT).as_posix()
            if place.is_relative_to(ROOT) and place.exists()
            else None
        )


def copy_front_page(app: Sphinx, failed: Exception | None) -> None:
    """Put the front page where a folder's address leads, too."""
    if app.builder.format == "html" and not failed:
        shutil.copyfile(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.connect("source-read", add_contents)
    app.connect("build-finished", copy_front_page)
    app.add_transform(LinksToTheRepository)
