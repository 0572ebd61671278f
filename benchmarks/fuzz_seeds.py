"""Documents that the readers accept: schema examples, other tools' files, and made-up ones."""

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from ci_bench.judge.times.calibration import fingerprint

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "schemas" / "examples" / "valid"
FOREIGN = ROOT / "tests" / "formats" / "data"
_RUNS = 24
_STEP = 16
"""Runs of the made-up history, and the one from which on its series is slower."""


def files(*paths: Path) -> tuple[bytes, ...]:
    """Return the contents of files."""
    return tuple(path.read_bytes() for path in paths)


def written(*values: Any) -> tuple[bytes, ...]:
    """Return values as JSON."""
    return tuple(json.dumps(value).encode() for value in values)


def archives() -> tuple[bytes, ...]:
    """Return artifacts as GitHub packs them, and a single document."""
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr("results.json", (EXAMPLES / "results.json").read_bytes())
        archive.writestr("base/results.json", b"{}")
    return (packed.getvalue(), *files(EXAMPLES / "results.json"))


def answers() -> tuple[bytes, ...]:
    """Return messages of workers."""
    progress = b'{"progress": {"arm": "plain", "done": 1, "total": 2}}\n'
    evidence = b'{"evidence": {"metrics": [], "checks": [], "parity": null, "facts": {"n": 1}}}\n'
    return (
        progress + b'{"done": {"calls": [3, 1]}}\n',
        evidence,
        b'{"fault": {"kind": "failed", "message": "no"}}\n',
    )


def events() -> tuple[bytes, ...]:
    """Return the examples of GitHub's events in one document: each reader takes its own."""
    every = json.loads((ROOT / "tests" / "github" / "data" / "events.json").read_text())
    kinds = [event for event in every.values() if isinstance(event, dict)]
    return written({key: value for event in kinds for key, value in event.items()})


def nasty() -> tuple[bytes, ...]:
    """Return texts that would be markup, separated by a separator."""
    return (
        b"@user #1 https://a.b",
        "| ` ``` </details> <!-- -->\x1e[a](b)\x1e\u202e".encode(),
        b"\n# x\n- [ ] y\n> z\x1e<img src=x>\x1e&lt;",
        b"</script><script>x()</script>\x1e\" onload='x'\x1e--></style>\x1ejavascript:x()",
        b"::error::x\x1e\x1b]0;x\x07\x1b[2J\x1e##[set-env x]\x1e=cmd|' /C calc'!A0\x1e${{ x }}",
    )


def measurements() -> bytes:
    """Return a document in our own format for other tools."""
    series = [
        {
            "name": "sum",
            "measure": "step_time",
            "unit": "ms",
            "better": "lower",
            "values": [1.2, 1.3],
        },
        {
            "name": "fill",
            "unit": "1/s",
            "better": "higher",
            "runs": [[1.0, 2.0], [3.0]],
            "warmups": [[9.0], [8.0]],
        },
    ]
    failed = [{"name": "x", "reason": "it broke"}]
    return json.dumps(
        {
            "kind": "measurements",
            "schema_version": 1,
            "tool": "t",
            "series": series,
            "failed": failed,
        }
    ).encode()


def histories() -> tuple[bytes, ...]:
    """Return histories of one machine: the example, and a longer one.

    Its series gets slower, with a new driver.
    """
    example = json.loads((EXAMPLES / "history.json").read_text())
    return written(example, history())


def history(
    identities: Sequence[Mapping[str, Any]] = (
        {"device": "cuda", "gpu": "NVIDIA H200", "driver": "570.1"},
    ),
) -> Any:
    """Return a history whose series is a tenth slower in its last third.

    Its runs take turns on the machines.
    """
    runs = [
        {
            "id": f"2030-01-{day:02}.1",
            "at": f"2030-01-{day:02}T12:00:00Z",
            "machine": 0 if day <= _STEP else len(identities) - 1,
            "tool_version": "1.0.0",
            "commit": f"{day:040x}",
            "url": f"https://github.com/owner/name/actions/runs/{day}",
        }
        for day in range(1, _RUNS + 1)
    ]
    values = [
        (1.1 if day > _STEP else 1.0) * 0.01 * (1 + 0.001 * (day % 3))
        for day in range(1, _RUNS + 1)
    ]
    metric = {
        "case": "fake/one[a=1]",
        "suite": "fake",
        "metric": "step_time",
        "arm": "eager",
        "unit": "s",
        "better": "lower",
    }
    return {
        "kind": "history",
        "schema_version": 1,
        "tool_version": "1.0.0",
        "machines": [
            {"fingerprint": fingerprint(identity), "identity": identity} for identity in identities
        ],
        "runs": runs,
        "series": [
            {
                **metric,
                "lane": "wall",
                "runs": [*range(_RUNS)],
                "values": values,
                "errors": [None] * _RUNS,
            }
        ],
    }


