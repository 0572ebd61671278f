"""Makes the pictures in docs/images/ from a real run: comment, HTML report, charts, terminal.

    python tools/pictures.py measure FOLDER   gate a pull request made of tools/pictured/
    python tools/pictures.py render FOLDER    draw that run, or any folder of `ci-bench gate`

Base and head are measured in turns. Measuring needs the extra `engine` and git, and takes a quarter
of an hour; rendering needs the development tools and Chromium.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cmarkgfm
from cmarkgfm.cmark import Options

ROOT = Path(__file__).resolve().parent.parent
PICTURED = ROOT / "tools" / "pictured"
IMAGES = ROOT / "docs" / "images"
CI_BENCH = (sys.executable, "-m", "ci_bench.cli")
CALIBRATIONS = 2
STYLE = """
body { margin: 24px; background: #f6f8fa; \
font: 14px/1.5 -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; color: #1f2328; }
.box { border: 1px solid #d1d9e0; border-radius: 6px; background: #fff; }
.head { padding: 8px 16px; background: #f6f8fa; border-bottom: 1px solid #d1d9e0; \
border-radius: 6px 6px 0 0; color: #59636e; }
.body { padding: 16px; }
h3 { margin: 0 0 12px; font-size: 18px; }
table { border-collapse: collapse; margin: 12px 0; }
td, th { border: 1px solid #d1d9e0; padding: 6px 10px; text-align: left; font-size: 13px; }
tr:nth-child(even) { background: #f6f8fa; }
code { background: #eff1f3; border-radius: 4px; padding: 2px 5px; \
font: 12px "DejaVu Sans Mono", monospace; }
summary { margin: 3px 0; }
"""


def main() -> int:
    """Measure or render."""
    steps: dict[str, Callable[[Path], None]] = {"measure": measure, "render": render}
    if len(sys.argv) != 3 or sys.argv[1] not in steps:  # noqa: PLR2004 - the script, a word and a folder
        sys.stderr.write(f"{__doc__}\n")
        return 2
    steps[sys.argv[1]](Path(sys.argv[2]).resolve())
    return 0


def measure(folder: Path) -> None:
    """Gate head against base in a repository of two commits, after learning the noise.

    The commits are the backend before and after the pull request.
    """
    with tempfile.TemporaryDirectory() as scratch:
        repository = Path(scratch)
        git = (
            "git",
            "-C",
            scratch,
            "-c",
            "user.name=author",
            "-c",
            "user.email=author@example.org",
        )
        _run(*git, "init", "--quiet", "--initial-branch", "main")
        for source in ("fused.py", "fused_head.py"):
            shutil.copy(PICTURED / source, repository / "fused.py")
            shutil.copy(PICTURED / "ci-bench.yml", repository)
            _run(*git, "add", ".")
            _run(*git, "commit", "--quiet", "--message", source)
            if source == "fused.py":
                for number in range(CALIBRATIONS):
                    _ci_bench(
                        repository, "calibrate", "--output", str(folder / f"calibration-{number}")
                    )
                _run(*git, "switch", "--quiet", "--create", "faster-backend")
        _ci_bench(
            repository,
            "gate",
            "--baseline",
            "paired",
            "--base",
            "main",
            "--output",
            str(folder),
            "--format",
            "comment",
        )


def _ci_bench(repository: Path, *arguments: str) -> None:
    environ = {**os.environ, "CI_BENCH_NOISE": str(repository / ".git" / "noise")}
    done = subprocess.run([*CI_BENCH, *arguments], cwd=repository, env=environ, check=False)
    if done.returncode not in {0, 1}:
        raise SystemExit(f"{arguments[0]} ended with exit code {done.returncode}")


def render(folder: Path) -> None:
    """Take every picture."""
    from playwright.sync_api import sync_playwright

    browser = next(
        (
            path
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (path := shutil.which(name))
        ),
        None,
    )
    if browser is None:
        raise SystemExit("pictures: needs Chromium on PATH (tools/browser.sh installs Debian's)")
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as scratch:
        started = driver.chromium.launch(
            executable_path=browser, args=["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        )
        _comment(started, folder, Path(scratch))
        _report(started, folder, Path(scratch))
        _terminal(started, folder, Path(scratch))
        started.close()


def _comment(browser: Any, folder: Path, scratch: Path) -> None:
    """Draw the comment as GitHub shows it: with its own Markdown parser and a similar style."""
    markdown = _run(*CI_BENCH, "show", str(folder), "--format", "comment")
    body = cmarkgfm.github_flavored_markdown_to_html(markdown, options=Options.CMARK_OPT_UNSAFE)
    head = '<div class="head"><b>github-actions</b> bot commented</div>'
    path = _written(scratch / "comment.html", f"{_STYLED}{head}<div class=body>{body}</div></div>")
    page = _open(browser, path, width=1400)
    page.locator(".box").screenshot(path=IMAGES / "comment.png")


_STYLED = f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style><div class="box">'


def _report(browser: Any, folder: Path, scratch: Path) -> None:
    """Draw the top of the page in both themes, and the charts of the first case."""
    html = _run(*CI_BENCH, "show", str(folder), "--format", "html")
    path = _written(scratch / "report.html", html)
    for scheme in ("light", "dark"):
        page = _open(browser, path, scheme=scheme)
        page.locator(
            "#changes"
        ).scroll_into_view_if_needed()  # a chart is drawn when it comes into view
        page.wait_for_selector("#changes svg")
        page.evaluate("window.scrollTo(0, 0)")
        page.wait_for_timeout(500)
        page.screenshot(path=IMAGES / f"report-{scheme}.png")
        page.evaluate("document.querySelector('details.case').open = true")
        charts = page.locator("details.case .charts").first
        while charts.locator("[data-chart]:not([data-drawn])").count():
            charts.locator("[data-chart]:not([data-drawn])").first.scroll_into_view_if_needed()
            page.wait_for_timeout(50)
        charts.screenshot(path=IMAGES / f"charts-{scheme}.png")


def _terminal(browser: Any, folder: Path, scratch: Path) -> None:
    """Draw the output of `ci-bench show` as rich renders a terminal.

    A picture, since its SVG would load a font from elsewhere.
    """
    from rich.console import Console

    from ci_bench.records import documents
    from ci_bench.report.terminal import print_comparison

    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=80, file=nowhere, force_terminal=True)
        print_comparison(documents.read_comparison(folder / "comparison.json"), console)
        drawn = console.export_svg(title="ci-bench show comparison.json")
    page = _open(
        browser,
        _written(
            scratch / "terminal.html",
            f"<!doctype html><style>svg {{ width: 900px }}</style>{drawn}",
        ),
    )
    page.locator("svg").first.screenshot(path=IMAGES / "terminal.png")


def _open(browser: Any, path: Path, *, scheme: str = "light", width: int = 1200) -> Any:
    context = browser.new_context(
        viewport={"width": width, "height": 1000},
        color_scheme=scheme,
        offline=True,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(path.as_uri())
    return page


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
