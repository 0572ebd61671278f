"""The user's own code by its import path. Called in workers only.

It covers backends, models, data sets, losses and optimizers. A worker's path starts with its side's
tree, and its working folder is the one in that tree: base finds base's code and head finds head's.
The process that plans and judges never imports it.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ci_bench.suites.contract import Unsupported

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
    """Load the object at ``package.module:NAME``, or at ``path:FILE,class:NAME``.

    The file is relative to the side's folder. `option` is the field of the configuration that names
    it.

    Raises:
        LookupError: the module, file or name does not exist. Exceptions from importing a module
            pass through.
    """
    where, name = _split(path, option)
    try:
        module = (
            _from_file(Path(where.removeprefix("path:")), option)
            if where.startswith("path:")
            else importlib.import_module(where)
        )
    except ModuleNotFoundError as error:
        raise LookupError(
            f"{option}: {path!r} cannot be imported: {error}; install it, or start where it can be"
            " found"
        ) from error
    attribute = getattr(module, name, None)
    if attribute is None:
        raise LookupError(f"{option}: {where} has no {name!r}")
    return attribute


def is_import_path(text: str) -> bool:
    """Return true if a name of the configuration is the user's code.

    Names of libraries have no colon.
    """
    return ":" in text


def resolve_backend(
    backend: str, *, option: str = "backend", also: tuple[str, ...] = ()
) -> str | Callable[..., Any]:
    """Return a registered dynamo backend's name as it is, or the user's own function.

    Raises:
        LookupError: the backend does not exist; the message lists the registered ones, and those in
            `also`.
        Unsupported: it needs a package that is not installed here.
    """
    import torch

    if is_import_path(backend):
        function: Callable[..., Any] = load_named(backend, option=option)
        return function
    package = NEEDED.get(backend)
    if package is not None and importlib.util.find_spec(package) is None:
        raise Unsupported(f"{option} {backend}: the package {package} is not installed here")
    backends = torch.compiler.list_backends(exclude_tags=())
    if backend not in backends:
        names = ", ".join([*also, *backends])
        raise LookupError(
            f"{option}: {backend!r} is not a backend of torch {torch.__version__} (registered:"
            f" {names})"
        )
    return backend


def _split(path: str, option: str) -> tuple[str, str]:
    """Return the place to search, and the name to find."""
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
        raise LookupError(
            f"{option}: no Python file {path}; give its path relative to the folder where the run"
            " starts"
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as for any import: dynamo looks functions' modules up there
    spec.loader.exec_module(module)
    return module
