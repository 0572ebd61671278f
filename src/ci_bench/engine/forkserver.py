"""The process behind one launch: imports torch once, then forks one child per task.

Run as ``python -m ci_bench.engine.forkserver SOCKET_FD MODULE…``. Owns forking and reaping, nothing else. It never touches the
GPU and starts no thread, so that forking stays safe. A child gets a session of its own (it can be killed with all its
descendants), its output goes to a log file, and it answers on a pipe that nothing printed can reach.
When the parent goes away the server ends its children and itself.
"""

import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence

MAX_MESSAGE = 1 << 20


def main(argv: Sequence[str]) -> int:
    """Serve until the parent closes its end of the socket."""
    with socket.socket(fileno=int(argv[0])) as connection:
        for module in argv[1:]:
            importlib.import_module(module)
        _say(connection, {"ready": os.getpid()})
        _serve(connection)
    return 0


def _serve(connection: socket.socket) -> None:
    wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    children: set[int] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(wake_reader, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if wake_reader in ready:
                os.read(wake_reader, 4096)
                _reap(connection, children)
            if connection in ready and not _accept(connection, children):
                break
    for pid in children:
        _kill_group(pid)


def _accept(connection: socket.socket, children: set[int]) -> bool:
    """Fork a child for the next request; False when the parent is gone."""
    data, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE, 1)
    if not data:
        return False
    request = json.loads(data)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become_worker(descriptors[0], request)
    for descriptor in descriptors:
        os.close(descriptor)
    children.add(pid)
    _say(connection, {"started": pid})
    return True


def _become_worker(answers: int, request: dict[str, str]) -> None:
    """The child's whole life. Never returns: whatever happens, the copy of the server must not go on serving."""
    code = 70
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _redirect(request["log"])
        worker = importlib.import_module("ci_bench.engine.worker")
        code = worker.main(answers, request["task"])
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


def _reap(connection: socket.socket, children: set[int]) -> None:
    for pid in tuple(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            children.discard(pid)
            _kill_group(pid)
            _say(connection, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _kill_group(pid: int) -> None:
    """End what a child left behind in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _say(connection: socket.socket, message: dict[str, int]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
