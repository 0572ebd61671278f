"""Suites from the measured tree (`plugins:` of the configuration), planned in separate processes.

So are benchmarks of the suite `functions` whose decorators say something that only importing them
can tell.

Their code is code under test. So it is never imported here: `suites.shared.planning.planner` runs
it with the tree in front of its path, without anything secret in its environment and with a time
limit, and its answer is read as data. A plugin that is installed with ci-bench (an entry point) was
chosen by the person who installed it, and is imported; see `suites.contract`.
"""

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from ci_bench.checkouts.shell import run_command
from ci_bench.checkouts.sides import Side, caller_environment
from ci_bench.errors import BadConfig, NoSuiteInTree, NothingInTree, PlannerDied, UnknownSuite
from ci_bench.processes.users import give, users_of
from ci_bench.records.results import Case
from ci_bench.suites.contract import Stage, Suite
from ci_bench.suites.functions.plan import Functions
from ci_bench.suites.registry import find_suite
from ci_bench.suites.shared.planning.own_code import of_modules
from ci_bench.suites.shared.planning.planner import PlanAnswer, PlannedCase, PlanRequest

TIMEOUT_S = 120.0
MOST_BYTES = 16 << 20
KILLED = 128
"""Above this, the exit code of a shell whose command was ended by a signal."""
BY_IMPORT = "ci_bench.suites.functions.importing:SUITE"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanningTree:
    """A tree whose code plans, with the environment, interpreter and user that start it."""

    folder: Path
    environ: Mapping[str, str]
    python: Path = field(default_factory=lambda: Path(sys.executable))
    user: int | None = None


def caller_tree(folder: Path, environ: Mapping[str, str]) -> PlanningTree:
    """Return the tree that the caller is in, as head's user if sides have users."""
    users = users_of(environ)
    return PlanningTree(
        folder=folder,
        environ=caller_environment(folder, environ),
        user=users.head if users else None,
    )


def side_tree(side: Side) -> PlanningTree:
    """Return the tree of a side that is ready to be measured."""
    return PlanningTree(
        folder=side.folder or Path(), environ=side.environ, python=side.python, user=side.user
    )


@dataclass(kw_only=True, slots=True)
class TreeSuite(Suite):
    """A suite of a tree, by import path. Planning one entry is one process."""

    name: str
    """The suite's name."""
    target: str
    """Import path of the suite in the tree."""
    tree: PlanningTree
    """The tree whose code plans."""
    worker: str
    """Module of its workers, imported only in the tree's own processes."""
    preload: tuple[str, ...] = field()
    """Modules that its workers import first."""
    options_schema: Mapping[str, Any] = field()
    """JSON Schema of one entry."""
    planned: dict[str, PlannedCase] = field(default_factory=dict)
    """Planned cases by id."""

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Plan the cases of one entry.

        Raises `BadConfig` in the suite's own words, and `UnknownSuite` if it breaks down.
        """
        answer = _ask(
            f"plugins.{self.name}", PlanRequest(target=self.target, entry=options), self.tree
        )
        if answer.fault is not None:
            raise BadConfig(answer.fault)
        body = of_modules((self.target.partition(":")[0], self.worker), self.tree.folder)
        cases = tuple(replace(planned.case, body=body) for planned in answer.cases)
        for case in cases:
            if case.suite != self.name:
                raise UnknownSuite(
                    f"plugins.{self.name}: its case {case.id!r} says that its suite is"
                    f" {case.suite!r}; name both alike"
                )
        self.planned.update({planned.case.id: planned for planned in answer.cases})
        return cases

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Return the stages that the suite planned."""
        return self.planned[case.id].stages

    def needs_network(self, case: Case) -> bool:
        """Return whether the suite needs the network for the case."""
        return self.planned[case.id].needs_network


def open_suites(
    plugins: Mapping[str, str], folder: Path, environ: Mapping[str, str]
) -> dict[str, TreeSuite]:
    """Open the suites of the tree at `folder`, by name.

    Raises:
        UnknownSuite: one cannot be imported there, takes too long, or is not a suite.
    """
    tree = caller_tree(folder, environ) if plugins else None
    return {
        name: open_suite(name, target, tree) for name, target in plugins.items() if tree is not None
    }


def functions_of(folder: Path, tree: Callable[[], PlanningTree]) -> Functions:
    """Return the built-in suite of functions, for the tree at `folder`.

    Files that have to be imported are, in a separate process of the `tree`.
    """

    def plan_by_import(options: Mapping[str, Any]) -> tuple[Case, ...]:
        answer = _ask("suites.functions", PlanRequest(target=BY_IMPORT, entry=options), tree())
        if answer.fault is not None:
            raise (
                NothingInTree(answer.fault)
                if answer.absent
                else BadConfig(answer.fault + _installed_hint(answer.fault))
            )
        return tuple(planned.case for planned in answer.cases)

    return Functions(folder=folder, plan_by_import=plan_by_import)


