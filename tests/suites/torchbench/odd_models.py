"""Models as users have them: complex numbers, dataclasses, heads that take turns, inputs that are written; and wrong backends."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


class Fourier(nn.Module):
    """A layer with complex weights and a complex buffer, as neural operators have; `whole` returns complex outputs."""

    def __init__(self, *, whole):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(9, dtype=torch.complex64))
        self.register_buffer("turn", torch.exp(1j * torch.arange(9)))
        self.whole = whole

    def forward(self, x):
        turned = torch.fft.rfft(x) * self.scale * self.turn
        return turned if self.whole else torch.fft.irfft(turned, n=16)


@dataclass
class Answer:
    logits: Tensor
    hidden: Tensor


class Answering(nn.Module):
    """It returns a dataclass."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        hidden = self.layer(x)
        return Answer(logits=hidden.tanh(), hidden=hidden)


class Wide(nn.Module):
    """It has fp64 weights."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 4).double()

    def forward(self, x):
        return self.layer(x.double())


class Turns(nn.Module):
    """Two heads of which each step trains one, as tasks that alternate."""

    def __init__(self):
        super().__init__()
        self.trunk, self.a, self.b = (nn.Linear(16, 16) for _ in range(3))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        head = self.a if int(self.step) % 2 == 0 else self.b
        self.step += 1
        return head(self.trunk(x))


class Writing(nn.Module):
    """It scales its input where that lies."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        return self.layer(x.mul_(2))


class Yielding(nn.Module):
    """It returns a generator, or counts."""

    def __init__(self, *, counts):
        super().__init__()
        self.layer, self.counts = nn.Linear(16, 16), counts

    def forward(self, x):
        out = self.layer(x)
        return out.argmax(dim=1) if self.counts else (one for one in (out, 2 * out))


class Third(nn.Module):
    """Its third call fails."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(16, 16), 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 2:
            raise ValueError("the third call fails")
        return self.layer(x)


class Rotary(nn.Module):
    """It turns its input by angles that it keeps in fp32."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.register_buffer("inv_freq", 1e4 ** -(torch.arange(16) / 16), persistent=False)

    def forward(self, x):
        return self.layer(x * self.inv_freq.cos())


class LayerDrop(nn.Module):
    """All its layers are dropped in training."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        return x * 2 if self.training else self.layer(x)


class Freezing(nn.Module):
    """It trains its first layer for two steps only."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training and int(self.step) == 2:
            self.first.requires_grad_(False)
        self.step += 1
        return self.second(self.first(x))


class Sparse(nn.Module):
    """Its gradients are sparse."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(32, 16, sparse=True)

    def forward(self, x):
        return self.rows(x)


class Silent(nn.Module):
    """It returns nothing."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        self.layer(x)


class Lazy(nn.Module):
    """Its weights do not exist before its first call."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(16)

    def forward(self, x):
        return self.layer(x)


def _rows():
    return (torch.randn(4, 16),)


def spectral():
    return Fourier(whole=False), _rows()


def spectrum():
    return Fourier(whole=True), _rows()


def answering():
    return Answering(), _rows()


def wide():
    return Wide(), _rows()


def turns():
    return Turns(), _rows()


def rotary():
    return Rotary(), _rows()


def freezing():
    return Freezing(), _rows()


def sparse():
    return Sparse(), (torch.randint(0, 32, (4, 8)),)


def silent():
    return Silent(), _rows()


def layer_drop():
    return LayerDrop(), _rows()


def lazy():
    return Lazy(), _rows()


def yielding():
    return Yielding(counts=False), _rows()


def counting():
    return Yielding(counts=True), _rows()


def third():
    return Third(), _rows()


def writing():
    return Writing(), _rows()


def _returning(change):
    """A backend that changes what it is given or returns."""

    def backend(graph, inputs):
        def run(*given):
            return pytree.tree_map_only(Tensor, change, graph.forward(*given))

        return run

    return backend


def drops_imaginary(graph, inputs):
    def run(*given):
        return graph.forward(
            *(
                one.real.to(one.dtype) if isinstance(one, Tensor) and one.is_complex() else one
                for one in given
            )
        )

    return run


def fails_at_once(graph, inputs):
    def run(*given):
        raise ValueError("a kernel fails")

    return run


def writes_to_a_copy(graph, inputs):
    def run(*given):
        copies = pytree.tree_map_only(Tensor, lambda one: one.clone(), given)
        return graph.forward(*copies)

    return run


off_by_two_percent = _returning(
    lambda value: value * 1.02 if value.is_floating_point() or value.is_complex() else value
)
