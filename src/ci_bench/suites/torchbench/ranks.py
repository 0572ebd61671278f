"""Arms of a case that several processes train together: their steps, verification and timing.

Each process has a part of the rows of every batch. Loss, outputs, gradients and weights are put
together into those of one process, and compared with it. Preparing finds out how parts make the
whole. One process does this in fp64 if the model can, without dropout: masks of a part are not a
part of a whole's masks. Imports torch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from ci_bench.records.results import Check
from ci_bench.suites.contract import Compiler, Mark, Ranks, Unsupported, no_mark
from ci_bench.suites.shared.planning.arms import CompiledArm
from ci_bench.suites.shared.planning.layouts import Layout
from ci_bench.suites.shared.worker.batch_parts import BatchPart, FoundParts, Together, combined
from ci_bench.suites.shared.worker.ddp_modes import optimizing_ddp
from ci_bench.suites.shared.worker.dropping import drop_nothing, without_dropout
from ci_bench.suites.shared.worker.freshness import (
    BUFFERS,
    OPTIMIZER,
    WEIGHTS,
    State,
    left_by_training,
)
from ci_bench.suites.shared.worker.randomness import seed_everything, seed_step
from ci_bench.suites.shared.worker.sharing import (
    begin_from,
    forget_graphs,
    looked_for_alike_masks,
    replicas,
    shared,
    unsharded,
    whole_state,
)
from ci_bench.suites.torchbench.backends import make_compiler
from ci_bench.suites.torchbench.options import TorchbenchOptions
from ci_bench.suites.torchbench.program import (
    Placed,
    Ready,
    Result,
    build_optimizer,
    place,
    trained_of,
)
from ci_bench.suites.torchbench.samples import take_step
from ci_bench.suites.torchbench.snapshot import (
    Snapshot,
    buffers_of,
    flatten,
    load_state,
    parameters_of,
)
from ci_bench.suites.torchbench.sources.loaded import Loaded, Sample
from ci_bench.suites.torchbench.timed import ModelProgram
from ci_bench.suites.torchbench.verify import (
    PythonState,
    Start,
    all_steps,
    python_state_of,
    restore_python_state,
)

LOSS = "loss"


def look_at_parts(
    options: TorchbenchOptions, load: Callable[[], Loaded], device: str
) -> FoundParts:
    """Find out how parts of a batch make its whole, by a fresh model of `load`.

    It runs in fp64 if the model can.

    Raises:
        Unsupported: they do not, or the model has no batch to cut.
    """
    loaded = load()
    if loaded.batch_size is None or not loaded.batched:
        raise Unsupported(
            f"layouts: the batch of {options.model} cannot be cut into rows, so processes cannot"
            " share it"
        )
    rows, place_ = loaded.batch_size, place(options, loaded, device=device)
    is_random = _is_random(place_)
    with without_dropout():
        exact = _exact(options, load, device)
        quiet = exact or place(options, load(), device=device)
        drop_nothing(quiet.module)
        if is_random and _is_random(quiet):
            raise Unsupported(
                f"layouts: {options.model} draws random numbers besides dropout, and each process"
                " would have its own"
            )
        sample, epsilon = (
            quiet.samples[0],
            (torch.finfo(torch.float64).eps if exact else options.precision.epsilon),
        )
        batch = (sample.args, dict(sample.kwargs), sample.target)
        kinds = combined(
            lambda tree: _run_forward(quiet, *tree), batch, rows, options.processes, epsilon=epsilon
        )
    return FoundParts(rows=rows, kinds=kinds, is_random=is_random)


def _exact(options: TorchbenchOptions, load: Callable[[], Loaded], device: str) -> Placed | None:
    """Return the model in fp64; `None` if it has no such forward pass."""
    try:
        exact = place(options, load(), device=device, exact=True)
        _run_forward(exact, exact.samples[0].args, exact.samples[0].kwargs, exact.samples[0].target)
    except Unsupported:
        raise
    except Exception:  # noqa: BLE001 - benched code may raise anything; its own precision has to do then
        return None
    return exact


def _is_random(placed: Placed) -> bool:
    """Return true if two passes differ when only the seed does."""
    sample, results = placed.samples[0], []
    for seed in (1, 2):
        seed_everything(seed)
        results.append(_run_forward(placed, sample.args, sample.kwargs, sample.target))
    return any(
        not torch.equal(value.nan_to_num(), results[1][name].nan_to_num())
        for name, value in results[0].items()
    )


def _run_forward(
    placed: Placed, args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Any
) -> dict[str, Tensor]:
    """Return loss and outputs of a forward pass in the mode of training; texts as their bytes.

    The model is left as it was.
    """
    module, loss_of = placed.module, placed.loss
    parameters, buffers, attributes = (
        parameters_of(module),
        buffers_of(module),
        python_state_of(module),
    )
    with torch.no_grad(), placed.autocast():
        outputs = module(*args, **kwargs)
        loss = cast("Any", loss_of)(outputs, target)
    results = {LOSS: loss.detach().clone()}
    for name, leaf in flatten(outputs, "outputs"):
        results[name] = (
            leaf.detach().clone() if isinstance(leaf, Tensor) else torch.tensor([*leaf.encode()])
        )
    load_state(module, parameters, buffers)
    restore_python_state(module, attributes)
    return results


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """This process's part of a model that several processes step together.

    The step of `ready` trains on a whole batch, and gives the results of this process's rows.
    """

    ready: Ready
    together: Together
    ranks: Ranks
    device: str

    def left(self, result: Result) -> tuple[Tensor | None, dict[str, Tensor], dict[str, str]]:
        """Return loss, outputs and texts of this process's step, as one process would have them.

        A collective.
        """
        loss, outputs = result
        leaves = dict(flatten(outputs, "outputs"))
        tensors = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, Tensor)}
        values = self.together.whole(tensors if loss is None else {LOSS: loss, **tensors})
        texts = {name: leaf for name, leaf in leaves.items() if not isinstance(leaf, Tensor)}
        return values.pop(LOSS, None), values, texts


def make_shared(
    options: TorchbenchOptions,
    loaded: Loaded,
    layout: Layout,
    ranks: Ranks,
    *,
    batch_parts: FoundParts,
    device: str,
) -> Shared:
    """Build this process's part of a layout.

    A collective.
    """
    placed = place(options, loaded, device=device)
    assert placed.loss is not None, "a training without a loss takes a projection"  # noqa: S101 - our own bug if not
    trained_of(options, placed.module)
    wrapped: Callable[..., Any] = shared(layout, placed.module, ranks, device)
    if layout.backend is not None:
        wrapped = make_compiler(
            options, CompiledArm(backend=layout.backend), key=layout.optimize_ddp or ""
        )(wrapped)
    trained = trained_of(options, placed.module)  # shards, where the layout makes such
    optimizer = build_optimizer(options, trained, device, capturable=False)
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    part = BatchPart(rows=batch_parts.rows, rank=ranks.rank, count=ranks.count)
    together = Together(ranks=ranks, part=part, kinds=batch_parts.kinds, device=device)
    step = _step_of(
        placed, wrapped, optimizer, part, factor=part.factor(batch_parts.kinds[LOSS]), layout=layout
    )
    ready = Ready(
        module=placed.module, optimizer=optimizer, samples=placed.samples, step=step, parts=()
    )
    return Shared(ready=ready, together=together, ranks=ranks, device=device)


def _step_of(
    placed: Placed,
    wrapped: Callable[..., Any],
    optimizer: torch.optim.Optimizer,
    part: BatchPart,
    *,
    factor: float,
    layout: Layout,
) -> Callable[[Sample, Mark], Result]:
    """Return a step: zero-grad, forward and backward pass over the own rows, optimizer."""
    loss_of, autocast = cast("Any", placed.loss), placed.autocast

    def step(sample: Sample, _: Mark) -> Result:
        args, kwargs, target = part.cut((sample.args, dict(sample.kwargs), sample.target))
        optimizer.zero_grad(set_to_none=True)
        with optimizing_ddp(layout):
            with autocast():
                outputs = wrapped(*args, **kwargs)
                loss = loss_of(outputs, target)
            (loss * factor).backward()
        optimizer.step()
        return loss.detach(), outputs

    return step


@dataclass(kw_only=True, slots=True)
class RankSteps:
    """Verified steps of one process. Every method is a collective."""

    options: TorchbenchOptions
    shared: Shared
    attributes: dict[int, PythonState] = field(default_factory=dict)
    """The plain attributes of this process's model before the step from each start: the others' are
    not its own.
    """

    def set_back(self, index: int, start: Start | None) -> None:
        """Begin from the start of that number, which rank 0 has."""
        ready, shared_ = self.shared.ready, self.shared
        assert ready.optimizer is not None, "layouts train"  # noqa: S101 - our own bug if not
        begin_from(
            {} if start is None else _state_of(start),
            ready.module,
            ready.optimizer,
            shared_.ranks,
            shared_.device,
        )
        if index in self.attributes:
            restore_python_state(ready.module, self.attributes[index])
        else:
            self.attributes[index] = python_state_of(ready.module)

    def step(self, index: int) -> Snapshot:
        """Take the step of that number, and return what one process would have left."""
        ready = self.shared.ready
        seed_step(self.options.settings.seed, index)
        result, _ = take_step(ready, ready.samples[index % len(ready.samples)])
        loss, outputs, texts = self.shared.left(result)
        gradients = {
            name: _host(parameter.grad)
            for name, parameter in ready.module.named_parameters()
            if parameter.grad is not None
        }
        return Snapshot(
            outputs={name: _host(value) for name, value in outputs.items()},
            other=texts,
            loss=None if loss is None else _host(loss),
            gradients=gradients,
            parameters={name: _host(value) for name, value in ready.module.named_parameters()},
            buffers=buffers_of(ready.module),
        )


def _host(value: Tensor) -> Tensor:
    return unsharded(value).detach().to("cpu", copy=True)


def _state_of(start: Start) -> State:
    """State at the start of a step, by the names that all suites give to its parts.

    Parts are weights, buffers and the optimizer's state.
    """
    optimizer_state = {} if start.optimizer is None else start.optimizer["state"]
    state = {f"{WEIGHTS}{name}": value for name, value in start.parameters.items()}
    state |= {f"{BUFFERS}{name}": value for name, value in start.buffers.items()}
    return state | {
        f"{OPTIMIZER}{index}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for index, values in optimizer_state.items()
        for name, value in values.items()
        if isinstance(value, Tensor | int | float)
    }


class Conducted:
    """Verified steps of all processes: rank 0 has them taken by `steps`, the others `follow`."""

    def __init__(self, make: Callable[[str], RankSteps], ranks: Ranks) -> None:
        """Set how an arm is built in this process."""
        self._make, self._ranks = make, ranks
        self._steps: RankSteps | None = None
        self._quiet = ExitStack()

    def steps(
        self, arm: str, starts: Sequence[Start], *, quiet: bool
    ) -> Iterator[tuple[int, Snapshot]]:
        """Yield the steps of an arm from each start, some more, and the last once again.

        Only rank 0 calls it. `quiet` runs without dropout.
        """
        self._order("open", arm=arm, quiet=quiet)
        self._open(arm, quiet=quiet)
        yield from all_steps(
            len(starts), lambda index: self._set_back(index, starts[index]), self._step
        )
        self._order("close")
        self._close()

    def follow(self, order: Mapping[str, Any]) -> None:
        """Follow rank 0's order, in the other ranks."""
        match order["do"]:
            case "open":
                self._open(order["arm"], quiet=order["quiet"])
            case "set_back":
                self._open_steps.set_back(order["index"], None)
            case "step":
                self._open_steps.step(order["index"])
            case "close":
                self._close()

    @property
    def _open_steps(self) -> RankSteps:
        assert self._steps is not None, "an arm is open"  # noqa: S101 - our own bug if not
        return self._steps

    def _set_back(self, index: int, start: Start) -> None:
        self._order("set_back", index=index)
        self._open_steps.set_back(index, start)

    def _step(self, index: int) -> Snapshot:
        self._order("step", index=index)
        return self._open_steps.step(index)

    def _open(self, arm: str, *, quiet: bool) -> None:
        forget_graphs()
        if quiet:
            self._quiet.enter_context(without_dropout())
        self._steps = self._make(arm)
        if quiet:
            drop_nothing(self._steps.shared.ready.module)

    def _close(self) -> None:
        self._steps = None
        self._quiet.close()

    def _order(self, do: str, **more: Any) -> None:
        self._ranks.order({"do": do, **more})


