"""Gathers the data for accuracy: the same steps by eager, by fp64, and by the candidate.

Eager also repeats them, plain and with shaken numbers. Every batch that takes turns while timing is
a step, with dynamic shapes every size. Each step of each run starts from eager's state there
(parameters, buffers, optimizer state, plain attributes). So one step's rounding does not grow into
the next, and an optimizer that divides by small numbers does not turn rounding into a different
sign. Gradients are judged as they come; the optimizer's updates are judged against the same
optimizer in fp64 on the same gradients. Candidates are checked again after more steps, unforced, as
in timing. Every step of every run starts from its own seed, made of `Settings.seed` and its number.

Plain attributes are a model's state other than parameters, buffers and modules: counters, caches,
lists. A forward pass that reads what the previous pass wrote (``self.n += 1``) gives something else
at each call. So these are copied at the start of a step, and put back. Values that cannot be copied
stay as they are; classes, modules and functions are not state.

Inputs that a step writes into are among its outputs, and are put back. If a step has fewer outputs
than rows (a mean of the batch) in a narrow format, they may be the same up to rounding without half
of the rows. So more steps follow, with half of their rows blank.
"""

import copy
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ci_bench.suites.shared.worker.casts import in_type, real_parts
from ci_bench.suites.shared.worker.first_calls import read_start
from ci_bench.suites.shared.worker.freshness import HALVES
from ci_bench.suites.shared.worker.numerics import FP32_EPSILON, jolt_of, shaken
from ci_bench.suites.shared.worker.optimizers import (
    names_of,
    same_in_fp64,
    updates_by_known_gradients,
)
from ci_bench.suites.shared.worker.randomness import (
    generator_states,
    moved,
    seed_everything,
    seed_step,
)
from ci_bench.suites.shared.worker.user_code import is_import_path
from ci_bench.suites.torchbench.options import BenchMode, TorchbenchOptions
from ci_bench.suites.torchbench.program import Ready, build_optimizer
from ci_bench.suites.torchbench.samples import half_blank, inputs_of, rows_of, take_step
from ci_bench.suites.torchbench.snapshot import (
    Snapshot,
    State,
    buffers_of,
    load_optimizer,
    load_state,
    parameters_of,
    state_of,
    take,
    widen_complex,
)
from ci_bench.suites.torchbench.sources.loaded import Sample
from ci_bench.suites.torchbench.status import Word, worded

MOST_DEPTH = 8
INTERNAL = frozenset(vars(nn.Module())) - {"training"}
"""Torch's own attributes of a module: tables of parameters, buffers, modules and hooks."""
NOT_STATE = (
    nn.Module,
    nn.Parameter,
    type,
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    ModuleType,
)


@dataclass(frozen=True, kw_only=True)
class PythonState:
    """Copies of a model's plain attributes, by the names of the module and of the attribute.

    `trained` is true for the parameters that are trained.
    """

    values: Mapping[tuple[str, str], Any]
    trained: Mapping[str, bool] = field(default_factory=dict)


def python_state_of(module: nn.Module) -> PythonState:
    """Copy the plain attributes of all modules; sharing stays, and tensors lose their graphs."""
    memo = _begin_memo(module)
    values = {}
    for name, inner in module.named_modules():
        for attribute, value in vars(inner).items():
            if attribute in INTERNAL or isinstance(value, NOT_STATE):
                continue
            try:
                values[name, attribute] = _copied(value, memo)
            except Exception:  # noqa: BLE001, S112 - locks, files and the like: benched code may raise anything when it is copied
                continue
    return PythonState(
        values=values,
        trained={name: parameter.requires_grad for name, parameter in module.named_parameters()},
    )


def restore_python_state(module: nn.Module, state: PythonState) -> None:
    """Put back changed values, and remove new ones.

    Compilers guard the identity of the others.
    """
    memo = _begin_memo(module)
    for name, inner in module.named_modules():
        ours = {attribute for owner, attribute in state.values if owner == name}
        for attribute in ours:
            original, missing = state.values[name, attribute], attribute not in vars(inner)
            if missing or not _same(vars(inner)[attribute], original, 0):
                with suppress(
                    Exception
                ):  # what refers weakly to something may be copied once, and not again
                    _put(inner, attribute, _copied(original, memo))
        new = [
            key
            for key in vars(inner)
            if key not in ours and key not in INTERNAL and _is_plain(vars(inner)[key])
        ]
        for attribute in new:
            delattr(inner, attribute)
    for name, parameter in module.named_parameters():
        if parameter.requires_grad != state.trained.get(name, parameter.requires_grad):
            parameter.requires_grad_(state.trained[name])


