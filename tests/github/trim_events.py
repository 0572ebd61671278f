"""Cut GitHub's example payloads down to one of each event that a gate sees: ``python trim_events.py PAYLOADS OUT``.

PAYLOADS is `api.github.com/index.json` of the npm package `@octokit/webhooks-examples` (`npm pack
@octokit/webhooks-examples`, MIT). Addresses are left out, and nothing is put in: what a test needs
otherwise it sets itself.
"""

import json
import sys
from pathlib import Path
from typing import Any

WANTED = {
    "pull_request": lambda one: one.get("action") == "synchronize",
    "workflow_run": lambda one: (
        one.get("action") == "completed" and one["workflow_run"].get("path")
    ),
    "push": lambda one: (
        one.get("ref", "").startswith("refs/heads/") and one.get("after", "").strip("0")
    ),
    "merge_group": lambda _: True,
    "workflow_dispatch": lambda _: True,
    "issue_comment": lambda one: one.get("action") == "created",
}
NOTICE = "Payloads of @octokit/webhooks-examples {version}, MIT License, Gregor Martynus, cut down by trim_events.py."


def main(payloads: Path, out: Path) -> None:
    """Write one payload of each event."""
    version = json.loads((payloads.parents[1] / "package.json").read_text(encoding="utf-8"))[
        "version"
    ]
    by_name = {
        one["name"]: one["examples"] for one in json.loads(payloads.read_text(encoding="utf-8"))
    }
    chosen = {
        name: cut(next(one for one in by_name[name] if fits(one))) for name, fits in WANTED.items()
    }
    text = json.dumps(
        {"notice": NOTICE.format(version=version), **chosen}, indent=0, ensure_ascii=False
    )
    out.write_text(text + "\n", encoding="utf-8")


def cut(value: Any) -> Any:
    """A payload without addresses of any kind."""
    if isinstance(value, list):
        return [cut(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: cut(item)
        for key, item in value.items()
        if not key.endswith("url") and key not in {"_links", "email"}
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
