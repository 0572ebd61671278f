"""The flags of `history` and `bisect`. Owns words, does nothing."""

import argparse
from pathlib import Path

STORE = Path("ci-bench-history")


def add_history_flags(parser: argparse.ArgumentParser) -> None:
    """The actions of `ci-bench history`, each with its own flags."""
    actions = parser.add_subparsers(title="actions", required=True, dest="action", metavar="ACTION")
    add = actions.add_parser("add", help="keep the numbers of runs")
    add.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="results.json, or the folder of a run")
    add.add_argument("--url", help="where the run is to be seen (default: this workflow's run)")
    add.add_argument("--report", metavar="URL", help="where its report is to be seen")
    _store(add)
    check = actions.add_parser("check", help="look for changes for the worse that are still open, and exit by the policy")
    _store(check)
    _config(check)
    _recent(check)
    check.add_argument(
        "--confirm", action="store_true", help="measure the neighbouring commits of each against each other, in turns"
    )
    check.add_argument("--most", type=int, default=3, metavar="N", help="with --confirm: so many pairs of commits at most")
    opinion = "also say what Apache Otava, which this interpreter has, makes of the series; nothing acts on it"
    check.add_argument("--otava", type=Path, metavar="PYTHON", help=opinion)
    check.add_argument("--issue", action="store_true", help="on GitHub: open or update one issue, and close it once all is well")
    check.add_argument("--issue-author", default="github-actions[bot]", metavar="LOGIN", help="whose issues are ours")
    check.add_argument("--key", default="default", help="tells several histories of one repository apart")
    check.add_argument("--page-url", metavar="URL", help="where the trend page is, for the issue")
    patience = "how long to wait for GitHub in all"
    check.add_argument("--patience", dest="patience_s", type=float, default=120.0, metavar="S", help=patience)
    _measuring(check)
    page = actions.add_parser("page", help="write the trend page: one HTML file")
    page.add_argument("-o", "--output", type=Path, default=Path("trend.html"), metavar="FILE", help="the page")
    page.add_argument("--title", default="Trend", help="its title")
    page.add_argument("--commits", metavar="URL", help="where commits are to be seen (default: from the runs' own addresses)")
    _store(page)
    _config(page)
    _recent(page)
    compact = actions.add_parser("compact", help="put single records together, and thin out old runs beyond a size")
    compact.add_argument("--most-bytes", type=int, metavar="N", help="of the whole store (default: 32,000,000)")
    compact.add_argument("--export", type=Path, metavar="FILE", help="also write everything to one file, for an artifact")
    _store(compact)
    taken = actions.add_parser("import", help="take over a data.js of github-action-benchmark, or a history that was exported")
    taken.add_argument("file", type=Path, help="data.js, or history.json.gz")
    _store(taken)
    fetch = actions.add_parser("fetch", help="on GitHub: take over what earlier runs left in artifacts")
    fetch.add_argument("--artifact", default="ci-bench-history", metavar="NAME", help="how the artifacts are called")
    fetch.add_argument("--from-branch", metavar="BRANCH", help="runs of which branch are believed (default: this run's)")
    fetch.add_argument("--newest", type=int, default=10, metavar="N", help="how many artifacts to read at most")
    fetch.add_argument("--patience", dest="patience_s", type=float, default=120.0, metavar="S", help=patience)
    _store(fetch)


def add_bisect_flags(parser: argparse.ArgumentParser) -> None:
    """GOOD, BAD and what is measured."""
    parser.add_argument("good", metavar="GOOD", help="a commit without the change")
    parser.add_argument("bad", metavar="BAD", help="a later commit with it")
    case = "cases whose id contains TEXT; repeatable (default: all of the configuration)"
    parser.add_argument("-k", "--case", dest="filter", action="append", default=[], metavar="TEXT", help=case)
    parser.add_argument("--metric", metavar="NAME", help="the metric to follow (default: the one that got worse the most)")
    parser.add_argument("--first-parent", action="store_true", help="try merges only, not what they merged")
    _config(parser)
    _measuring(parser)


def _store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-s", "--store", type=Path, default=STORE, metavar="DIR", help="the store's folder (default: ci-bench-history)"
    )
    parser.add_argument("--branch", metavar="NAME", help="keep the store on this branch instead, without a checkout of it")
    parser.add_argument("--remote", metavar="NAME", help="with --branch: the branch of this remote (default: of this clone)")


def _config(parser: argparse.ArgumentParser) -> None:
    default = "configuration (default: ci-bench.yml here, else the embedded one)"
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help=default)


def _recent(parser: argparse.ArgumentParser) -> None:
    least = "the smallest relative change of a time that matters (default: 0.01, one per cent)"
    parser.add_argument("--least", type=_share, default=0.01, metavar="SHARE", help=least)
    recent = "a change that is older than N runs is the new normal (default: 100)"
    parser.add_argument("--recent", type=int, default=100, metavar="N", help=recent)


def _share(text: str) -> float:
    """``0.02`` and ``2%`` are the same."""
    number, percent, rest = text.partition("%")
    try:
        value = float(number) / (100.0 if percent else 1.0)
    except ValueError:
        value = -1.0
    if rest or not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share like 0.02 or 2%")
    return value


def _measuring(parser: argparse.ArgumentParser) -> None:
    output = Path("ci-bench-results") / "commits"
    parser.add_argument("-o", "--output", type=Path, default=output, metavar="DIR", help="folder for the documents")
    parser.add_argument("--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N (wins over the configuration)")
    noise = "where calibrations are kept (default: $CI_BENCH_NOISE, else ~/.local/state/ci-bench/noise)"
    parser.add_argument("--noise", type=Path, metavar="DIR", help=noise)
