"""Makes docs/images/comment.png: the golden comment of a regression, rendered as GitHub renders Markdown, in a headless browser.

Run as ``python tools/picture.py [COMMENT.md]``. Needs cmarkgfm (a development dependency) and Chromium on PATH.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import cmarkgfm
from cmarkgfm.cmark import Options

ROOT = Path(__file__).resolve().parent.parent
STYLE = """
body { margin: 24px; background: #f6f8fa; font: 14px/1.5 -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; color: #1f2328; }
.box { border: 1px solid #d1d9e0; border-radius: 6px; background: #fff; }
.head { padding: 8px 16px; background: #f6f8fa; border-bottom: 1px solid #d1d9e0; border-radius: 6px 6px 0 0; color: #59636e; }
.body { padding: 16px; }
h3 { margin: 0 0 12px; font-size: 18px; }
table { border-collapse: collapse; margin: 12px 0; }
td, th { border: 1px solid #d1d9e0; padding: 6px 10px; text-align: left; font-size: 13px; }
tr:nth-child(even) { background: #f6f8fa; }
code { background: #eff1f3; border-radius: 4px; padding: 2px 5px; font: 12px "DejaVu Sans Mono", monospace; }
summary { margin: 3px 0; }
"""


def main() -> int:
    """Render and take the picture."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests" / "golden" / "comment_regressed.md"
    body = cmarkgfm.github_flavored_markdown_to_html(source.read_text(), options=Options.CMARK_OPT_UNSAFE)
    head = '<div class="head"><b>github-actions</b> bot commented</div>'
    page = f'<meta charset="utf-8"><style>{STYLE}</style><div class="box">{head}<div class="body">{body}</div></div>'
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.stderr.write("picture: needs Chromium on PATH\n")
        return 2
    target = ROOT / "docs" / "images" / "comment.png"
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "comment.html"
        html.write_text(page)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
        flags += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
        flags += [f"--user-data-dir={folder}/profile", "--window-size=1280,560", f"--screenshot={target}"]
        subprocess.run([browser, *flags, html.as_uri()], check=True, capture_output=True, timeout=120)
    return 0


if __name__ == "__main__":
    sys.exit(main())