def _is_plain(value: Any) -> bool:
    """Return true for a kind that is copied: a value without a copy is newer than the copies."""
    return isinstance(
        value, Tensor | int | float | complex | str | bytes | list | tuple | dict | set | None
    ) and not isinstance(value, nn.Parameter)


def _put(inner: nn.Module, attribute: str, value: Any) -> None:
    """Set an attribute in place if that is possible: it may be known elsewhere, too."""
    current = vars(inner).get(attribute)
    if (
        isinstance(current, Tensor)
        and isinstance(value, Tensor)
        and current.shape == value.shape
        and not current.requires_grad
    ):
        current.copy_(value)
    elif type(current) is list and type(value) is list:
        current[:] = value
    elif type(current) in {dict, set} and type(value) is type(current):
        current.clear()  # type: ignore[union-attr] # it is a mapping or a set
        current.update(value)  # type: ignore[union-attr] # likewise
    else:
        setattr(inner, attribute, value)


def _begin_memo(module: nn.Module) -> dict[int, Any]:
    """Return the memo of a copy in which modules, parameters and buffers are not copied.

    They are restored elsewhere.
    """
    parts = [*module.modules(), *module.parameters(), *module.buffers()]
    return {id(part): part for part in parts}


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """Return a deep copy; of a tensor its contents."""
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, Tensor):
        memo[id(value)] = copied = value.detach().clone()
        return copied
    if type(value) in {list, tuple, set}:
        return type(value)(_copied(element, memo) for element in value)
    if type(value) is dict:
        return {key: _copied(element, memo) for key, element in value.items()}
    return copy.deepcopy(value, memo)


def _same(first: Any, second: Any, depth: int) -> bool:
    """Return true if no change is visible; opaque or too deep values count as unchanged."""
    if first is second or depth > MOST_DEPTH or isinstance(second, NOT_STATE):
        return True
    if type(first) is not type(second):
        return False
    for kind, compare in COMPARED:
        if isinstance(first, kind):
            return compare(first, second, depth)
    return _same(getattr(first, "__dict__", None), getattr(second, "__dict__", None), depth + 1)


def _same_items(first: Any, second: Any, depth: int) -> bool:
    return len(first) == len(second) and all(
        _same(a, b, depth + 1) for a, b in zip(first, second, strict=True)
    )


def _same_entries(first: Any, second: Any, depth: int) -> bool:
    return list(first) == list(second) and all(
        _same(first[key], second[key], depth + 1) for key in first
    )


def _same_tensors(first: Tensor, second: Tensor, _depth: int) -> bool:
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return torch.equal(first.nan_to_num(), second.nan_to_num())


def _same_values(first: Any, second: Any, _depth: int) -> bool:
    return bool(first == second) or (first != first and second != second)  # noqa: PLR0124 - NaN is itself


COMPARED: tuple[tuple[Any, Callable[[Any, Any, int], bool]], ...] = (
    (Tensor, _same_tensors),
    (torch.Generator, lambda first, second, _: torch.equal(first.get_state(), second.get_state())),
    (random.Random, lambda first, second, _: first.getstate() == second.getstate()),
    (
        np.ndarray,
        lambda first, second, _: (
            first.shape == second.shape and first.tobytes() == second.tobytes()
        ),
    ),
    (list | tuple | deque, _same_items),
    (Mapping, _same_entries),
    (int | float | complex | str | bytes | set | frozenset, _same_values),
)
"""Comparisons by kind of value; other objects are compared by their attributes."""