def repositories() -> tuple[bytes, ...]:
    """Return files of a project, a training script, and benchmarks."""
    project = (
        '[build-system]\nrequires = ["hatchling"]\n\n[project]\nname = "package"\ndependencies ='
        ' ["torch", "einops>=0.8"]\n'
    )
    script = (
        "import torch\n\nclass Net(torch.nn.Module):\n    def __init__(self, width=8):\n       "
        " super().__init__()\n"
    )
    script += (
        "        self.linear = torch.nn.Linear(width, 8)\n\n    def forward(self, x):\n       "
        " return self.linear(x)\n\n"
    )
    script += (
        "def main():\n    loss.backward()\n    print(step, loss)\n\nif __name__ == '__main__':\n   "
        " main()\n"
    )
    return (
        project.encode(),
        script.encode(),
        *files(*sorted(ROOT.glob("examples/*/benchmarks/*.py"))),
    )


def training() -> tuple[bytes, ...]:
    """Return JSON lines of two ranks, the state of transformers' trainer, and logs."""
    ranks = [
        {"rank": rank, "loss": 2.5, "grad_norm": 1, "clock": 1.5, "tokens": 8} for rank in (1, 0)
    ]
    lines = [{"step": step, **rank} for step in (0, 1) for rank in ranks]
    state = {
        "log_history": [
            {"loss": 4.25, "grad_norm": 1.5, "step": 1},
            {"train_loss": 4.18, "step": 2},
        ]
    }
    log = (
        "iter 0: loss 10.98, time 31.20ms\n\x1b[31mstep:  1  loss:  8.1e-1  grad_norm: "
        " 1,200.5\x1b[39m\n{'loss': 'nan'}\n"
    )
    return (
        "\n".join(map(json.dumps, lines)).encode(),
        json.dumps(state, indent=1).encode(),
        log.encode(),
    )


def training_events() -> tuple[bytes, ...]:
    """Return event files and a run of W&B, as the tools made them."""
    folder = ROOT / "tests" / "formats" / "training_data"
    return files(*sorted(folder.glob("*/*tfevents*")), *sorted(folder.glob("*.wandb")))


def github_answers() -> tuple[bytes, ...]:
    """Return answers of GitHub's API: a list of artifacts, a pull request, comments, an error."""
    run = {
        "id": 5,
        "repository_id": 7,
        "head_repository_id": 7,
        "head_branch": "main",
        "head_sha": "ab" * 20,
    }
    artifact = {
        "id": 3,
        "name": "ci-bench",
        "size_in_bytes": 10,
        "created_at": "2030",
        "expired": False,
        "workflow_run": run,
    }
    side = {"ref": "main", "sha": "ab" * 20, "repo": {"id": 7, "fork": False, "full_name": "o/r"}}
    marker = f"<!-- ci-bench:v1 key=default run=17 attempt=1 head={'ab' * 20} -->"
    comment = {
        "id": 9,
        "body": f"{marker}\nx",
        "user": {"login": "github-actions[bot]"},
        "html_url": "https://github.com/o/r/1",
    }
    pull = {
        "number": 4,
        "state": "open",
        "base": side,
        "head": side,
        "merge_base_commit": {"sha": "cd" * 20},
    }
    refused = {
        "artifacts": [],
        "message": "Validation Failed",
        "errors": [{"field": "body", "code": "custom", "message": "too long"}],
    }
    return written(
        {"artifacts": [artifact, artifact], **pull, **run},
        [comment, {**pull, "sha": "ab" * 20}],
        refused,
    )


def headers() -> tuple[bytes, ...]:
    """Return headers of GitHub's answers."""
    return (
        b"Wed, 21 Oct 2030 07:28:00 GMT",
        (
            b'<https://api.github.com/repositories/1/pulls?page=2>; rel="next",'
            b' <https://api.github.com/x>; rel="last"'
        ),
        b"120",
        b"https://[::1]:443/repos/o/r",
    )


def progress() -> tuple[bytes, ...]:
    """Return notes of how far an interrupted run came."""
    return written(
        {"kind": "progress", "schema_version": 1, "launches": {"fake/one": 3, "fake/two": 0}}
    )


def holders() -> tuple[bytes, ...]:
    """Return files that name the holder of a device."""
    return written({"pid": 4711, "since": "2030-01-31T12:00:00+00:00"})


def absences() -> tuple[bytes, ...]:
    """Return reasons why `fetch-baseline` found nothing."""
    return written(
        {"outcome": "none", "reason": "no-artifact", "message": "no run has left one yet"}
    )
