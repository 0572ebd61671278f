"""The worker's half of `training_loss`: one case as a workload.

Imports torch; never imported by the parent.

Seed, precision and determinism: weights, data order and masks follow `options.seed`, and every
verified step starts from a separate seed. TF32 is on only for precision `tf32`; torch's
deterministic mode is off, since it changes what is timed.
"""

import math
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any, cast

import torch
from torch import Tensor

from ci_bench.records.forms import Fact
from ci_bench.records.results import Case, Check, Outcome, Role
from ci_bench.suites.contract import (
    Compiler,
    Context,
    Evidence,
    Mark,
    Part,
    Program,
    Ranks,
    Unsupported,
)
from ci_bench.suites.shared.planning.arms import without_cuda_graphs
from ci_bench.suites.shared.planning.layouts import Layout
from ci_bench.suites.shared.worker.casts import rounded_buffers
from ci_bench.suites.shared.worker.compiling import allow_compilations, backend_of
from ci_bench.suites.shared.worker.fp32_precision import set_fp32_precision
from ci_bench.suites.shared.worker.freshness import (
    State,
    altered,
    copied,
    left_by_training,
    overwritten,
    read_state,
    write_state,
)
from ci_bench.suites.shared.worker.numerics import shaken as shake
from ci_bench.suites.shared.worker.optimizers import longest_memory
from ci_bench.suites.shared.worker.randomness import seed_step
from ci_bench.suites.shared.worker.roofline import step_facts
from ci_bench.suites.shared.worker.sharing import (
    begin_from,
    gathered,
    local_part,
    replicas,
    unsharded,
    whole_state,
)
from ci_bench.suites.training_loss.corpus import Batch, Rows, full_batches, load_rows, prepare_rows
from ci_bench.suites.training_loss.layouts import ParallelStep, is_pipeline, own_share
from ci_bench.suites.training_loss.network import (
    build_model,
    build_optimizer,
    check_ids,
    start_state,
    try_model,
)
from ci_bench.suites.training_loss.options import (
    REFERENCE_ARM,
    TrainingOptions,
    TrainingPrecision,
    parse,
)
from ci_bench.suites.training_loss.recipes import TrainingRecipe
from ci_bench.suites.training_loss.training import (
    FIRST_LOSS_SCALE,
    build_parallel,
    build_trainee,
    check_own_code,
)
from ci_bench.suites.training_loss.verify import TrainingVerifier

AMPERE = 8


def open_workload(case: Case, context: Context) -> "TrainingWorkload":
    """Return the workload of one case.

    Raises `Unsupported` if the device lacks the precision.
    """
    options = parse(case.params)
    _require(options.precision, context.device)
    set_fp32_precision(tf32=options.precision is TrainingPrecision.TF32)
    return TrainingWorkload(options, context)


