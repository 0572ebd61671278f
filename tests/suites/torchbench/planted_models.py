"""Models with a defect that shows under a compiler alone: each is right eager, and wrong where `torch.compiler.is_compiling()`."""

import itertools
import os

import torch
from torch import nn
from torch.nn import functional

ROWS, WIDTH, CLASSES = 8, 12, 4


class Plain(nn.Module):
    """Two layers and a batch normalisation.

    `scale` shrinks loss and gradients; `defect` says what goes wrong.
    """

    def __init__(self, defect: str = "none", scale: float = 1.0) -> None:
        super().__init__()
        self.one = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.two = nn.Linear(WIDTH, CLASSES)
        self.defect, self.scale = defect, scale

    def get_example_inputs(self):
        return (torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3)),)

    def get_target(self):
        return torch.arange(ROWS) % CLASSES

    def loss(self, outputs, target):
        return self.scale * functional.cross_entropy(outputs["logits"], target)

    def forward(self, rows):
        wrong = (torch.compiler.is_compiling() and self.defect) or "none"
        hidden = self.one(rows)
        if wrong == "zeroed":
            hidden = hidden.detach()
        if wrong == "flipped":
            hidden = 2 * hidden.detach() - hidden
        hidden = self._normalised(hidden, stale=wrong == "stale")
        logits = self.two(hidden)
        if wrong == "scaled":
            logits = 1000 * logits
        if wrong == "element":
            logits = logits * torch.where(
                torch.arange(logits.numel()).view_as(logits) == 5, 1.001, 1.0
            )
        second = hidden.sum(1) + (1e-3 if wrong == "second" else 0.0)
        if wrong == "type":
            second = second.double()
        if wrong == "shape":
            second = second[:, None]
        if wrong == "nan":
            second = second / 0.0
        if wrong == "structure":
            return {"logits": logits, "second": second, "third": second}
        return {"logits": logits, "second": second}

    def _normalised(self, hidden, *, stale):
        if not stale or not self.training:
            return self.norm(hidden)
        mean, variance = hidden.mean(0), hidden.var(0, unbiased=False)
        return (hidden - mean) / torch.sqrt(
            variance + self.norm.eps
        ) * self.norm.weight + self.norm.bias


class Restless(Plain):
    """Gives something else at each call, whatever the seed."""

    calls = 0

    def __init__(self, size: float = 0.1) -> None:
        super().__init__()
        self.size = size

    def forward(self, rows):
        outputs = super().forward(rows)
        return {**outputs, "second": outputs["second"] + self.size * self.noise()}

    @torch.compiler.disable
    def noise(self):
        Restless.calls += 1
        return torch.rand(ROWS, generator=torch.Generator().manual_seed(Restless.calls))


class Greedy(Plain):
    """Runs out of memory, eager."""

    def forward(self, rows):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


class Broken(Plain):
    """Fails, eager."""

    def forward(self, rows):
        raise ValueError("an eager kernel raised")


class Relu(Plain):
    """Has a relu, which torch's test-only backends spoil."""

    def forward(self, rows):
        outputs = super().forward(rows)
        return {**outputs, "second": torch.relu(outputs["second"])}


class NoFp64(Plain):
    """Refuses fp64."""

    def forward(self, rows):
        if rows.dtype is torch.float64:
            raise RuntimeError("no kernel for double")
        return super().forward(rows)


class Constant(nn.Module):
    """Trains nothing that the loss depends on measurably: its gradients are noise."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(WIDTH, WIDTH)

    def get_example_inputs(self):
        return (torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3)),)

    def loss(self, outputs, target):
        return functional.layer_norm(outputs, (WIDTH,)).sum()

    def forward(self, rows):
        return self.one(rows)


class Rowwise(nn.Module):
    """Each row by itself; or, `mixed`, less the mean of all rows."""

    def __init__(self, *, mixed: bool = False) -> None:
        super().__init__()
        self.weight, self.mixed = nn.Parameter(torch.ones(WIDTH)), mixed

    def get_example_inputs(self):
        return (torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3)),)

    def forward(self, rows):
        return torch.sin(rows * self.weight - (rows.mean(0) if self.mixed else 0.0))


class Meta(nn.Module):
    """Needs autograd in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def get_example_inputs(self):
        return (torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3)),)

    def forward(self, rows):
        (inner,) = torch.autograd.grad(
            (rows * self.weight).square().sum(), self.weight, create_graph=True
        )
        return rows * (self.weight - 0.1 * inner)


