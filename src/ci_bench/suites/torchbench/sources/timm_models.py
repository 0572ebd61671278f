"""Models of the package timm, if it is installed.

Weights are random: pretrained ones would have to be downloaded.
"""

from typing import Any

import torch

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.torchbench.options import BenchMode, TorchbenchOptions
from ci_bench.suites.torchbench.sources.loaded import Loaded, Sample, optional

BATCH = 128
LARGER = {"ghostnet_100": 512, "mobilenetv3_large_100": 512}
MEAN, SPREAD, BRIGHTEST = 127.5, 73.9, 256
"""Mean and deviation of uniform integers 0..255, which standardise inputs."""


def load(options: TorchbenchOptions, _: str) -> Loaded:
    """Create a model by name, and images of the size that its data configuration names.

    Raises:
        Unsupported: timm is not installed.
        LookupError: timm has no such model.
    """
    try:
        timm = optional("timm")
    except ImportError as error:
        raise Unsupported("source timm: the package timm is not installed") from error
    try:
        module: Any = timm.create_model(
            options.model, pretrained=False, drop_rate=0.0, **options.settings.model_options
        )
    except RuntimeError as error:
        raise LookupError(f"models: timm has no {options.model!r}: {error}") from error
    size = timm.data.resolve_data_config({}, model=module)["input_size"]
    batch = options.settings.batch_size or LARGER.get(options.model, BATCH)
    generator = torch.Generator().manual_seed(options.settings.seed)
    samples = tuple(_images((batch, *size), generator) for _ in range(options.settings.prepared))
    training = options.mode is BenchMode.TRAINING
    return Loaded(module=module, samples=samples, loss=None, batch_size=batch, train_mode=training)


def _images(shape: tuple[int, ...], generator: torch.Generator) -> Sample:
    pixels = torch.randint(BRIGHTEST, shape, generator=generator).float()
    return Sample(args=((pixels - MEAN) / SPREAD,))
