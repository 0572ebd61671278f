"""Function and settings class of each command."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from ci_bench.command_line.settings import (
    Accepting,
    Bisecting,
    Checking,
    Comparing,
    Configured,
    Converting,
    Examining,
    Fastrnns,
    Fetching,
    Leasing,
    Listing,
    Looking,
    Measuring,
    Merging,
    Publishing,
    Settings,
    Showing,
    Starting,
    Trend,
    Validating,
)


@dataclass(frozen=True, slots=True)
class Command:
    """One command: the kind of settings that its flags become, and the place of the function that acts on them.

    Only that function's module is loaded: all together take longer than what a command does that measures nothing.
    `judges` says that it compares, in this process, and so needs numpy.
    """

    kind: type[Settings]
    place: str
    judges: bool = False

    def find(self) -> Callable[[Settings], int]:
        """The function."""
        module, _, name = self.place.partition(":")
        found: Callable[[Settings], int] = getattr(import_module(f"ci_bench.commands.{module}"), name)
        return found

    def act(self, settings: Settings) -> int:
        """Run the function, in the folder of the configuration where it reads one."""
        if isinstance(settings, Configured):
            from ci_bench.commands.config_files import rooted

            settings = rooted(settings)
        return self.find()(settings)


COMMANDS: Mapping[str, Command] = {
    "init": Command(Starting, "starting:init"),
    "run": Command(Measuring, "measuring:run", judges=True),
    "gate": Command(Measuring, "measuring:gate", judges=True),
    "setup": Command(Measuring, "preparing:setup"),
    "fetch-models": Command(Fetching, "fetching:fetch_models"),
    "compare": Command(Comparing, "reading:compare", judges=True),
    "merge": Command(Merging, "merging:merge", judges=True),
    "lease": Command(Leasing, "leasing:lease"),
    "fleet": Command(Looking, "fleet:fleet"),
    "report": Command(Showing, "rendering:report", judges=True),
    "show": Command(Showing, "rendering:show", judges=True),
    "validate": Command(Validating, "reading:validate"),
    "accept": Command(Accepting, "accepting:accept"),
    "list": Command(Listing, "reading:list_cases"),
    "convert": Command(Converting, "converting:convert"),
    "fastrnns": Command(Fastrnns, "measuring:fastrnns"),
    "calibrate": Command(Measuring, "measuring:calibrate"),
    "publish": Command(Publishing, "trusted.publishing:publish"),
    "history": Command(Trend, "trend.history:history"),
    "bisect": Command(Bisecting, "trend.bisecting:bisect"),
    "announce": Command(Publishing, "trusted.publishing:announce"),
    "fetch-baseline": Command(Publishing, "trusted.publishing:fetch_baseline"),
    "fetch-config": Command(Publishing, "trusted.publishing:fetch_config"),
    "answer-request": Command(Publishing, "trusted.requesting:answer_request"),
    "selftest": Command(Examining, "measuring:selftest"),
    "doctor": Command(Examining, "measuring:doctor"),
    "gpu-check": Command(Checking, "measuring:gpu_check"),
}
