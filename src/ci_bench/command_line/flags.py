"""The command line's grammar: commands, flags and their help. Owns words, does nothing."""

import argparse
from collections.abc import Callable, Container, Mapping
from pathlib import Path

from ci_bench import __version__
from ci_bench.command_line.github_flags import add_github
from ci_bench.command_line.parsers import Parser, list_commands, share
from ci_bench.command_line.shared_flags import (
    DEFAULT_OUTPUT,
    add_actions,
    add_base,
    add_benchmarks,
    add_comment_author,
    add_config,
    add_device,
    add_filter,
    add_measuring,
    add_noise,
    add_output,
)

FORMS = (
    "terminal",
    "comment",
    "markdown",
    "html",
    "json",
    "junit",
    "code-quality",
    "badge",
    "time",
)
"""Forms of a verdict."""
SHELLS = ("bash", "zsh", "fish")


def make_parser(words: Container[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser; the name of the command is `command` in the parsed arguments.

    A command that is not among the `words` of a command line gets no flags: making those takes
    longer than all else.
    """
    parser = Parser(
        prog="ci-bench",
        usage="ci-bench [-h] [--version] [-v] COMMAND ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Gate pull requests on GPU performance and loss parity.",
        epilog=(
            "Exit codes: 0 policy met, 1 not met, 2 bad input, 3 measuring failed, 4 not"
            " comparable, 5 GitHub unreachable."
        ),
    )
    parser.add_argument("--version", action="version", version=f"ci-bench {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="log what is done")
    script = (
        "print a script for tab completion, for the start file of bash, zsh or fish: eval"
        ' "$(ci-bench --completion bash)"'
    )
    parser.add_argument("--completion", choices=SHELLS, help=script)
    summaries = {name: summary for name, (summary, _) in GRAMMAR.items()}
    overview = (
        list_commands(summaries)
        if words is None or not any(name in words for name in GRAMMAR)
        else None
    )
    subparsers = parser.add_subparsers(
        title="commands",
        description=overview,
        prog="ci-bench",
        metavar="COMMAND",
        help=argparse.SUPPRESS,
    )
    for name, (summary, add_flags) in GRAMMAR.items():
        subparser = subparsers.add_parser(name, description=summary[0].upper() + summary[1:] + ".")
        if words is None or name in words:
            add_flags(subparser)
        subparser.set_defaults(command=name)
    return parser


def _init(parser: argparse.ArgumentParser) -> None:
    check = "write nothing: report what has gone stale, and exit with 1 if anything has"
    parser.add_argument("--check", action="store_true", help=check)


def _run(parser: argparse.ArgumentParser) -> None:
    add_benchmarks(parser)
    add_measuring(parser)
    _resume(parser)
    _save_outputs(parser)


def _save_outputs(parser: argparse.ArgumentParser) -> None:
    saved = (
        "keep the output tensors of reference arms next to results.json, to compare later runs with"
    )
    parser.add_argument("--save-outputs", action="store_true", help=saved)


def _resume(parser: argparse.ArgumentParser) -> None:
    how = (
        "resume the interrupted run in the output folder; refused if configuration, commit or"
        " machine differ"
    )
    parser.add_argument("--resume", action="store_true", help=how)


def _gate(parser: argparse.ArgumentParser) -> None:
    add_benchmarks(parser)
    add_measuring(parser)
    _resume(parser)
    _save_outputs(parser)
    baseline = (
        "paired: measure the base commit in this run, in turns; artifact; none; or an earlier run's"
        " results.json or folder"
    )
    parser.add_argument("--baseline", metavar="WORD|PATH", help=baseline)
    add_base(parser)
    prepared = (
        "measure the two sides that `ci-bench setup` prepared in DIR; implies --baseline paired"
    )
    parser.add_argument("--prepared", type=Path, metavar="DIR", help=prepared)
    _fleet(parser)
    fetched = (
        "with --baseline artifact: the folder that `ci-bench github fetch-baseline` wrote, in an"
        " earlier step with a token"
    )
    parser.add_argument("--fetched", type=Path, metavar="DIR", help=fetched)
    add_noise(parser)
    learn = (
        "learn this machine's noise from the first launches, and keep it with the calibrations;"
        " only for trusted code"
    )
    parser.add_argument("--learn", action="store_true", help=learn)
    _view(parser)
    save = "keep this run at --baseline for the next one, if the policy is met"
    parser.add_argument("--save-baseline", action="store_true", help=save)


def _fleet(parser: argparse.ArgumentParser) -> None:
    how = (
        "run on a fleet, with --prepared in a folder that all nodes share, or with the sources sent"
        " to each node: local, local:cuda:0,cuda:1, ray (a cluster for this run), ray:ADDRESS,"
        " slurm, slurm:partition=gpu,constraint=h100"
    )
    parser.add_argument("--fleet", metavar="ENGINE", help=how)
    spent = (
        "total slot time of all leases, in seconds; no lease starts that is expected to exceed it"
    )
    parser.add_argument("--gpu-seconds", type=float, metavar="S", help=spent)
    _image(parser)
    needs = "a label that a slot must have (repeatable)"
    parser.add_argument("--needs", action="append", default=[], metavar="NAME=VALUE", help=needs)


def _image(parser: argparse.ArgumentParser) -> None:
    caged = (
        "run leases in containers of this ci-bench image: no network, read-only, with only the"
        " lease's GPU"
    )
    parser.add_argument("--image", metavar="NAME@sha256:…", help=caged)


def _slots(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ci-bench fleet`, each with its own flags."""
    actions = add_actions(parser)
    engine = "local:cuda:0,cuda:1, ray:ADDRESS, slurm:partition=gpu, as --fleet of gate"
    status = actions.add("status", "list the available slots with their labels; measures nothing")
    status.add_argument("fleet", metavar="ENGINE", help=engine)
    add_device(status)
    drains = "stop a running fleet gate from starting further leases, on all slots or some"
    drain = actions.add("drain", drains)
    slot = "a slot, or a node with all its slots (default: all slots of the gate)"
    drain.add_argument("slot", nargs="*", metavar="SLOT", help=slot)
    add_output(drain, "folder of the gate's documents")
    tests = "measure one case on every slot; fails unless all can, and are identical machines"
    test = actions.add("test", tests)
    test.add_argument("fleet", metavar="ENGINE", help=engine)
    add_config(test)
    add_filter(test)
    add_output(test, "folder for fleet-trial")
    add_device(test)
    add_base(test)
    _sides(test)
    _image(test)
    merges = (
        "merge several runs of one plan, from any machines, into one document pair and one verdict"
    )
    actions.add_command("fleet merge", merges, _merge)
    leases = "measure one lease: one launch of some cases, both sides (a fleet starts this)"
    actions.add_command("fleet lease", leases, _lease)


def _lease(parser: argparse.ArgumentParser) -> None:
    add_benchmarks(parser)
    add_measuring(parser)
    add_base(parser)
    _sides(parser)
    numbers = "run, lease number and attempt"
    parser.add_argument("--lease", required=True, metavar="RUN/NUMBER/ATTEMPT", help=numbers)
    sources = "without --prepared: both sides as a git bundle"
    parser.add_argument("--sources", type=Path, metavar="FILE", help=sources)
    digest = "SHA-256 of the --sources file"
    parser.add_argument("--sha256", default="", metavar="HEX", help=digest)
    commit = "the commit in --sources that names both sides"
    parser.add_argument("--commit", default="", metavar="ID", help=commit)
    _image(parser)


def _sides(parser: argparse.ArgumentParser) -> None:
    prepared = "the two sides that `ci-bench setup` prepared"
    parser.add_argument("--prepared", type=Path, metavar="DIR", help=prepared)


def _view(parser: argparse.ArgumentParser) -> None:
    shown = (
        "what to print: terminal, a summary; comment, that of the pull request; json, the decision"
        " for a program (default: terminal)"
    )
    kinds = ("terminal", "comment", "json")
    parser.add_argument("--format", choices=kinds, default="terminal", help=shown)


def _setup(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_base(parser)
    kinds = parser.add_mutually_exclusive_group(required=True)
    prepared = "folder for both sides; do not move its contents before they are measured"
    kinds.add_argument("--prepared", type=Path, metavar="DIR", help=prepared)
    models = "fetch instead the configuration's models from the Hugging Face hub, with HF_TOKEN"
    kinds.add_argument(
        "--models", dest="command", action="store_const", const="setup --models", help=models
    )
    logs = "folder for the logs (default: ci-bench-results)"
    unless = argparse.SUPPRESS
    parser.add_argument("-o", "--output", default=unless, type=Path, metavar="DIR", help=logs)


def _compare(parser: argparse.ArgumentParser) -> None:
    sides = (
        "base and head: each a results.json, a run's folder, another tool's file, or a folder of"
        " such files, each a launch"
    )
    parser.add_argument("sides", type=Path, nargs="*", metavar="PATH", help=sides)
    several = "the files of the {} side, each of them a launch"
    for name in ("base", "head"):
        parser.add_argument(
            f"--{name}", type=Path, nargs="+", default=(), metavar="FILE", help=several.format(name)
        )
    wrote = "what wrote other tools' files (default: their form tells)"
    parser.add_argument("--from", dest="source", default="auto", metavar="FORMAT", help=wrote)
    across = (
        "a field of the machine that differs on purpose, such as python; repeatable (adds to"
        " policy.compare_across)"
    )
    parser.add_argument("--across", action="append", default=[], metavar="FIELD", help=across)
    add_config(parser)
    add_noise(parser)
    written = "also write comparison.json, report.md and report.html here"
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help=written)
    _view(parser)


def _merge(parser: argparse.ArgumentParser) -> None:
    runs = (
        "the folders of runs of one plan, from any machines: each with results.json, and"
        " base/results.json if it was paired"
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="DIR", help=runs)
    written = "folder for the merged documents and the verdict; must not be one of the inputs"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help=written)
    add_config(parser)
    add_noise(parser)
    _view(parser)


def _show(parser: argparse.ArgumentParser) -> None:
    shown = "comparison.json, results.json, the folder of a run, or a training's log"
    parser.add_argument("document", type=Path, help=shown)
    parser.add_argument("logs", type=Path, nargs="*", metavar="LOG", help="more logs")
    forms = (
        "terminal, a summary; comment, that of the pull request; markdown, the whole report; html,"
        " one page with charts; json, the decision for a program; junit and code-quality, for CI"
        " hosts (GitLab, Jenkins); badge, JSON for a shields.io endpoint; time, how the run spent"
        " its time (default: terminal)"
    )
    parser.add_argument("--format", choices=FORMS, default="terminal", help=forms)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: stdout")


def _validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", type=Path, nargs="+", help="ci-bench.yml, results.json, comparison.json"
    )


