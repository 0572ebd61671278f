"""The embedded zoo as a source."""

import torch

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.torchbench.options import TorchbenchOptions
from ci_bench.suites.torchbench.sources.loaded import Loaded
from ci_bench.suites.torchbench.zoo.exhibits import EXHIBITS


def load(options: TorchbenchOptions, _: str) -> Loaded:
    """Build a model of the zoo and make up its data; the seed rules both.

    Raises:
        Unsupported: another batch size is wanted of a model that has none.
    """
    exhibit = EXHIBITS[options.model]
    batch_size = options.settings.batch_size
    if batch_size is not None and not exhibit.batched and batch_size != exhibit.batch:
        message = (
            f"{options.model} has a fixed batch of {exhibit.batch}, and batch_size is {batch_size}"
        )
        raise Unsupported(message)
    batch = batch_size or exhibit.batch
    torch.manual_seed(options.settings.seed)
    module = exhibit.build()
    generator = torch.Generator().manual_seed(options.settings.seed)
    samples = tuple(exhibit.sample(batch, generator) for _ in range(options.settings.prepared))
    return Loaded(
        module=module,
        samples=samples,
        loss=exhibit.loss,
        batch_size=batch,
        batched=exhibit.batched,
        sequence=exhibit.sequence,
    )
