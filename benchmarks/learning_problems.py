"""Small trainings of several kinds, right reorderings of them, and faults to inject.

Used by `benchmarks.learning_quality`.

A problem is a model, an optimizer and a schedule; its data are random tokens or images with a rule
to learn. A change is applied while the model or the step is built. All of it is deterministic: the
same seed gives the same bytes on one thread.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

ROWS, WIDTH, TOKENS, LENGTH, CLASSES = 16, 24, 40, 12, 5
WARM_UP = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A training."""

    name: str
    """The name in the tables."""
    model: str
    """The kind of model: mlp, transformer, cnn, lstm or moe."""
    optimizer: str
    """The optimizer: adamw, sgd, lion or adafactor."""
    rate: float
    """The learning rate."""
    clip: float = 0.0
    """The largest gradient norm; 0 for no clipping."""
    warm: bool = False
    """True if the rate warms up over ten steps."""
    spikes: bool = False
    """True if two steps take ten times the rate, which the loss shows for a while."""
    dropout: float = 0.0
    """The probability of dropout."""


SPIKES, SPIKE = (14, 29), 10.0

PROBLEMS = (
    Problem(name="mlp adamw", model="mlp", optimizer="adamw", rate=3e-3),
    Problem(
        name="transformer adamw, warm-up",
        model="transformer",
        optimizer="adamw",
        rate=3e-3,
        warm=True,
    ),
    Problem(name="cnn sgd", model="cnn", optimizer="sgd", rate=5e-2),
    Problem(name="lstm adamw, clipped", model="lstm", optimizer="adamw", rate=1e-2, clip=0.5),
    Problem(name="moe adamw", model="moe", optimizer="adamw", rate=3e-3),
    Problem(name="transformer lion", model="transformer", optimizer="lion", rate=3e-4),
    Problem(
        name="transformer dropout", model="transformer", optimizer="adamw", rate=1e-3, dropout=0.1
    ),
    Problem(name="mlp adafactor", model="mlp", optimizer="adafactor", rate=1e-2),
    Problem(name="mlp sgd, hot", model="mlp", optimizer="sgd", rate=0.5),
    Problem(name="lstm sgd, clipped", model="lstm", optimizer="sgd", rate=0.3, clip=1.0),
    Problem(name="cnn adamw", model="cnn", optimizer="adamw", rate=1e-2),
    Problem(name="moe lion, dropout", model="moe", optimizer="lion", rate=1e-3, dropout=0.1),
    Problem(name="mlp adamw, clipped", model="mlp", optimizer="adamw", rate=3e-3, clip=0.5),
    Problem(
        name="transformer sgd, warm-up, clipped",
        model="transformer",
        optimizer="sgd",
        rate=0.1,
        clip=1.0,
        warm=True,
    ),
    Problem(name="cnn lion", model="cnn", optimizer="lion", rate=1e-3),
    Problem(name="lstm lion", model="lstm", optimizer="lion", rate=1e-3),
    Problem(name="moe sgd", model="moe", optimizer="sgd", rate=5e-2),
    Problem(name="transformer adafactor", model="transformer", optimizer="adafactor", rate=1e-2),
    Problem(
        name="mlp sgd, clipped, spikes",
        model="mlp",
        optimizer="sgd",
        rate=5e-2,
        clip=0.5,
        spikes=True,
    ),
    Problem(name="transformer adamw, hot", model="transformer", optimizer="adamw", rate=2e-2),
    Problem(name="cnn adafactor", model="cnn", optimizer="adafactor", rate=1e-2),
    Problem(name="lstm adamw, dropout", model="lstm", optimizer="adamw", rate=5e-3, dropout=0.1),
    Problem(name="moe adafactor", model="moe", optimizer="adafactor", rate=1e-2),
    Problem(name="mlp adamw, dropout", model="mlp", optimizer="adamw", rate=3e-3, dropout=0.2),
    Problem(
        name="transformer adamw, clipped, spikes",
        model="transformer",
        optimizer="adamw",
        rate=1e-3,
        clip=1.0,
        spikes=True,
    ),
    Problem(name="cnn adamw, warm-up", model="cnn", optimizer="adamw", rate=5e-3, warm=True),
    Problem(name="lstm sgd, warm-up", model="lstm", optimizer="sgd", rate=0.2, warm=True),
    Problem(
        name="moe adamw, clipped, dropout",
        model="moe",
        optimizer="adamw",
        rate=3e-3,
        clip=0.5,
        dropout=0.1,
    ),
    Problem(name="mlp lion", model="mlp", optimizer="lion", rate=3e-4),
    Problem(name="transformer sgd, hot", model="transformer", optimizer="sgd", rate=0.3),
    Problem(name="cnn sgd, hot, clipped", model="cnn", optimizer="sgd", rate=0.2, clip=1.0),
    Problem(name="lstm adafactor", model="lstm", optimizer="adafactor", rate=1e-2),
    Problem(
        name="moe sgd, clipped, spikes",
        model="moe",
        optimizer="sgd",
        rate=5e-2,
        clip=0.5,
        spikes=True,
    ),
    Problem(name="mlp sgd, warm-up", model="mlp", optimizer="sgd", rate=0.1, warm=True),
    Problem(
        name="transformer lion, clipped", model="transformer", optimizer="lion", rate=5e-4, clip=0.5
    ),
    Problem(name="cnn sgd, spikes", model="cnn", optimizer="sgd", rate=2e-2, spikes=True),
    Problem(
        name="lstm adamw, clipped, spikes",
        model="lstm",
        optimizer="adamw",
        rate=5e-3,
        clip=0.5,
        spikes=True,
    ),
    Problem(name="moe lion, warm-up", model="moe", optimizer="lion", rate=1e-3, warm=True),
    Problem(name="mlp adamw, hot", model="mlp", optimizer="adamw", rate=3e-2),
    Problem(
        name="transformer adafactor, warm-up, dropout",
        model="transformer",
        optimizer="adafactor",
        rate=1e-2,
        warm=True,
        dropout=0.1,
    ),
    Problem(name="cnn adamw, clipped", model="cnn", optimizer="adamw", rate=5e-3, clip=0.5),
    Problem(name="mlp lion, warm-up", model="mlp", optimizer="lion", rate=1e-3, warm=True),
    Problem(
        name="transformer lion, warm-up, dropout",
        model="transformer",
        optimizer="lion",
        rate=5e-4,
        warm=True,
        dropout=0.1,
    ),
    Problem(name="mlp adafactor, clipped", model="mlp", optimizer="adafactor", rate=1e-2, clip=0.5),
)
"""Every few of them are of several kinds, so the first ones are a fair choice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A right reordering, or a fault.

    `applies` says to which problems; the rest are settings that models and steps read.
    """

    name: str
    applies: Callable[[Problem], bool] = lambda _: True
    settings: Mapping[str, float | str] = field(default_factory=dict)