def _accept(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "case", metavar="CASE", help="id of a case, or a pattern: * stands for any text"
    )
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--metric", metavar="NAME", help="this metric may get worse")
    kind.add_argument("--outputs", action="store_true", help="the case may compute something else")
    kind.add_argument("--learning", action="store_true", help="the case may learn something else")
    where = (
        "direction in which the metric's value moves (default: higher, as a time that gets worse)"
    )
    parser.add_argument("--direction", choices=("higher", "lower"), default="higher", help=where)
    how_far = (
        "largest accepted change: 6%%, a value of the metric (4), a multiple of rounding (300), or"
        " any (outputs)"
    )
    parser.add_argument("--bound", required=True, metavar="SIZE", help=how_far)
    parser.add_argument(
        "--reason", required=True, metavar="TEXT", help="why the change is intended"
    )
    parser.add_argument(
        "--pull-request",
        required=True,
        type=int,
        metavar="N",
        help="the only pull request that it counts for",
    )
    parser.add_argument(
        "--expires",
        metavar="DATE",
        help="the last day that it counts, as 2030-01-31 (default: in 30 days)",
    )


def _list(parser: argparse.ArgumentParser) -> None:
    add_benchmarks(parser)
    add_config(parser)
    add_filter(parser)
    declare = (
        "print, as YAML, the cases to declare in the configuration because only this tree can plan"
        " them"
    )
    parser.add_argument("--declare", action="store_true", help=declare)


