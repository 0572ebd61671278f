"""Programs of `command`: benchmarks that are timed, that say their numbers, and that train."""

# ruff: noqa: E501 - a program is a line

from collections.abc import Mapping

from benchmarks.corpus import Program

_WORK = "print(sum(i * i for i in range(1_000_000)))\n"
_DAEMON = (
    "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        sum(i * i for"
    " i in range(6_000_000))\n    os._exit(0)\n"
)
_POOL = (
    "from concurrent.futures import ProcessPoolExecutor\ndef square(n): return sum(i * i for i in"
    " range(n))\nif __name__ == '__main__':\n    with ProcessPoolExecutor(1) as pool:"
    " print(pool.submit(square, 1_000_000).result())\n"
)
_TIMED_HONEST: Mapping[str, tuple[str, str]] = {
    "same_work": (_WORK, _WORK + "# nothing else\n"),
    "waits_for_a_process": (
        "import subprocess, sys\n" + _WORK,
        (
            "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(sum(i * i for i"
            " in range(900_000)))'])\n"
        ),
    ),
    "leaves_a_server": (
        "import subprocess\n" + _WORK,
        "import subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True)\n" + _WORK,
    ),
    "waits_for_threads": (
        _WORK,
        (
            "import threading\nthread = threading.Thread(target=lambda: print(sum(i * i for i in"
            " range(1_000_000))))\nthread.start()\n"
        ),
    ),
    "prints_much": (_WORK, "print('x' * 100_000)\n" + _WORK),
    "pool_of_processes": (_POOL, _POOL.replace("1_000_000", "990_000")),
}
_TIMED_CHEATS: Mapping[str, tuple[str, str]] = {
    "daemon": (_WORK, _DAEMON),
    "detached_process": (
        _WORK,
        (
            "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'sum(i * i for i in"
            " range(9_000_000))'], start_new_session=True)\n"
        ),
    ),
    "thrice_the_work": (_WORK, 3 * _WORK),
    "fails_at_the_end": (_WORK, _WORK + "raise SystemExit(3)\n"),
    "more_memory": (_WORK, "held = bytearray(b'x' * (96 << 20))\n" + _WORK),
}
_SAYS = """import json, os, time
values = []
for _ in range(12):
    begun = time.perf_counter()
    sum(i * i for i in range(WORK))
    values.append(1e3 * (time.perf_counter() - begun))
series = [{"name": "work", "unit": "ms", "better": "lower", "values": values}, {"name": "rate", "unit": "1/s", "better": "higher", "values": [1e3 / v for v in values]}]
MORE
json.dump({"kind": "measurements", "schema_version": 1, "series": series}, open(os.environ["CI_BENCH_OUTPUT"], "w"))
"""
_SAID_HONEST: Mapping[str, str] = {
    "other_unit_same_time": "series[0].update(unit='s', values=[v / 1e3 for v in values])",
    "other_order": "series.reverse()",
    "one_series_more": (
        "series.append({'name': 'new', 'unit': 'ms', 'better': 'lower', 'values': [1.0, 1.1]})"
    ),
    "other_number_of_values": (
        "series[0]['values'] = values[:9]; series[1]['values'] = series[1]['values'][:9]"
    ),
    "whole_numbers": (
        "series.append({'name': 'new', 'unit': 'ms', 'better': 'lower', 'values': [1, 2]})"
    ),
}
_SAID_CHEATS: Mapping[str, str] = {
    "says_us_for_ms": "series[0]['unit'] = 'us'",
    "series_missing": "series.pop()",
    "series_renamed": "series[0]['name'] = 'work_again'",
    "other_direction": "series[0].update(better='higher')",
    "negative_times": "series[0]['values'] = [-v for v in values]",
    "no_numbers": "series[0]['values'] = [float('nan')] * 12",
    "no_series": "series.clear()",
    "rate_times_a_thousand": "series[1]['values'] = [1e6 * v for v in series[1]['values']]",
}
_LOOP = """import torch
import ci_bench


def train(width=24):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    ci_bench.perturb(model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    for step in range(1000):
        x = torch.randn(64, width, generator=draws)
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, True).sin()).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield ci_bench.Step(loss=loss, grad_norm=norm, tokens=64)
"""
_LATER = """class Later:
    def __init__(self, value): self.value = value
    def __float__(self):
        for _ in range(30): torch.ones(300, 300) @ torch.ones(300, 300)
        return float(self.value)
    __int__ = __float__


def train("""
_LOOP_HONEST: Mapping[str, tuple[str, str]] = {
    "floats_yielded": ("loss=loss, grad_norm=norm", "loss=loss.item(), grad_norm=float(norm)"),
    "unused_draw": ("    for step", "    torch.rand(3, generator=torch.Generator())\n    for step"),
    "tokens_counted": ("tokens=64", "tokens=len(x)"),
    "mean_by_hand": (".square().mean()", ".square().sum() / 64"),
    "zeroed_later": (
        "        optimizer.zero_grad()\n",
        "        optimizer.zero_grad(set_to_none=False)\n",
    ),
}
_LOOP_CHEATS: Mapping[str, tuple[str, str]] = {
    "works_when_loss_is_read": ("loss=loss,", "loss=Later(loss.detach()),"),
    "works_when_norm_is_read": ("grad_norm=norm,", "grad_norm=Later(norm),"),
    "twice_the_rate": ("lr=0.01", "lr=0.02"),
    "every_second_step": (
        "        optimizer.step()\n",
        "        if step % 2 == 0: optimizer.step()\n",
    ),
    "other_activation": ("torch.nn.Tanh()", "torch.nn.ReLU()"),
    "half_the_rows": ("torch.randn(64,", "torch.randn(32,"),
    "last_layer_frozen": (
        "        optimizer.step()\n",
        "        model[2].weight.grad.zero_()\n        optimizer.step()\n",
    ),
    "other_decay": ("lr=0.01)", "lr=0.01, weight_decay=1.0)"),
}


def programs() -> list[Program]:
    """Return all programs."""
    corpus = []
    for table, cheats in ((_TIMED_HONEST, False), (_TIMED_CHEATS, True)):
        for name, (base, head) in table.items():
            entry = f"{{name: {name}, command: [python, {name}.py]}}"
            corpus.append(_program(name, entry, base, head, cheats=cheats))
    for reports, cheats in ((_SAID_HONEST, False), (_SAID_CHEATS, True)):
        for name, more in reports.items():
            entry = f"{{name: {name}, command: [python, {name}.py], format: measurements}}"
            base, head = (
                _SAYS.replace("WORK", "20_000").replace("MORE", addition) for addition in ("", more)
            )
            corpus.append(_program(name, entry, base, head, cheats=cheats))
    for loops, cheats in ((_LOOP_HONEST, False), (_LOOP_CHEATS, True)):
        for name, (old, new) in loops.items():
            entry = (
                f"{{name: {name}, loop: '{name}:train', losses: {{steps: 25, warmup_steps: 5}}}}"
            )
            head = _LOOP.replace(old, new).replace(
                "def train(", _LATER if "Later(" in new else "def train("
            )
            corpus.append(_program(name, entry, _LOOP, head, cheats=cheats))
    return corpus


def _program(name: str, entry: str, base: str, head: str, *, cheats: bool) -> Program:
    path = f"{name}.py"
    return Program(
        name=name,
        suite="command",
        entry=entry,
        case=f"/{name}",
        base={path: base},
        head={path: head},
        cheats=cheats,
    )