class Parameterless(nn.Module):
    """Nothing to train."""

    def get_example_inputs(self):
        return (torch.ones(ROWS, WIDTH),)

    def forward(self, rows):
        return rows.sin()


def pair():
    return nn.Linear(WIDTH, CLASSES), (torch.ones(ROWS, WIDTH),)


def triple():
    return (
        nn.Linear(WIDTH, CLASSES),
        {"input": torch.ones(ROWS, WIDTH)},
        lambda outputs: outputs.square().sum(),
    )


def nothing():
    return 3


def raising():
    raise FileNotFoundError("weights.bin is not here")


class LazySGD(torch.optim.SGD):
    """Does nothing under a compiler."""

    def step(self, closure=None):
        return None if torch.compiler.is_compiling() else super().step(closure)


class Sized(Plain):
    """Has as many rows as it is asked for."""

    def __init__(self, batch_size: int = ROWS) -> None:
        super().__init__()
        self.rows = batch_size

    def get_example_inputs(self):
        return [torch.randn(self.rows, WIDTH, generator=torch.Generator().manual_seed(3))]

    def get_target(self):
        return torch.arange(self.rows) % CLASSES


class SizedInputs(Plain):
    """Likewise, but it is its example inputs that are asked."""

    def get_example_inputs(self, batch_size=ROWS):
        return (torch.randn(batch_size, WIDTH, generator=torch.Generator().manual_seed(3)),)

    def get_target(self, batch_size=ROWS):
        return torch.arange(batch_size) % CLASSES


class Deaf(Sized):
    """Takes a batch size, and has its own."""

    def get_example_inputs(self):
        return [torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3))]


class SequenceFirst(nn.Module):
    """The batch is the second dimension, as of a recurrent network."""

    def __init__(self, batch_size: int = ROWS) -> None:
        super().__init__()
        self.inner, self.rows = nn.LSTM(WIDTH, WIDTH), batch_size

    def get_example_inputs(self):
        return (torch.randn(5, self.rows, WIDTH, generator=torch.Generator().manual_seed(3)),)

    def forward(self, steps):
        return self.inner(steps)[0]


class TwoInputs(nn.Module):
    """Its two arguments come as a list, as TorchBench's models give them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def get_example_inputs(self):
        generator = torch.Generator().manual_seed(3)
        return [
            torch.randn(ROWS, WIDTH, generator=generator),
            torch.randn(ROWS, WIDTH, generator=generator),
        ]

    def forward(self, rows, others):
        return rows * self.weight + others


def sized_pair(batch_size=ROWS):
    return nn.Linear(WIDTH, CLASSES), [torch.ones(batch_size, WIDTH)]


class Crashing(Plain):
    """Takes its process down, compiled."""

    def forward(self, rows):
        if not torch.compiler.is_compiling():
            return super().forward(rows)
        self.abort()
        return super().forward(rows)

    @torch.compiler.disable
    def abort(self):
        os.abort()


class Uncompiled(Plain):
    """Keeps every compiler out."""

    @torch.compiler.disable
    def forward(self, rows):
        return super().forward(rows)


class Counting(Plain):
    """Reads and writes plain attributes: a number, a list, a tensor, an object of its own."""

    def __init__(self, kind: str = "number", defect: str = "none") -> None:
        super().__init__(defect)
        self.kind = kind
        self.number, self.listed, self.kept, self.object = 0, [], torch.zeros(()), Counter()

    def forward(self, rows):
        outputs = super().forward(rows)
        self.count(outputs["second"].detach().mean())
        calls = {
            "number": self.number,
            "list": len(self.listed),
            "tensor": self.kept,
            "object": self.object.calls,
        }
        return {**outputs, "second": outputs["second"] * (1 + 0.1 * calls[self.kind])}

    def count(self, value):
        if self.kind == "number":
            self.number += 1
        elif self.kind == "list":
            self.listed.append(1.0)
        elif self.kind == "tensor":
            self.kept = 0.5 * self.kept + value
        else:
            self.object.calls += 1


class Counter:
    def __init__(self):
        self.calls = 0


class Secretive(Plain):
    """Counts where nobody can look."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = itertools.count()

    def forward(self, rows):
        outputs = super().forward(rows)
        return {**outputs, "second": outputs["second"] + self.call()}

    @torch.compiler.disable
    def call(self):
        return float(next(self.calls))


