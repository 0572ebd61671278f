"""Changes as pull requests make them, planted into a model of a repository's own: each is a case, in a module of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODEL = Path(__file__).parents[1] / "fixtures" / "tiny_gpt.py"

Texts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What head replaces in the model, text by text, and what its entry says that differs from the others'."""

    name: str
    texts: Texts = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The module that holds this case's copy of the model."""
        return f"gpt_{self.name}"

    def entry(self) -> dict[str, Any]:
        """The case's entry under `training_loss`."""
        return {
            "name": self.name,
            "backend": "eager",
            "model": {"factory": f"{self.module}:GPT"},
            "dataset": {"factory": f"{self.module}:rows"},
            "evaluation": False,
            "num_samples": 80,
            "batch_size": 4,
            "epochs": 1,
            "optimizer": "SGD",
            "lr": 0.3,
            "perturbations": 1,
            "seeds": 2,
            **self.options,
        }

    def head(self) -> str:
        """The module's text on head."""
        text = MODEL.read_text(encoding="utf-8")
        for old, new in self.texts:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        return text


_SCORES = """        maps = functional.softmax(
            (q @ k.mT / math.sqrt(width // HEADS)).masked_fill(~self.past, -math.inf), dim=-1
        )
        mixed = self.drop(maps) @ v
"""
_FUSED = """        share = self.drop.p if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=share)
"""
_GELU = """return (
            0.5
            * x
            * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
        )"""

CHANGES = {
    change.name: change
    for change in (
        Change(name="nothing"),
        Change(
            name="norm_eps",
            texts=(
                (
                    "self.before, self.between = nn.LayerNorm(WIDTH)",
                    "self.before, self.between = nn.LayerNorm(WIDTH, eps=1e-6)",
                ),
            ),
        ),
        Change(
            name="dropout_lost", texts=(("x + self.residual(self.out(self", "x + (self.out(self"),)
        ),
        Change(
            name="init_too_large",
            texts=(("0.02 / math.sqrt(2 * LAYERS)", "0.02 / math.sqrt(LAYERS)"),),
            options={"num_samples": 400},
        ),
        Change(
            name="fused",
            texts=((_SCORES, _FUSED), (_GELU, 'return functional.gelu(x, approximate="tanh")')),
        ),
        Change(
            name="copies",
            texts=(
                (
                    "x = x + self.attention",
                    "x = x.repeat(1000, 1, 1)[: len(x)]\n        x = x + self.attention",
                ),
            ),
        ),
        Change(
            name="maps_kept",
            texts=(
                ("mixed = self.drop(maps)", "KEPT.append(maps)\n        mixed = self.drop(maps)"),
                ("class Gelu", "KEPT = []\n\n\nclass Gelu"),
            ),
            options={"batch_size": 40, "num_samples": 480},
        ),
    )
}

SPEEDS = '''
"""Leaves what pytest-benchmark writes: three benchmarks of twenty rounds, with three per cent of noise that no run shares."""

import json
import random
import sys

FACTORS = {factors!r}
SECONDS = {{"test_parse": 0.010, "test_render": 0.002, "test_scan": 0.030}}


def benchmark(name, seconds):
    data = [seconds * FACTORS.get(name, 1.0) * random.gauss(1.0, 0.03) for _ in range(20)]
    return {{"name": name, "fullname": f"test_speed.py::{{name}}", "stats": {{"median": sorted(data)[10], "data": data}}}}


with open(sys.argv[1], "w") as stream:
    found = [benchmark(name, seconds) for name, seconds in SECONDS.items()]
    json.dump({{"machine_info": {{}}, "benchmarks": found, "version": "5.3.1"}}, stream)
'''
