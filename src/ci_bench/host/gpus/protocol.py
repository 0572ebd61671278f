"""The queries to a GPU, and to its vendor's software.

Names no vendor: `vendors` has the table of them. Any question may go unanswered: the driver lacks
the function, the GPU the sensor, the container the right. The answer is then `None`, whatever the
vendor's library raised or returned; 0 is an answer. Units are in the names. Asking needs no torch,
opens no context on the GPU and changes nothing. tests/host/gpus/test_contract.py checks this for
every vendor in the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol


class ClockCause(StrEnum):
    """Reasons for reduced clocks, in words that every vendor has.

    The consequences are judged elsewhere.
    """

    IDLE = "idle"
    """The GPU is idle, so the clocks tell nothing about the earlier work."""
    POWER_CAP = "power cap"
    """At its power limit: a normal state of a loaded data-centre GPU."""
    THERMAL = "thermal"
    """Too hot, whether hardware or driver slows it down."""
    HARDWARE = "hardware"
    """Slowed down by the hardware for another reason: a power brake, a failing supply."""
    OTHER = "other"
    """Anything else: clocks that a user has set, limits of the board, unknown reasons."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """One reason for low clocks: its cause, and the vendor's own `word`, which documents record."""

    cause: ClockCause
    word: str


class GpuUnreachable(Exception):  # noqa: N818 - it names what is wrong, and is shown to the user
    """No vendor's library can reach the GPU. The message names the library and the reason."""


class Gpu(Protocol):
    """One GPU, or one part of a divided GPU. Close it when done."""

    def close(self) -> None:
        """Release the library. Never fails."""

    def driver(self) -> str | None:
        """Return the version of the driver."""

    def sm_mhz(self) -> int | None:
        """Return the clock of the multiprocessors (AMD: compute units) now."""

    def memory_mhz(self) -> int | None:
        """Return the clock of the memory now."""

    def power_w(self) -> float | None:
        """Return the power drawn now, or averaged over up to a second."""

    def power_limit_w(self) -> float | None:
        """Return the power limit in force."""

    def chosen_mhz(self) -> int | None:
        """Return the clock of the multiprocessors that a user has set; `None` without one."""

    def persistence(self) -> bool | None:
        """Return whether the driver stays loaded without a process."""

    def near_cores(self) -> frozenset[int] | None:
        """Return the numbers of the host's cores that are closest to it."""

    def energy_j(self) -> float | None:
        """Return the energy since the driver was loaded: a counter that restarts with the driver.

        Use differences.
        """

    def temperature_c(self) -> int | None:
        """Return the temperature of the chip."""

    def ecc(self) -> bool | None:
        """Return whether memory errors are corrected."""

    def reasons(self) -> tuple[Reason, ...] | None:
        """Return why the clocks are held back now; empty if nothing holds them back.

        Unknown words are `OTHER`.
        """

    def thermal_s(self) -> float | None:
        """Return the seconds in which heat has kept the clocks down, since the driver was loaded.

        A counter.
        """

    def pids(self) -> frozenset[int] | None:
        """Return the processes that compute on it.

        In a container, their numbers may be those of the host.
        """

    def bytes_by_pid(self) -> Mapping[int, int | None] | None:
        """Return the memory of each of these processes; `None` for an unknown share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One GPU of a list."""

    uuid: str
    """UUID of the GPU."""
    name: str = ""
    """Name of the model; empty if it is unknown."""
    divided: bool = False
    """True if it is divided into parts."""
    parts: tuple[str, ...] = ()
    """UUIDs of its parts; empty if it has none, or if they cannot be listed."""
    exclusive: str = ""
    """Vendor's own word for taking one process at a time; empty if it takes several."""
    keep_loaded: str = ""
    """Command that keeps the driver loaded; empty if it is already, or if that is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cards:
    """One vendor's GPUs on this machine, in the order in which its library numbers them."""

    vendor: "Vendor"
    """The vendor."""
    cards: tuple[Card, ...] = ()
    """GPUs that its library lists."""
    driver: str = ""
    """Version of the driver; empty if it is unknown."""
    trouble: str = ""
    """Reason why the library lists no GPU; empty if it lists some."""
    nodes: tuple[str, ...] = ()
    """Device files that exist, whether the library answers or not."""

    def seen(self) -> str:
        """Describe the GPUs that are present; empty without a sign of one."""
        if self.cards:
            names = ", ".join(dict.fromkeys(card.name or card.uuid for card in self.cards))
            return (
                f"{len(self.cards)} GPU{'s' if len(self.cards) > 1 else ''} ({names}; driver"
                f" {self.driver or 'unknown'})"
            )
        return (
            f"{', '.join(self.nodes)}, but {self.vendor.library} reports nothing about it"
            f" ({self.trouble})"
            if self.nodes
            else ""
        )


class Vendor(Protocol):
    """A vendor of GPUs: how they are found and opened, and the names that messages need.

    Importing a vendor's module imports no library of the vendor's: that happens in `open_gpu` and
    `look`.
    """

    name: ClassVar[str]
    library: ClassVar[str]
    """The source of the answers, as users know it."""
    toolkit: ClassVar[str]
    """The toolkit that torch has to be built for."""
    torch_build: ClassVar[str]
    """The field of `torch.version` with the toolkit's version, `None` in other builds; the identity
    has it by the same name.
    """
    command: ClassVar[str]
    """The program that comes with the driver."""
    device_files: ClassVar[str]
    """The device files that a user needs access to."""
    container_option: ClassVar[str]
    """The option of ``docker run`` that gives a container a GPU."""
    sharing: ClassVar[str]
    """The command after which an exclusive GPU takes several processes."""

    def open_gpu(self, uuid: str) -> Gpu:
        """Open the GPU with this UUID, with or without the prefix that torch leaves out.

        Raises:
            GpuUnreachable: no library, no driver, no permission, or no such GPU; nothing is left
                open then.
        """

    def look(self) -> Cards:
        """Return the GPUs of this vendor, or why they are unknown.

        Never fails, and leaves nothing open.
        """

    def visible(self, cards: Cards, environ: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the UUIDs that torch will number 0, 1, … in this environment; `None` if unknown.

        Not guessed.
        """

    def advice(self, words: str, cards: Cards, toolkit_version: str) -> str:
        """Return why a torch that is built for the toolkit cannot use a GPU, and what to do.

        Based on torch's own words; empty if unknown.
        """
