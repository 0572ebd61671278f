"""ci-bench: gate pull requests on GPU performance and loss parity.

Write your own benchmarks with `benchmark`, `inputs` and `record` (docs/suites/functions.md). A
custom training loop calls or yields `step`, `Step` and `perturb` (docs/suites/command.md).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ci_bench.suites.command.stepping import Step, perturb, step
    from ci_bench.suites.functions.declaring import benchmark, inputs, record

__version__ = "0.1.0"
__all__ = ["Step", "__version__", "benchmark", "inputs", "perturb", "record", "step"]


def __getattr__(name: str) -> object:
    """Import the names for benchmarks only when they are used."""
    if name not in __all__:
        message = f"module 'ci_bench' has no attribute {name!r}"
        raise AttributeError(message)
    if name in {"Step", "perturb", "step"}:
        from ci_bench.suites.command import stepping

        return getattr(stepping, name)
    from ci_bench.suites.functions import declaring

    return getattr(declaring, name)
