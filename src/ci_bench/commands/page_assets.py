"""Read the style and the scripts of HTML pages from the package.

The renderers touch no file: they get them as values.
"""

from importlib.resources import files

from ci_bench.report.html.page import Assets

_HTML = "ci_bench.report.html"
_LIBRARY = ("vendor/d3.min.js", "vendor/plot.umd.min.js", "shell.js")


def page_assets(script: str, *, package: str = _HTML) -> Assets:
    """Return the shell's style, the plotting library, and the scripts of the shell and the page.

    `script` is the page's, a file of `package`.
    """
    shell = files(_HTML)
    shared = tuple(shell.joinpath(name).read_text(encoding="utf-8") for name in _LIBRARY)
    page_script = files(package).joinpath(script).read_text(encoding="utf-8")
    return Assets(
        style=shell.joinpath("shell.css").read_text(encoding="utf-8"),
        scripts=(*shared, page_script),
    )
