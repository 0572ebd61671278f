"""Names of metrics: what results allow (`[a-z0-9_]{1,60}`), made from what tools call their series.

The name depends on nothing but the series' own, so that a benchmark that comes or goes renames no other. What loses something on
the way gets six characters of a digest, so that two names that differ stay different.
"""

import base64
import hashlib
import re

LONGEST = 60
JOINT = "__"
_DIGEST = 6


def metric_name(benchmark: str, measure: str) -> str:
    """A stable name: ``matmul``, ``matmul__memory``, ``bm_sum_64_k3x2ab``."""
    parts = [part for part in (benchmark, measure) if part]
    words = [re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_") for part in parts]
    name = JOINT.join(filter(None, words))
    if words == parts and len(name) <= LONGEST:
        return name
    digest = base64.b32encode(hashlib.sha256(f"{benchmark}\0{measure}".encode("utf-8", "replace")).digest())
    tail = digest.decode().lower()[:_DIGEST]
    # The end of a long name says more than its start: most tools put the file first and the parameters last.
    stem = name[-(LONGEST - _DIGEST - 1) :].strip("_")
    return f"{stem}_{tail}" if stem else tail
