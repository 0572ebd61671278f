"""Report on this machine's readiness to measure, in words a user can act on.

The parent's half needs no torch.

A separate worker loads torch, exactly as in a run.
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench import __version__
from ci_bench.errors import EngineMissing, MeasuringFailed
from ci_bench.host.gpus import vendors
from ci_bench.judge.times.calibration import NoiseFloor, collect, noise_floors
from ci_bench.judge.wording import percent
from ci_bench.processes.addresses import started_alike
from ci_bench.processes.environ import worker_environment
from ci_bench.processes.launch import Launcher, make_folder
from ci_bench.processes.protocol import Task
from ci_bench.processes.resident import explain
from ci_bench.records.config import Config, RunOptions, Sampling
from ci_bench.records.forms import Fact
from ci_bench.records.results import Results
from ci_bench.worker.probe import SWITCH

if TYPE_CHECKING:
    from rich.console import Console

PACKAGES = {
    "torch": (2, 11),
    "transformers": (5, 0),
    "datasets": (4, 0),
    "evaluate": (0, 4),
    "safetensors": (0, 5),
}
INSTALL = "pip install 'ci-bench[engine]'"
MIN_FREE_BYTES = 5 << 30
MIN_MEMORY_BYTES = 4 << 30
BUSY_SHARE = 0.5
NOISE_LAUNCHES, NOISE_OUTLOOK = 4, 8
NOISY = 0.03
"""Beyond this spread between launches a gate with the default thresholds will mostly say that it
cannot tell.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFinding:
    """One thing looked at.

    `usable` is False when nothing can be measured; `advice` says what to do, empty if nothing.
    """

    name: str
    found: str
    advice: str = ""
    usable: bool = True


def require_engine() -> None:
    """Raise `EngineMissing` with the command that helps, before anything is started."""
    missing = [name for name in PACKAGES if _version(name) is None]
    if missing:
        message = (
            f"measuring needs {', '.join(missing)}, which are not installed here; run: {INSTALL}"
        )
        raise EngineMissing(message)


def examine(environ: Mapping[str, str]) -> tuple[MachineFinding, ...]:
    """Look at everything a run depends on."""
    return (*_packages(), *_machine(), *_compilers(environ), *_torch(environ))


def noise_config() -> Config:
    """Return the configuration that measures noise.

    It has a few short launches of base and head, which are equal.
    """
    run = RunOptions(
        threads=1,
        sampling=Sampling.FIXED,
        launches=NOISE_LAUNCHES,
        blocks=6,
        sample_s=0.01,
        warmup_s=1.0,
    )
    return Config(entries=(), run=run)


