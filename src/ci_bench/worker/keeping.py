"""Store an arm's outputs, the worker's half: digests, and tensors in a file in the scratch folder.

The file is a safetensors file, which holds numbers and nothing that could run. Imports torch and
safetensors on demand.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ci_bench.processes.messages import Keeping
from ci_bench.records.outputs import KeptClaim, ReferenceOutputs, Weights
from ci_bench.suites.contract import Computed

FILE = "outputs.safetensors"
MAX_BYTES = 1 << 30
"""The limit for one side of one case.

Above it the runs that show rounding are left out, then everything but the digests.
"""
MAX_TENSORS = 20_000
MAX_NAME = 500
NAMES, RUNS, JOLTS, EPSILON, TRUTH = "names", "runs", "jolts", "epsilon", "truth"
"""Fields of the file's metadata: names as JSON, how many runs there are, one rounding, whether
there is an fp64 truth.
"""
SAME = "same"
"""The metadata of tensors stored once, as JSON.

It maps the key of each omitted one to the key of its equal.
"""


@dataclass(kw_only=True, slots=True)
class Keeper:
    """Takes the arguments of `Context.keep`; `record` is the entry for the results document."""

    folder: Path
    keeping: Keeping
    record: ReferenceOutputs | None = field(default=None, init=False)

    def keep(self, computed: Computed) -> None:
        """Note the digests, and write the tensors.

        Trouble with the file is a remark: it must not end the case.
        """
        from ci_bench.suites.shared.worker.digests import digest, plain
        from ci_bench.suites.shared.worker.plain_values import kind_of_plain

        tensors = {name: plain(value) for name, value in computed.outputs.items()}
        once: dict[int, str] = {}
        for name, value in computed.outputs.items():
            if id(value) not in once:
                once[id(value)] = (
                    f"{tensors[name].dtype} {list(tensors[name].shape)} {digest(tensors[name])}"
                )
        descriptions = [
            f"{kind_of_plain(name)}{once[id(value)]}" for name, value in computed.outputs.items()
        ]
        file, remark = self._write(computed, tensors)
        self.record = ReferenceOutputs(
            arm=computed.arm,
            tensors=len(tensors),
            size_bytes=sum(map(_size, tensors.values())),
            digest=joined(descriptions),
            start=weights_of(computed.start),
            inputs=joined(computed.inputs),
            drawn=(
                joined(digest(state) for state in computed.generators)
                if computed.generators
                else None
            ),
            file=file,
            remark=remark[:1000],
        )

    def _write(self, computed: Computed, tensors: Mapping[str, Any]) -> tuple[str | None, str]:
        """Return the digest of the file, or the reason for its absence."""
        if self.keeping is Keeping.NOTHING:
            return None, "the tensors were not kept"
        content = self.content(computed, tensors)
        if isinstance(content, str):
            return None, content
        from safetensors.torch import save_file

        path = self.folder / FILE
        try:
            save_file(dict(content[0]), path, metadata=content[1])
            return file_digest(path), ""
        except Exception as error:  # noqa: BLE001 - a full disk, a format that files cannot hold: verification still counts
            path.unlink(missing_ok=True)
            return (
                None,
                (
                    f"the tensors could not be kept: {type(error).__name__}:"
                    f" {str(error).strip()[:300]}"
                ),
            )

    def content(
        self, computed: Computed, tensors: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], dict[str, str]] | str:
        """Return the file's content and metadata, or why it would be too large."""
        names = list(tensors)
        stored = _KeptPart.of("outputs", names, computed.outputs, {})
        outputs_bytes = stored.size
        if outputs_bytes > MAX_BYTES or len(names) > MAX_TENSORS:
            return (
                f"{len(names):,} tensors of {outputs_bytes:,} bytes in all are more than is kept"
                f" ({MAX_TENSORS:,}, {MAX_BYTES:,} bytes)"
            )
        spread = self.keeping is Keeping.EVERYTHING
        extra_runs = [("run", run) for run in computed.runs if spread] + [
            ("jolt", run) for run in computed.jolts if spread
        ]
        counts = {"run": 0, "jolt": 0}
        free_bytes = MAX_BYTES - outputs_bytes
        truth = _KeptPart.of("truth", names, computed.truth or {}, stored.places)
        if truth.size <= free_bytes:
            stored, free_bytes = stored.with_part(truth), free_bytes - truth.size
        else:
            truth = _KeptPart()
        for kind, run in extra_runs:
            part = _KeptPart.of(f"{kind}{counts[kind]}", names, run, stored.places)
            free_bytes -= part.size
            if free_bytes < 0:
                break
            stored = stored.with_part(part)
            counts[kind] += 1
        if (
            spread
            and not truth.tensors
            and not sum(counts.values())
            and (computed.runs or computed.truth)
        ):
            return (
                f"with a run that shows their rounding, tensors of {outputs_bytes:,} bytes are more"
                f" than is kept ({MAX_BYTES:,} bytes)"
            )
        metadata = {
            NAMES: json.dumps(names),
            EPSILON: repr(computed.epsilon),
            TRUTH: str(bool(truth.tensors)),
        }
        metadata |= {
            RUNS: str(counts["run"]),
            JOLTS: str(counts["jolt"]),
            SAME: json.dumps(stored.same),
        }
        return stored.tensors, metadata


