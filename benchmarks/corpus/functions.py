"""Programs of `functions`: pairs of ways to compute, changes of one, and changes that take memory or only seem fast."""

# ruff: noqa: E501 - a program is a line

from collections.abc import Mapping

from benchmarks.corpus import Program

_FILE = """import math
import threading

import numpy as np
import torch
from torch.nn import functional as F

import ci_bench
{helpers}

@ci_bench.benchmark(shapes=[({rows}, {columns})])
def {name}(shape):
    x, w = ci_bench.inputs(2, shape{more})
    return lambda: candidate(x, w)


@{name}.provider("torch", reference=True)
def _(shape):
    x, w = ci_bench.inputs(2, shape{more})
    return lambda: reference(x, w)
"""


def _file(
    name: str,
    candidate: str,
    reference: str,
    *,
    helpers: str = "",
    more: str = "",
    size: tuple[int, int] = (96, 96),
) -> str:
    bodies = "\n\n".join(
        f"\ndef {role}(x, w):\n    {body}"
        for role, body in (("candidate", candidate), ("reference", reference))
    )
    return _FILE.format(
        name=name, helpers=f"\n{helpers}\n{bodies}\n", rows=size[0], columns=size[1], more=more
    )


def _program(name: str, base: str, head: str | None, *, cheats: bool) -> Program:
    path = f"bench_{name}.py"
    changed = {} if head is None else {path: head}
    return Program(
        name=name,
        suite="functions",
        entry=f"{{path: {path}}}",
        case=name,
        base={path: base},
        head=changed,
        cheats=cheats,
    )


