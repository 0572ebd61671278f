"""A configuration's declarations of cases that only the measured tree can plan.

Those are the cases of a plugin, whose plan is the tree's code, and of an entry whose plan reads
files of the tree. Who plans them there is held to what is declared (`planning`), and who judges
results elsewhere has nothing else to hold them to (`judge.policy.binding`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ci_bench.records.faults import show

Cases = tuple[str, ...] | int | None
"""The ids of all cases, how many there are, or `None` if nothing is declared."""

HOW = "`ci-bench list --declare` prints what to write"
_NAMED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Declaration:
    """Declaration of a suite's cases by `field` of a configuration.

    Examples of fields are ``plugins.mine.cases`` and ``suites.torchbench[0].cases``.
    """

    suite: str
    field: str
    cases: Cases = None

    @property
    def owner(self) -> str:
        """Return the owner of the cases: ``plugins.mine``, ``suites.torchbench[0]``."""
        return self.field.removesuffix(".cases")

    def fault(self, planned: Sequence[str]) -> str | None:
        """Return the declaration's fault, given the ids that the tree plans; `None` if it fits."""
        if self.cases is None:
            return None
        if isinstance(self.cases, int):
            number = len(planned)
            difference = (
                f"{self.field}: {self.cases} declared, and {number} planned ({names(planned)})"
            )
            return (
                None
                if number == self.cases
                else f"{difference}; if they are meant, write `cases: {number}`"
            )
        absent, added = without(self.cases, planned), without(planned, self.cases)
        parts = [f"{names(absent)} not planned, take out"] if absent else []
        parts += [f"{names(added)} planned, add"] if added else []
        return (
            f"{self.field}: other cases are declared than planned ({'; '.join(parts)}); {HOW}"
            if parts
            else None
        )


def names(ids: Sequence[str]) -> str:
    """Name the first ids, and count the others."""
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return ", ".join(show(name) for name in ids[:_NAMED]) + more


def without(ids: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return those of `ids` that are not in `others`."""
    excluded = {*others}
    return [name for name in ids if name not in excluded]
