"""Which module loads which source."""

from importlib import import_module

from ci_bench.suites.torchbench.options import Source
from ci_bench.suites.torchbench.sources.loaded import Loader

_MODULES = {
    Source.ZOO: "zoo",
    Source.TORCHBENCH: "checkout",
    Source.HUGGINGFACE: "huggingface",
    Source.TIMM: "timm_models",
    Source.OWN: "own",
}


def find_loader(source: Source) -> Loader:
    """The `load` of a source's module, imported when it is asked for."""
    loader: Loader = import_module(f"ci_bench.suites.torchbench.sources.{_MODULES[source]}").load
    return loader
