"""The command for GitHub: publish, announce, fetch-baseline, fetch-config, answer-request."""

from collections.abc import Mapping

from ci_bench.command_line.settings import Publishing
from ci_bench.commands.trusted import publishing
from ci_bench.commands.trusted.answer_request import answer_request

ACTIONS: Mapping[str, publishing.Command] = {
    "publish": publishing.publish,
    "announce": publishing.announce,
    "fetch-baseline": publishing.fetch_baseline,
    "fetch-config": publishing.fetch_config,
    "answer-request": answer_request,
}


def github(settings: Publishing) -> int:
    """Run the named action."""
    return ACTIONS[settings.action](settings)
