"""Start a server without code of the tree.

Its folders leave the path until the engine has noted itself, then they come back.

Python imports `sitecustomize` from its path before anything else, and a module of the tree hides
one of the standard library. So the parent puts a folder with a file of that name in front of the
path. It takes the tree's folders out, and runs the file that Python finds without them. Once the
server has noted the functions that checks use, the path is whole again, and the tree's own file
runs if Python would have run that. Not covered: import lines of `.pth` files in an environment,
which set-up installs.
"""

import os
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

import ci_bench

FOLDER, CUSTOM = "first", "sitecustomize"
WHOLE = "ci_bench_whole_path"
"""The attribute of `sys` that holds the path as Python made it, until it is restored."""
SITE = """import sys

sys.{whole} = [entry for entry in sys.path if entry != {first!r}]
sys.path[:] = [entry for entry in sys.{whole} if entry not in {tree!r}]
del sys.modules[__name__]
try:
    import {custom}
except ImportError as error:
    if error.name != "{custom}":
        raise
"""


def without_tree(folder: Path, environ: Mapping[str, str], cwd: Path | None) -> dict[str, str]:
    """Write the folder that is first on the path into `folder`; return the environment with it.

    The tree is `cwd`, or else the caller's folder. The engine's own folder stays on the path.

    Raises:
        OSError: it cannot be written.
    """
    paths = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    root = cwd or Path.cwd()
    inside = [part for part in paths if cwd is not None and Path(part).is_relative_to(cwd)]
    tree = {*map(str, (root, root / "src")), *inside} - {str(Path(ci_bench.__file__).parent.parent)}
    first = folder / FOLDER
    first.mkdir(mode=0o755, exist_ok=True)
    text = SITE.format(whole=WHOLE, first=str(first), tree=sorted(tree), custom=CUSTOM)
    (first / f"{CUSTOM}.py").write_text(text, encoding="utf-8")
    return {**environ, "PYTHONPATH": os.pathsep.join([str(first), *paths])}


def with_tree() -> None:
    """Make the path and the environment whole, in the server, once the engine has noted itself."""
    path = vars(sys).pop(WHOLE, None)
    if path is None:
        return
    _, _, rest = os.environ["PYTHONPATH"].partition(os.pathsep)
    sys.path[:] = path
    os.environ["PYTHONPATH"] = rest
    spec, ran = PathFinder.find_spec(CUSTOM, path), sys.modules.get(CUSTOM)
    if spec is None or spec.loader is None or spec.origin == getattr(ran, "__file__", None):
        return
    sys.modules[CUSTOM] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