def _with(**fields: tuple[str, ...]) -> Callable[[Problem], bool]:
    return lambda problem: all(getattr(problem, name) in values for name, values in fields.items())


def _still(problem: Problem) -> bool:
    """Return whether a training draws no masks.

    Masks would differ in another order of rows or of memory; then seeds decide.
    """
    return not problem.dropout


_ADAM = _with(optimizer=("adamw",))
_SGD = _with(optimizer=("sgd",))
_ATTENTION = _with(model=("transformer",))

BENIGN = (
    Change(name="sums in two parts", settings={"linear": "split"}),
    Change(name="sums in four parts", settings={"linear": "quarters"}),
    Change(name="products transposed", applies=_still, settings={"linear": "transposed"}),
    Change(name="rows in another order", applies=_still, settings={"rows": "reversed"}),
    Change(
        name="two halves of a batch",
        applies=lambda problem: _still(problem) and problem.model != "cnn",
        settings={"rows": "halves"},
    ),
    Change(
        name="optimizer in one kernel",
        applies=_with(optimizer=("adamw", "sgd")),
        settings={"foreach": 1},
    ),
)
FAULTS = (
    Change(name="lr x1.01", settings={"rate": 1.01}),
    Change(name="lr x1.002", settings={"rate": 1.002}),
    Change(name="lr x1.0005", settings={"rate": 1.0005}),
    Change(name="one gradient x0.99", settings={"one_gradient": 0.99}),
    Change(name="all gradients x0.99", settings={"gradients": 0.99}),
    Change(
        name="weight decay off", applies=_with(optimizer=("adamw", "lion")), settings={"decay": 0.0}
    ),
    Change(name="beta2 0.98", applies=_ADAM, settings={"beta2": 0.98}),
    Change(name="Adam eps 1e-6", applies=_ADAM, settings={"eps": 1e-6}),
    Change(name="momentum 0.899", applies=_SGD, settings={"momentum": 0.899}),
    Change(name="Nesterov", applies=_SGD, settings={"nesterov": 1}),
    Change(name="LayerNorm eps 1e-4", applies=_ATTENTION, settings={"norm_eps": 1e-4}),
    Change(name="BatchNorm eps 1e-4", applies=_with(model=("cnn",)), settings={"norm_eps": 1e-4}),
    Change(name="attention 1/sqrt(d+1)", applies=_ATTENTION, settings={"scale": 1}),
    Change(name="mask off by one", applies=_ATTENTION, settings={"mask": 1}),
    Change(name="label smoothing 0.01", settings={"smoothing": 0.01}),
    Change(
        name="dropout p x1.1",
        applies=lambda problem: problem.dropout > 0,
        settings={"dropout": 1.1},
    ),
    Change(
        name="dropout off", applies=lambda problem: problem.dropout > 0, settings={"dropout": 0.0}
    ),
    Change(name="a step skipped", settings={"skip": 12}),
    Change(
        name="tanh GELU",
        applies=_with(model=("mlp", "transformer", "moe")),
        settings={"gelu": "tanh"},
    ),
    Change(name="logits x1.01", settings={"logits": 1.01}),
    Change(
        name="clipped at 1.05 of the limit",
        applies=lambda problem: problem.clip > 0,
        settings={"clip": 1.05},
    ),
    Change(
        name="warm-up one step late", applies=lambda problem: problem.warm, settings={"late": 1}
    ),
    Change(
        name="a residual x1.01",
        applies=_with(model=("mlp", "transformer", "moe")),
        settings={"residual": 1.01},
    ),
)