MAX_CLAIMED_BYTES = 256 << 20
"""The limit for one stage. Claims beyond it are not compared again."""
CLAIM = "claim-{}.safetensors"


@dataclass(kw_only=True, slots=True)
class Claimer:
    """Takes the arguments of `Context.claim`."""

    folder: Path
    """Folder for the files of claims."""
    records: list[KeptClaim] = field(default_factory=list, init=False)
    """Report to the parent: one record for each claim, with or without files."""
    left: int = field(default=MAX_CLAIMED_BYTES, init=False)
    """Remaining limit for tensors of this stage, in bytes."""
    expected: list[tuple[Computed, str, str]] = field(default_factory=list, init=False)
    """The outputs of references, with file and digest. Arms are compared with the same ones."""
    _count: int = field(default=0, init=False)
    """Number of files written so far; it numbers the next one."""

    def claim(self, check: str, arm: str, actual: Mapping[str, Any], expected: Computed) -> None:
        """Write both.

        Tensors that do not fit, or that a file cannot hold, are named without files.
        """
        record = KeptClaim(check=check, arm=arm)
        expected_file = next(
            ((file, digest) for computed, file, digest in self.expected if computed is expected),
            None,
        )
        if expected_file is None and (expected_file := self._write(expected)) is not None:
            self.expected.append((expected, *expected_file))
        actual_file = (
            None
            if expected_file is None
            else self._write(Computed(arm=arm, epsilon=expected.epsilon, outputs=actual))
        )
        if expected_file is not None and actual_file is not None:
            record = replace(
                record,
                expected=expected_file[0],
                expected_digest=expected_file[1],
                seen=actual_file[0],
                seen_digest=actual_file[1],
            )
        self.records.append(record)

    def _write(self, computed: Computed) -> tuple[str, str] | None:
        from safetensors.torch import save_file

        from ci_bench.suites.shared.worker.digests import plain

        parts = [computed.outputs, *computed.runs, *computed.jolts, computed.truth or {}]
        size = sum(_size(value) for part in parts for value in part.values())
        if size > self.left or any(len(name) > MAX_NAME for name in computed.outputs):
            return None
        tensors = {name: plain(value) for name, value in computed.outputs.items()}
        keeper = Keeper(folder=self.folder, keeping=Keeping.EVERYTHING)
        content = keeper.content(computed, tensors)
        if isinstance(content, str):
            return None
        path = self.folder / CLAIM.format(self._count)
        try:
            save_file(dict(content[0]), path, metadata=content[1])
            digest = file_digest(path)
        except Exception:  # noqa: BLE001 - a full disk, a format that files cannot hold: the worker's own answer stays
            path.unlink(missing_ok=True)
            return None
        self.left, self._count = self.left - size, self._count + 1
        return path.name, digest


@dataclass(frozen=True, kw_only=True, slots=True)
class _KeptPart:
    """Tensors under neutral keys, so names cannot break the file.

    Each is copied: no two may share memory. `same` are keys of tensors that are stored under
    another key; `places` are the keys by the identity of the tensor.
    """

    tensors: Mapping[str, Any] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, role: str, names: Sequence[str], values: Mapping[str, Any], places: Mapping[int, str]
    ) -> "_KeptPart":
        """Return the tensors of a role; those that are in `places` already are not stored again."""
        from ci_bench.suites.shared.worker.digests import plain

        tensors: dict[str, Any] = {}
        same: dict[str, str] = {}
        keys = dict(places)
        for number, name in enumerate(names):
            if name in values:
                key = f"{role}.{number}"
                first = keys.setdefault(id(values[name]), key)
                if first == key:
                    tensors[key] = plain(values[name]).clone()
                else:
                    same[key] = first
        return cls(tensors=tensors, same=same, places=keys)

    def with_part(self, other: "_KeptPart") -> "_KeptPart":
        """Return both together."""
        return _KeptPart(
            tensors={**self.tensors, **other.tensors},
            same={**self.same, **other.same},
            places={**self.places, **other.places},
        )

    @property
    def size(self) -> int:
        """Return the number of stored bytes."""
        return sum(map(_size, self.tensors.values()))


def _size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def weights_of(start: Mapping[str, str]) -> Weights:
    """Return the digests of the weights together."""
    pairs = sorted(start.items())
    return Weights(
        names=joined(name for name, _ in pairs),
        named=joined(part for pair in pairs for part in pair),
        ordered=joined(start.values()),
    )


def joined(parts: Iterable[str]) -> str:
    """Return one digest of many texts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "replace"))
        digest.update(b"\0")
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return the digest of a file's bytes. Raises `OSError`."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
