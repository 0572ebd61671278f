"""Stored files of the model and its tokenizer: their folders, and errors that name `model.path`."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from ci_bench.suites.training_loss.options import EMBEDDED, Model, looks_local

DATA = Path(str(files("ci_bench.suites.training_loss") / "data"))
NO_WEIGHTS = "no file named"
"""Part of transformers' message about a folder that holds only a configuration."""


class BadModel(Exception):  # noqa: N818 - named like BadData and BadConfig
    """The model, its files or the loss do not fit a training. The message names the option."""


def expanded(path: str) -> str:
    """Replace the ``~`` of a path by the home folder; hub ids and other paths stay as they are."""
    return str(Path(path).expanduser()) if path.startswith("~") else path


def stored_path(model: Model, part: str) -> str:
    """Return the folder or hub id to read `part` from: ``model``, or ``tokenizer``.

    Raises:
        BadModel: `model.path` is a folder that does not exist.
    """
    if model.path == EMBEDDED:
        return str(DATA / part)
    path = expanded(model.path)
    if looks_local(model.path) and not Path(path).is_dir():
        raise BadModel(
            f"model.path: {model.path} is not a folder; "
            "give the folder that save_pretrained wrote, relative to the one where the run starts"
        )
    return path


@contextmanager
def reading_files(model: Model) -> Iterator[None]:
    """Turn a library's error about stored files into `BadModel`."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:600]
        advice = (
            "set `model.pretrained: false` to draw the weights from the seed"
            if NO_WEIGHTS in reason
            else (
                "check its files"
                if model.is_local
                else "check the spelling, and that this machine may read it"
            )
        )
        raise BadModel(f"model.path: {model.path} cannot be read: {reason} ({advice})") from error