def _convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "document",
        type=Path,
        help="results.json, a file of another tool, or a folder of such files",
    )
    parser.add_argument(
        "--from",
        dest="source",
        default="auto",
        metavar="FORMAT",
        help="input format (default: detected)",
    )
    parser.add_argument(
        "--to", required=True, metavar="FORMAT", help="output format; docs/formats.md lists all"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PATH",
        help="the file, or the folder for several (default: stdout)",
    )


def _fastrnns(parser: argparse.ArgumentParser) -> None:
    from ci_bench.command_line.fastrnns_flags import add_flags

    add_flags(parser)


def _calibrate(parser: argparse.ArgumentParser) -> None:
    add_measuring(parser, output=DEFAULT_OUTPUT / "calibrate")
    add_noise(parser)


def _doctor(parser: argparse.ArgumentParser) -> None:
    """Add the examinations of the machine, of its GPU, and of a gate on it."""
    kinds = parser.add_mutually_exclusive_group()
    noise = "do not measure how noisy the machine is (about twenty seconds)"
    kinds.add_argument("--quick", action="store_true", help=noise)
    card = "check instead that this GPU can be measured reliably, in up to ten minutes"
    kinds.add_argument(
        "--gpu", dest="command", action="store_const", const="doctor --gpu", help=card
    )
    faults = (
        "gate instead an example pull request with injected faults, in about a minute, and fail"
        " unless each is found and a case without one passes"
    )
    kinds.add_argument(
        "--selftest", dest="command", action="store_const", const="doctor --selftest", help=faults
    )
    only = "with --gpu: run only this section; repeatable"
    parser.add_argument("--only", action="append", default=[], metavar="SECTION", help=only)
    unless = argparse.SUPPRESS
    device = "with --gpu or --selftest: auto, cpu, cuda or cuda:N (default: the first GPU)"
    parser.add_argument("--device", default=unless, metavar="DEVICE", help=device)
    folder = "with --gpu or --selftest: folder for the documents (default: ci-bench-results)"
    parser.add_argument("-o", "--output", default=unless, type=Path, metavar="DIR", help=folder)