def _installed_hint(fault: str) -> str:
    """Return the next step if a module is missing that `setup` may install."""
    if "ModuleNotFoundError" not in fault:
        return ""
    return (
        "; install it next to ci-bench, or let `ci-bench setup --prepared DIR` install it for `gate"
        " --prepared DIR`"
    )


def finder(suites: Mapping[str, Suite]) -> Callable[[str], Suite]:
    """Find a suite by name: one of `suites`, a built-in one, or one that is installed."""
    return lambda name: suites[name] if name in suites else find_suite(name)


def open_suite(name: str, target: str, tree: PlanningTree) -> TreeSuite:
    """Open one suite of a tree. Raises what `open_suites` raises."""
    about = _ask(f"plugins.{name}", PlanRequest(target=target), tree)
    fault = _fault_of_form(about.options_schema)
    if fault is not None:
        raise UnknownSuite(
            f"plugins.{name}: options_schema of {target} is not a usable JSON Schema: {fault}"
        )
    return TreeSuite(
        name=name,
        target=target,
        tree=tree,
        worker=about.worker,
        preload=about.preload,
        options_schema=about.options_schema,
    )


def _reason(tail: str) -> str:
    """Explain why planning ended.

    If a name does not exist, only the error is shown, without the traceback.
    """
    last = tail.strip().rpartition("\n")[2]
    if last.startswith(("ModuleNotFoundError: ", "AttributeError: module ")):
        return f"{last}; correct plugins in the configuration, or install what is missing"
    return tail or "(it said nothing)"


def _fault_of_form(form: Mapping[str, Any]) -> str | None:
    """Return the fault of a JSON Schema from the tree.

    A reference to another schema is a fault, since it would be fetched.
    """
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(form)
    except SchemaError as error:
        return error.message
    elsewhere = [target for target in _references(form) if not target.startswith("#")]
    return f"it refers to {elsewhere[0]!r}, outside of itself" if elsewhere else None


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (str(value[name]) for name in ("$ref", "$dynamicRef") if name in value)
        yield from (target for inner in value.values() for target in _references(inner))
    elif isinstance(value, list):
        yield from (target for inner in value for target in _references(inner))


def _ask(place: str, request: PlanRequest, tree: PlanningTree) -> PlanAnswer:
    """Plan in a separate process. `place` is the field of the configuration that errors name."""
    with TemporaryDirectory(prefix="ci-bench-") as scratch:
        request_file, answered, log = (
            Path(scratch) / part for part in ("asked.json", "answered.json", "log")
        )
        request_file.write_bytes(msgspec.json.encode(request))
        give(Path(scratch), tree.user)
        visible = {
            **tree.environ,
            **({"HOME": scratch, "TMPDIR": scratch} if tree.user is not None else {}),
        }
        command = shlex.join(
            [
                str(tree.python),
                "-P",
                "-m",
                "ci_bench.suites.shared.planning.planner",
                str(request_file),
                str(answered),
            ]
        )
        ended = run_command(
            command,
            folder=tree.folder,
            environ=visible,
            timeout_s=TIMEOUT_S,
            log=log,
            user=tree.user,
        )
        if ended.timed_out:
            raise PlannerDied(f"{place}: {request.target} did not plan within {TIMEOUT_S:g} s")
        if ended.code < 0 or ended.code > KILLED:
            raise PlannerDied(
                f"{place}: the process that planned {request.target} was killed (exit code"
                f" {ended.code})"
            )
        if ended.code or answered.is_symlink() or not answered.is_file():
            what = f"{request.target} cannot be imported and asked for a plan"
            message = f"{place}: {what}, from {tree.folder} or its src: {_reason(ended.tail)}"
            raise (
                NoSuiteInTree(message)
                if _leads_nowhere(request.target, ended.tail)
                else UnknownSuite(message)
            )
        try:
            with answered.open("rb") as stream:
                return msgspec.json.decode(stream.read(MOST_BYTES), type=PlanAnswer)
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            raise UnknownSuite(
                f"{place}: {request.target} is not a suite as described in docs/plugins.md: {error}"
            ) from error


def _leads_nowhere(target: str, tail: str) -> bool:
    """Return whether planning ended because a module or its attribute is missing.

    The module is one on the import path.
    """
    module, _, attribute = target.partition(":")
    last = tail.strip().rpartition("\n")[2]
    missing = re.search(r"No module named '([^']+)'$", last)
    if missing is not None:
        return module == missing[1] or module.startswith(f"{missing[1]}.")
    return last == f"AttributeError: module '{module}' has no attribute '{attribute}'"