class TrainingWorkload:
    """Trains one model on one dataset, in every arm."""

    def __init__(self, options: TrainingOptions, context: Context) -> None:
        """Load nothing yet."""
        self._options = options
        self._context = context
        self._opened = 0

    def prepare(self) -> None:
        """Tokenise the rows, and check early that model, optimizer and backends exist."""
        for candidate in self._options.candidates:
            backend_of(candidate)
        prepare_rows(self._options, self._context.scratch)
        model = try_model(self._options)
        ids = load_rows(self._context.scratch, "train").inputs.get("input_ids")
        if self._options.model.factory is None and ids is not None:
            check_ids(self._options, model, ids)
        build_optimizer(self._options, model, self._context.device)
        if self._options.model.factory is not None or self._options.loss is not None:
            trainee = build_trainee(self._options, self._start(), device="cpu", candidate=None)
            rows = load_rows(self._context.scratch, "train")
            check_own_code(self._options, trainee, rows.batch(torch.arange(min(2, len(rows)))))

    def spans(self, arm: str) -> bool:
        """Return true if all processes share an arm, as in layouts."""
        return self._options.layout_of(arm) is not None

    def follow(self, order: Mapping[str, Any]) -> None:
        """Train along by the recipe of `order`, in a rank other than the first."""
        self.verifier().follow(
            TrainingRecipe(**{**order["train"], "role": Role(order["train"]["role"])})
        )

    def open(self, arm: str) -> Program:
        """Build a fresh trainee of the arm, on its first epoch's batches."""
        self._opened += 1
        layout, ranks = self._options.layout_of(arm), self._context.ranks
        if layout is not None and ranks is not None:
            return TimedLayout(
                arm,
                self._options,
                layout=layout,
                ranks=ranks,
                rows=self._rows("train"),
                start=self._start(),
                device=self._context.device,
            )
        allow_compilations(self._opened)
        return TimedTraining(
            arm,
            self._options,
            self._rows("train"),
            self._start(),
            self._context.device,
            captured=self._context.cuda_graph,
        )

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Train every arm, step by step."""
        verifier = self.verifier()
        parity, facts = (
            verifier.gather(arms),
            {
                **self._work(),
                **self._lacking(),
                **self._rounded(),
            },
        )
        return Evidence(
            parity=parity, checks=tuple(verifier.checks), facts=facts, begun=verifier.first_calls()
        )

    def train_over_seeds(self, arms: tuple[str, ...]) -> Evidence:
        """Train the reference arm, the one of `arms`, over seeds."""
        return Evidence(parity=self.verifier().over_seeds(*arms))

    def train_perturbed(self, _arms: tuple[str, ...]) -> Evidence:
        """Train the perturbed references that verifying left out."""
        return Evidence(parity=self.verifier().further_envelope())

    def verifier(self) -> TrainingVerifier:
        """Return what trains for verification."""
        test = self._rows("test") if self._options.evaluation else None
        return TrainingVerifier(
            options=self._options, context=self._context, train=self._rows("train"), test=test
        )

    def _rounded(self) -> dict[str, Fact]:
        """Return the fp32 buffers that a model in bf16 does not keep."""
        if self._options.precision is not TrainingPrecision.BF16:
            return {}
        rounded = rounded_buffers(
            build_model(self._options, seed=self._options.seed), torch.bfloat16
        )
        return {"rounded_buffers": rounded} if rounded else {}

    def _work(self) -> dict[str, Fact]:
        """Return the operations of one eager step of full size, and the device's peak."""
        rows = self._rows("train")
        batch = rows.batch(
            torch.arange(min(self._options.batch_size, len(rows)), device=self._context.device)
        )
        trainee = build_trainee(
            self._options, self._start(), device=self._context.device, candidate=None
        )
        return step_facts(
            lambda: trainee.step(batch), self._context.device, str(self._options.precision)
        )

    def _lacking(self) -> Mapping[str, Fact]:
        """Return facts on arms that need CUDA graphs, if the device lacks them."""
        return without_cuda_graphs(
            {arm.name: arm.mode for arm in self._options.candidates}, self._context.device
        )

    def _rows(self, split: str) -> Rows:
        return load_rows(self._context.scratch, split).to(self._context.device)

    def _start(self) -> dict[str, Tensor]:
        return start_state(self._options, seed=self._options.seed)


class Epoch:
    """The batches of full size of one epoch, again and again.

    For refereed calls, it is one batch of rows from anywhere in the epoch.
    """

    def __init__(self, options: TrainingOptions, rows: Rows) -> None:
        """Take `rows`, which are on the device."""
        self._full = full_batches(rows, options)
        self._batches = cycle(self._full)
        self.batch, self.current = self._full[0], self._full
        self._overwritten: tuple[Batch, Batch] | None = None

    def following(self) -> Batch:
        """Return the next batch, which is `batch` from now on."""
        self.batch = next(self._batches)
        return self.batch

    def refresh(self, seed: int, *, moved: bool, shaken: int, epsilon: float) -> None:
        """Have all next batches be one of rows drawn by `seed`.

        It is off by `epsilon` if `shaken` (the seed of the noise) is not 0. It is in new memory if
        `moved`, else in that of the last batch.
        """
        batch = self._drawn(torch.Generator().manual_seed(seed))
        if shaken:
            batch = shake(batch, epsilon, torch.Generator().manual_seed(shaken))
        if not moved:
            self._overwritten = (self.batch, copied(self.batch))
            batch = self.batch if overwritten(self.batch, batch) else batch
        self._batches, self.current = cycle((batch,)), [batch]

    def alter(
        self, seed: int, *, shaken: int, epsilon: float, all_values: bool
    ) -> Callable[[], None] | None:
        """Prepare a write of a row drawn by `seed`, or of all, into the current batch, in place."""
        batch = self._drawn(torch.Generator().manual_seed(seed))
        if shaken:
            batch = shake(batch, epsilon, torch.Generator().manual_seed(shaken))
        return altered(
            self.current, [batch], seed, rows=len(batch["labels"]), all_values=all_values
        )

    def resume(self) -> None:
        """Return to the batches of the epoch."""
        if self._overwritten is not None:
            overwritten(*self._overwritten)
        self._overwritten = None
        self._batches, self.current = cycle(self._full), self._full

    def _drawn(self, generator: torch.Generator) -> Batch:
        """Return a batch in new memory, of rows from anywhere in the epoch.

        They are the epoch's own rows even while a batch is overwritten.
        """
        batch: Batch = copied(self.batch)
        target, original = self._overwritten or (None, None)
        sources = [original if full is target else full for full in self._full]
        places = torch.randint(len(self._full), (len(batch["labels"]),), generator=generator)
        rows = torch.randint(len(batch["labels"]), (len(batch["labels"]),), generator=generator)
        for index, (place, row) in enumerate(zip(places.tolist(), rows.tolist(), strict=True)):
            for name, values in sources[place].items():
                batch[name][index] = values[row]
        return batch


