"""The process behind one launch: imports torch once, then forks one child per task.

Run as ``python -m ci_bench.processes.forkserver SOCKET_FD MODULE…``. Only forks and reaps. It
never touches the GPU and starts no thread, so forking stays safe. If a module that it imports does
either, the server restarts without these imports, and each child imports for itself. Imported
objects are frozen for the garbage collector. Otherwise a collection in a child would walk through
millions of permanent objects, a quarter of a second each time, and copy their pages.

A child gets its own session and its output goes to a log file. It answers on a pipe that nothing
printed can reach, and takes orders on another. Processes that a child left behind end with it, in
its session or not. When the parent goes away, the server ends its children and itself; when the
server is killed, the kernel ends its children. Before the first child exists, the kernel ends the
server with its parent: the server may be stopped then, and would notice nothing.
"""

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from ci_bench.processes import noted
from ci_bench.processes.addresses import begin_as_usual, take_place
from ci_bench.processes.descendants import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    end_children,
    prctl,
)
from ci_bench.processes.startup import with_tree

WORKER = "ci_bench.worker.worker"
SUITES = "ci_bench.suites."
"""The prefix of built-in suites' modules.

A plugin's module may rely on its worker's environment at import.
"""
MAX_MESSAGE = 1 << 20


def main(argv: Sequence[str]) -> int:
    """Serve until the parent closes its end of the socket."""
    take_place(os.environ)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with socket.socket(fileno=int(argv[0])) as connection:
        before = os.environ.get("PYTHONPATH", "")
        _say(connection, {"loading": os.getpid()})
        _import((WORKER, *argv[1:]))
        if _has_touched_gpu():
            _say(connection, {"touched": os.getpid()})
            os.environ["PYTHONPATH"] = before
            os.set_inheritable(connection.fileno(), True)
            os.execv(sys.executable, [*sys.orig_argv[: len(sys.orig_argv) - len(argv)], argv[0]])  # noqa: S606 - itself, no shell
        begin_as_usual(os.environ)
        _say(connection, {"ready": os.getpid()})
        wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        server = _Server(connection=connection, wake_reader=wake_reader, wake_writer=wake_writer)
        try:
            server.serve()
        finally:
            server.end_children()
    return 0


def _import(modules: Sequence[str]) -> None:
    """Import for all children; imported objects are never collected, not even garbage.

    Looking for garbage takes longer than it gains (docs/internals/adr/0001). If a suite's module
    lacks a library, the error is reported where the module is needed, only for its own cases. The
    functions that checks use are noted before any code of the tree can run.
    """
    gc.disable()
    trusted = [module for module in modules if _is_known(module)]
    for module in trusted:
        with contextlib.suppress(ImportError):  # it may be found with the caller's folders only
            _import_one(module)
    noted.begin()
    with_tree()
    for module in modules:
        _import_one(module)
    gc.freeze()
    gc.enable()


def _is_known(module: str) -> bool:
    """Return whether a module belongs to the engine, or to a library that checks use."""
    return module.partition(".")[0] in {
        noted.PACKAGE,
        *(name.partition(".")[0] for name in noted.LIBRARIES),
    }


def _import_one(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError:
        if not module.startswith(SUITES):
            raise


def _has_touched_gpu() -> bool:
    """Return whether an imported module keeps children from a GPU.

    Such a module made a context, or asked the CUDA runtime for devices. Without NVML
    `torch.cuda.is_available` does the latter. Only a child knows (`poison_fork` in
    torch/csrc/cuda/Module.cpp).
    """
    torch = sys.modules.get("torch")
    if torch is None or torch.cuda.is_initialized():
        return torch is not None
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            code = int(bool(torch.cuda._is_in_bad_fork()))  # noqa: SLF001 - torch's own guard asks this
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    return status != 0


@dataclass(kw_only=True, slots=True)
class _Server:
    """The open descriptors and the children that have not been reaped."""

    connection: socket.socket
    wake_reader: int
    wake_writer: int
    children: set[int] = field(default_factory=set)

    def serve(self) -> None:
        """Fork and reap until the parent is gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.connection, selectors.EVENT_READ)
            selector.register(self.wake_reader, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self.wake_reader in ready:
                    os.read(self.wake_reader, 4096)
                    self._reap()
                if self.connection in ready and not self._accept(selector):
                    return

    def end_children(self) -> None:
        """Kill every child, and all that they left behind."""
        for pid in self.children:
            _kill_group(pid)
        self.children.clear()
        end_children(())

    def _accept(self, selector: selectors.BaseSelector) -> bool:
        """Fork a child for the next request; False when the parent is gone."""
        data, descriptors, _, _ = socket.recv_fds(self.connection, MAX_MESSAGE, 2)
        if not data:
            return False
        request = json.loads(data)
        prctl(PR_SET_PDEATHSIG, 0)  # from now on it has children to end
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_worker(
                (descriptors[0], descriptors[1]),
                request,
                server=server,
                let_go=lambda: self._let_go(selector),
            )
        for descriptor in descriptors:
            os.close(descriptor)
        self.children.add(pid)
        _say(self.connection, {"started": pid})
        return True

    def _let_go(self, selector: selectors.BaseSelector) -> None:
        """Close what belongs to the server, in a child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        selector.close()
        self.connection.close()
        os.close(self.wake_reader)
        os.close(self.wake_writer)

    def _reap(self) -> None:
        for pid in tuple(self.children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self.children.discard(pid)
                _kill_group(pid)
                end_children(self.children)
                _say(self.connection, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _become_worker(
    pipes: tuple[int, int], request: dict[str, str], *, server: int, let_go: Callable[[], None]
) -> NoReturn:
    """Run the child's whole life. Never returns: the copy of the server must not keep serving."""
    code = 70
    try:
        os.setsid()
        let_go()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(code)
        for pipe in pipes:
            os.set_inheritable(pipe, False)
        _redirect(request["log"])
        faulthandler.enable(2)
        code = importlib.import_module(WORKER).main(*pipes, request["task"])
    except BaseException:  # noqa: BLE001 - the last line of defence of a forked child: log, then leave by _exit
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _redirect(log: str) -> None:
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    os.close(nothing)


def _kill_group(pid: int) -> None:
    """End a child's session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _say(connection: socket.socket, message: dict[str, int]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # an orderly shutdown of torch takes a second, without any effect
