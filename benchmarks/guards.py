"""Takes each guard of the trust boundary out of the code, and runs the tests that must fail then.

``python -m benchmarks.guards`` tries all of them; ``--only clock`` those whose hole, subject or
place has the text in it. The exit code is 0 where every named test failed, 1 where one did not, 2
where a guard is not where its table says.

The tables are `guards_*.toml`: what is possible without a guard, where it is (a file, in Python a
qualified name too), how it is taken out (`planting`), and the tests that must fail then. All of it
takes place in a copy of the tree, in an environment where it stands for the tree, so that processes
that a test starts have the change as well. The named tests are run there once without any change,
and have to pass; one that is skipped shows nothing.

Unlike `mutation`, which asks how much the tests of the judge notice of any small change, this asks
for every guard by its name.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from benchmarks.planting import Argued, Change, NotFound, Replaced, Returned
from benchmarks.tables import render

ROOT = Path(__file__).resolve().parent.parent
TABLES = tuple(Path(__file__).with_name(f"guards_{name}.toml") for name in ("github", "action"))
KILLED, SURVIVED, NOT_SHOWN = "killed", "survived", "not shown"
TEST_S, LIMIT_S = 120, 900
"""Seconds that a test may take, and that all tests of a guard may: one that hangs has noticed."""
_PLAIN = (
    "-q",
    "--assert=plain",
    "--import-mode=importlib",
    "-p",
    "no:cacheprovider",
    "-p",
    "pytest_timeout",
    f"--timeout={TEST_S}",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """A guard of the trust boundary."""

    subject: str
    """Heading of its table."""
    hole: str
    """What is possible without it."""
    file: str
    """Path of its source, from the root."""
    change: Change
    """Change that takes it out."""
    tests: tuple[str, ...]
    """Node ids of tests, each of which must fail then."""

    def planted(self, root: Path) -> str:
        """Return the text of its file without it. Raises `NotFound`."""
        try:
            return self.change.apply((root / self.file).read_text(encoding="utf-8"))
        except (NotFound, OSError, SyntaxError) as error:
            raise NotFound(f"guard not found: {self.hole}: {self.file}: {error}") from error

    @property
    def place(self) -> str:
        """The file, and the function in it."""
        within = getattr(self.change, "within", "")
        return f"{self.file}::{within}" if within else self.file


@dataclass(frozen=True, kw_only=True, slots=True)
class Fate:
    """How a guard ended; `words` say what was expected and did not happen."""

    guard: Guard
    ended: str
    words: str
    seconds: float


def read(tables: Iterable[Path]) -> list[Guard]:
    """All guards of the tables, in their order.

    Raises `NotFound` where an entry says no change, or no tests.
    """
    return [
        _guard(part, row)
        for table in tables
        for part in tomllib.loads(table.read_text(encoding="utf-8"))["part"]
        for row in part["guard"]
    ]


def _guard(part: Mapping[str, Any], row: Mapping[str, Any]) -> Guard:
    tests = tuple(test if ".py::" in test else f"{part['tests']}::{test}" for test in row["tests"])
    if not tests:
        raise NotFound(f"{row['hole']}: no test is named")
    file = row.get("file", part["file"])
    return Guard(
        subject=part["subject"], hole=row["hole"], file=file, change=_change(row), tests=tests
    )


def _change(row: Mapping[str, Any]) -> Change:
    """Return the change of a row, by the only key of its kind."""
    within = row.get("in", "")
    kinds: dict[str, Any] = {
        "never": lambda text: Replaced(within=within, sound=text, broken="False"),
        "always": lambda text: Replaced(within=within, sound=text, broken="True"),
        "without": lambda text: Replaced(within=within, sound=text, broken=""),
        "replace": lambda texts: Replaced(within=within, sound=texts[0], broken=texts[1]),
        "argument": lambda texts: Argued(within=within, sound=texts[0], broken=texts[1]),
        "returns": lambda text: Returned(within=within, value=text),
    }
    keys = [kind for kind in kinds if kind in row]
    if len(keys) != 1:
        raise NotFound(
            f"{row['hole']}: it says {' and '.join(keys) or 'no change'}; one of {', '.join(kinds)}"
            " is meant"
        )
    change: Change = kinds[keys[0]](row[keys[0]])
    return change


@contextmanager
def copied(root: Path) -> Iterator[Path]:
    """Copy a tree as it is, changes included, without ignored files."""
    with tempfile.TemporaryDirectory(prefix="guards-") as folder:
        copy = Path(folder) / root.name
        for name in _files(root):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name, follow_symlinks=False)
        yield copy


def _files(root: Path) -> list[str]:
    if not (root / ".git").exists():
        return [
            str(path.relative_to(root))
            for path in root.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        ]
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return [name for name in output.split("\0") if name and (root / name).exists()]


@contextmanager
def taken_out(guard: Guard, copy: Path) -> Iterator[None]:
    """Take a guard out of the copy, for the block.

    Bytecode goes too: it is known by second and size, which may be the same.
    """
    path = copy / guard.file
    sound, broken = path.read_text(encoding="utf-8"), guard.planted(copy)
    try:
        _write(path, broken)
        yield
    finally:
        _write(path, sound)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()


def interpreter_of(copy: Path, root: Path) -> Path:
    """Make an environment like this one, with the copy in the tree's place.

    Processes that tests start use it as well.

    Its packages are links; what names the tree (an editable install) or the interpreter (a
    program's first line) is written anew.
    """
    place, real = copy.parent / "environment", Path(sys.prefix)
    venv.create(place, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib"))
    for entry in packages.iterdir():
        there = place / packages.relative_to(real) / entry.name
        if entry.suffix == ".pth" and str(root) in (text := entry.read_text(encoding="utf-8")):
            there.write_text(text.replace(str(root), str(copy)), encoding="utf-8")
        elif not there.exists():
            there.symlink_to(entry)
    ours = (f"#!{real / 'bin' / 'python'}").encode()
    for program in (real / "bin").iterdir():
        there = place / "bin" / program.name
        if program.is_file() and not there.exists():
            content = program.read_bytes()
            if content.startswith(ours):
                there.write_bytes(content.replace(str(real).encode(), str(place).encode(), 1))
                there.chmod(0o755)
            else:
                there.symlink_to(program)
    return place / "bin" / "python"


def outcomes(copy: Path, tests: Iterable[str], python: Path, limit_s: float) -> dict[str, str]:
    """Run tests and return their outcomes by node id; ``""`` has the log if pytest failed.

    Outcomes are ``passed``, ``failed`` and ``skipped``.
    """
    report = copy.parent / "outcomes.xml"
    report.unlink(missing_ok=True)
    command = [
        str(python),
        "-m",
        "pytest",
        *_PLAIN,
        f"--junitxml={report}",
        "-o",
        "junit_family=xunit1",
        *dict.fromkeys(tests),
    ]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (copy / "src", copy))),
        "PATH": os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath))),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    log = ""
    with subprocess.Popen(
        command,
        cwd=copy,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            log = process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            log = f"nothing came for {limit_s:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if not report.exists():
        return {"": log}
    cases = ET.parse(report).iter("testcase")  # noqa: S314 - pytest wrote it
    outcome_of: dict[str, str] = {}
    for case in cases:
        name, kinds = _node_id(case), {child.tag for child in case}
        came_out = (
            "failed"
            if kinds & {"failure", "error"}
            else "skipped"
            if "skipped" in kinds
            else "passed"
        )
        outcome_of[name] = "failed" if "failed" in {came_out, outcome_of.get(name)} else came_out
    return (
        outcome_of
        if process.returncode in {0, 1}
        else {**outcome_of, "": " ".join(log.split())[-300:]}
    )


def _node_id(case: ET.Element) -> str:
    file = case.get("file", "")
    class_name = (
        str(case.get("classname"))
        .removeprefix(file.removesuffix(".py").replace("/", "."))
        .strip(".")
    )
    return "::".join(filter(None, (file, class_name, case.get("name"))))


def _of(test: str, outcome_of: Mapping[str, str]) -> set[str]:
    """Return the outcomes of a node id: of the test itself, or of all parameters of a function."""
    return {
        came_out
        for name, came_out in outcome_of.items()
        if name == test or name.startswith(f"{test}[")
    }


def fate(guard: Guard, copy: Path, sound: Mapping[str, str], python: Path) -> Fate:
    """Take a guard out, and run its tests."""
    begun = time.monotonic()
    unfit = {
        test: _of(test, sound)
        for test in guard.tests
        if _of(test, sound) - {"skipped"} != {"passed"}
    }
    if unfit:
        words = "; ".join(
            f"{test} {' and '.join(sorted(how)) or 'is not there'} with the guard in place"
            for test, how in unfit.items()
        )
        return Fate(guard=guard, ended=NOT_SHOWN, words=words, seconds=0.0)
    with taken_out(guard, copy):
        outcome_of = outcomes(copy, guard.tests, python, LIMIT_S)
    green = [test for test in guard.tests if "failed" not in _of(test, outcome_of)]
    ended, words = (SURVIVED, f"{', '.join(green)} stays green") if green else (KILLED, "")
    if green and "" in outcome_of:
        ended, words = NOT_SHOWN, f"the tests could not be run: {outcome_of['']}"
    return Fate(guard=guard, ended=ended, words=words, seconds=time.monotonic() - begun)


def tried(guards: Sequence[Guard], root: Path) -> Iterator[Fate]:
    """Yield the fate of each guard, once all their tests have passed without a change."""
    with copied(root) as copy:
        python = (
            interpreter_of(copy, root) if sys.prefix != sys.base_prefix else Path(sys.executable)
        )
        os.environ.setdefault(
            "CI_BENCH_ACTIONS", str(root / ".actions")
        )  # what git ignores is not copied
        sound = outcomes(
            copy, (test for guard in guards for test in guard.tests), python, 4 * LIMIT_S
        )
        if "" in sound:
            raise NotFound(f"the tests that are named cannot be run: {sound['']}")
        for guard in guards:
            yield fate(guard, copy, sound, python)


def scores(fates: Sequence[Fate]) -> list[dict[str, str]]:
    """Return a row for each subject, and one for all."""
    names = [*dict.fromkeys(fate.guard.subject for fate in fates), "all"]
    rows = []
    for name in names:
        subject_fates = [fate for fate in fates if name in {fate.guard.subject, "all"}]
        count = Counter(fate.ended for fate in subject_fates)
        ends = {end: str(count[end]) for end in (KILLED, SURVIVED, NOT_SHOWN)}
        rows.append(
            {
                "guards of": name,
                "guards": str(len(subject_fates)),
                **ends,
                "seconds": f"{sum(fate.seconds for fate in subject_fates):.0f}",
            }
        )
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Try the guards, print how they ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="guards that have this in hole, subject or place"
    )
    parser.add_argument(
        "--fates", type=Path, metavar="FILE", help="a line of JSON for each guard, as it ends"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree; this one unless told")
    parser.add_argument("--tables", type=Path, nargs="*", default=TABLES, metavar="FILE")
    arguments = parser.parse_args(argv)
    try:
        guards = read(arguments.tables)
        return _try(
            [
                guard
                for guard in guards
                if arguments.only in f"{guard.hole} {guard.subject} {guard.place}"
            ],
            arguments,
        )
    except NotFound as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _try(guards: Sequence[Guard], arguments: argparse.Namespace) -> int:
    root = arguments.root.resolve()
    lost = [error for guard in guards if (error := _trouble(guard, root))]
    if lost or not guards:
        raise NotFound("\n".join(lost) or f"no guard has {arguments.only!r} in it")
    fates = []
    for fate in tried(guards, root):
        fates.append(fate)
        sys.stderr.write(
            f"{len(fates)} of {len(guards)}: {fate.ended} "
            f" {fate.guard.hole}{f': {fate.words}' if fate.words else ''}\n"
        )
        if arguments.fates:
            row = {
                "hole": fate.guard.hole,
                "ended": fate.ended,
                "words": fate.words,
                "seconds": round(fate.seconds, 1),
            }
            with arguments.fates.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
    sys.stdout.write(render("Guards taken out", scores(fates)) + "\n")
    return int(any(fate.ended != KILLED for fate in fates))


def _trouble(guard: Guard, root: Path) -> str:
    try:
        guard.planted(root)
    except NotFound as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