LATER_STEPS = 5
"""Steps between the first check of a candidate and the last."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Start of a step: eager's state, on the host."""

    parameters: State
    """Parameters by name."""
    trained: tuple[str, ...]
    """Names of the trained parameters, in the order of the optimizer's state."""
    buffers: State
    """Buffers by name."""
    optimizer: dict[str, Any] | None
    """The optimizer's state dict; `None` in inference."""
    attributes: PythonState
    """Plain attributes of the model's modules, on their devices."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Reference for candidates: eager's steps, and the runs that show rounding (see `numerics`).

    A large model's runs fill the memory, so only needed parameters are kept: eager's of every step,
    the exact ones of the last.
    """

    starts: tuple[Start, ...]
    """The start of each verified step."""
    eager: tuple[Snapshot, ...]
    """Eager's snapshot of each step."""
    again: tuple[Snapshot, ...]
    """The same of another eager build."""
    exact: tuple[Snapshot, ...] | None
    """The same in fp64; `None` if that was impossible, see `why_inexact`."""
    shaken: tuple[tuple[Snapshot, ...], ...]
    """The same of each run from shaken weights."""
    jolted: tuple[tuple[Snapshot, ...], ...]
    """The same of each run from harder shaken weights; empty in narrow formats."""
    late: Snapshot
    """The last step once more by the build of `again`, after the steps in between."""
    repeated: Snapshot
    """The first step once more by `eager`'s build, after all its steps; attributes stay."""
    batches: int
    """The number of prepared batches."""
    halves: int = 0
    """The number of steps at the end whose batch is half blank."""
    little: bool = False
    """True if the first step `VerifyWitness.says_little`; `halves` steps follow then."""
    why_inexact: str = ""
    """The reason why `exact` is missing; empty otherwise."""
    inputs: tuple[Tensor, ...] = ()
    """The tensors of the prepared batches."""
    generators: tuple[Tensor, ...] = ()
    """Generator states after eager's first step; empty if it drew no random numbers."""
    start: Mapping[str, str] = field(default_factory=dict)
    """Forms and digests of the first step's inputs and weights."""
    start_again: Mapping[str, str] = field(default_factory=dict)
    """The same of another build."""
    draws: bool = False
    """True if the first step drew from any global generator."""


Build = Callable[..., Ready]
"""Called with `candidate` and `exact`: a fresh model of the case, from the same bytes."""


