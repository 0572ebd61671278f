"""Compiles an arm with `torch.compile`, and sets dynamo's limits.

For workers; loads torch on demand.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ci_bench.records.results import Outcome
from ci_bench.suites.shared.planning.arms import (
    DEFAULT_MODE,
    INDUCTOR,
    MODES_WITH_CUDA_GRAPHS,
    CompiledArm,
    Experiment,
)
from ci_bench.suites.shared.planning.inductor import MODE_OPTIONS, typed_options
from ci_bench.suites.shared.worker.user_code import resolve_backend


def compiled(
    arm: CompiledArm,
    function: Callable[..., Any],
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    whole_step: bool = True,
    key: str = "",
) -> Callable[..., Any]:
    """Compile a function with `torch.compile` as an arm requires.

    `fullgraph` and `dynamic` are the suite's own arguments. A call of the function is a
    `whole_step`, or one of many. If CUDA graphs may run a whole step, each call starts a step: it
    may overwrite the results of the previous call. `key` as in `kept_apart`.

    Raises:
        LookupError: the backend does not exist.
        Unsupported: the backend needs a package that is not installed here.
    """
    import torch
    from torch._dynamo import config

    with config.patch(
        compiled_autograd=arm.compiled_autograd
    ):  # read where the compiled function is made, not where it runs
        run: Callable[..., Any] = torch.compile(
            function,
            **compile_arguments(
                replace(arm, fullgraph=arm.fullgraph or fullgraph), dynamic=dynamic, key=key
            ),
        )
    if not whole_step or arm.mode not in MODES_WITH_CUDA_GRAPHS:
        return run

    def begin(*values: Any, **keywords: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        return run(*values, **keywords)

    return begin


def compile_arguments(
    arm: CompiledArm, *, dynamic: bool | None = None, key: str = ""
) -> dict[str, Any]:
    """Return arguments for `torch.compile`.

    It takes a mode or options: with both, the mode becomes the options it stands for.
    """
    options = typed_options(
        {**(MODE_OPTIONS[arm.mode or DEFAULT_MODE] if arm.options else {}), **arm.options}
    )
    return {
        "backend": kept_apart(backend_of(arm), key),
        "fullgraph": arm.fullgraph,
        "dynamic": dynamic if arm.dynamic is None else arm.dynamic,
        **({"options": options} if options else {"mode": arm.mode}),
    }


def backend_of(arm: CompiledArm) -> str | Callable[..., Any]:
    """Return the backend that dynamo is given.

    Raises as `user_code.resolve_backend`.
    """
    if arm.experiment is Experiment.OVERHEAD:
        return run_as_captured
    if arm.experiment is Experiment.COVERAGE:
        from ci_bench.suites.shared.worker.coverage import run_labelled

        return run_labelled
    return INDUCTOR if arm.experiment is not None else resolve_backend(arm.backend)


def kept_apart(backend: str | Callable[..., Any], key: str) -> str | Callable[..., Any]:
    """Return a backend whose graphs dynamo keeps from other arms in the same process.

    It stays as it is with an empty `key`. Dynamo looks compiled code up by code, guards and
    backend, and ignores settings that differed then.
    """
    if not key:
        return backend
    from torch._dynamo.backends.registry import lookup_backend

    return _KeptApart(backend=lookup_backend(backend), apart=key)


@dataclass(frozen=True, kw_only=True)
class _KeptApart:
    """A backend that equals only backends of the same word."""

    backend: Callable[..., Any]
    apart: str

    @property
    def __name__(self) -> str:
        return f"{getattr(self.backend, '__name__', 'backend')}_{self.apart}"

    def __call__(self, graph: Any, inputs: Sequence[Any], **more: Any) -> Any:
        return self.backend(graph, inputs, **more)


def run_as_captured(graph: Any, _inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return the graph's own function: a backend that compiles nothing.

    The dynamo runner's `--overhead` has the same.
    """
    run: Callable[..., Any] = graph.forward
    return run


NO_RECURRENCE = "Attempted to wrap RNN, GRU, or LSTM"
"""Dynamo's reason not to compile these modules, which its `allow_rnn` lifts."""


def without_graphs(reasons: Iterable[str]) -> Outcome:
    """Return the outcome of a candidate without a captured graph, for dynamo's `reasons`.

    It is unknown, not wrong, if the whole step is of modules that dynamo leaves to eager.
    """
    firsts = {reason.strip().partition("\n")[0] for reason in reasons}
    return Outcome.UNKNOWN if firsts == {NO_RECURRENCE} else Outcome.FAIL


RECOMPILES = 8
"""Of one program: dynamo's own default of `recompile_limit`."""


def allow_compilations(programs: int) -> None:
    """Give each program its own share of dynamo's limit per code object.

    All programs run the same code. Beyond the limit dynamo runs eagerly, and the arm would be timed
    as something else.
    """
    from torch._dynamo import config

    config.recompile_limit = max(config.recompile_limit, RECOMPILES * programs)


MOST_RECOMPILES = 64
"""Above dynamo's default of 8: blocks of one model share their code."""


def fail_beyond_limit() -> None:
    """Make dynamo's limit of recompilations an error: dynamo would run on eagerly."""
    from torch._dynamo import config

    config.recompile_limit = max(config.recompile_limit, MOST_RECOMPILES)
    config.fail_on_recompile_limit_hit = True
