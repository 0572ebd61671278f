"""Gathers what accuracy is judged from: the same steps by eager, eager again, fp64, shaken eager, and the candidate.

Each step of each run begins from the state that eager had there (parameters, buffers, optimizer state), so that one step's
rounding does not grow into the next, and an optimizer that divides by small numbers does not turn rounding into a different
sign. Gradients are judged as they come; what the optimizer made of them is judged against the same optimizer in fp64 on the
same gradients. Candidates are checked again after more steps, unforced, as timing would take them. Seed: `Settings.seed` at
every step.
"""

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ci_bench.suites.base import no_mark
from ci_bench.suites.optimizers import make_optimizer, same_in_fp64
from ci_bench.suites.torchbench.options import Options
from ci_bench.suites.torchbench.program import Ready
from ci_bench.suites.torchbench.snapshot import Snapshot, State, buffers_of, load_state, parameters_of, take
from ci_bench.suites.torchbench.status import Word, worded
from ci_bench.suites.user_code import is_import_path

LATER_STEPS = 5
"""Steps between the first check of a candidate and the last."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where a step begins: eager's parameters (which of them are trained), buffers and optimizer state, on the host."""

    parameters: State
    trained: tuple[str, ...]
    buffers: State
    optimizer: dict[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What candidates are compared with. `exact` is `None` where fp64 was impossible, and `why_inexact` says why.

    For each verified step there is a start, eager's snapshot and again's, the exact one, and those of the shaken runs. A large
    model's fill the memory, so that parameters are kept where somebody asks for them: eager's of every step, the exact ones of
    the last.
    """

    starts: tuple[Start, ...]
    eager: tuple[Snapshot, ...]
    again: tuple[Snapshot, ...]
    exact: tuple[Snapshot, ...] | None
    shaken: tuple[tuple[Snapshot, ...], ...]
    why_inexact: str = ""


Build = Callable[..., Ready]
"""Called with `backend` and `exact`: a fresh model of the case, from the same bytes."""


@dataclass(frozen=True, kw_only=True)
class Witness:
    """Runs the steps of one case. `build` gives a fresh model each time."""

    options: Options
    device: str
    build: Build

    @property
    def steps(self) -> int:
        """How many steps are verified."""
        return self.options.settings.steps

    def reference(self) -> Reference:
        """Everything but the candidate."""
        with worded(Word.EAGER_1ST_RUN_FAIL, Word.EAGER_1ST_RUN_OOM):
            starts, eager = self._first(self.build(backend=None))
        with worded(Word.EAGER_2ND_RUN_FAIL, Word.EAGER_2ND_RUN_OOM):
            again = self._spread(self.build(backend=None), starts)
        shaken = tuple(self._shaken(starts, index) for index in range(self.options.settings.perturbations))
        exact, why = self._exact(starts)
        return Reference(starts=starts, eager=eager, again=again, exact=exact, shaken=shaken, why_inexact=why)

    def candidate(self, ready: Ready, starts: tuple[Start, ...]) -> Iterator[tuple[int, Snapshot]]:
        """The candidate's steps, each with the number of the step that it repeats, one at a time, so that each can be forgotten.

        After them come some more without being set back, and the last one once again.
        """
        with worded(Word.FAIL_TO_RUN, Word.OOM):
            yield from enumerate(self.forced(ready, starts))
            for index in range(LATER_STEPS):
                self._step(ready, index)
            last = len(starts) - 1
            self._set_back(ready, starts[last])
            yield last, self._step(ready, last)

    def forced(self, ready: Ready, starts: tuple[Start, ...]) -> Iterator[Snapshot]:
        """One step from each start."""
        for index, start in enumerate(starts):
            self._set_back(ready, start)
            yield self._step(ready, index)

    def _spread(self, ready: Ready, starts: tuple[Start, ...]) -> tuple[Snapshot, ...]:
        """The same of a run that shows how far rounding goes. Nobody asks for its parameters, and large models have many."""
        return tuple(replace(one, parameters={}) for one in self.forced(ready, starts))

    def _first(self, ready: Ready) -> tuple[tuple[Start, ...], tuple[Snapshot, ...]]:
        """Eager goes ahead and leaves the starts for the others. Where one step ends, the next begins."""
        starts: list[Start] = []
        found: list[Snapshot] = []
        for index in range(self.steps):
            parameters = found[-1].parameters if found else parameters_of(ready.module)
            starts.append(_start_of(ready, parameters))
            found.append(self._step(ready, index))
        return tuple(starts), tuple(found)

    def _step(self, ready: Ready, index: int) -> Snapshot:
        seed_everything(self.options.settings.seed + index)
        loss, outputs = ready.step(ready.samples[index % len(ready.samples)], no_mark)
        return take(ready.module, outputs, loss)

    def _set_back(self, ready: Ready, start: Start) -> None:
        load_state(ready.module, start.parameters, start.buffers)
        if ready.optimizer is not None and start.optimizer is not None:
            _load_optimizer(ready.optimizer, start.optimizer)

    def _shaken(self, starts: tuple[Start, ...], index: int) -> tuple[Snapshot, ...]:
        """Eager from numbers that are off by one rounding each."""
        ready = self.build(backend=None)
        generator = torch.Generator().manual_seed(index + 1)
        epsilon = self.options.precision.epsilon
        shaken = tuple(replace(one, parameters=_shake(one.parameters, epsilon, generator)) for one in starts)
        return self._spread(ready, shaken)

    def _exact(self, starts: tuple[Start, ...]) -> tuple[tuple[Snapshot, ...] | None, str]:
        """The fp64 run; models that cannot are compared with eager, and rounding is measured by the shaken runs alone."""
        if self._masks_differ():
            return None, "random numbers differ between fp64 and the case's precision"
        try:
            steps = enumerate(self.forced(self.build(backend=None, exact=True), starts), start=1)
            return tuple(one if number == len(starts) else replace(one, parameters={}) for number, one in steps), ""
        except Exception as error:  # noqa: BLE001 - benched code may raise anything; the reason is told with the verdict
            return None, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"

    def _masks_differ(self) -> bool:
        """Whether a model that draws random numbers would draw others in fp64 on this device."""
        ready = self.build(backend=None)
        if not _is_random(ready):
            return False
        masks = []
        for dtype in (torch.float32, torch.float64):
            torch.manual_seed(0)
            masks.append(torch.nn.functional.dropout(torch.ones(4096, device=self.device, dtype=dtype), p=0.5) == 0)
        return not torch.equal(*masks)


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch."""
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the global generator is what benched code uses
    torch.manual_seed(seed)


def treated_apart(options: Options, start: Start) -> tuple[tuple[str, ...], ...]:
    """The trained parameters in groups that the optimizer treats by themselves: torch's own look at one at a time.

    Each group is gone through alone: the ideal steps of a large model, in fp64 with their state, would take more memory than all
    else.
    """
    together = is_import_path(options.settings.optimizer)
    return (start.trained,) if together else tuple((name,) for name in start.trained)


def ideal_change(options: Options, start: Start, after: Snapshot, names: tuple[str, ...]) -> State:
    """What the optimizer should have made of a snapshot's own gradients, in fp64, as change of each of these parameters."""
    wide = {name: start.parameters[name].to(torch.float64).requires_grad_() for name in names}
    for name, parameter in wide.items():
        gradient = after.gradients.get(name)
        parameter.grad = None if gradient is None else gradient.to(torch.float64)
    settings = options.settings
    dtype = next((start.parameters[name].dtype for name in start.trained), torch.float32)
    same = same_in_fp64(settings.optimizer, settings.optimizer_options, dtype)
    optimizer = make_optimizer(settings.optimizer, wide.values(), lr=settings.lr, options=same, device="cpu")
    if start.optimizer is not None and start.optimizer["state"]:
        optimizer.load_state_dict(_state_of(start.optimizer, [start.trained.index(name) for name in names]))
    for group in optimizer.param_groups:
        group.update({name: False for name in ("capturable", "fused") if name in group})
    optimizer.step()
    return {name: (parameter.detach() - start.parameters[name].to(torch.float64)) for name, parameter in wide.items()}


def _state_of(whole: dict[str, Any], numbers: list[int]) -> dict[str, Any]:
    """A copy of an optimizer's state for some of its parameters, by their numbers; of several groups only for all together."""
    if len(whole["param_groups"]) > 1:
        return copy.deepcopy(whole)
    state = {place: whole["state"][number] for place, number in enumerate(numbers) if number in whole["state"]}
    (group,) = whole["param_groups"]
    return copy.deepcopy({"state": state, "param_groups": [{**group, "params": list(range(len(numbers)))}]})


def _start_of(ready: Ready, parameters: State) -> Start:
    state = None
    if ready.optimizer is not None:
        kept = copy.deepcopy(ready.optimizer.state_dict())
        state = pytree.tree_map_only(Tensor, lambda value: value.to("cpu"), kept)
    return Start(
        parameters=parameters,
        trained=tuple(name for name, value in ready.module.named_parameters() if value.requires_grad and state is not None),
        buffers=buffers_of(ready.module),
        optimizer=state,
    )


def _load_optimizer(optimizer: torch.optim.Optimizer, wanted: dict[str, Any]) -> None:
    """Write the state in place. At the first step nobody has one."""
    ordered = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    with torch.no_grad():
        for index, theirs in wanted["state"].items():
            for name, value in optimizer.state.get(ordered[index], {}).items():
                if isinstance(value, Tensor):
                    value.copy_(theirs[name])


def _shake(state: State, epsilon: float, generator: torch.Generator) -> State:
    def shake(value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        return (value.double() * (1 + epsilon * noise)).to(value.dtype)

    return {name: shake(value) for name, value in state.items()}


def _is_random(ready: Ready) -> bool:
    """Whether two steps from the same state have other outputs when only the seed differs. Uses `ready` up."""
    before, buffers = parameters_of(ready.module), buffers_of(ready.module)
    kept = []
    for seed in (1, 2):
        seed_everything(seed)
        _, outputs = ready.step(ready.samples[0], no_mark)
        kept.append(take(ready.module, outputs, None).outputs)
        load_state(ready.module, before, buffers)
    return any(name not in kept[1] or not torch.equal(kept[0][name], kept[1][name]) for name in kept[0])
