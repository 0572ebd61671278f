"""Writes ci-bench's comment as one note of a GitLab merge request, and sets a commit status.

Needs only Python.

Run in a job after the gate: ``python3 gitlab_note.py FOLDER``. Uses GitLab's predefined variables
and CI_BENCH_GITLAB_TOKEN, and the API of notes and commit statuses
(https://docs.gitlab.com/api/notes/, https://docs.gitlab.com/api/commits/).
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

MARK = "<!-- ci-bench -->"
"""The first line of our note: the next pipeline rewrites that note."""
STATES = {"passed": "success", "undecided": "success", "failed": "failed"}
ALREADY = 400
LONGEST = 255
"""Characters of a status's description."""


def ask(method: str, path: str, body: dict[str, object] | None = None) -> object:
    """Send a request about this project, and return the answer."""
    url = f"{os.environ['CI_API_V4_URL']}/projects/{os.environ['CI_PROJECT_ID']}/{path}"
    headers = {
        "PRIVATE-TOKEN": os.environ["CI_BENCH_GITLAB_TOKEN"],
        "Content-Type": "application/json",
    }
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def our_note(notes: str) -> int | None:
    """Return the number of the note that an earlier pipeline wrote."""
    page = 1
    while batch := ask("GET", f"{notes}?per_page=100&page={page}"):
        for note in batch:
            if note["body"].startswith(MARK):
                return note["id"]
        page += 1
    return None


def main(folder: Path) -> None:
    """Write the note, then the status."""
    notes = f"merge_requests/{os.environ['CI_MERGE_REQUEST_IID']}/notes"
    comment, comparison = folder / "comment.md", folder / "comparison.json"
    if comparison.exists():
        judgement = json.loads(comparison.read_text())["judgement"]
        text, state, headline = (
            comment.read_text(),
            STATES.get(judgement["verdict"], "failed"),
            judgement["headline"],
        )
    else:
        text, state, headline = (
            "**ci-bench measured nothing**: see the log of the job `gate`.",
            "failed",
            "nothing was measured",
        )
    number = our_note(notes)
    body = {"body": f"{MARK}\n{text}"}
    if number is None:
        ask("POST", notes, body)
    else:
        ask("PUT", f"{notes}/{number}", body)
    status = {
        "state": state,
        "name": "ci-bench",
        "description": headline[:LONGEST],
        "target_url": os.environ["CI_JOB_URL"],
    }
    # in a pipeline of merged results CI_COMMIT_SHA is a temporary merge commit
    commit = os.environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or os.environ["CI_COMMIT_SHA"]
    try:
        ask("POST", f"statuses/{commit}", status)
    except urllib.error.HTTPError as error:
        if error.code != ALREADY:
            raise
        print(
            f"the status is unchanged: {error.reason}"
        )  # GitLab refuses a state that a retried job sets again


if __name__ == "__main__":
    main(Path(sys.argv[1]))
