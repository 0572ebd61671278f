"""Output of commands: answers on stdout, progress on stderr, which lets reports be piped.

`forked` does work in a copy of the process, which nothing has to wait for meanwhile.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.errors import CannotWrite

if TYPE_CHECKING:
    from rich.console import Console

_THREADS = Path("/proc/self/task")


def say(text: str) -> None:
    """Write to stdout without buffering. Raises `CannotWrite` if its disk is full."""
    with _to_stdout():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def _to_stdout() -> Iterator[None]:
    """Turn a fault of stdout into `CannotWrite`, and discard its buffer.

    The buffer would change the exit code.
    """
    try:
        yield
    except OSError as error:
        discard_stdout()
        if isinstance(error, BrokenPipeError):
            raise
        raise CannotWrite(
            f"standard output cannot be written: {error.strerror}; check its disk"
        ) from error


def discard_stdout() -> None:
    """Discard the buffer of stdout; the end of the process would fail on it once more."""
    with suppress(OSError, ValueError), Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def tell(line: str) -> None:
    """Print progress without buffering: the reader may be a pipe."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def console(*, stderr: bool = False) -> "Console":
    """Return a console on stdout or stderr.

    A closed pipe ends the process on stdout, and the progress on stderr.
    """
    from rich.console import Console

    class OnPipe(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True
            if not stderr:
                raise BrokenPipeError

    return OnPipe(stderr=stderr)


def print_to_stdout(show: "Callable[[Console], None]") -> None:
    """Print on a console on stdout. Raises `CannotWrite` if its disk is full."""
    with _to_stdout():
        show(console())
        sys.stdout.flush()


@contextmanager
def forked(call: Callable[[], None]) -> Iterator[None]:
    """Run a call in a copy of the process while the block runs, or here after the block.

    The latter is for processes that cannot fork safely or with gain. The call leaves files and no
    values. If the copy fails, the call is repeated here and reports the error. If the block raises,
    the copy is waited for, and the call is not repeated.
    """
    if not _may_fork():
        yield
        call()
        return
    child = os.fork()
    if child == 0:
        _make(call)
    try:
        yield
    except BaseException:
        os.waitpid(child, 0)
        raise
    _, status = os.waitpid(child, 0)
    if status:
        call()


def _make(call: Callable[[], None]) -> None:
    """Run the call in the copy, and exit without the exit handlers and buffers of the original."""
    status = 1
    try:
        call()
        status = 0
    finally:
        os._exit(status)


def _may_fork() -> bool:
    """Return whether a fork is safe and useful.

    A fork copies only one thread, which may wait for a lock that another one held; a copy needs a
    core.
    """
    return (
        _THREADS.is_dir()
        and len(list(_THREADS.iterdir())) == 1
        and len(os.sched_getaffinity(0)) > 1
    )