class LargeBatches(Plain):
    """Wrong above so many rows, compiled."""

    def forward(self, rows):
        outputs = super().forward(rows)
        if torch.compiler.is_compiling() and rows.shape[0] > 9:
            outputs["logits"] = 2 * outputs["logits"]
        return outputs


class Remembering(Plain):
    """Eager, it gives again what it computed for the same place in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.results = {}

    def forward(self, rows):
        if torch.compiler.is_compiling():
            return super().forward(rows)
        key = rows.data_ptr()
        if key not in self.results:
            self.results[key] = super().forward(rows)
        return self.results[key]


class Tiring(Plain):
    """Eager, it leaves its last rows out once it is warm."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = [0]

    def forward(self, rows):
        out = super().forward(rows)
        if not torch.compiler.is_compiling():
            self.calls[0] += 1
            if self.calls[0] > 30:
                out = {
                    name: torch.cat([value[:2], torch.zeros_like(value[2:])])
                    for name, value in out.items()
                }
        return out


class Numbering(Plain):
    """Its results hang on how often it was called, by design."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, rows):
        self.calls += 1
        return {name: value + 0.1 * self.calls for name, value in super().forward(rows).items()}


class Formed(nn.Module):
    """Right eager.

    `defect` is what it computes, or cannot do, where it is captured ahead of time.
    """

    def __init__(self, defect: str = "none") -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.defect = defect

    def get_example_inputs(self):
        return (torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3)),)

    def loss(self, outputs, target):
        return outputs.square().mean()

    def forward(self, rows):
        hidden = torch.relu(self.one(rows))
        captured = torch.compiler.is_compiling() or torch.jit.is_tracing()
        if self.defect == "wrong" and captured:
            hidden = 1.01 * hidden
        if self.defect == "impossible" and (rows.sum() > 0 or captured):
            hidden = torch.tensor(hidden.detach().tolist(), requires_grad=False) + 0 * hidden
        return self.two(hidden)


class Outside(Formed):
    """As `Formed`, with some of its layers where dynamo does not look."""

    def forward(self, rows):
        return self.two(self.hidden(rows))

    @torch.compiler.disable
    def hidden(self, rows):
        return torch.relu(self.one(rows))


class HalfFrozen(Formed):
    """As `Formed`, with a layer that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.one.requires_grad_(requires_grad=False)


class FormedScript(Formed):
    """The same by its source, which TorchScript reads: no defect is asked for by name."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.one(rows))
        return self.two(hidden)


class WrongScript(FormedScript):
    """Scaled where TorchScript runs it."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.one(rows))
        if torch.jit.is_scripting():
            hidden = 1.01 * hidden
        return self.two(hidden)


class NoScript(FormedScript):
    """What TorchScript cannot read."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        layers = dict(vars(self)["_modules"].items())
        return layers["two"](torch.relu(layers["one"](rows)))


class NoTrace(Formed):
    """What TorchScript cannot trace: an output that is no tensor."""

    def forward(self, rows):
        return {"logits": super().forward(rows), "rows": "eight"}


class CountingCalls(Formed):
    """Changes a buffer in inference."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, rows):
        self.calls += 1
        return super().forward(rows)


