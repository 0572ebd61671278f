"""Options of inductor and their types: a misspelt one is refused before anything runs.

The table is `torch._inductor.config.get_config_copy()` of the torch that ci-bench is locked to; a
test compares it with that. A worker with another torch version reads that one's options
(`torchbench.backends`). No torch here.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ci_bench.records.spelling import meant

TABLE = "inductor_options.txt"
ANY = "any"
"""The type of an option whose default does not show it: none, a list, a function."""
_TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "bool": ("true or false", (bool,)),
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "str": ("a text", (str,)),
}
COMPILE_ARGUMENTS = frozenset(
    {"backend", "disable", "dynamic", "fullgraph", "mode", "name", "options"}
)
"""Arguments of torch.compile, which inductor has no options of."""
MODE_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
    "max-autotune": {
        "max_autotune": True,
        "triton.cudagraphs": True,
        "coordinate_descent_tuning": True,
    },
}
"""The options that the modes of torch.compile stand for (`torch._inductor.list_mode_options`)."""


@cache
def option_types() -> Mapping[str, str]:
    """Return the type of each option by its dotted name.

    The types are ``bool``, ``int``, ``float``, ``str`` and ``any``.
    """
    lines = files("ci_bench.suites").joinpath(TABLE).read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ") for line in lines)


def option_faults(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults in options of inductor; each starts with the option's name."""
    types = option_types()
    for name, value in options.items():
        if name in COMPILE_ARGUMENTS:
            yield (
                f"{name}: an argument of torch.compile, not an option of"
                f" inductor{_hint(name, value)}"
            )
        elif name not in types:
            yield f"{name}: inductor has no such option{meant(name, list(types))}"
        elif types[name] != ANY and not _fits(value, types[name]):
            yield f"{name}: {value!r} is not {_TYPES[types[name]][0]}"


def _hint(name: str, value: Any) -> str:
    if name == "mode" and (stands_for := MODE_OPTIONS.get(str(value))):
        return f"; this mode stands for {', '.join(f'{option}: true' for option in stands_for)}"
    if name == "fullgraph":
        return "; `fullgraph: true` under `compile` makes a graph break an error"
    return (
        f"; write it under `compile`, as `compile: {{{name}: …}}`"
        if name in {"mode", "dynamic"}
        else ""
    )


def _fits(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind][1]) and (kind == "bool" or not isinstance(value, bool))


def typed_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as `torch.compile` takes them: of type float if the option is one."""
    types = option_types()
    return {
        name: float(value) if types.get(name) == "float" else value
        for name, value in options.items()
    }
