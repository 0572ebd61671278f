"""Activations, forward and backward."""

import torch
from kernels import swiglu

import ci_bench


@ci_bench.benchmark(shape=[(2048, 512)], backward=True)
def gated(shape):
    gate, up = ci_bench.inputs(2, shape)
    ci_bench.record("parameters", gate.numel() + up.numel())
    return lambda: swiglu(gate, up)


@gated.provider("exact", reference=True)
def _(shape):
    gate, up = ci_bench.inputs(2, shape)
    return lambda: gate * torch.sigmoid(gate) * up