class WrongUnderCapture(torch.autograd.Function):
    """The identity, whose gradient is off where compiled autograd captures it."""

    @staticmethod
    def forward(context, values):
        return values.clone()

    @staticmethod
    def backward(context, gradient):
        from torch._dynamo import compiled_autograd

        return 1.01 * gradient if compiled_autograd.in_compiled_autograd_region else gradient


class WrongBackward(Formed):
    """Left to eager by dynamo in its forward pass, so that the gradient's own code runs in the backward pass."""

    def forward(self, rows):
        return self.two(self.apart(torch.relu(self.one(rows))))

    @torch.compiler.disable
    def apart(self, hidden):
        return WrongUnderCapture.apply(hidden)


class Texts(nn.Module):
    """Embeds ids [batch, length].

    `wrong` below a length, where it is compiled; or `asks` for the length, as some models do.
    """

    LENGTH = 16

    def __init__(self, *, wrong: bool = False, asks: bool = False) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.wrong, self.asks = wrong, asks

    def get_example_inputs(self):
        return (torch.randint(50, (ROWS, self.LENGTH), generator=torch.Generator().manual_seed(3)),)

    def forward(self, ids):
        hidden = self.embedding(ids)
        if self.asks and ids.shape[1] % 2:
            hidden = hidden + 1
        if self.wrong and torch.compiler.is_compiling():
            hidden = hidden * torch.where(
                torch.arange(ids.shape[1]).amax() < self.LENGTH // 2, 1.01, 1.0
            )
        return self.head(hidden)


class WithTf32(Plain):
    """Turns TF32 on while it is built, by the newer of torch's two interfaces."""

    def __init__(self):
        super().__init__()
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        torch.backends.cudnn.conv.fp32_precision = "tf32"


def in_a_function():
    """A model whose class no other process finds by its name."""

    class Local(Formed):
        pass

    return Local()


class HalfWhenCached(nn.Module):
    """A table of angles that is kept in half precision: the first step is right, the later ones are not."""

    def __init__(self, kept=torch.float16) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(1))
        )
        self.kept, self.cached = kept, None

    def get_example_inputs(self):
        return (torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3)),)

    def table(self):
        angles = torch.arange(WIDTH) * 7.13
        cached, self.cached = self.cached, angles.to(self.kept).float()
        return angles if cached is None else cached

    def forward(self, rows):
        return rows @ self.weight * self.table().sin()


class WholeWhenCached(HalfWhenCached):
    """The same, kept as it is."""

    def __init__(self) -> None:
        super().__init__(torch.float32)


class Halved(Plain):
    """Starts from other weights than `Plain`."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.two.weight.mul_(0.5)


class Shallow(Plain):
    """`Plain`, whose first layer is left out of the pass."""

    def forward(self, rows):
        logits = self.two(self.norm(rows))
        return {"logits": logits, "second": rows.sum(1)}


class Wide(Plain):
    """`Plain` on other inputs."""

    def get_example_inputs(self):
        return tuple(2 * one for one in super().get_example_inputs())


class Unseeded(Plain):
    """Draws its weights by a generator that nobody seeds."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator()
        generator.seed()
        with torch.no_grad():
            self.one.weight.copy_(torch.rand(WIDTH, WIDTH, generator=generator))


class Dropping(Plain):
    """`Plain` with dropout in its last layer."""

    def forward(self, rows):
        hidden = torch.nn.functional.dropout(self.norm(self.one(rows)), 0.5)
        return {"logits": self.two(hidden), "second": hidden.sum(1)}


class Mean(nn.Module):
    """One number of many rows.

    `kind` says how it is computed: ``normed`` says nothing of any row.
    """

    def __init__(self, kind: str = "squares") -> None:
        super().__init__()
        self.one, self.kind = nn.Linear(16, 16), kind

    def get_example_inputs(self):
        return (torch.randn(1024, 16, generator=torch.Generator().manual_seed(3)),)

    def forward(self, rows):
        if self.kind == "in place":
            return self.one(rows.relu_())
        return (
            self.one(rows).softmax(1).sum(1).mean()
            if self.kind == "normed"
            else self.one(rows).square().mean()
        )