@dataclass(frozen=True, kw_only=True)
class VerifyWitness:
    """Runs the steps of one case. `build` gives a fresh model each time."""

    options: TorchbenchOptions
    device: str
    build: Build

    def reference(self) -> Reference:
        """Run everything but the candidate."""
        with worded(Word.EAGER_1ST_RUN_FAIL, Word.EAGER_1ST_RUN_OOM):
            ready = self.build(candidate=None)
            batches = len(ready.samples)
            inputs, start = inputs_of(ready), start_of(ready)
            starts, eager, generators, draws = self._first(ready, self._usual_steps(ready))
            halves = len(starts) - self._usual_steps(ready)
            little = self.says_little(eager[0], ready.samples[0])
            load_state(ready.module, starts[0].parameters, starts[0].buffers)
            repeated = _light(self._step(ready, 0))
            del ready
        with worded(Word.EAGER_2ND_RUN_FAIL, Word.EAGER_2ND_RUN_OOM):
            other = self.build(candidate=None)
            start_again = start_of(other)
            *again, late = (_light(snapshot) for _, snapshot in self._take_all_steps(other, starts))
            del other
        epsilon, count = self.options.precision.epsilon, self.options.settings.perturbations
        shaken_runs = tuple(self._shaken(starts, epsilon, index) for index in range(count))
        jolted = (self._shaken(starts, jolt_of(epsilon), count),) if jolt_of(epsilon) else ()
        exact, why = self._exact(starts)
        return Reference(
            starts=starts,
            eager=eager,
            again=tuple(again),
            exact=exact,
            shaken=shaken_runs,
            jolted=jolted,
            late=late,
            repeated=repeated,
            batches=batches,
            halves=halves,
            little=little,
            why_inexact=why,
            inputs=inputs,
            generators=generators,
            start=start,
            start_again=start_again,
            draws=draws,
        )

    def candidate(self, ready: Ready, starts: tuple[Start, ...]) -> Iterator[tuple[int, Snapshot]]:
        """Yield the candidate's steps one by one, each with the number of the step it repeats.

        After them come some more without being set back, and the last one once again.
        """
        with worded(Word.FAIL_TO_RUN, Word.OOM):
            yield from self._take_all_steps(ready, starts)

    def _take_all_steps(
        self, ready: Ready, starts: tuple[Start, ...]
    ) -> Iterator[tuple[int, Snapshot]]:
        return all_steps(
            len(starts),
            lambda index: self._set_back(ready, starts[index]),
            partial(self._step, ready),
        )

    def forced(self, ready: Ready, starts: tuple[Start, ...]) -> Iterator[Snapshot]:
        """Yield one step from each start."""
        for index, start in enumerate(starts):
            self._set_back(ready, start)
            yield self._step(ready, index)

    def draw(self, ready: Ready, start: Start, seed: int) -> Snapshot:
        """Take the first step from a start, under another seed."""
        self._set_back(ready, start)
        seed_everything(seed)
        (loss, outputs), _ = take_step(ready, ready.samples[0])
        return take(ready.module, outputs, loss)

    def _first(
        self, ready: Ready, steps: int
    ) -> tuple[tuple[Start, ...], tuple[Snapshot, ...], tuple[Tensor, ...], bool]:
        """Run eager first, and return its starts and snapshots; each step continues the last one.

        Also returns torch's generators after the first step, if it drew from them, and true if it
        drew from any generator.
        """
        starts: list[Start] = []
        snapshots: list[Snapshot] = []
        generators: tuple[Tensor, ...] = ()
        draws = False
        for index in range(steps):
            parameters = snapshots[-1].parameters if snapshots else parameters_of(ready.module)
            starts.append(_start_of(ready, parameters))
            after = self._step(ready, index)
            snapshots.append(replace(after, parameters=_shared(after.parameters, parameters)))
            if not index:
                states = generator_states()
                generators = drawn_since(self.options.settings.seed)
                draws = bool(moved(states, generator_states()))
        for index in range(
            steps,
            steps + len(HALVES) if self.says_little(snapshots[0], ready.samples[0]) else steps,
        ):
            start = _start_of(ready, snapshots[-1].parameters)
            try:
                after = self._step(ready, index)
            except Exception:  # noqa: BLE001 - the model may refuse a batch that is half blank
                break
            starts.append(start)
            snapshots.append(
                replace(after, parameters=_shared(after.parameters, snapshots[-1].parameters))
            )
        return tuple(starts), tuple(snapshots), generators, draws

    def says_little(self, snapshot: Snapshot, sample: Sample) -> bool:
        """Return true if a step has fewer outputs than rows, in a narrow format that hides rows."""
        options = self.options
        if (
            options.mode is BenchMode.TRAINING
            or options.layouts
            or options.precision.epsilon <= FP32_EPSILON
        ):
            return False
        return sum(value.numel() for value in snapshot.outputs.values()) < rows_of(sample)[1]

    def _usual_steps(self, ready: Ready) -> int:
        return max(self.options.settings.steps, len(ready.samples))

    def _step(self, ready: Ready, index: int) -> Snapshot:
        usual = self._usual_steps(ready)
        sample = (
            ready.samples[index % len(ready.samples)]
            if index < usual
            else half_blank(ready.samples[0], index - usual)
        )
        seed_step(self.options.settings.seed, index)
        (loss, outputs), written = take_step(ready, sample)
        snapshot = take(ready.module, outputs, loss)
        return replace(snapshot, outputs={**snapshot.outputs, **written}) if written else snapshot

    def _set_back(self, ready: Ready, start: Start) -> None:
        load_state(ready.module, start.parameters, start.buffers)
        restore_python_state(ready.module, start.attributes)
        if ready.optimizer is not None and start.optimizer is not None:
            load_optimizer(ready.optimizer, start.optimizer)

    def _shaken(
        self, starts: tuple[Start, ...], epsilon: float, index: int
    ) -> tuple[Snapshot, ...]:
        """Run eager from weights that are off by `epsilon` each."""
        ready = self.build(candidate=None)
        generator = torch.Generator().manual_seed(index + 1)
        off = tuple(
            replace(start, parameters=shaken(start.parameters, epsilon, generator))
            for start in starts
        )
        return tuple(map(_light, self.forced(ready, off)))

    def _exact(self, starts: tuple[Start, ...]) -> tuple[tuple[Snapshot, ...] | None, str]:
        """Run in fp64; without it, eager is the truth, and only shaken runs measure rounding."""
        if self._masks_differ():
            return None, "random numbers differ between fp64 and the case's precision"
        try:
            steps = enumerate(self.forced(self.build(candidate=None, exact=True), starts), start=1)
            return (
                tuple(
                    snapshot if number == len(starts) else replace(snapshot, parameters={})
                    for number, snapshot in steps
                ),
                "",
            )
        except Exception as error:  # noqa: BLE001 - benched code may raise anything; the verdict includes the reason
            return None, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"

    def _masks_differ(self) -> bool:
        """Return true if a model with random numbers would draw others in fp64 on this device."""
        ready = self.build(candidate=None)
        if not is_random(ready):
            return False
        masks = []
        for dtype in (torch.float32, torch.float64):
            torch.manual_seed(0)
            masks.append(
                torch.nn.functional.dropout(
                    torch.ones(4096, device=self.device, dtype=dtype), p=0.5
                )
                == 0
            )
        return not torch.equal(*masks)


def all_steps(
    count: int, set_back: Callable[[int], None], step: Callable[[int], Snapshot]
) -> Iterator[tuple[int, Snapshot]]:
    """Yield the steps of a candidate, each with the number of its start.

    There is one from each start, some more, and the last once again.
    """
    for index in range(count):
        set_back(index)
        yield index, step(index)
    for index in range(LATER_STEPS):
        step(index % count)
    set_back(count - 1)
    yield count - 1, step(count - 1)