class TimedTraining:
    """Training steps over the batches of one epoch, again and again, for the clock.

    Refereed, a step goes over rows that the epoch's batches hold in another order, from a state
    that is given.
    """

    learns = True
    unrefereed = ""

    def __init__(
        self,
        arm: str,
        options: TrainingOptions,
        rows: Rows,
        start: dict[str, Tensor],
        device: str,
        *,
        captured: bool = False,
    ) -> None:
        """Build the trainee and put every batch of full size on the device."""
        self.items: int | None = min(options.batch_size, len(rows))
        self.parts: tuple[Part, ...] = ()
        self.compiler = Compiler.NONE if arm == REFERENCE_ARM else Compiler.DYNAMO
        self._arm = arm
        self._start = start
        self._trainee = build_trainee(
            options, start, device=device, candidate=options.candidate_of(arm), captured=captured
        )
        self._epoch = Epoch(options, rows)
        self.epsilon = options.precision.epsilon
        self.memory = longest_memory(options.optimizer, self._trainee.optimizer.param_groups)
        self._loss: Tensor | None = None
        seed_step(options.seed)

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - the step is compiled as a whole, so it has no parts
        """Train one step on the next batch."""
        self._loss = self._trainee.step(self._epoch.following())

    def finish(self) -> tuple[Check, ...]:
        """Check that the last loss is a number, and the weights have moved."""
        loss = math.nan if self._loss is None else float(self._loss)
        finite = Outcome.PASS if math.isfinite(loss) else Outcome.FAIL
        moved = sum(
            1
            for name, value in self._trainee.model.state_dict().items()
            if value.is_floating_point()
            and not torch.equal(value.cpu(), self._start[name].to(value.dtype))
        )
        updated = Outcome.PASS if moved else Outcome.FAIL
        return (
            Check(
                name="finite_loss",
                arm=self._arm,
                outcome=finite,
                detail=f"last timed loss: {loss:.6g}",
            ),
            Check(
                name="updates_weights",
                arm=self._arm,
                outcome=updated,
                detail=f"{moved} tensors changed while timed",
            ),
        )

    def remember(self) -> None:
        """Do nothing: the rows are kept anyway, and the start of a step is given."""

    def state(self) -> State:
        """Return weights, buffers and optimizer state, on the host."""
        return read_state(self._trainee.model, self._trainee.optimizer)

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Tensor] | None = None, shaken: int = 0
    ) -> bool:
        """Take a batch of rows drawn from all batches, and the next step from `state`."""
        self.resume()
        if state is not None:
            write_state(state, self._trainee.model, self._trainee.optimizer)
        if self._trainee.scaler is not None:
            self._trainee.scaler.update(FIRST_LOSS_SCALE)
        self._epoch.refresh(seed, moved=moved, shaken=shaken, epsilon=self.epsilon)
        return True

    def operands(self) -> list[Tensor]:
        """Return the tensors of the batches that steps take."""
        return [value for batch in self._epoch.current for value in batch.values()]

    def alter(
        self, seed: int, *, shaken: int = 0, all_values: bool = False
    ) -> Callable[[], None] | None:
        """Prepare a write of a row drawn by `seed`, or of all rows, into the batch, in place."""
        return self._epoch.alter(seed, shaken=shaken, epsilon=self.epsilon, all_values=all_values)

    def weights(self) -> State:
        """Return the parameters."""
        return dict(self._trainee.model.named_parameters())

    def outputs(self) -> State:
        """Return loss, gradients and weights after the last step."""
        return left_by_training(self._loss, self._trainee.model)

    results = outputs

    def resume(self) -> None:
        """Return to the batches of the epoch."""
        self._epoch.resume()


