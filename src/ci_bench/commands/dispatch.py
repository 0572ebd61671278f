"""Function and settings class of each command."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from ci_bench.command_line.settings import (
    Accepting,
    Bisecting,
    CheckingGpu,
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
    SelfTesting,
    Settings,
    Showing,
    Starting,
    TrendSettings,
    Validating,
)
from ci_bench.commands.config_files import rooted


@dataclass(frozen=True, slots=True)
class Command:
    """One command: the settings class of its flags, and the function that acts on them.

    Only the module of `place` is imported, since importing all of them takes longer than a short
    command. `judges` marks commands that compare in this process, which needs numpy.
    """

    kind: type[Settings]
    place: str
    judges: bool = False

    def find(self) -> Callable[[Settings], int]:
        """Import and return the function."""
        module, _, name = self.place.partition(":")
        function: Callable[[Settings], int] = getattr(
            import_module(f"ci_bench.commands.{module}"), name
        )
        return function

    def act(self, settings: Settings) -> int:
        """Run the function, in the folder of the configuration where it reads one."""
        if isinstance(settings, Configured):
            settings = rooted(settings)
        return self.find()(settings)


COMMANDS: Mapping[str, Command] = {
    "init": Command(Starting, "init:init"),
    "run": Command(Measuring, "run:run", judges=True),
    "gate": Command(Measuring, "gate:gate", judges=True),
    "setup": Command(Measuring, "setup:setup"),
    "setup --models": Command(Fetching, "fetch_models:fetch_models"),
    "compare": Command(Comparing, "compare:compare", judges=True),
    "fleet merge": Command(Merging, "merge:merge", judges=True),
    "fleet lease": Command(Leasing, "lease:lease"),
    "fleet": Command(Looking, "fleet:fleet"),
    "show": Command(Showing, "show:show", judges=True),
    "validate": Command(Validating, "validate:validate"),
    "accept": Command(Accepting, "accept:accept"),
    "list": Command(Listing, "list_cases:list_cases"),
    "convert": Command(Converting, "convert:convert"),
    "fastrnns": Command(Fastrnns, "fastrnns:fastrnns"),
    "calibrate": Command(Measuring, "calibrate:calibrate"),
    "history": Command(TrendSettings, "trend.history:history"),
    "history bisect": Command(Bisecting, "trend.bisect:bisect"),
    "github": Command(Publishing, "trusted.actions:github"),
    "doctor": Command(Examining, "doctor:doctor"),
    "doctor --gpu": Command(CheckingGpu, "gpu_check:gpu_check"),
    "doctor --selftest": Command(SelfTesting, "selftest:selftest", judges=True),
}
