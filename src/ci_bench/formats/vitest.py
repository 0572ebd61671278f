"""JSON of ``vitest bench --outputJson FILE``, read: the mean time of each benchmark, in ms.

https://vitest.dev/config/#benchmark-outputjson
"""

from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Absent, Reading, Series, one_run
from ci_bench.records.results import Better


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    files = root.get("files")
    return (
        files is not None
        and isinstance(files.value, list)
        and all(file.has("filepath", "groups") for file in files.items())
    )


def read(root: Node) -> Reading:
    """Read all samples if they were kept (``includeSamples``), else the median or the mean."""
    series: list[Series] = []
    failed: list[Absent] = []
    for file in root.field("files").items():
        for group in file.field("groups").items():
            name = group.field("fullName").text()
            for benchmark in group.field("benchmarks").items():
                full = f"{name} > {benchmark.field('name').text()}"
                samples = benchmark.get("samples")
                typical = benchmark.get("median") or benchmark.get("mean")
                if samples and samples.value:
                    series.append(_series(full, samples.numbers()))
                elif typical:
                    series.append(_series(full, (typical.number(),)))
                else:
                    failed.append(Absent(benchmark=full, reason="vitest has no time of it"))
    return Reading(series=tuple(series), failed=tuple(failed), tool="vitest bench")


def _series(name: str, values: tuple[float, ...]) -> Series:
    return Series(benchmark=name, runs=one_run(*values), unit="ms", better=Better.LOWER)