class TimedLayout:
    """One rank's part of training steps over the batches of one epoch, for the clock.

    The batches repeat. Refereed, all ranks begin from a state that rank 0 is given, and the
    compared values are those that one process would have left.
    """

    learns = True

    def __init__(
        self,
        arm: str,
        options: TrainingOptions,
        *,
        layout: Layout,
        ranks: Ranks,
        rows: Rows,
        start: dict[str, Tensor],
        device: str,
    ) -> None:
        """Build the trainee and put every batch of full size on the device."""
        self.items: int | None = min(options.batch_size, len(rows))
        self.parts: tuple[Part, ...] = ()
        self.compiler = Compiler.NONE if layout.backend is None else Compiler.DYNAMO
        self._arm, self._ranks, self._device = arm, ranks, device
        self._pipeline = is_pipeline(layout)
        self._trainee = build_parallel(options, start, layout, ranks, device=device)
        self._before = {
            name: _local(value) for name, value in self._trainee.model.state_dict().items()
        }
        self._epoch = Epoch(options, rows)
        self._layout = layout
        self.epsilon = options.precision.epsilon
        self.memory = longest_memory(options.optimizer, self._trainee.optimizer.param_groups)
        self.unrefereed = _unrefereed(self._trainee.model, start, pipeline=self._pipeline)
        self._loss: Tensor | None = None

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - a step has no parts: collectives overlap with them
        """Train this rank's part of a step on the next batch."""
        self._loss = self._trainee.step(self._epoch.following())

    def finish(self) -> tuple[Check, ...]:
        """Check that the last loss is a number, the weights have moved, and ranks agree.

        A collective.
        """
        loss = math.nan if self._loss is None else float(self._loss)
        finite = Outcome.PASS if math.isfinite(loss) else Outcome.FAIL
        now = self._trainee.model.state_dict()
        changed = sum(
            1 for name, value in self._before.items() if not torch.equal(value, _local(now[name]))
        )
        updated = Outcome.PASS if changed else Outcome.FAIL
        return (
            Check(
                name="finite_loss",
                arm=self._arm,
                outcome=finite,
                detail=f"last timed loss: {loss:.6g}",
            ),
            Check(
                name="updates_weights",
                arm=self._arm,
                outcome=updated,
                detail=f"{changed} tensors changed while timed",
            ),
            self._replicas(),
        )

    def remember(self) -> None:
        """Do nothing: the rows are kept anyway, and the start of a step is given."""

    def state(self) -> State:
        """Return weights, buffers and optimizer state, whole, on the host.

        A collective.
        """
        return whole_state(self._trainee.model, self._trainee.optimizer)

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Tensor] | None = None, shaken: int = 0
    ) -> bool:
        """Take a batch drawn from all rows, and the next step from the state of rank 0.

        The batch is the same in every rank. A collective.
        """
        self.resume()
        if state is not None:
            begin_from(
                state, self._trainee.model, self._trainee.optimizer, self._ranks, self._device
            )
        self._epoch.refresh(seed, moved=moved, shaken=shaken, epsilon=self.epsilon)
        return True

    def outputs(self) -> State:
        """Return the results that one process would have after the last step.

        They are the mean loss of all rows, whole gradients, and whole weights. A collective.
        """
        state = left_by_training(self._loss_of_all(), self._trainee.model)
        return {name: unsharded(value) for name, value in state.items()}

    def _loss_of_all(self) -> Tensor | None:
        if self._loss is None:
            return None
        rows = float(own_share(self._layout, self._epoch.batch, self._ranks).rows)
        losses = gathered([float(self._loss), rows], self._ranks.count, self._device)
        mean = sum(loss * weight for loss, weight in losses if weight) / sum(
            weight for _, weight in losses
        )
        return torch.tensor(
            mean, dtype=cast("ParallelStep", self._trainee.step).loss_dtype, device=self._device
        )

    def resume(self) -> None:
        """Return to the batches of the epoch."""
        self._epoch.resume()

    def _replicas(self) -> Check:
        if self._pipeline:
            return Check(
                name="replicas",
                arm=self._arm,
                outcome=Outcome.PASS,
                detail="what ranks share is the same in all",
            )
        return replicas(self._trainee.model, self._arm, self._ranks, self._device)


def _unrefereed(model: torch.nn.Module, start: Mapping[str, Tensor], *, pipeline: bool) -> str:
    """Return why the steps of a layout are not comparable with those of one process; else empty."""
    if pipeline:
        return "its processes are stages of a pipeline, none of which has the whole model"
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if shapes != {name: tuple(value.shape) for name, value in start.items()}:
        return "its layout renames or reshapes the model's parameters, so they cannot be matched"
    return ""


def _local(value: Tensor) -> Tensor:
    """Return this rank's part of a tensor, copied to the host."""
    return local_part(value).detach().to("cpu", copy=True)


def _require(precision: TrainingPrecision, device: str) -> None:
    """Skip precisions for which the device has no units."""
    on_gpu = device.startswith("cuda")
    modern = on_gpu and torch.cuda.get_device_capability(device)[0] >= AMPERE
    if precision is TrainingPrecision.TF32 and not modern:
        message = "precision tf32 needs an NVIDIA GPU of compute capability 8.0 or newer"
        raise Unsupported(message)
    if on_gpu and not modern and precision in {TrainingPrecision.BF16, TrainingPrecision.AMP_BF16}:
        message = f"precision {precision} needs an NVIDIA GPU of compute capability 8.0 or newer"
        raise Unsupported(message)
