"""Runs long commands: passes output on, and ends them in time or when the job is cancelled.

The runner cancels with SIGINT, SIGTERM 7.5 s later, and kills after 2.5 s more, and a shell in
between passes none of it on. So this process is the step itself (``exec``), and stops the container
by name: docker's client may be gone while it lives on.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable

GRACE_S = 5.0
"""Seconds that the code under test has to end on request."""
_DRAIN_S = 1.0
_LOOK_S = 1.0


@contextmanager
def cancellations() -> Iterator[list[int]]:
    """Yield a growing list of the signals to end that arrive during the block."""
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stop:
    """The end of one process: politely, then by force."""

    def __init__(
        self, process: subprocess.Popen[bytes], container: str | None, environ: Mapping[str, str]
    ) -> None:
        """Prepare to stop `container`, which the docker client `process` has started.

        `None` stands for a process group of our own.
        """
        self._process, self._container, self._environ = process, container, environ
        self._since: float | None = None
        self._forced = False

    def ask(self) -> None:
        """Ask to end; asked again, or after a while, use force."""
        if self._since is None:
            self._since = time.monotonic()
            self._send("stop", "-t", f"{GRACE_S:.0f}", number=signal.SIGTERM)
        elif not self._forced and time.monotonic() - self._since > GRACE_S + 1:
            self.force()

    def force(self) -> None:
        """End it now."""
        self._forced = True
        self._send("kill", number=signal.SIGKILL)
        if self._container is not None:
            self._process.terminate()

    def _send(self, *command: str, number: int) -> None:
        if self._container is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            return
        subprocess.Popen(
            ["docker", *command, self._container],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(self._environ),
            start_new_session=True,
        )


def supervise(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str],
    take: Callable[[bytes], object],
    timeout_s: float,
    container: str | None = None,
    folder: Path | None = None,
    trouble: Callable[[], str] = lambda: "",
) -> tuple[int, str]:
    """Run a command and hand its output to `take`; return its exit code and how it ended.

    It ended as ``exited``, ``timeout`` or ``cancelled``.

    `trouble` is asked every second whether the runner can bear it any longer; what it says is how
    the command was ended.
    """
    with cancellations() as cancelled:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            cwd=folder,
            start_new_session=True,
        )
        stop = Stop(process, container, environ)
        last_look = time.monotonic()
        deadline, ended = last_look + timeout_s, "exited"
        for chunk in _output(process):
            take(chunk)
            if ended == "exited" and (cancelled or time.monotonic() > deadline):
                ended = "cancelled" if cancelled else "timeout"
            elif ended == "exited" and time.monotonic() > last_look + _LOOK_S:
                last_look, ended = time.monotonic(), trouble() or "exited"
            if ended != "exited":
                stop.ask()
        if container is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()
        return process.wait(), ended


def _output(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield the output, with an empty piece now and then, until the process has ended.

    Processes that it left running are not waited for.
    """
    assert process.stdout is not None  # noqa: S101 - it was asked for
    stream, gone = process.stdout.fileno(), 0.0
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            chunk = os.read(stream, 65_536) if selector.select(0.1) else None
            if chunk == b"":
                break
            yield chunk or b""
            if process.poll() is not None:
                gone = gone or time.monotonic()
                if chunk is None or time.monotonic() - gone > _DRAIN_S:
                    break
    while process.poll() is None:
        yield b""
        time.sleep(0.05)
