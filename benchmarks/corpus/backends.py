"""Programs of `torchbench` with a model and a backend of the repository's own."""

# ruff: noqa: E501 - a program is a line

from collections.abc import Mapping

from benchmarks.corpus import Program

_MODEL = """import torch
from torch import nn


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(96, 96), nn.GELU()) for _ in range(4)))

    def forward(self, x):
        return self.layers(x)

    def get_example_inputs(self):
        return (torch.randn(48, 96, generator=torch.Generator().manual_seed(5)),)
"""
_BACKEND = "import copy\nimport torch\n\n\ndef own(graph, inputs):\n    {body}\n"
_RIGHT: Mapping[str, str] = {
    "plain": "return graph.forward",
    "interpreter": "return torch.fx.Interpreter(graph).run",
    "in_fp64": (
        "wide = copy.deepcopy(graph).double()\n    return lambda *given: tuple(one.float() for one"
        " in wide(*(each.double() for each in given)))"
    ),
    "in_two_parts": (
        "place = next(n for n, one in enumerate(inputs) if not isinstance(one,"
        " torch.nn.Parameter))\n    def run(*given):\n        parts = [graph(*given[:place], part,"
        " *given[place + 1:]) for part in given[place].chunk(2)]\n        return"
        " tuple(torch.cat(each) for each in zip(*parts))\n    return run"
    ),
    "traced": "return torch.jit.trace(graph, tuple(inputs), check_trace=False)",
    "retraced": "return torch.fx.symbolic_trace(graph).forward",
    "garbage": (
        "def run(*given):\n        cycle = []; cycle.append(cycle)\n        return graph(*given)\n "
        "   return run"
    ),
}
_WRONG: Mapping[str, str] = {
    "off_by_a_thousandth": "return lambda *given: tuple(one * 1.001 for one in graph(*given))",
    "rows_replayed": (
        "kept = []\n"
        "    def run(*given):\n"
        "        out = graph(*given)[0]\n"
        "        if kept: out = torch.cat([out[:24], kept[0][24:]])\n"
        "        else: kept.append(out.clone())\n"
        "        return (out,)\n"
        "    return run"
    ),
    "bf16_weights": (
        "narrow = copy.deepcopy(graph).bfloat16()\n    return lambda *given: tuple(one.float() for"
        " one in narrow(*(each.bfloat16() for each in given)))"
    ),
    "replays": (
        "kept = []\n    def run(*given):\n        kept[:] = kept or [graph(*given)]\n        return"
        " kept[0]\n    return run"
    ),
    "overwrites_its_input": (
        "place = next(n for n, one in enumerate(inputs) if not isinstance(one,"
        " torch.nn.Parameter))\n    def run(*given):\n        out = graph(*given)\n       "
        " given[place].mul_(2)\n        return out\n    return run"
    ),
    "wrong_in_a_twentieth": (
        "import os\n    def run(*given):\n        out = graph(*given)[0].clone(); out[-1] *="
        " os.urandom(1)[0] >= 13\n        return (out,)\n    return run"
    ),
    "zeroes_a_column": (
        "def run(*given):\n        out = graph(*given)[0].clone(); out[:, 3] = 0\n        return"
        " (out,)\n    return run"
    ),
}


def programs() -> list[Program]:
    """Return all programs."""
    return [
        _program(f"backend_{name}", _BACKEND.format(body=body), cheats=cheats)
        for table, cheats in ((_RIGHT, False), (_WRONG, True))
        for name, body in table.items()
    ]


def _program(name: str, backend: str, *, cheats: bool) -> Program:
    model = "".join(word.capitalize() for word in name.split("_"))
    files = {f"model_{name}.py": _MODEL.replace("Dense", model), f"{name}.py": backend}
    entry = (
        f"{{source: own, models: ['model_{name}:{model}'], mode: inference, backend:"
        f" ['{name}:own']}}"
    )
    return Program(
        name=name, suite="torchbench", entry=entry, case=model, base=files, cheats=cheats
    )
