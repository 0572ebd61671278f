"""Functions of `scipy.special` that judging needs, from only SciPy's compiled module.

`scipy.special` as a package loads support for other array libraries, and with it parts of numpy
that nothing here uses: a tenth of a second, of a command that takes one. So while
`scipy.special._ufuncs` is loaded an empty package replaces the one around it; a later import of
`scipy.special` gets the whole, with the same compiled functions. If SciPy has moved them, or the
package is loaded already, the functions come from the package.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import scipy

_PACKAGE = "scipy.special"


def compiled_functions() -> Any:
    """Return SciPy's compiled module of special functions."""
    if _PACKAGE in sys.modules:
        return import_module(f"{_PACKAGE}._ufuncs")
    stand_in = ModuleType(_PACKAGE)
    stand_in.__path__ = [str(Path(scipy.__file__).parent / "special")]
    sys.modules[_PACKAGE] = stand_in
    try:
        return import_module(f"{_PACKAGE}._ufuncs")
    finally:
        del sys.modules[_PACKAGE]


def functions() -> Any:
    """Return the compiled module, or the whole package if that lacks a function."""
    names = ("bdtr", "bdtrc", "betaincinv", "ndtri", "psi", "stdtr", "stdtrit", "gamma", "_zeta")
    try:
        compiled = compiled_functions()
    except ImportError:
        return import_module(_PACKAGE)
    return compiled if all(hasattr(compiled, name) for name in names) else import_module(_PACKAGE)


_functions = functions()
bdtr, bdtrc, betaincinv = _functions.bdtr, _functions.bdtrc, _functions.betaincinv
ndtri, psi, stdtr, stdtrit = _functions.ndtri, _functions.psi, _functions.stdtr, _functions.stdtrit
_gamma, _zeta = _functions.gamma, getattr(_functions, "_zeta", None) or _functions.zeta


def polygamma(order: int, x: Any) -> Any:
    """Return the derivative of `psi` of an order from 1 on: ``(-1)^(n + 1) n! zeta(n + 1, x)``.

    https://dlmf.nist.gov/25.11.E12
    """
    values = np.asarray(x, dtype=np.float64)
    return (-1.0) ** (order + 1) * _gamma(order + 1.0) * _zeta(order + 1.0, values)


__all__ = [
    "bdtr",
    "bdtrc",
    "betaincinv",
    "compiled_functions",
    "functions",
    "ndtri",
    "polygamma",
    "psi",
    "stdtr",
    "stdtrit",
]
