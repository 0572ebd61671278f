"""The functions of `scipy.special` that the judge needs, without the parts of numpy that only importing them would load.

SciPy copies every name of numpy into a namespace of its own (``scipy._lib.array_api_compat.numpy``), and so makes numpy load what
it otherwise loads on first use: its bridge to Fortran, its test tools, masked arrays, a tenth of a second. While SciPy is being
imported these names stand for nothing; afterwards numpy loads them on first use, as before.
"""

import numpy as np

_on_first_use = [name for name in dir(np) if name not in vars(np)]
for _name in _on_first_use:
    setattr(np, _name, None)
try:
    from scipy.special import bdtr, bdtrc, betaincinv, ndtri, polygamma, psi, stdtr, stdtrit
finally:
    for _name in _on_first_use:
        if vars(np).get(_name, np) is None:
            delattr(np, _name)

__all__ = ["bdtr", "bdtrc", "betaincinv", "ndtri", "polygamma", "psi", "stdtr", "stdtrit"]
