"""Take a new user's first hour in five small repositories.

It is from `ci-bench init` to an accepted change.

Run as ``python -m benchmarks.first_hour [--only WORD] [--step WORD] [--json FILE] FOLDER``. Every
gate is a real one, on the CPU, in a fresh home. FOLDER keeps repositories, logs and reports. Exit
code 1 if a step came out wrong.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.small_project import CONFIG, Edit, Project, Step
from benchmarks.small_projects import PROJECTS
from benchmarks.tables import publish, render
from ci_bench.commands.judging import COMPARISON, judge, paired_with
from ci_bench.configuration.accepting import load_accepted
from ci_bench.configuration.config import load_config
from ci_bench.records import documents
from ci_bench.records.acceptance import Acceptance
from ci_bench.records.comparison import Comparison

RUN = "run: {{device: cpu, blocks: {blocks}, max_launches: 5, warmup_s: 1, explain: never}}\n"
THRESHOLD = "\npolicy:\n  default_threshold: 30%\n"
EXIT_CODES = {
    step: int(step in {Step.SLOWER, Step.HARMFUL, Step.RENAMED, Step.DELETED}) for step in Step
}
BEGINNINGS = {
    Step.FIRST: "",
    Step.NEW: "Passed",
    Step.UNCHANGED: "Passed",
    Step.HARMLESS: "Passed",
    Step.ACCEPTED: "Passed",
}
"""The first words of a headline; those that fail begin with "Failed"."""
NOISE = re.compile(r"undecided \(|\d+ of \d+ metrics? \(")
"""Part of the headline of a run that a busy machine left open: it passes, as nothing got certainly
worse.
"""
ENVIRON = {
    f"GIT_{who}_{what}": "user@localhost"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Expected and observed end of one step."""

    project: Project
    """The repository."""
    step: Step
    """The step of the first hour."""
    code: int
    """The exit code of its command."""
    headline: str
    """The headline of the comparison, or the command's last words if there is none."""
    seconds: float
    """The wall time of the step (s)."""

    @property
    def expected(self) -> str:
        """First words of the headline, and the name that it contains."""
        beginning = "" if self.step is Step.INIT else BEGINNINGS.get(self.step, "Failed")
        return ": … ".join(filter(None, (beginning, self.project.headlines.get(self.step, ""))))

    @property
    def expected_code(self) -> int:
        """Exit code that the step should have.

        A run that compares nothing fails, so that no script takes it for a pass.
        """
        return int(self.expected.startswith("Nothing")) or EXIT_CODES[self.step]

    @property
    def is_right(self) -> bool:
        """True if exit code and headline are the expected ones."""
        if (
            self.step is not Step.INIT
            and self.expected.startswith("Passed")
            and NOISE.search(self.headline)
        ):
            return self.code == 0
        beginning, _, name = self.expected.partition(": … ")
        return (
            self.code == self.expected_code
            and self.headline.startswith(beginning)
            and name in self.headline
        )

    @property
    def cell(self) -> str:
        """Exit code, the first clause of the headline, and seconds, for the table."""
        clause = self.headline.partition(";")[0].partition(": more launches")[0].rstrip(".")
        return f"{self.code}: {clause} ({self.seconds:.0f} s)" + (
            "" if self.is_right else " **wrong**"
        )

    def row(self) -> dict[str, str]:
        """Return all about it, for the document."""
        return {
            "repository": self.project.kind,
            "step": self.step,
            "expected": f"{self.expected_code}, {self.expected}",
            "observed": f"{self.code}, {self.headline}" + ("" if self.is_right else " (wrong)"),
            "s": f"{self.seconds:.0f}",
        }


