"""Quantisation of a model, and its cost: the distance of its outputs from those of the original.

That is a loss of the method, not the fault of a compiler, so it is measured separately, on the
scale of the outputs. The check `accuracy` compares the compiled quantised model with the eager
quantised one, as for any model. The truth is the unquantised model in fp64, or eager if it has no
fp64. Seed: `Settings.seed` for each sample.

Limits are shares of the truth's 2-norm; the largest error may be as large a share of the largest
element. They leave room above the zoo's losses (docs/internals/measurements.md): deeper networks
add up more. Four bits round sixteen times as coarsely as eight; that limit follows from those of
eight bits and is not measured. A scale that is wrong by a factor, or a lost row, is beyond every
limit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ci_bench.records.forms import Fact
from ci_bench.records.results import Check, Outcome
from ci_bench.suites.contract import Unsupported, no_mark
from ci_bench.suites.shared.worker.randomness import seed_everything
from ci_bench.suites.torchbench.options import (
    QUANTIZATION_LOSS,
    TorchbenchOptions,
    TorchbenchPrecision,
)
from ci_bench.suites.torchbench.program import Ready
from ci_bench.suites.torchbench.snapshot import Leaves, take
from ci_bench.suites.torchbench.sources.loaded import optional
from ci_bench.suites.torchbench.status import Word, worded

QUANTIZERS = {
    "int8dynamic": "Int8DynamicActivationInt8WeightConfig",
    "int8weightonly": "Int8WeightOnlyConfig",
    "int4weightonly": "Int4WeightOnlyConfig",
}
LIMITS = {"int8dynamic": 0.1, "int8weightonly": 0.05, "int4weightonly": 0.4}
"""The share of the outputs that may be lost, unless the case sets another."""

Build = Callable[..., Ready]
"""Called with `candidate`, `exact` and `quantized`: a fresh model, from the same bytes."""


def quantize(module: nn.Module, options: TorchbenchOptions) -> None:
    """Quantise the linear layers of a module in place, as torchao does it.

    The weights are in the case's precision.

    Raises:
        Unsupported: torchao, its requirements for this kind, or a layer to quantise is missing.
    """
    kind = str(options.settings.quantization)
    try:
        quantization = optional("torchao").quantization
    except ImportError as error:
        raise Unsupported(f"quantization {kind}: torchao is not installed") from error
    config = getattr(quantization, QUANTIZERS[kind], None)
    if config is None:
        raise Unsupported(f"quantization {kind}: this torchao has no {QUANTIZERS[kind]}")
    if options.precision is TorchbenchPrecision.BF16:
        module.to(torch.bfloat16)
    try:
        quantization.quantize_(module, config())
    except (ImportError, NotImplementedError) as error:
        raise Unsupported(
            f"quantization {kind}: {str(error).strip().partition(chr(10))[0][:300]}"
        ) from error
    if not any(map(is_traceable_wrapper_subclass, module.parameters())):
        raise Unsupported(
            f"quantization {kind}: {options.model} has no layer that torchao quantises"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantizationLoss:
    """Deviation of one output: shares of the truth's 2-norm and of its largest element."""

    name: str
    error: float
    largest: float

    @property
    def worst(self) -> float:
        """The larger share."""
        return max(self.error, self.largest)


def quantization_loss(
    arm: str, build: Build, options: TorchbenchOptions
) -> tuple[Check, Mapping[str, Fact]]:
    """Check the quantised candidate against the unquantised model.

    Also returns its figures as facts.
    """
    with worded(Word.EAGER_FAIL_TO_RUN, Word.EAGER_1ST_RUN_OOM):
        eager = _outputs(build(candidate=None, quantized=False), options)
    truth, basis = _truth(build, options, eager)
    with worded(Word.FAIL_TO_RUN, Word.OOM):
        torch.compiler.reset()
        outputs = _outputs(build(candidate=options.candidates[arm]), options)
    deviations, rounding = losses(outputs, truth), losses(eager, truth)
    limit = options.settings.quantization_limit or LIMITS[str(options.settings.quantization)]
    check = _judged(arm, deviations, rounding, limit=limit, basis=basis)
    return check, _figures(deviations, rounding)


