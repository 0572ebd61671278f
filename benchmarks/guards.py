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

from benchmarks.planting import Argued, Change, Keyed, Lined, NotFound, Replaced, Returned
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
    """One guard: what is possible without it, where it is, how it is taken out, and the node ids of which each must fail then."""

    subject: str
    hole: str
    file: str
    change: Change
    tests: tuple[str, ...]

    def planted(self, root: Path) -> str:
        """The text of its file without it. Raises `NotFound`."""
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
    """The change that a row says, by the only key of its kind."""
    within = row.get("in", "")
    kinds: dict[str, Any] = {
        "never": lambda text: Replaced(within=within, sound=text, broken="False"),
        "always": lambda text: Replaced(within=within, sound=text, broken="True"),
        "without": lambda text: Replaced(within=within, sound=text, broken=""),
        "replace": lambda texts: Replaced(within=within, sound=texts[0], broken=texts[1]),
        "argument": lambda texts: Argued(within=within, sound=texts[0], broken=texts[1]),
        "returns": lambda text: Returned(within=within, value=text),
        "key": lambda path: Keyed(path=tuple(path), broken=row.get("value")),
        "line": lambda texts: Lined(sound=texts[0], broken=texts[1]),
    }
    said = [kind for kind in kinds if kind in row]
    if len(said) != 1:
        raise NotFound(
            f"{row['hole']}: it says {' and '.join(said) or 'no change'}; one of {', '.join(kinds)}"
            " is meant"
        )
    made: Change = kinds[said[0]](row[said[0]])
    return made


@contextmanager
def copied(root: Path) -> Iterator[Path]:
    """A copy of a tree as it is, changes included, without what git ignores."""
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
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    told = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout
    return [name for name in told.split("\0") if name and (root / name).exists()]


@contextmanager
def taken_out(guard: Guard, copy: Path) -> Iterator[None]:
    """The copy without a guard, for the block.

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
    """An environment like the one that this runs in, but with the copy in the tree's place: also for processes that tests start.

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
    """How tests came out, by node id: ``passed``, ``failed`` or ``skipped``; ``""`` where pytest could not do its work."""
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
    said = ""
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
            said = process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            said = f"nothing came for {limit_s:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if not report.exists():
        return {"": said}
    cases = ET.parse(report).iter("testcase")  # noqa: S314 - pytest wrote it
    found: dict[str, str] = {}
    for case in cases:
        name, kinds = _node_id(case), {child.tag for child in case}
        came_out = (
            "failed"
            if kinds & {"failure", "error"}
            else "skipped"
            if "skipped" in kinds
            else "passed"
        )
        found[name] = "failed" if "failed" in {came_out, found.get(name)} else came_out
    return found if process.returncode in {0, 1} else {**found, "": " ".join(said.split())[-300:]}


def _node_id(case: ET.Element) -> str:
    file = case.get("file", "")
    own = (
        str(case.get("classname"))
        .removeprefix(file.removesuffix(".py").replace("/", "."))
        .strip(".")
    )
    return "::".join(filter(None, (file, own, case.get("name"))))


def _of(test: str, found: Mapping[str, str]) -> set[str]:
    """How the tests of a node id came out: the one itself, or all parameters of a function."""
    return {
        came_out for name, came_out in found.items() if name == test or name.startswith(f"{test}[")
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
        found = outcomes(copy, guard.tests, python, LIMIT_S)
    green = [test for test in guard.tests if "failed" not in _of(test, found)]
    ended, words = (SURVIVED, f"{', '.join(green)} stays green") if green else (KILLED, "")
    if green and "" in found:
        ended, words = NOT_SHOWN, f"the tests could not be run: {found['']}"
    return Fate(guard=guard, ended=ended, words=words, seconds=time.monotonic() - begun)


def tried(guards: Sequence[Guard], root: Path) -> Iterator[Fate]:
    """The fate of each guard, once all their tests have passed without a change."""
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
    """A row for each subject, and one for all."""
    names = [*dict.fromkeys(one.guard.subject for one in fates), "all"]
    rows = []
    for name in names:
        own = [one for one in fates if name in {one.guard.subject, "all"}]
        count = Counter(one.ended for one in own)
        ends = {end: str(count[end]) for end in (KILLED, SURVIVED, NOT_SHOWN)}
        rows.append(
            {
                "guards of": name,
                "guards": str(len(own)),
                **ends,
                "seconds": f"{sum(one.seconds for one in own):.0f}",
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
            [one for one in guards if arguments.only in f"{one.hole} {one.subject} {one.place}"],
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
    for one in tried(guards, root):
        fates.append(one)
        sys.stderr.write(
            f"{len(fates)} of {len(guards)}: {one.ended} "
            f" {one.guard.hole}{f': {one.words}' if one.words else ''}\n"
        )
        if arguments.fates:
            row = {
                "hole": one.guard.hole,
                "ended": one.ended,
                "words": one.words,
                "seconds": round(one.seconds, 1),
            }
            with arguments.fates.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
    sys.stdout.write(render("Guards taken out", scores(fates)) + "\n")
    return int(any(one.ended != KILLED for one in fates))


def _trouble(guard: Guard, root: Path) -> str:
    try:
        guard.planted(root)
    except NotFound as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