class FirstHour:
    """One repository on its way; each step is a branch of `main`."""

    def __init__(self, project: Project, folder: Path) -> None:
        """Write the repository, without ci-bench, and commit it."""
        self.project, self.folder = project, folder
        self.tree = folder / "tree"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "home").mkdir(parents=True)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GITHUB_", "CI_BENCH_"))
        }
        places = {"HOME": "home", "CI_BENCH_LOCKS": "locks", "CI_BENCH_NOISE": "noise"}
        self.environ = {
            **inherited,
            **ENVIRON,
            **{name: str(folder / place) for name, place in places.items()},
        }
        self.environ["PATH"] = (
            f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}"
        )
        for name, text in project.files.items():
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).write_text(text)
        self._git("init", "--quiet", "--initial-branch=main")
        self._commit("The repository as it is")

    def take(self, steps: Sequence[Step]) -> Iterator[Outcome]:
        """Yield the outcomes of these steps; `init` is taken first in any case."""
        began = time.monotonic()
        outcome = self._init(began)
        if Step.INIT in steps:
            yield outcome
        self._git("checkout", "--quiet", "-b", "first")
        self._finish()
        self._commit("Measure with ci-bench")
        if Step.FIRST in steps:
            yield self._gate(Step.FIRST)
        self._git("branch", "--force", "main")
        for step in steps:
            if step not in {Step.INIT, Step.FIRST, Step.ACCEPTED}:
                self._change(step)
                yield self._gate(step)
        if Step.ACCEPTED in steps:
            yield self._accept()

    def _init(self, began: float) -> Outcome:
        done = self._ci_bench("init", log=Step.INIT)
        matches = [
            line.strip()
            for line in done.stdout.splitlines()
            if self.project.headlines[Step.INIT] in line
        ]
        words = (matches or done.stdout.splitlines() or [""])[0]
        headline = words.split(maxsplit=1)[1] if matches else words
        return self._outcome(Step.INIT, done.returncode, headline, began)

    def _finish(self) -> None:
        """Edit what `init` wrote as its user does, and take settings that keep a gate short."""
        self._edit(self.project.finish)
        text = (self.tree / CONFIG).read_text()
        assert "policy:" not in text, text  # noqa: S101 - what init writes
        run = RUN.format(blocks=self.project.blocks)
        (self.tree / CONFIG).write_text(
            text.replace("\nsuites:", f"\n{run}\nsuites:", 1) + THRESHOLD
        )
        for words in (("validate", CONFIG), ("init", "--check")):
            if (done := self._ci_bench(*words)).returncode:
                raise SystemExit(
                    f"{self.project.kind}: ci-bench {' '.join(words)}:\n{done.stdout}{done.stderr}"
                )

    def _change(self, step: Step) -> None:
        self._git("checkout", "--quiet", "--force", "-B", step.name.lower(), "main")
        self._edit(self.project.changes.get(step, ()))
        self._commit(step)

    def _gate(self, step: Step) -> Outcome:
        began = time.monotonic()
        out = self._results(step)
        done = self._ci_bench("gate", "--base", "main", "--output", str(out), log=step)
        return self._outcome(step, done.returncode, _headline(out, done.stderr), began)

    def _accept(self) -> Outcome:
        """Judge the slower change again, with its entry.

        The job with a token does the same after a label.
        """
        began = time.monotonic()
        if not self._results(Step.SLOWER).exists():
            self._change(Step.SLOWER)
            self._gate(Step.SLOWER)
        self._git("checkout", "--quiet", "--force", "-B", "accepted", Step.SLOWER.name.lower())
        acceptance = (
            "accept",
            self.project.case,
            "--metric",
            "step_time",
            "--bound",
            "99999%",
            "--pull-request",
            "7",
        )
        done = self._ci_bench(*acceptance, "--reason", "checks its input now", log=Step.ACCEPTED)
        if done.returncode:
            return self._outcome(Step.ACCEPTED, done.returncode, done.stderr.strip(), began)
        judgement = self._judge_again().judgement
        return self._outcome(Step.ACCEPTED, int(judgement.exit_code), judgement.headline, began)

    def _judge_again(self) -> Comparison:
        out = self._results(Step.SLOWER)
        head, base = (
            documents.read_results(out / name) for name in ("results.json", "base/results.json")
        )
        policy = load_config(self.tree / CONFIG).policy
        entries = load_accepted(self.tree / documents.ACCEPTED_FILE)
        accepted = tuple(
            Acceptance(change=change, granted="maintainer, by label") for change in entries
        )
        folder = self._results(Step.ACCEPTED)
        return judge(head, paired_with(base), policy=policy, folder=folder, accepted=accepted)

    def _results(self, step: Step) -> Path:
        return self.folder / f"results-{step.name.lower()}"

    def _outcome(self, step: Step, code: int, headline: str, began: float) -> Outcome:
        return Outcome(
            project=self.project,
            step=step,
            code=code,
            headline=headline,
            seconds=time.monotonic() - began,
        )

    def _edit(self, edits: Sequence[Edit]) -> None:
        for edit in edits:
            path = self.tree / edit.file
            text = path.read_text() if path.exists() else ""
            if edit.old:
                assert text.count(edit.old) == 1, (  # noqa: S101 - the project's own text
                    edit,
                    text,
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(edit.old, edit.new) if edit.old else text + edit.new)

    def _ci_bench(self, *words: str, log: Step | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ci_bench.cli", *words]
        done = subprocess.run(
            command, cwd=self.tree, env=self.environ, capture_output=True, text=True, check=False
        )
        if log is not None:
            (self.folder / f"{log.name.lower()}.log").write_text(done.stdout + done.stderr)
        return done

    def _commit(self, message: str) -> None:
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "--message", message)

    def _git(self, *words: str) -> None:
        subprocess.run(
            ["git", *words], cwd=self.tree, env=self.environ, check=True, capture_output=True
        )


def _headline(out: Path, output: str) -> str:
    path = out / COMPARISON
    return (
        documents.read_comparison(path).judgement.headline
        if path.exists()
        else output.strip().splitlines()[-1]
    )


def table(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """Return one row for each step, with one column for each repository."""
    cells = {(outcome.step, outcome.project.kind): outcome for outcome in outcomes}
    kinds = list(dict.fromkeys(outcome.project.kind for outcome in outcomes))
    rows = []
    for step in dict.fromkeys(outcome.step for outcome in outcomes):
        step_outcomes = [cells[step, kind] for kind in kinds if (step, kind) in cells]
        codes = "/".join(sorted({str(cell.expected_code) for cell in step_outcomes}))
        words = " or ".join(sorted({cell.expected.partition(": … ")[0] for cell in step_outcomes}))
        by_kind = {ended.project.kind: ended.cell for ended in step_outcomes}
        expected = codes if step is Step.INIT else f"{codes}: {words}"
        rows.append(
            {
                "step": step.value,
                "expected": expected,
                **{kind: by_kind.get(kind, "–") for kind in kinds},
            }
        )
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Take the chosen steps, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--only", default="", metavar="WORD", help="repositories whose kind contains WORD"
    )
    parser.add_argument("--step", default="", metavar="WORD", help="steps whose name contains WORD")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    outcomes: list[Outcome] = []
    steps = [step for step in Step if options.step in step]
    for project in (candidate for candidate in PROJECTS if options.only in candidate.kind):
        for outcome in FirstHour(
            project, options.folder.resolve() / project.kind.replace(" ", "-")
        ).take(steps):
            outcomes.append(outcome)
            sys.stderr.write(f"{json.dumps(outcome.row(), ensure_ascii=False)}\n")
    rows: list[Mapping[str, str]] = [outcome.row() for outcome in outcomes]
    publish(render("A new user's first hour", table(outcomes)), {"rows": rows}, options.json)
    return int(not all(outcome.is_right for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
