"""The user's own code by its import path: backends, models, data sets, losses, optimizers. Called in workers only.

A worker's path begins with its side's tree, and its working folder is the one in that tree, so that base finds base's code and
head finds head's. Nothing of it is ever imported by the process that plans and judges.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ci_bench.suites.base import Unsupported

NEEDED = {
    "openxla": "torch_xla",
    "openxla_eval": "torch_xla",
    "tensorrt": "torch_tensorrt",
    "torch_tensorrt": "torch_tensorrt",
    "tvm": "tvm",
}
"""The package behind a backend that torch names without having it (``torch/_dynamo/backends``)."""
FORMS = "package.module:NAME nor path:FILE,class:NAME"


def load_named(path: str, *, option: str) -> Any:
    """What lies behind ``package.module:NAME``, or ``path:FILE,class:NAME`` with the file relative to the side's folder.

    `option` is the field of the configuration that names it.

    Raises:
        LookupError: there is no such module, file or name. What a module raises when it is imported goes through.
    """
    where, name = _split(path, option)
    try:
        module = (
            _from_file(Path(where.removeprefix("path:")), option) if where.startswith("path:") else importlib.import_module(where)
        )
    except ModuleNotFoundError as error:
        raise LookupError(
            f"{option}: {path!r} cannot be imported: {error}; install it, or start where it can be found"
        ) from error
    found = getattr(module, name, None)
    if found is None:
        raise LookupError(f"{option}: {where} has no {name!r}")
    return found


def is_import_path(text: str) -> bool:
    """Whether a name of the configuration is one of the user's code: those of libraries have no colon."""
    return ":" in text


def resolve_backend(backend: str, *, option: str = "backend", also: tuple[str, ...] = ()) -> str | Callable[..., Any]:
    """A registered dynamo backend's name as it is, or the user's own function.

    Raises:
        LookupError: no such backend; the message lists the registered ones, and what the option takes `also`.
        Unsupported: it needs a package that is not installed here.
    """
    import torch

    if is_import_path(backend):
        function: Callable[..., Any] = load_named(backend, option=option)
        return function
    package = NEEDED.get(backend)
    if package is not None and importlib.util.find_spec(package) is None:
        raise Unsupported(f"{option} {backend}: the package {package} is not installed here")
    known = torch.compiler.list_backends(exclude_tags=())
    if backend not in known:
        listed = ", ".join([*also, *known])
        raise LookupError(f"{option}: {backend!r} is not a backend of torch {torch.__version__} (registered: {listed})")
    return backend


def _split(path: str, option: str) -> tuple[str, str]:
    """Where to look, and for what."""
    if path.startswith("path:"):
        where, comma, rest = path.partition(",class:")
        name = rest if comma else ""
    else:
        where, _, name = path.partition(":")
    if not name:
        raise LookupError(f"{option}: {path!r} is neither {FORMS}")
    return where, name


def _from_file(path: Path, option: str) -> ModuleType:
    path = path.expanduser()
    name = f"ci_bench_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise LookupError(f"{option}: no Python file {path}; give its path relative to the folder where the run starts")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as for any import: dynamo looks functions' modules up there
    spec.loader.exec_module(module)
    return module
