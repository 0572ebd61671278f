"""The flags of `ci-bench github`. Owns words, does nothing."""

import argparse
from pathlib import Path

from ci_bench.command_line.parsers import names_of_machines, not_counted
from ci_bench.command_line.shared_flags import add_actions, add_comment_author, add_output


def add_github(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ci-bench github`, each with its own flags."""
    actions = add_actions(parser)
    judged = "judge another job's results, comment, and set the check; measures nothing"
    _publish(actions.add("publish", judged))
    _announce(actions.add("announce", "report that measuring has started"))
    baseline = "fetch the results of the nearest ancestor of the base commit"
    _fetch_baseline(actions.add("fetch-baseline", baseline))
    config = "fetch the base branch's configuration, to measure a pull request with"
    _fetch_config(actions.add("fetch-config", config))
    request = "check a comment's request for a run, and answer it"
    _answer_request(actions.add("answer-request", request))


def _publish(parser: argparse.ArgumentParser) -> None:
    folders = "folders with results (default: the artifacts of the run that measured)"
    parser.add_argument("folders", type=Path, nargs="*", help=folders)
    parser.add_argument(
        "--artifact",
        default="ci-bench",
        metavar="NAME",
        help="artifacts of that run; may hold one *",
    )
    machines = (
        "the machines that the * of --artifact stands for (default: `machines` of the base branch's"
        " configuration)"
    )
    parser.add_argument("--machines", type=names_of_machines, metavar="NAME,…", help=machines)
    parser.add_argument("--legs", type=not_counted, help=argparse.SUPPRESS)
    config = "the base branch's configuration (default: fetched from there)"
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help=config)
    _config_path(parser)
    _requested(parser)
    chosen = "for a run on request: a filter that the request granted; repeatable"
    parser.add_argument("-k", "--filter", action="append", default=[], metavar="TEXT", help=chosen)
    parser.add_argument(
        "--baseline",
        choices=("paired", "artifact", "none"),
        default="paired",
        help="what head is compared with",
    )
    fetched = (
        "with --baseline artifact: use the folder that `ci-bench github fetch-baseline` wrote"
        " instead of fetching again"
    )
    parser.add_argument("--fetched", type=Path, metavar="DIR", help=fetched)
    parser.add_argument(
        "--comment",
        choices=("always", "on-change", "never"),
        default="always",
        help="when to comment",
    )
    add_comment_author(parser)
    _artifact_baseline(parser)
    _mark(parser)
    _workflow(parser)


def _announce(parser: argparse.ArgumentParser) -> None:
    _mark(parser)
    _workflow(parser)


def _answer_request(parser: argparse.ArgumentParser) -> None:
    artifacts = "artifacts of earlier runs, for the estimated time"
    parser.add_argument("--artifact", default="ci-bench", metavar="NAME", help=artifacts)
    parser.add_argument(
        "--baseline-artifact", default="ci-bench-baseline", metavar="NAME", help=artifacts
    )
    _config_path(parser)
    add_comment_author(parser)
    _workflow(parser)


def _requested(parser: argparse.ArgumentParser) -> None:
    granted = "for a run on request: the commit that it was granted for"
    parser.add_argument("--head", metavar="SHA", help=granted)


def _fetch_baseline(parser: argparse.ArgumentParser) -> None:
    _requested(parser)
    _artifact_baseline(parser)
    _workflow(parser)


def _fetch_config(parser: argparse.ArgumentParser) -> None:
    _requested(parser)
    _config_path(parser)
    _workflow(parser)


def _config_path(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config-path", default="ci-bench.yml", metavar="PATH", help="path in the repository"
    )


def _artifact_baseline(parser: argparse.ArgumentParser) -> None:
    name = "artifact with the baseline; its * stands for what the * of --artifact matched"
    parser.add_argument(
        "--baseline-artifact", default="ci-bench-baseline", metavar="NAME", help=name
    )
    parser.add_argument(
        "--baseline-workflow", metavar="PATH", help="the workflow that made it (default: this one)"
    )
    parser.add_argument(
        "--base", metavar="SHA", help="the base commit (default: the pull request's)"
    )


def _mark(parser: argparse.ArgumentParser) -> None:
    gate = "identifies this gate if a pull request has several; each has a comment and a check"
    parser.add_argument("--key", default="default", help=gate)


def _workflow(parser: argparse.ArgumentParser) -> None:
    add_output(parser, "folder for the documents")
