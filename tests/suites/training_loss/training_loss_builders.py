"""A training that takes half a second, and ways to run it with a planted change."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.records.comparison import ParityFinding
from ci_bench.records.results import ArmMasks, Masks, ParityEvidence, Role, Trace
from ci_bench.suites.contract import Context
from ci_bench.suites.training_loss.corpus import Rows, load_rows, prepare_rows
from ci_bench.suites.training_loss.model_files import DATA
from ci_bench.suites.training_loss.network import State, perturbed, start_state
from ci_bench.suites.training_loss.options import REFERENCE_ARM, Model, TrainingOptions
from ci_bench.suites.training_loss.recipes import MASK_SEED, TrainingRecipe, record_training
from ci_bench.suites.training_loss.training import Trainee, build_trainee
from ci_bench.suites.training_loss.verify import TrainingVerifier

ARM = "candidate"
Change = Callable[[Trainee], Trainee | None]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Options of a small training, its rows, and the folder they lie in."""

    options: TrainingOptions
    folder: Path
    rows: Rows

    def verifier(self, options: TrainingOptions | None = None) -> TrainingVerifier:
        return TrainingVerifier(
            options=options or self.options,
            context=context(self.folder),
            train=self.rows,
            test=None,
        )

    def params(self, **changes: Any) -> dict[str, Any]:
        """The options as an entry of the configuration."""
        return {**self.options.as_params(), **changes}


def context(folder: Path) -> Context:
    return Context(device="cpu", scratch=folder, progress=lambda arm, done, total: None)


def make_bench(folder: Path, **changes: Any) -> Bench:
    """64 of the embedded reviews, eight to a batch, seven times: 56 steps."""
    values: dict[str, Any] = {
        "backends": ("aot_eager",),
        "epochs": 7,
        "num_samples": 64,
        "batch_size": 8,
        "optimizer": "AdamW",
        "optimizer_options": {"betas": [0.9, 0.99], "weight_decay": 0.1},
        "evaluation": False,
        "evaluation_rows": 30,
        "max_length": 32,
        **changes,
    }
    prepare_rows(TrainingOptions(**{**values, "evaluation": True}), folder)
    options = TrainingOptions(
        model=Model(path=write_model(folder / "model"), pretrained=False), **values
    )
    return Bench(options=options, folder=folder, rows=load_rows(folder, "train"))


def write_model(folder: Path, **changes: Any) -> str:
    """A folder with the embedded model's configuration, made smaller.

    Its weights start wider, so that activations spread as in a trained model: near zero, many a
    change of math is invisible.
    """
    config = json.loads((DATA / "model" / "config.json").read_text())
    small = {"hidden_size": 32, "intermediate_size": 64, "initializer_range": 0.2, **changes}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**config, **small}))
    return str(folder)


_STARTS: dict[tuple[str, int], State] = {}


def start_of_model(model: Model, seed: int) -> State:
    """The start state, drawn once per model and seed."""
    key = repr(model), seed
    if key not in _STARTS:
        _STARTS[key] = start_state(TrainingOptions(model=model), seed=seed)
    return _STARTS[key]


def train(
    bench: Bench,
    seed: int,
    *,
    role: Role = Role.CANDIDATE,
    change: Change | None = None,
    options: TrainingOptions | None = None,
    index: int = 0,
    epsilon: float = 0.0,
    steps: int | None = None,
    mask_seed: int = MASK_SEED,
    rows: Rows | None = None,
) -> Trace:
    """One eager training, by the suite's own parts, with a change planted before its first step."""
    options = options or bench.options
    state = start_of_model(options.model, seed)
    first = perturbed(state, epsilon=epsilon, seed=1 + index) if epsilon else state
    trainee = build_trainee(options, first, device="cpu", candidate=None)
    changed = change(trainee) if change else None
    arm = ARM if role is Role.CANDIDATE else REFERENCE_ARM
    recipe = TrainingRecipe(
        arm=arm, role=role, seed=seed, index=index, steps=steps, mask_seed=mask_seed
    )
    verifier = bench.verifier(options)
    verifier = replace(verifier, train=rows) if rows else verifier
    return record_training(
        changed or trainee,
        recipe,
        state=first if role is Role.PERTURBED else state,
        trainer=verifier,
    )


def anchors_of(
    bench: Bench, seed: int, *, epsilon: float = 2.0**-24, **more: Any
) -> tuple[Trace, ...]:
    """The reference and three perturbed references."""
    return (
        train(bench, seed, role=Role.REFERENCE, **more),
        *(
            train(bench, seed, role=Role.PERTURBED, index=index, epsilon=epsilon, **more)
            for index in range(3)
        ),
    )


def control_of(reference: Trace) -> Trace:
    """What a control that is caught looks like, without training one."""
    losses = tuple(None if value is None else 1.01 * value for value in reference.loss)
    return replace(reference, role=Role.CONTROL, loss=losses)


def evidence(
    *traces: Trace,
    masks: Masks = Masks.ALIGNED,
    precision: str = "fp32",
    twin: ParityEvidence | None = None,
) -> ParityEvidence:
    controls = [control_of(one) for one in traces if one.role is Role.REFERENCE][:1]
    return ParityEvidence(
        precision=precision,
        epsilon=2.0**-24,
        steps_per_epoch=8,
        evaluation_rows=0,
        masks=(ArmMasks(arm=ARM, masks=masks, detail="as given by the test"),),
        traces=(*traces, *controls),
        twin=twin,
    )


def judged(*traces: Trace, **more: Any) -> ParityFinding:
    (finding,) = parity_findings(evidence(*traces, **more))
    return finding


def stepping(
    trainee: Trainee, before: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> Trainee:
    """The same trainee, whose batches pass through `before`."""
    return replace(trainee, step=lambda batch: trainee.step(before(batch)))