def losses(outputs: Sequence[Leaves], truth: Sequence[Leaves]) -> tuple[QuantizationLoss, ...]:
    """Return the deviation of each output over all samples.

    It is unbounded for an output that is missing, of another shape or not finite.
    """
    names = dict.fromkeys(name for leaves in (*truth, *outputs) for name in leaves)
    return tuple(
        _loss(
            name, [sample.get(name) for sample in outputs], [sample.get(name) for sample in truth]
        )
        for name in names
    )


def _loss(
    name: str, values: Sequence[Tensor | None], truth: Sequence[Tensor | None]
) -> QuantizationLoss:
    pairs = [
        (value, true)
        for value, true in zip(values, truth, strict=True)
        if value is not None or true is not None
    ]
    if any(value is None or true is None or value.shape != true.shape for value, true in pairs):
        return QuantizationLoss(name=name, error=float("inf"), largest=float("inf"))
    wide = [
        (value.double().flatten(), true.double().flatten())
        for value, true in pairs
        if value is not None and true is not None
    ]
    off, size = (
        torch.cat([value - true for value, true in wide]),
        torch.cat([true for _, true in wide]),
    )
    if not off.numel():
        return QuantizationLoss(name=name, error=0.0, largest=0.0)
    return QuantizationLoss(
        name=name,
        error=_share(off.norm(), size.norm()),
        largest=_share(off.abs().max(), size.abs().max()),
    )


def _share(off: Tensor, size: Tensor) -> float:
    if not off.isfinite():
        return float("inf")
    return 0.0 if off == 0 else float(off / size) if size > 0 else float("inf")


def _judged(
    arm: str,
    deviations: Sequence[QuantizationLoss],
    rounding: Sequence[QuantizationLoss],
    *,
    limit: float,
    basis: str,
) -> Check:
    """Check the loss against the limit plus the effect of only rounding on the unquantised model.

    If that effect is beyond the limit, the outcome is unknown.
    """
    if not deviations:
        detail, outcome = "no output is made of floating-point numbers", Outcome.UNKNOWN
        return Check(name=QUANTIZATION_LOSS, arm=arm, outcome=outcome, detail=detail)
    noise = {deviation.name: deviation.worst for deviation in rounding}
    worst = max(deviations, key=lambda deviation: deviation.worst - noise.get(deviation.name, 0.0))
    noise_of_worst = noise.get(worst.name, 0.0)
    outcome = (
        Outcome.UNKNOWN
        if noise_of_worst > limit
        else Outcome.PASS
        if worst.worst <= limit + noise_of_worst
        else Outcome.FAIL
    )
    detail = (
        f"{worst.name} is off by {worst.error:.3g} of its norm and by {worst.largest:.3g} of its"
        f" largest element; {limit:g} is allowed, and rounding without quantisation is"
        f" {noise_of_worst:.2g}{basis}"
    )
    return Check(name=QUANTIZATION_LOSS, arm=arm, outcome=outcome, detail=detail)


def _figures(
    deviations: Sequence[QuantizationLoss], rounding: Sequence[QuantizationLoss]
) -> dict[str, Fact]:
    figures: dict[str, Fact] = {}
    for name, many in (
        ("quantization_error", deviations),
        ("unquantized_rounding_error", rounding),
    ):
        value = max((deviation.error for deviation in many), default=0.0)
        figures[name] = round(value, 6) if value < float("inf") else None
    return figures


def _truth(
    build: Build, options: TorchbenchOptions, eager: Sequence[Leaves]
) -> tuple[Sequence[Leaves], str]:
    """Return the outputs in fp64, or eager's with the reason why."""
    try:
        return _outputs(build(candidate=None, exact=True, quantized=False), options), ""
    except Exception as error:  # noqa: BLE001 - benched code may raise anything; the answer includes the reason
        return eager, f"; compared with eager, as fp64 failed ({type(error).__name__})"


def _outputs(ready: Ready, options: TorchbenchOptions) -> list[Leaves]:
    """Return the floating outputs of each sample, on the host."""
    collected = []
    for index, sample in enumerate(ready.samples):
        seed_everything(options.settings.seed + index)
        _, outputs = ready.step(sample, no_mark)
        leaves = take(nn.Module(), outputs, None).outputs
        collected.append(
            {name: value for name, value in leaves.items() if value.is_floating_point()}
        )
    return collected