Settings = Mapping[str, float | str]
Batch = tuple[Tensor, Tensor]


class Linear(nn.Linear):
    """A linear layer that sums in another order if asked."""

    def __init__(self, inputs: int, outputs: int, settings: Settings) -> None:
        """Build the layer; `settings` may have ``linear``."""
        super().__init__(inputs, outputs)
        self.order = settings.get("linear", "")

    def forward(self, values: Tensor) -> Tensor:
        """Return the product, computed in the requested order."""
        parts = {"split": 2, "quarters": 4}.get(str(self.order), 1)
        if parts > 1:
            pairs = zip(values.chunk(parts, -1), self.weight.chunk(parts, 1), strict=True)
            products = [functional.linear(part, weight) for part, weight in pairs]
            return sum(products, self.bias)
        if self.order == "transposed":
            return (self.weight @ values.transpose(-1, -2)).transpose(-1, -2) + self.bias
        return super().forward(values)


class Block(nn.Module):
    """A residual branch: GELU between two linear layers, with dropout.

    With `experts`, it is one of four, weighted by a gate.
    """

    def __init__(self, settings: Settings, dropout: float, experts: int = 1) -> None:
        """Build the layers; widths are `WIDTH` and twice that."""
        super().__init__()
        self.up = nn.ModuleList(Linear(WIDTH, 2 * WIDTH, settings) for _ in range(experts))
        self.down = nn.ModuleList(Linear(2 * WIDTH, WIDTH, settings) for _ in range(experts))
        self.gate = Linear(WIDTH, experts, settings) if experts > 1 else None
        self.approximate = str(settings.get("gelu", "none"))
        self.residual = float(settings.get("residual", 1.0))
        self.dropout = nn.Dropout(dropout)

    def forward(self, values: Tensor) -> Tensor:
        """Return the values plus the branch."""
        outs = [
            down(functional.gelu(up(values), approximate=self.approximate))
            for up, down in zip(self.up, self.down, strict=True)
        ]
        out = outs[0]
        if self.gate is not None:
            weights = self.gate(values).softmax(-1)
            out = sum(
                (weights[..., n : n + 1] * expert for n, expert in enumerate(outs)),
                torch.zeros_like(values),
            )
        added: Tensor = self.residual * self.dropout(out)
        return values + added


class Attention(nn.Module):
    """Causal attention of one head, with a layer norm before it."""

    def __init__(self, settings: Settings) -> None:
        """Build the layers; `settings` may have ``scale``, ``mask`` and ``norm_eps``."""
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, eps=float(settings.get("norm_eps", 1e-5)))
        self.mixed, self.out = Linear(WIDTH, 3 * WIDTH, settings), Linear(WIDTH, WIDTH, settings)
        self.size = WIDTH + float(settings.get("scale", 0))
        self.late = int(settings.get("mask", 0))

    def forward(self, values: Tensor) -> Tensor:
        """Return the values plus what each position reads from those before it."""
        query, key, value = self.mixed(self.norm(values)).chunk(3, -1)
        scores = query @ key.transpose(-1, -2) / math.sqrt(self.size)
        ahead = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1 + self.late)
        read: Tensor = self.out(scores.masked_fill(ahead, -math.inf).softmax(-1) @ value)
        return values + read