class SharedProgram(ModelProgram):
    """Steps of one process of a layout over the prepared batches, for the clock.

    All but `step` and `resume` are collectives.
    """

    def __init__(
        self,
        arm: str,
        options: TorchbenchOptions,
        loaded: Loaded,
        shared_: Shared,
        *,
        batch_parts: FoundParts,
        compiled: bool,
        unrefereed: str,
    ) -> None:
        """Take a fresh `shared_`."""
        super().__init__(arm, options, loaded, shared_.ready, unrefereed=unrefereed)
        self.compiler = Compiler.DYNAMO if compiled else Compiler.NONE
        self._shared, self._found, self._seed = shared_, batch_parts, options.settings.seed

    def step(self, mark: Mark) -> None:
        """Run one step on the next batch.

        An error from another process's end is left as it is: the supervisor knows its words.
        """
        self._last = next(self._samples)
        self._result = self._ready.step(self._last, mark)

    def finish(self) -> tuple[Check, ...]:
        """Check as in one process, and that shared parts are equal and masks differ."""
        ranks, device = self._shared.ranks, self._shared.device
        checks = (*super().finish(), replicas(self._module, self._arm, ranks, device))
        if not self._found.is_random:
            return checks
        even = not self._found.rows % ranks.count
        masks = looked_for_alike_masks(
            lambda: self.step(no_mark), self._arm, ranks, device, seed=self._seed, even=even
        )
        return (*checks, *masks)

    def state(self) -> State:
        """Return weights, buffers and optimizer state, unsharded, on the host."""
        return whole_state(self._module, self._optimizer)

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Tensor] | None = None, shaken: int = 0
    ) -> bool:
        """Step over fresh batches from now on, the same in all processes.

        They start from the state that rank 0 has.
        """
        if state is not None:
            begin_from(
                state, self._module, self._optimizer, self._shared.ranks, self._shared.device
            )
        return super().refresh(seed, moved=moved, shaken=shaken)

    def outputs(self) -> State:
        """Return the results that one process would have after the last step."""
        loss, outputs, _ = self._shared.left(self._result)
        results = left_by_training(loss, self._module)
        return outputs | {name: unsharded(value) for name, value in results.items()}

    @property
    def _module(self) -> nn.Module:
        return self._ready.module

    @property
    def _optimizer(self) -> torch.optim.Optimizer:
        assert self._ready.optimizer is not None, "layouts train"  # noqa: S101 - our own bug if not
        return self._ready.optimizer