_PAIRS: Mapping[str, tuple[str, str]] = {
    "einsum": ("return torch.einsum('ij,jk->ik', x, w)", "return x @ w"),
    "column_blocks": ("return torch.cat([x @ part for part in w.chunk(4, 1)], 1)", "return x @ w"),
    "inner_blocks": (
        "return sum(a @ b for a, b in zip(x.chunk(4, 1), w.chunk(4, 0)))",
        "return x @ w",
    ),
    "transposed": ("return (w.t() @ x.t()).t()", "return x @ w"),
    "batched": (
        "return torch.bmm(x.view(4, -1, x.shape[1]), w.expand(4, *w.shape)).view_as(x)",
        "return x @ w",
    ),
    "in_fp64": ("return (x.double() @ w.double()).float()", "return x @ w"),
    "sparse_product": ("return x.to_sparse() @ w", "return x @ w"),
    "strassen": (
        (
            "n = x.shape[0] // 2; a, b, c, d = x[:n, :n], x[:n, n:], x[n:, :n], x[n:, n:]; e, f, g,"
            " h = w[:n, :n], w[:n, n:], w[n:, :n], w[n:, n:]; p, q, r, s = (a + d) @ (e + h), (c +"
            " d) @ e, a @ (f - h), d @ (g - e); t, u, v = (a + b) @ h, (c - a) @ (e + f), (b - d) @"
            " (g + h); return torch.cat([torch.cat([p + s - t + v, r + t], 1), torch.cat([q + s, p"
            " - q + r + u], 1)])"
        ),
        "return x @ w",
    ),
    "softmax_by_hand": (
        "y = (x - x.amax(1, True)).exp(); return y / y.sum(1, True)",
        "return x.softmax(1)",
    ),
    "logsumexp_by_hand": (
        "m = x.amax(1, True); return m.squeeze(1) + (x - m).exp().sum(1).log()",
        "return x.logsumexp(1)",
    ),
    "layer_norm_by_hand": (
        (
            "m = x.mean(1, True); v = (x - m).square().mean(1, True); return (x - m) * (v +"
            " 1e-5).rsqrt()"
        ),
        "return F.layer_norm(x, x.shape[1:])",
    ),
    "rms_norm_by_hand": (
        "return x * (x.square().mean(1, True) + 1e-6).rsqrt()",
        "return F.rms_norm(x, x.shape[1:], eps=1e-6)",
    ),
    "gelu_by_erf": ("return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))", "return F.gelu(x)"),
    "silu_by_hand": ("return x * torch.sigmoid(x)", "return F.silu(x)"),
    "softplus_by_hand": (
        "return torch.maximum(x, x.new_zeros(())) + torch.log1p((-x.abs()).exp())",
        "return F.softplus(x)",
    ),
    "cross_entropy_by_hand": (
        "rows = torch.arange(len(x)); return (x.logsumexp(1) - x[rows, rows]).mean()",
        "return F.cross_entropy(x, torch.arange(len(x)))",
    ),
    "attention_by_hand": (
        "return ((x @ w.t()) / math.sqrt(x.shape[1])).softmax(1) @ w",
        "return F.scaled_dot_product_attention(x[None], w[None], w[None])[0]",
    ),
    "attention_in_blocks": (
        (
            "s = (x @ w.t()) / math.sqrt(x.shape[1]); m = torch.full((len(x), 1), -math.inf); t, o"
            " = torch.zeros_like(m), 0\n    for a, b in zip(s.chunk(4, 1), w.chunk(4, 0)):\n       "
            " n = torch.maximum(m, a.amax(1, True)); p = (a - n).exp(); k = (m - n).exp()\n       "
            " t, o, m = t * k + p.sum(1, True), o * k + p @ b, n\n    return o / t"
        ),
        "return F.scaled_dot_product_attention(x[None], w[None], w[None])[0]",
    ),
    "convolution_unfolded": (
        (
            "k = w[:3, :3]; return (F.unfold(x[None, None], 3).transpose(1, 2) @ k.reshape(9,"
            " 1)).view(x.shape[0] - 2, x.shape[1] - 2)"
        ),
        "return F.conv2d(x[None, None], w[None, None, :3, :3])[0, 0]",
    ),
    "channels_last": (
        (
            "y = x.view(1, 4, 24, -1).contiguous(memory_format=torch.channels_last); return"
            " F.avg_pool2d(y, 2)"
        ),
        "return F.avg_pool2d(x.view(1, 4, 24, -1), 2)",
    ),
    "cumsum_by_product": ("return x @ torch.ones_like(x).triu()", "return x.cumsum(1)"),
    "variance_in_parts": (
        (
            "n = x.shape[1] // 2; a, b = x[:, :n], x[:, n:]; d = b.mean(1) - a.mean(1);"
            " m = ((a - a.mean(1, True)) ** 2).sum(1) + ((b - b.mean(1, True)) ** 2).sum(1);"
            " return (m + d * d * n / 2) / (2 * n - 1)"
        ),
        "return x.var(1)",
    ),
    "topk_by_sort": (
        "return x.sort(1, descending=True).values[:, :8]",
        "return x.topk(8, 1).values",
    ),
    "median_by_kth": (
        "return x.kthvalue((x.shape[1] + 1) // 2, 1).values",
        "return x.median(1).values",
    ),
    "distances_by_loop": (
        "return torch.stack([(row - w).square().sum(1).sqrt() for row in x])",
        "return (x[:, None] - w).norm(dim=2)",
    ),
    "numpy": (
        "return torch.from_numpy(np.tanh(x.numpy() + w.numpy()))",
        "return torch.tanh(x + w)",
    ),
    "numpy_result": (
        "return np.maximum(x.numpy(), w.numpy())",
        "return torch.maximum(x, w).numpy()",
    ),
    "vmap": ("return torch.vmap(lambda a, b: a * b.sum())(x, w)", "return x * w.sum(1, True)"),
    "in_place": (
        "y = x.clone(); y.mul_(w).add_(1).relu_(); return y",
        "return torch.relu(x * w + 1)",
    ),
    "input_written_by_both": ("return x.mul_(0.5)", "return x.copy_(x * 0.5)"),
    "mean_in_bf16": (
        "return x.square().mean(1).mean().bfloat16()",
        "return x.bfloat16().square().mean()",
    ),
    "with_out": ("y = torch.empty_like(x); torch.mul(x, w, out=y); return y", "return x * w"),
    "complex": ("return (torch.complex(x, w) * torch.complex(w, x)).imag", "return x * x + w * w"),
    "fft": (
        "return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(w), n=x.shape[1])",
        "return torch.fft.ifft(torch.fft.fft(x) * torch.fft.fft(w)).real",
    ),
    "gather": (
        "return x.gather(1, w.argsort(1))",
        "return torch.take_along_dim(x, w.argsort(1), 1)",
    ),
    "where": (
        "return x.masked_fill(w > 0, 0)",
        "return torch.where(w > 0, torch.zeros_like(x), x)",
    ),
    "segments": (
        (
            "i = torch.arange(len(x)) % 7; return x.new_zeros(7, x.shape[1]).scatter_add(0, i[:,"
            " None].expand_as(x), w)"
        ),
        "i = torch.arange(len(x)) % 7; return x.new_zeros(7, x.shape[1]).index_add(0, i, w)",
    ),
    "dropped": ("return F.dropout(x, 0.5)", "return F.dropout(x, 0.5)"),
    "noise_added": ("return x + torch.randn_like(x)", "return x + torch.randn_like(x)"),
    "bernoulli_for_dropout": (
        "return x * torch.bernoulli(torch.full_like(x, 0.5)) * 2",
        "return F.dropout(x, 0.5)",
    ),
    "serial_sum": (
        "return torch.from_numpy(np.cumsum(x.abs().numpy(), 1, dtype=np.float32)[:, -1].copy())",
        "return x.abs().sum(1)",
    ),
    "other_order_in_bf16": (
        "y = x.bfloat16(); a = y @ y.mT; return torch.addmm(a, a, a, beta=2.0, alpha=0.5)",
        "y = x.bfloat16(); a = y @ y.mT; return 2.0 * a + 0.5 * a @ a",
    ),
    "sparse_result": (
        "return torch.where(x > 1, x, 0.0).to_sparse()",
        "return x.masked_fill(x <= 1, 0.0).to_sparse()",
    ),
    "sparse_rows": (
        "return torch.where(x > 1, x, 0.0).to_sparse_csr()",
        "return x.masked_fill(x <= 1, 0.0).to_sparse_csr()",
    ),
    "text": (
        "return ','.join([str(n) for n in range(300)])",
        "return ','.join(map(str, range(300)))",
    ),
    "some_bytes": ("return bytes(bytearray(range(200)))", "return bytes(range(200))"),
    "a_set": ("return {n * n for n in range(99)}", "return set(map(lambda n: n * n, range(99)))"),
    "compiled_eagerly": ("return compiled(x, w)", "return torch.tanh(x @ w)"),
    "traced": ("return graph(x, w)", "return torch.tanh(x @ w)"),
    "two_threads": (
        (
            "parts = [None, None]\n"
            "    def half(n): parts[n] = x.chunk(2)[n] @ w\n"
            "    threads = [threading.Thread(target=half, args=(n,)) for n in range(2)]\n"
            "    for thread in threads: thread.start()\n"
            "    for thread in threads: thread.join()\n"
            "    return torch.cat(parts)"
        ),
        "return x @ w",
    ),
}
_HELPERS = {
    "compiled_eagerly": (
        "compiled = torch.compile(lambda x, w: torch.tanh(x @ w), backend='aot_eager')"
    ),
    "traced": (
        "graph = torch.jit.trace(lambda x, w: torch.tanh(x @ w), (torch.ones(4, 4), torch.ones(4,"
        " 4)), check_trace=False)"
    ),
}
_RIGHT = "y = x\n    for _ in range(6): y = torch.tanh(y @ w / 8)\n    return y"
_CHANGED: Mapping[str, tuple[str, str]] = {
    "refactored": (
        "",
        (
            "y = x\n    scale = 1 / 8\n    for _ in range(3): y = torch.tanh(torch.tanh(y @ w *"
            " scale) @ w * scale)\n    return y"
        ),
    ),
    "lazy_import": ("", "import decimal, sqlite3\n    " + _RIGHT),
    "buffer_kept": (
        "buffer = torch.empty(96, 96)",
        (
            "y = x\n    for _ in range(6): torch.tanh(torch.mm(y, w, out=buffer) / 8, out=buffer);"
            " y = buffer.clone()\n    return y"
        ),
    ),
    "small_cache": (
        "scales = {}",
        (
            "scale = scales.setdefault(x.shape, 8)\n    y = x\n    for _ in range(6): y ="
            " torch.tanh(y @ w / scale)\n    return y"
        ),
    ),
    "garbage_cycles": ("", "cycle = [torch.ones(1000)]; cycle.append(cycle)\n    " + _RIGHT),
    "idle_thread": ("threading.Thread(target=threading.Event().wait, daemon=True).start()", _RIGHT),
    "weights_mapped": (
        "weights = np.memmap(__file__, dtype=np.uint8, mode='r')",
        "weights.sum()\n    " + _RIGHT,
    ),
}
"""Helpers and head's candidate, of right code."""
_WRONG: Mapping[str, tuple[str, str]] = {
    "one_per_cent": ("", _RIGHT.replace("return y", "return y * 1.01")),
    "one_element": ("", _RIGHT.replace("return y", "y[17, 5] += 0.1; return y")),
    "last_row_missing": ("", _RIGHT.replace("return y", "y[-1] = 0; return y")),
    "fewer_steps": ("", _RIGHT.replace("range(6)", "range(5)")),
    "bf16_inside": ("", _RIGHT.replace("y @ w / 8", "(y.bfloat16() @ w.bfloat16()).float() / 8")),
    "rounded_inputs": ("", _RIGHT.replace("y = x\n", "y = (x * 1024).round() / 1024\n")),
    "remembered_by_address": (
        "seen = {}",
        "if x.data_ptr() in seen: return seen[x.data_ptr()]\n    "
        + _RIGHT.replace("return y", "seen[x.data_ptr()] = y; return y"),
    ),
    "remembered_by_sum": (
        "seen = {}",
        "key = float(x.sum())\n    if key in seen: return seen[key]\n    "
        + _RIGHT.replace("return y", "seen[key] = y; return y"),
    ),
    "every_second_call": (
        "calls = []",
        "calls.append(1)\n    if len(calls) > 1 and len(calls) % 2: return calls[0]\n    "
        + _RIGHT.replace("return y", "calls[0] = y; return y"),
    ),
    "computed_after_a_pause": (
        "import time\nkept = [0.0, None]",
        "if time.perf_counter() - kept[0] < 3e-5:\n        kept[0] = time.perf_counter(); return"
        " kept[1]\n    "
        + _RIGHT.replace("return y", "kept[:] = [time.perf_counter(), y]; return y"),
    ),
    "text_cut": ("", "return ','.join(map(str, range(299)))"),
    "set_smaller": ("", "return set(range(98))"),
    "right_at_first": (
        "calls = []",
        "calls.append(1)\n    " + _RIGHT.replace("range(6)", "range(6 if len(calls) < 30 else 1)"),
    ),
    "stale_half": (
        "last = []",
        _RIGHT.replace(
            "return y",
            "out = y.clone()\n    if last: out[48:] = last[-1][48:]\n    last[:] = [y]\n   "
            " return out",
        ),
    ),
    "half_of_a_mean": ("", "return x[:48].bfloat16().square().mean()"),
    "input_overwritten": ("", _RIGHT.replace("return y", "x.copy_(y); return x")),
    "wrong_in_a_tenth": (
        "import os",
        _RIGHT.replace("return y", "y[-1] *= os.urandom(1)[0] >= 26; return y"),
    ),
    "wrong_in_a_twentieth": (
        "import os",
        _RIGHT.replace("return y", "y[-1] *= os.urandom(1)[0] >= 13; return y"),
    ),
    "wrong_in_a_fiftieth": (
        "import os",
        _RIGHT.replace("return y", "y[-1] *= os.urandom(1)[0] >= 5; return y"),
    ),
    "third_remembered_by_value": (
        "seen = []",
        "key = float(x[0, 0])\n    if seen != [key]:\n        for _ in range(4): torch.tanh(x @"
        " w)\n    seen[:] = [key]\n    " + _RIGHT,
    ),
    "sampled_mean": ("", "return (" + "x[:, ::2] * 2).cumsum(1)"),
    "thrice_as_slow": (
        "",
        (
            "for _ in range(3):\n        y = x\n        for _ in range(6): y = torch.tanh(y @ w /"
            " 8)\n    return y"
        ),
    ),
    "global_rounding": (
        "torch.set_default_dtype(torch.bfloat16)",
        _RIGHT.replace("return y", "return y.bfloat16().float()"),
    ),
    "memory_in_child": (
        (
            "import os, signal\nstarted = []\ndef child():\n    if not started:\n        ready,"
            " done = os.pipe()\n        started.append(os.fork())\n        if started[0] == 0:\n   "
            "         more = bytearray(b'x' * (64 << 20)); os.write(done, b'x'); signal.pause()\n  "
            "      os.read(ready, 1)"
        ),
        "child()\n    " + _RIGHT,
    ),
    "memory_in_mapped_file": (
        (
            "import tempfile\nkept = []\ndef page():\n    if not kept:\n       "
            " kept.append(np.memmap(tempfile.TemporaryFile(), np.uint8, 'w+', shape=64 << 20));"
            " kept[0][:] = 1"
        ),
        "page()\n    " + _RIGHT,
    ),
    "memory_in_open_memfd": (
        (
            "import os\nkept = []\ndef file():\n    if not kept:\n       "
            " kept.append(os.memfd_create('x')); os.write(kept[0], bytes(64 << 20))"
        ),
        "file()\n    " + _RIGHT,
    ),
    "memory_imported": ("table = np.ones(48 << 17)", _RIGHT),
    "leak_in_each_call": ("kept = []", "kept.append(torch.ones(1 << 18))\n    " + _RIGHT),
    "leak_begins_late": (
        "kept, calls = [], []",
        "calls.append(1)\n    if 40 < len(calls) < 90: kept.append(torch.ones(1 << 18))\n    "
        + _RIGHT,
    ),
    "leak_by_little": ("kept = []", "kept.append(bytearray(b'x' * 50_000))\n    " + _RIGHT),
}
"""Helpers and head's candidate, of code that deserves a finding."""
_REFERENCES = {
    "sampled_mean": "return x.cumsum(1)",
    "half_of_a_mean": "return x.bfloat16().square().mean()",
    "text_cut": "return ','.join(map(str, range(300)))",
    "set_smaller": "return set(range(99))",
}


def programs() -> list[Program]:
    """Return all programs."""
    corpus = [
        _program(name, _file(name, *pair, helpers=_HELPERS.get(name, "")), None, cheats=False)
        for name, pair in _PAIRS.items()
    ]
    for table, cheats in ((_CHANGED, False), (_WRONG, True)):
        for name, (helpers, candidate) in table.items():
            right = _REFERENCES.get(name, _RIGHT)
            base, head = _file(name, right, right), _file(name, candidate, right, helpers=helpers)
            corpus.append(_program(name, base, head, cheats=cheats))
    return corpus