class Model(nn.Module):
    """Logits of a batch: tokens for all kinds but the CNN, which takes images."""

    def __init__(self, problem: Problem, settings: Settings) -> None:
        """Build the layers of the problem's kind."""
        super().__init__()
        dropout = problem.dropout * float(settings.get("dropout", 1.0))
        self.kind, self.factor = problem.model, float(settings.get("logits", 1.0))
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.recurrent = nn.LSTM(WIDTH, WIDTH, batch_first=True) if self.kind == "lstm" else None
        if self.kind == "cnn":
            norms = [nn.BatchNorm2d(8, eps=float(settings.get("norm_eps", 1e-5))) for _ in range(2)]
            self.layers = nn.Sequential(
                nn.Conv2d(1, 8, 3),
                norms[0],
                nn.ReLU(),
                nn.Conv2d(8, 8, 3),
                norms[1],
                nn.ReLU(),
                nn.Flatten(),
                Linear(8 * (LENGTH - 4) ** 2, WIDTH, settings),
            )
        else:
            experts = 4 if self.kind == "moe" else 1
            parts = [Attention(settings) for _ in range(2 if self.kind == "transformer" else 0)]
            self.layers = nn.Sequential(
                *parts, Block(settings, dropout, experts), Block(settings, dropout)
            )
        self.head = Linear(WIDTH, CLASSES, settings)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits [rows, classes]."""
        values = inputs if self.kind == "cnn" else self.embed(inputs)
        if self.recurrent is not None:
            with torch.backends.mkldnn.flags(enabled=False):  # it has no LSTM in lower precisions
                values, _ = self.recurrent(values)
        last = self.layers(values)
        logits: Tensor = self.factor * self.head(last if self.kind == "cnn" else last.mean(1))
        return logits


class Lion(torch.optim.Optimizer):
    """The sign of a moving average of gradients (https://arxiv.org/abs/2302.06675)."""

    def __init__(self, parameters: Iterator[nn.Parameter], lr: float, weight_decay: float) -> None:
        """Use betas of 0.9 and 0.99."""
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override] # no closure is ever given
        """Update the parameters once."""
        assert closure is None  # noqa: S101 - the problems have none
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is None:  # a CNN has no use for the embedding
                    continue
                average = self.state[value].setdefault("average", torch.zeros_like(value))
                value.mul_(1 - group["lr"] * group["weight_decay"])
                value.add_(torch.sign(0.9 * average + 0.1 * value.grad), alpha=-group["lr"])
                average.lerp_(value.grad, 0.01)


def batches(problem: Problem, seed: int, steps: int) -> Iterator[Batch]:
    """Return so many batches of one seed, whose classes follow from the inputs."""
    draw = torch.Generator().manual_seed(1000 + seed)
    for _ in range(steps):
        if problem.model == "cnn":
            images = torch.randn(ROWS, 1, LENGTH, LENGTH, generator=draw)
            yield (
                images,
                (images[:, 0, :6, :6].mean((1, 2)) * 12 + 2.5).floor().clamp(0, CLASSES - 1).long(),
            )
        else:
            tokens = torch.randint(TOKENS, (ROWS, LENGTH), generator=draw)
            yield tokens, tokens[:, 0] % CLASSES


def model_of(problem: Problem, settings: Settings, seed: int) -> Model:
    """Return the model, its weights drawn from the seed."""
    torch.manual_seed(seed)
    return Model(problem, settings).train()


def optimizer_of(problem: Problem, model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """Return the problem's optimizer over all parameters."""
    rate, foreach = (
        problem.rate * float(settings.get("rate", 1.0)),
        bool(settings.get("foreach", 0)),
    )
    decay = float(settings.get("decay", 0.1))
    if problem.optimizer == "adamw":
        betas, eps = (0.9, float(settings.get("beta2", 0.99))), float(settings.get("eps", 1e-8))
        return torch.optim.AdamW(
            model.parameters(), rate, betas=betas, eps=eps, weight_decay=decay, foreach=foreach
        )
    if problem.optimizer == "sgd":
        momentum, nesterov = float(settings.get("momentum", 0.9)), bool(settings.get("nesterov", 0))
        return torch.optim.SGD(
            model.parameters(), rate, momentum=momentum, nesterov=nesterov, foreach=foreach
        )
    if problem.optimizer == "lion":
        return Lion(model.parameters(), rate, decay)
    return torch.optim.Adafactor(model.parameters(), rate)


def autocast_of(precision: str) -> AbstractContextManager[object]:
    """Return the context of a forward pass."""
    kinds = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}
    return torch.autocast("cpu", dtype=kinds[precision]) if precision in kinds else nullcontext()