def drawn_since(seed: int) -> tuple[Tensor, ...]:
    """Return the states of torch's generators if the first step of `seed` drew numbers.

    Starts that step's random numbers again.
    """
    now = _generator_states()
    seed_step(seed, 0)
    return (
        now
        if any(
            not torch.equal(current, initial)
            for current, initial in zip(now, _generator_states(), strict=True)
        )
        else ()
    )


def _generator_states() -> tuple[Tensor, ...]:
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    return torch.get_rng_state(), *on_gpus


def start_of(ready: Ready) -> dict[str, str]:
    """Return forms and digests of a fresh model's inputs and weights."""
    return read_start(inputs_of(ready), ready.module.named_parameters())


def treated_apart(options: TorchbenchOptions, start: Start) -> tuple[tuple[str, ...], ...]:
    """Return the trained parameters in groups that the optimizer treats separately.

    torch's own treat each parameter separately. The groups are computed one by one: the ideal steps
    of a large model, in fp64 with their state, would take more memory than all else.
    """
    together = is_import_path(options.settings.optimizer)
    return (start.trained,) if together else tuple((name,) for name in start.trained)


def ideal_change(
    options: TorchbenchOptions, start: Start, after: Snapshot, names: tuple[str, ...]
) -> State:
    """Return the ideal changes of these parameters for a snapshot's own gradients, in fp64."""
    wide = {
        name: in_type(start.parameters[name], torch.float64, copy=True).requires_grad_()
        for name in names
    }
    for name, parameter in wide.items():
        gradient = after.gradients.get(name)
        parameter.grad = None if gradient is None else in_type(gradient, torch.float64)
    optimizer = _in_fp64(options, start, [*wide.values()])
    if start.optimizer is not None and start.optimizer["state"]:
        optimizer.load_state_dict(
            state_of(start.optimizer, [start.trained.index(name) for name in names])
        )
        widen_complex(optimizer)
    for group in optimizer.param_groups:
        group.update({name: False for name in ("capturable", "fused") if name in group})
    optimizer.step()
    return {
        name: real_parts(parameter.detach() - in_type(start.parameters[name], torch.float64))
        for name, parameter in wide.items()
    }


def _in_fp64(
    options: TorchbenchOptions, start: Start, weights: Sequence[Tensor]
) -> torch.optim.Optimizer:
    """Return the case's optimizer over fp64 weights on the CPU."""
    settings = options.settings
    dtype = next((start.parameters[name].dtype for name in start.trained), torch.float32)
    same = same_in_fp64(settings.optimizer, settings.optimizer_options, dtype)
    return build_optimizer(
        replace(options, settings=replace(settings, optimizer_options=same)), weights, "cpu"
    )


def known_updates(options: TorchbenchOptions, start: Start) -> State:
    """Return the optimizer's updates by known gradients; empty in inference."""
    if start.optimizer is None:
        return {}
    return updates_by_known_gradients(
        partial(_in_fp64, options, start),
        {name: start.parameters[name] for name in start.trained},
        separately=not is_import_path(options.settings.optimizer),
    )


def _start_of(ready: Ready, parameters: State) -> Start:
    state = None
    if ready.optimizer is not None:
        state_dict = copy.deepcopy(ready.optimizer.state_dict())
        state = pytree.tree_map_only(Tensor, lambda value: value.to("cpu"), state_dict)
    return Start(
        parameters=parameters,
        trained=() if ready.optimizer is None else names_of(ready.optimizer, ready.module),
        buffers=buffers_of(ready.module),
        optimizer=state,
        attributes=python_state_of(ready.module),
    )


def _light(snapshot: Snapshot) -> Snapshot:
    """Drop the parameters of a run that only shows rounding: large models have many."""
    return replace(snapshot, parameters={})


def _shared(after: State, before: State) -> State:
    """Return the same tensors where nothing has changed: in inference, all of them."""
    return {
        name: before[name] if torch.equal(value, before[name]) else value
        for name, value in after.items()
    }


def is_random(ready: Ready) -> bool:
    """Return true if two steps from one state differ when only the seed does.

    Uses `ready` up.
    """
    before, buffers, attributes = (
        parameters_of(ready.module),
        buffers_of(ready.module),
        python_state_of(ready.module),
    )
    results = []
    for seed in (1, 2):
        seed_everything(seed)
        (_, outputs), _ = take_step(ready, ready.samples[0])
        results.append(take(ready.module, outputs, None).outputs)
        load_state(ready.module, before, buffers)
        restore_python_state(ready.module, attributes)
    return any(
        name not in results[1] or not torch.equal(results[0][name], results[1][name])
        for name in results[0]
    )