def noise_floor(base: Results, head: Results) -> NoiseFloor | None:
    """Return the machine's noise: the spread of launches of the same code, median over canaries.

    The spread of one launch with so few of them is itself known to a factor of two at best: a first
    impression, no calibration.
    """
    figures = collect(base, head, tool_version=__version__)
    floors = noise_floors(figures, now=head.run.started_at, launches=NOISE_OUTLOOK)
    return sorted(floors, key=lambda floor: floor.spread)[len(floors) // 2] if floors else None


def noise(base: Results, head: Results) -> MachineFinding:
    """Describe the noise floor of this machine."""
    floor = noise_floor(base, head)
    if floor is None:
        return MachineFinding(
            name="noise",
            found="could not be measured",
            advice="run `ci-bench doctor` again on a quieter machine",
        )
    noisy = (
        "other work is running, or clocks change: measure on a quieter machine"
        if floor.spread > NOISY
        else ""
    )
    outlook = (
        f"a gate with {NOISE_OUTLOOK} launches would detect changes of about"
        f" {percent(floor.resolvable)}"
    )
    return MachineFinding(
        name="noise",
        found=f"{percent(floor.spread)} between launches of the same code; {outlook}",
        advice=noisy,
    )


def render(findings: tuple[MachineFinding, ...], console: "Console") -> None:
    """Print the findings, and then what to do."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        mark = (
            Text("✗", "red")
            if not finding.usable
            else Text("!", "yellow")
            if finding.advice
            else Text("✓", "green")
        )
        table.add_row(mark, Text(finding.name), Text(finding.found))
        if finding.advice:
            table.add_row("", "", Text(f"→ {finding.advice}", "bold"))
    console.print(table)
    usable = all(finding.usable for finding in findings)
    console.print(
        "This machine can measure."
        if usable
        else "This machine cannot measure yet; fix the items marked →."
    )


def _packages() -> Iterator[MachineFinding]:
    yield MachineFinding(name="python", found=f"{sys.version.split()[0]} at {sys.executable}")
    for name, least in PACKAGES.items():
        installed_version = _version(name)
        if installed_version is None:
            yield MachineFinding(name=name, found="not installed", advice=INSTALL, usable=False)
        elif _release(installed_version) < least:
            minimum = ".".join(map(str, least))
            yield MachineFinding(
                name=name,
                found=installed_version,
                advice=f"needs {minimum} or newer: {INSTALL} --upgrade",
                usable=False,
            )
        else:
            yield MachineFinding(name=name, found=installed_version)


def _machine() -> Iterator[MachineFinding]:
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    busy = load > BUSY_SHARE * cores
    yield MachineFinding(
        name="cpu",
        found=f"{cores} cores, load {load:.2f}",
        advice=(
            "other work is running: timings will be noisy; stop it, or measure on a quiet machine"
            if busy
            else ""
        ),
    )
    yield _addresses()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    small = (
        "less than 4 GiB: the embedded suites may run out of memory"
        if memory < MIN_MEMORY_BYTES
        else ""
    )
    yield MachineFinding(name="memory", found=f"{memory / 2**30:.1f} GiB", advice=small)
    with make_folder() as folder:
        free = shutil.disk_usage(folder).free
        full = (
            f"less than 5 GiB free at {Path(folder).parent}: set TMPDIR to a larger disk"
            if free < MIN_FREE_BYTES
            else ""
        )
        yield MachineFinding(
            name="scratch",
            found=f"{free / 2**30:.1f} GiB free at {Path(folder).parent}",
            advice=full,
        )


def _addresses() -> MachineFinding:
    """Report whether both sides of a launch can use the same addresses.

    If not, a gate takes more launches, and is equally correct.
    """
    with started_alike() as usual:
        pass
    if usual is not None:
        return MachineFinding(name="addresses", found="the same for base and head")
    refused = (
        "different for each side: personality(ADDR_NO_RANDOMIZE) is refused, for example by"
        " docker's default seccomp profile"
    )
    advice = "launches vary more than necessary; docs/runner.md has the rule that allows it"
    return MachineFinding(name="addresses", found=refused, advice=advice)


def _compilers(environ: Mapping[str, str]) -> Iterator[MachineFinding]:
    compiler = environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    advice = "" if compiler else "inductor needs a C++ compiler: apt-get install g++ (or set CXX)"
    yield MachineFinding(name="c++ compiler", found=str(compiler or "none"), advice=advice)
    header = Path(sysconfig.get_path("include")) / "Python.h"
    missing = (
        ""
        if header.exists()
        else "inductor and triton need Python's headers: apt-get install python3-dev"
    )
    yield MachineFinding(
        name="python headers", found=str(header) if header.exists() else "none", advice=missing
    )


def _torch(environ: Mapping[str, str]) -> Iterator[MachineFinding]:
    """Report torch's view of the machine, from a worker."""
    if _version("torch") is None:
        return
    with make_folder() as folder:
        try:
            identity = _probe(environ, Path(folder))
        except MeasuringFailed as error:
            yield MachineFinding(
                name="worker", found="did not start", advice=str(error), usable=False
            )
            return
    yield MachineFinding(
        name="worker",
        found=f"torch {identity.get('torch')} starts, {identity.get('threads')} threads",
    )
    yield _gpu(identity) if identity.get("device") == "cuda" else _no_gpu(identity)
    yield from _switches(identity)


def _switches(identity: Mapping[str, Fact]) -> Iterator[MachineFinding]:
    """List the variables that change numbers or times, if any is set."""
    values = {
        name.removeprefix(SWITCH): value
        for name, value in identity.items()
        if name.startswith(SWITCH)
    }
    if values:
        advice = (
            "they change numbers or times, and runs with other values are not comparable; unset"
            " those that are not intended"
        )
        yield MachineFinding(
            name="variables",
            found=", ".join(f"{name}={value}" for name, value in values.items()),
            advice=advice,
        )


def _gpu(identity: Mapping[str, Fact]) -> MachineFinding:
    memory, vendor = identity.get("gpu_memory_bytes"), vendors.built_for(identity)
    size = f", {int(memory) / 2**30:.0f} GiB" if memory else ""
    toolkit = f", {vendor.toolkit} {identity[vendor.torch_build]}" if vendor else ""
    summary = (
        f"{identity.get('gpu')}{size}, driver"
        f" {identity.get('driver')}{toolkit}{_gpu_settings(identity)}"
    )
    return MachineFinding(
        name="gpu", found=summary, advice="; ".join((*_exclusive(), *_loaded_each_time()))
    )


def _gpu_settings(identity: Mapping[str, Fact]) -> str:
    """Describe what the driver is set to, as far as it is known."""
    limit, ecc = identity.get("gpu_power_limit_w"), identity.get("gpu_ecc")
    words = [f"power limit {float(limit):.0f} W"] if limit is not None else []
    words += [f"ECC {'on' if ecc else 'off'}"] if ecc is not None else []
    loaded, chosen = identity.get("gpu_persistence"), identity.get("gpu_chosen_mhz")
    words += [f"persistence mode {'on' if loaded else 'off'}"] if loaded is not None else []
    words += [f"SM clock set to {chosen} MHz"] if chosen is not None else []
    cards = [card for vendor_cards in vendors.look() for card in vendor_cards.cards]
    words += ["divided"] if any(card.divided for card in cards) else []
    return "".join(f", {word}" for word in words)


def _loaded_each_time() -> Iterator[str]:
    """Yield advice for each GPU whose driver is unloaded between processes."""
    for cards in vendors.look():
        for card in cards.cards:
            if card.keep_loaded:
                cost = (
                    "the driver reloads for each first process, which takes seconds, and clocks"
                    " drop meanwhile"
                )
                yield (
                    f"{card.name or card.uuid} is not in persistence mode: {cost}; run"
                    f" `{card.keep_loaded}` as root"
                )


def _exclusive() -> Iterator[str]:
    """Describe exclusive mode of a GPU.

    It takes one process at a time, so a paired run cannot hold both sides.
    """
    for cards in vendors.look():
        for card in cards.cards:
            if card.exclusive:
                cost = (
                    "base and head are measured one after the other, which takes longer and is less"
                    " certain"
                )
                yield (
                    f"{card.name or card.uuid} is in {card.exclusive}: {cost};"
                    f" `{cards.vendor.sharing}` lets both stay on it"
                )


def _no_gpu(identity: Mapping[str, Fact]) -> MachineFinding:
    """Report a driver that torch cannot use, if present.

    It looks for the driver that torch was built for.
    """
    meant = vendors.built_for(identity)
    here = [vendor for vendor in vendors.VENDORS if shutil.which(vendor.command)]
    if meant is not None and meant in here:
        option = meant.container_option
        advice = (
            f"{meant.name}'s driver is here, but torch cannot use it: is `{option}` missing, or the"
            " driver too old?"
        )
    elif here:
        build, present_vendor = meant.toolkit if meant else "CPU", here[0]
        advice = (
            f"{present_vendor.name}'s driver is here, but this torch is a {build} build: install a"
            f" build of torch for {present_vendor.toolkit}"
        )
    else:
        advice = ""
    return MachineFinding(name="gpu", found="none; measuring runs on the CPU", advice=advice)


def _probe(environ: Mapping[str, str], folder: Path) -> Mapping[str, Fact]:
    task = Task(launch=0, device="auto", options=RunOptions(), scratch=str(folder))
    with Launcher(
        preload=("torch",), environ=worker_environment(environ), folder=folder / "probe"
    ) as launcher:
        ended = launcher.run(task, timeout_s=120.0, on_answer=lambda _: None)
    environment = next((answer.environment for answer in ended.answers if answer.environment), None)
    if environment is None:
        _, reason = explain(ended, limit_s=120.0)
        raise MeasuringFailed(reason)
    return environment["identity"]


def _version(package: str) -> str | None:
    """Return the version of a package whose files exist; remains of a broken removal do not count.

    Imports nothing.
    """
    with suppress(PackageNotFoundError):
        return version(package) if find_spec(package) else None
    return None


def _release(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.partition("+")[0].split("."):
        digits = "".join(character for character in part if character.isdigit())
        if not digits or not part[0].isdigit():
            break
        numbers.append(int(digits))
    return tuple(numbers)
