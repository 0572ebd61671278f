"""Writes a folder laid out like a checkout of the TorchBench repository."""

from pathlib import Path

BASE = '''
import pathlib
import torch
import yaml


class BenchmarkModel:
    """What such a checkout's models share: where the batch size comes from, and what is refused."""

    DEFAULT_TRAIN_BSIZE = None
    DEFAULT_EVAL_BSIZE = None

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        folder = pathlib.Path(__import__("sys").modules[type(self).__module__].__file__).parent
        metadata = yaml.safe_load((folder / "metadata.yaml").read_text()) if (folder / "metadata.yaml").exists() else {}
        for skip in metadata.get("not_implemented", []):
            if skip.get("device") == device and skip.get("test", test) == test:
                raise NotImplementedError(f"{self.name} is skipped on {device} by its metadata.yaml")
        listed = metadata.get("devices", {}).get(device, {}).get(f"{test}_batch_size")
        default = self.DEFAULT_TRAIN_BSIZE if test == "train" else self.DEFAULT_EVAL_BSIZE
        fixed = not getattr(self, "ALLOW_CUSTOMIZE_BSIZE", True)
        if fixed and batch_size not in (None, default):
            raise NotImplementedError("Model doesn't support customizing batch size")
        self.batch_size = batch_size or (None if fixed else listed) or default
        if self.batch_size is None:
            raise NotImplementedError(f"no default batch size for {test}")
        self.test, self.device = test, device
        torch.manual_seed(1337)
'''
MODEL = """
import torch
from torchbenchmark.util.model import BenchmarkModel


class Model(BenchmarkModel):
    DEFAULT_TRAIN_BSIZE = {train}
    DEFAULT_EVAL_BSIZE = {eval}
    {extra}

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).to(device)
        self.example_inputs = (torch.randn(self.batch_size, 6, device=device),)

    def get_module(self):
        return self.model, self.example_inputs
"""


def write_checkout(root: Path) -> Path:
    """Models: plain, listed (metadata), fixed (batch), not_here (not on the CPU), broken (import), eval_only, empty; a canary."""
    package = root / "torchbenchmark"
    for folder in (package, package / "util", package / "models", package / "canary_models"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    (package / "util" / "model.py").write_text(BASE)
    _model(package / "models" / "plain", train=4, eval=8)
    _model(
        package / "models" / "listed",
        metadata="devices: {cpu: {train_batch_size: 3, eval_batch_size: 5}}",
        train=4,
        eval=8,
    )
    _model(package / "models" / "fixed", extra="ALLOW_CUSTOMIZE_BSIZE = False", train=2, eval=2)
    _model(
        package / "models" / "not_here",
        metadata="not_implemented: [{device: cpu}]",
        train=4,
        eval=8,
    )
    _model(package / "models" / "eval_only", train=None, eval=8)
    _model(package / "canary_models" / "canary", train=4, eval=8)
    _model(package / "canary_models" / "hidden_canary", train=4, eval=8)
    for name, text in {
        "broken": "import a_package_that_is_not_installed\n",
        "empty": "x = 1\n",
    }.items():
        (package / "models" / name).mkdir()
        (package / "models" / name / "__init__.py").write_text(text)
    (package / "models" / "no_package").mkdir()
    return root


def _model(folder: Path, *, metadata: str = "", extra: str = "", **sizes: int | None) -> None:
    folder.mkdir()
    (folder / "__init__.py").write_text(MODEL.format(extra=extra, **sizes))
    if metadata:
        (folder / "metadata.yaml").write_text(metadata)
