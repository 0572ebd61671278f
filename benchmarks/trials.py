"""Run the programs of `benchmarks.corpus` through real gates.

Cheats must be noticed, honest programs must pass.

Run as ``python -m benchmarks.trials [--suite NAME] [--only WORD] [--at-once N] [--json FILE]
FOLDER``. Programs of one suite and kind share a repository and a gate, N of them at most: each is a
case of its own. FOLDER keeps repositories and reports. A program is *refused* by a failing finding
of its case, *warned* of by another one, and *passes* otherwise. Exit code 1 if any came out wrong.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus import Program, backends, commands, functions
from benchmarks.tables import publish, render

RUN = (
    "{device: cpu, threads: 1, sampling: adaptive, launches: 1, max_launches: 5, blocks: 4,"
    " warmup_s: 0.3, sample_s: 0.005, explain: never, compile_budget_s: 0}"
)
POLICY = "{default_threshold: 60%}"
"""Times of a busy machine; what cheats in time takes three times as long."""
OF_THE_MACHINE = frozenset({"disturbed", "undecided", "inconclusive", "case_new"})
"""Rules that say how quiet it was, and nothing of the program."""
AT_ONCE = 12
GIT = {
    f"GIT_{who}_{what}": "trial@localhost"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """Verdict on a program: ``refused``, ``warned``, ``passes`` or ``missing``, by a `rule`."""

    program: Program
    verdict: str
    rule: str
    exit_code: int

    @property
    def is_right(self) -> bool:
        """True if a cheat was noticed, or an honest program was not refused."""
        return (
            self.verdict in {"refused", "warned"}
            if self.program.cheats
            else self.verdict in {"passes", "warned"}
        )

    def row(self) -> dict[str, str]:
        """Return a row of the table."""
        kind = "cheat" if self.program.cheats else "honest"
        wrong = "" if self.is_right else " (wrong)"
        return {
            "program": self.program.name,
            "suite": self.program.suite,
            "kind": kind,
            "verdict": self.verdict + wrong,
            "because of": self.rule,
            "exit code of its gate": str(self.exit_code),
        }


def all_programs() -> list[Program]:
    """Return every program of the corpus."""
    return [*functions.programs(), *commands.programs(), *backends.programs()]


def groups(programs: Sequence[Program], at_once: int) -> Iterator[tuple[Program, ...]]:
    """Yield programs that share a gate: of one suite, and all cheats or all honest."""
    for kind in dict.fromkeys((program.suite, program.cheats) for program in programs):
        members = [program for program in programs if (program.suite, program.cheats) == kind]
        yield from (
            tuple(members[start : start + at_once]) for start in range(0, len(members), at_once)
        )


def make_repository(folder: Path, programs: Sequence[Program]) -> None:
    """Create a repository whose branch `base` is base, and whose work tree is head."""
    folder.mkdir(parents=True)
    entries = "".join(f"    - {program.entry}\n" for program in programs)
    config = (
        f"schema_version: 1\nrun: {RUN}\npolicy: {POLICY}\nsuites:\n "
        f" {programs[0].suite}:\n{entries}"
    )
    _git(folder, "init", "-q", "-b", "main")
    _write(
        folder,
        {
            "ci-bench.yml": config,
            **{name: text for program in programs for name, text in program.base.items()},
        },
    )
    _commit(folder, "base")
    _git(folder, "branch", "base")
    _write(folder, {name: text for program in programs for name, text in program.head.items()})
    _commit(folder, "head")


def gate(folder: Path, out: Path) -> tuple[int, Mapping[str, Any] | None]:
    """Return the gate's exit code, and its comparison if it wrote one."""
    command = [
        sys.executable,
        "-m",
        "ci_bench.cli",
        "gate",
        "--baseline",
        "paired",
        "--base",
        "base",
        "--output",
        str(out),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    (folder.parent / f"{folder.name}.log").write_text(done.stdout + done.stderr)
    comparison = out / "comparison.json"
    return done.returncode, json.loads(comparison.read_text()) if comparison.exists() else None


def read(program: Program, exit_code: int, comparison: Mapping[str, Any] | None) -> Result:
    """Return a gate's verdict on one program."""
    prefix = f"{program.case}["
    case_ids = [
        case["id"] for case in (comparison or {}).get("cases", ()) if prefix in f"{case['id']}["
    ]
    findings = [
        finding
        for finding in ((comparison or {}).get("judgement") or {}).get("findings", ())
        if finding.get("case") in case_ids
    ]
    failing = [finding["rule"] for finding in findings if finding["severity"] == "fail"]
    telling = [
        finding["rule"]
        for finding in findings
        if finding["severity"] == "warn" and finding["rule"] not in OF_THE_MACHINE
    ]
    verdict = (
        "missing" if not case_ids else "refused" if failing else "warned" if telling else "passes"
    )
    return Result(
        program=program,
        verdict=verdict,
        rule=next(iter([*failing, *telling]), ""),
        exit_code=exit_code,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen programs, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--suite")
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    chosen = [
        program
        for program in all_programs()
        if options.suite in {None, program.suite} and options.only in program.name
    ]
    results: list[Result] = []
    for number, group in enumerate(groups(chosen, options.at_once)):
        repository, out = (
            options.folder.resolve() / f"{name}-{number}" for name in ("trial", "out")
        )
        make_repository(repository, group)
        exit_code, comparison = gate(repository, out)
        results += [read(program, exit_code, comparison) for program in group]
        sys.stderr.writelines(
            f"{' | '.join(result.row().values())}\n" for result in results[-len(group) :]
        )
    rows = [result.row() for result in results]
    publish(render("Programs through real gates", rows), {"rows": rows}, options.json)
    return int(not all(result.is_right for result in results))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


def _commit(folder: Path, message: str) -> None:
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "--allow-empty", "-m", message)


def _git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, env={**os.environ, **GIT}
    )


if __name__ == "__main__":
    raise SystemExit(main())