STORE = Path("ci-bench-history")


def _history(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ci-bench history`, each with its own flags."""
    actions = add_actions(parser)
    add = actions.add("add", "keep the numbers of runs")
    add.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="results.json, or the folder of a run"
    )
    add.add_argument("--url", help="URL of the run (default: this workflow's run)")
    add.add_argument("--report", dest="run_report", metavar="URL", help="URL of its report")
    _store(add)
    check = actions.add("check", "find regressions that are still open, and exit by the policy")
    _store(check)
    add_config(check)
    _least(check)
    confirms = "measure the commits on both sides of each change, in turns"
    check.add_argument("--confirm", action="store_true", help=confirms)
    issue = "on GitHub: open or update one issue, and close it once all is well"
    check.add_argument("--issue", action="store_true", help=issue)
    add_comment_author(check)
    check.add_argument("--page-url", metavar="URL", help="URL of the trend page, for the issue")
    _measuring_as_gate(check)
    page = actions.add("page", "write the trend page: one HTML file")
    page.add_argument(
        "-o", "--output", type=Path, default=Path("trend.html"), metavar="FILE", help="the page"
    )
    _store(page)
    add_config(page)
    _least(page)
    compact = actions.add("compact", "merge single records, and thin out old runs beyond 32 MB")
    compact.add_argument(
        "--export",
        type=Path,
        metavar="FILE",
        help="also write everything to one file, for an artifact",
    )
    _store(compact)
    importing = actions.add(
        "import", "import a data.js of github-action-benchmark, or an exported history"
    )
    importing.add_argument("file", type=Path, help="data.js, or history.json.gz")
    _store(importing)
    fetch = actions.add("fetch", "on GitHub: import histories from artifacts of earlier runs")
    fetch.add_argument(
        "--artifact", default="ci-bench-history", metavar="NAME", help="name of the artifacts"
    )
    fetch.add_argument(
        "--from-branch",
        metavar="BRANCH",
        help="accept only artifacts of this branch (default: this run's)",
    )
    _store(fetch)
    bisects = "find the commit that made a case worse, by paired comparisons"
    actions.add_command("history bisect", bisects, _bisect)


def _bisect(parser: argparse.ArgumentParser) -> None:
    """Add GOOD, BAD and the flags for the case and the metric."""
    parser.add_argument("good", metavar="GOOD", help="a commit without the change")
    parser.add_argument("bad", metavar="BAD", help="a later commit with it")
    add_filter(parser)
    metric = "the metric to follow (default: the one that got worse the most)"
    parser.add_argument("--metric", metavar="NAME", help=metric)
    merges = "try only merges, not the commits that they merged"
    parser.add_argument("--first-parent", action="store_true", help=merges)
    add_config(parser)
    _measuring_as_gate(parser)


def _store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-s",
        "--store",
        type=Path,
        default=STORE,
        metavar="DIR",
        help="the store's folder (default: ci-bench-history)",
    )
    parser.add_argument(
        "--branch",
        metavar="NAME",
        help="keep the store on this branch instead, without a checkout of it",
    )
    parser.add_argument(
        "--remote",
        metavar="NAME",
        help="with --branch: the branch of this remote (default: of this clone)",
    )


def _least(parser: argparse.ArgumentParser) -> None:
    least = "the smallest relative change of a time that matters (default: 0.01, one per cent)"
    parser.add_argument("--least", type=share, default=0.01, metavar="SHARE", help=least)


def _measuring_as_gate(parser: argparse.ArgumentParser) -> None:
    add_output(parser, "folder for the documents", DEFAULT_OUTPUT / "commits")
    add_device(parser)
    add_noise(parser)


GRAMMAR: Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "init": (
        (
            "write ci-bench.yml and a workflow for this repository; runs none of its code,"
            " overwrites nothing"
        ),
        _init,
    ),
    "run": ("measure, and write results.json", _run),
    "gate": ("measure, compare with a baseline, report, and exit by the policy", _gate),
    "setup": (
        (
            "prepare base and head for gate --prepared, with network access if `setup.network`"
            " allows it"
        ),
        _setup,
    ),
    "compare": (
        (
            "compare two results documents, or two files of another tool, and exit by the policy;"
            " needs no torch"
        ),
        _compare,
    ),
    "fleet": (
        "list, test and drain the slots of a fleet; merge runs of several machines into one",
        _slots,
    ),
    "show": (
        (
            "print or render a verdict (comment, page, JUnit), or print what a gate reads from a"
            " training log"
        ),
        _show,
    ),
    "validate": ("check configurations and documents; names each fault by its path", _validate),
    "accept": (
        "propose to accept an intended change: write an entry to ci-bench-accepted.yml, for review",
        _accept,
    ),
    "list": ("print the plan without measuring; needs no torch", _list),
    "convert": ("convert results, or another tool's file, to another format", _convert),
    "fastrnns": (
        "measure recurrent networks and ResNets by the flags of PyTorch's fastrnns benchmark",
        _fastrnns,
    ),
    "calibrate": ("measure this tree against itself, and keep this machine's noise", _calibrate),
    "history": (
        "keep the results of runs, find changes over months and their commits, show them on a page",
        _history,
    ),
    "github": (
        "on GitHub, with a token: fetch a baseline or configuration, publish a verdict",
        add_github,
    ),
    "doctor": (
        (
            "check whether this machine can measure, how noisy it is, and whether a gate finds"
            " injected faults"
        ),
        _doctor,
    ),
}
