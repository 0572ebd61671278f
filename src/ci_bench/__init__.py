"""ci-bench: gate pull requests on GPU performance and loss parity.

`benchmark`, `inputs` and `record` are what benchmarks of one's own are written with (docs/suites/functions.md); `step`,
`Step` and `perturb` what a training loop of one's own calls or yields (docs/suites/command.md).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ci_bench.suites.command.stepping import Step, perturb, step
    from ci_bench.suites.functions.declaring import benchmark, inputs, record

__version__ = "0.1.0"
__all__ = ["Step", "__version__", "benchmark", "inputs", "perturb", "record", "step"]


def __getattr__(name: str) -> object:
    """Only who writes benchmarks pays for what they are written with."""
    if name not in __all__:
        message = f"module 'ci_bench' has no attribute {name!r}"
        raise AttributeError(message)
    if name in {"Step", "perturb", "step"}:
        from ci_bench.suites.command import stepping

        return getattr(stepping, name)
    from ci_bench.suites.functions import declaring

    return getattr(declaring, name)
