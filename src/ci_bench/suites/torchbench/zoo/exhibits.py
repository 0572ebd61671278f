"""The zoo's catalogue for the worker: how each model is built, its made-up data, and its loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from ci_bench.suites.torchbench.sources.loaded import Loss, Sample
from ci_bench.suites.torchbench.zoo.models import (
    ActorCritic,
    Autoencoder,
    Decoder,
    DiffusionBlock,
    Encoder,
    GraphNetwork,
    Perceptron,
    PlainCnn,
    Recommender,
    ResNet,
    Tagger,
    UNet,
    VisionTransformer,
)

POSITIONS, TAGGED, WORDS = 24, 4, 200
GRAPHS, NODES, EDGES = 8, 96, 320

MakeSample = Callable[[int, Generator], Sample]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exhibit:
    """One model of the zoo."""

    build: Callable[[], nn.Module]
    """Builds the model with fresh weights."""
    sample: MakeSample
    """Makes up a batch with that number of rows."""
    loss: Loss
    """The loss of its outputs and the target."""
    batch: int
    """The default batch size."""
    batched: bool = True
    """False if its rows cannot be cut."""
    sequence: int | None = None
    """The length of its texts; `None` if it reads none."""


def classes(logits: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy over the last dimension of logits [..., classes]."""
    return functional.cross_entropy(logits.flatten(0, -2), target.flatten())


def _pixels(logits: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(logits, target)


def _rebuilt(outputs: dict[str, Tensor], target: Tensor) -> Tensor:
    return functional.mse_loss(outputs["rebuilt"], target) + 1e-3 * outputs["code"].square().mean()


def _clicks(logits: Tensor, target: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, target)


def _tags(outputs: tuple[Tensor, Any], target: Tensor) -> Tensor:
    return classes(outputs[0], target)


def _next_word(logits: Tensor, target: Tensor) -> Tensor:
    return classes(logits[:, :-1], target[:, 1:])


def _policy(
    outputs: tuple[Tensor, Tensor, Tensor], target: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    """Return the loss of a policy, with a bonus for entropy.

    It is minus the log-probability of the actions times their advantages, plus half the squared
    error of the value, less the entropy.
    """
    (means, spreads, values), (actions, advantages, returns) = outputs, target
    log_probability = -((actions - means) / spreads).square() / 2 - spreads.log()
    return (
        -(log_probability.sum(1) * advantages).mean()
        + functional.mse_loss(values, returns) / 2
        - 0.01 * spreads.log().mean()
    )


def _noise(outputs: Tensor, target: Tensor) -> Tensor:
    return functional.mse_loss(outputs, target)


def _rows(width: int, labels: int) -> MakeSample:
    def make(batch: int, generator: Generator) -> Sample:
        rows = torch.randn(batch, width, generator=generator)
        return Sample(args=(rows,), target=_labels(batch, labels, generator))

    return make


def _labels(count: int, labels: int, generator: Generator) -> Tensor:
    return torch.randint(labels, (count,), generator=generator)


def _images(batch: int, generator: Generator) -> Sample:
    images = torch.randn(batch, 3, 16, 16, generator=generator)
    return Sample(args=(images,), target=_labels(batch, 10, generator))


def _segmented(batch: int, generator: Generator) -> Sample:
    images = torch.randn(batch, 3, 16, 16, generator=generator)
    return Sample(args=(images,), target=torch.randint(4, (batch, 16, 16), generator=generator))


def _same(batch: int, generator: Generator) -> Sample:
    rows = torch.rand(batch, 96, generator=generator)
    return Sample(args=(rows,), target=rows.clone())


def _visits(batch: int, generator: Generator) -> Sample:
    dense = torch.randn(batch, 13, generator=generator)
    sparse = torch.randint(500, (batch, 4, 3), generator=generator)
    return Sample(
        args=(dense, sparse), target=torch.randint(2, (batch,), generator=generator).float()
    )


def _plays(batch: int, generator: Generator) -> Sample:
    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return Sample(args=(draw(batch, 24),), target=(draw(batch, 6), draw(batch), draw(batch)))


def _graphs(_: int, generator: Generator) -> Sample:
    nodes = torch.randn(NODES, 16, generator=generator)
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    graph = torch.arange(NODES) * GRAPHS // NODES
    return Sample(args=(nodes, edges, graph), target=_labels(GRAPHS, 5, generator))


def _words(batch: int, generator: Generator) -> Tensor:
    return torch.randint(WORDS, (batch, POSITIONS), generator=generator)


def _tagged(batch: int, generator: Generator) -> Sample:
    words = _words(batch, generator)[:, :TAGGED]
    return Sample(args=(words,), target=torch.randint(7, (batch, TAGGED), generator=generator))


def _padded(batch: int, generator: Generator) -> Sample:
    lengths = torch.randint(POSITIONS // 2, POSITIONS + 1, (batch, 1), generator=generator)
    mask = torch.arange(POSITIONS) < lengths
    words = _words(batch, generator) * mask
    return Sample(kwargs={"words": words, "mask": mask}, target=_labels(batch, 5, generator))


def _text(batch: int, generator: Generator) -> Sample:
    words = _words(batch, generator)
    return Sample(args=(words,), target=words.clone())


def _noisy(batch: int, generator: Generator) -> Sample:
    noise = torch.randn(batch, 4, 8, 8, generator=generator)
    clean = torch.randn(batch, 4, 8, 8, generator=generator)
    time = torch.rand(batch, generator=generator)
    share = time.view(-1, 1, 1, 1)
    return Sample(args=(clean * (1 - share).sqrt() + noise * share.sqrt(), time), target=noise)


EXHIBITS = {
    "mlp": Exhibit(build=Perceptron, sample=_rows(64, 10), loss=classes, batch=32),
    "cnn": Exhibit(build=PlainCnn, sample=_images, loss=classes, batch=8),
    "resnet": Exhibit(build=ResNet, sample=_images, loss=classes, batch=8),
    "unet": Exhibit(build=UNet, sample=_segmented, loss=_pixels, batch=4),
    "lstm": Exhibit(build=Tagger, sample=_tagged, loss=_tags, batch=4, sequence=TAGGED),
    "encoder": Exhibit(build=Encoder, sample=_padded, loss=classes, batch=8, sequence=POSITIONS),
    "decoder": Exhibit(build=Decoder, sample=_text, loss=_next_word, batch=8, sequence=POSITIONS),
    "vit": Exhibit(build=VisionTransformer, sample=_images, loss=classes, batch=8),
    "gnn": Exhibit(build=GraphNetwork, sample=_graphs, loss=classes, batch=GRAPHS, batched=False),
    "autoencoder": Exhibit(build=Autoencoder, sample=_same, loss=_rebuilt, batch=32),
    "diffusion": Exhibit(build=DiffusionBlock, sample=_noisy, loss=_noise, batch=4),
    "recommender": Exhibit(build=Recommender, sample=_visits, loss=_clicks, batch=64),
    "actor_critic": Exhibit(build=ActorCritic, sample=_plays, loss=_policy, batch=32),
}
