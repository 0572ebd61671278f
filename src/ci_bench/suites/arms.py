"""The arms that an entry lists under `arms`: backends of `torch.compile` and modes of inductor, in one case beside one reference.

One spelling in all suites. Reading it needs no torch; compiling, and looking a backend up, is for workers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.records.spelling import meant
from ci_bench.suites.user_code import resolve_backend

INDUCTOR = "inductor"
DEFAULT_MODE = "default"
MODES = (DEFAULT_MODE, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""The modes of `torch.compile`, which are inductor's alone."""
MODES_WITH_CUDA_GRAPHS = frozenset({"reduce-overhead", "max-autotune"})


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledArm:
    """An arm under `torch.compile`. `mode` is inductor's, `None` for its default."""

    backend: str = INDUCTOR
    mode: str | None = None

    @property
    def name(self) -> str:
        """The name of the arm, which tells its mode: ``inductor+max-autotune``."""
        return arm_name(self.backend) if self.mode is None else f"{arm_name(self.backend)}+{self.mode}"

    def as_params(self) -> dict[str, Any]:
        """The arm as `read_arm` reads it."""
        return asdict(self)


def arm_name(backend: str) -> str:
    """The arm that runs a backend; dynamo's own backend ``eager`` must not be mistaken for the reference."""
    return "dynamo-eager" if backend == "eager" else backend


def read_arm(word: str | Mapping[str, Any]) -> CompiledArm:
    """An item of `arms`: a backend, a mode (of inductor then), or a mapping with `backend` and `mode`."""
    if isinstance(word, str):
        word = {"mode": word} if word in MODES else {"backend": word}
    mode = word.get("mode")
    return CompiledArm(**{**word, "mode": None if mode == DEFAULT_MODE else mode})


def listed_arms(options: Mapping[str, Any], place: str, *, instead_of: str) -> tuple[CompiledArm, ...]:
    """The arms that an entry at `place` lists; none where it has no `arms`.

    Raises:
        BadConfig: one is there twice, has a mode that its backend lacks, or is a mode misspelt; or the entry has the option
            that `arms` stands for, `instead_of`, as well.
    """
    arms = tuple(map(read_arm, options.get("arms", ())))
    check_arms(options, place, [(arm.name, arm.backend, arm.mode) for arm in arms], instead_of=instead_of)
    return arms


def check_arms(options: Mapping[str, Any], place: str, arms: Sequence[tuple[str, str, str | None]], *, instead_of: str) -> None:
    """The checks of `listed_arms`, of arms given by name, backend and mode. Raises `BadConfig` with all faults."""
    if "arms" not in options:
        return
    faults = [*_faults(options["arms"], arms)]
    if instead_of in options:
        faults.append(f"stands in place of `{instead_of}`; leave one of them out")
    if faults:
        raise BadConfig("\n".join(f"{place}.arms: {fault}" for fault in faults))


def _faults(words: Iterable[str | Mapping[str, Any]], arms: Sequence[tuple[str, str, str | None]]) -> Iterable[str]:
    names = [name for name, _, _ in arms]
    yield from (f"{name} is there twice; take one of them out" for name in dict.fromkeys(names) if names.count(name) > 1)
    for word, (_, backend, mode) in zip(words, arms, strict=True):
        if mode is not None and backend != INDUCTOR:
            yield f"{mode} is a mode of inductor, and backend {backend} has none; leave the mode out"
        if isinstance(word, str) and word not in MODES and (hint := meant(word, MODES)):
            yield f"{word!r} is no mode of torch.compile{hint} (a backend of that name is written {{backend: {word}}})"


def compiled(
    arm: CompiledArm, function: Callable[..., Any], *, fullgraph: bool = False, dynamic: bool | None = None, whole: bool = True
) -> Callable[..., Any]:
    """A function under `torch.compile` as an arm has it.

    A call of it is a `whole` step, or one of many. Where CUDA graphs may be behind a whole one, each call begins a step: what the
    call before returned may be overwritten.

    Raises:
        LookupError: there is no such backend.
        Unsupported: the backend needs a package that is not installed here.
    """
    import torch

    run: Callable[..., Any] = torch.compile(
        function, backend=resolve_backend(arm.backend), mode=arm.mode, fullgraph=fullgraph, dynamic=dynamic
    )
    if not whole or arm.mode not in MODES_WITH_CUDA_GRAPHS:
        return run

    def begin(*values: Any, **named: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        return run(*values, **named)

    return begin


RECOMPILES = 8
"""Of one program: dynamo's own default of `recompile_limit`."""


def allow_compilations(programs: int) -> None:
    """Each program its own share of dynamo's limit per code object, as all that are open at once run the same code.

    Beyond the limit dynamo runs eagerly, and an arm would be timed as something that it is not.
    """
    from torch._dynamo import config

    config.recompile_limit = max(config.recompile_limit, RECOMPILES * programs)


def without_cuda_graphs(modes: Mapping[str, str | None], device: str) -> dict[str, str]:
    """The fact `no_cuda_graphs` of a case, where the modes of its arms (by arm) ask for what its device lacks."""
    asking = [arm for arm, mode in modes.items() if mode in MODES_WITH_CUDA_GRAPHS]
    if not asking or device.startswith("cuda"):
        return {}
    return {"no_cuda_graphs": f"{', '.join(asking)}: the device {device} has no CUDA graphs, so inductor runs without them"}
