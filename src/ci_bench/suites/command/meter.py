"""Runs a program and writes the peak of its memory to a file.

A separate script keeps the process small. Run as ``python -I -S meter.py FILE PROGRAM ARGUMENT…``.
It ends as the program did.
"""

import os
import signal
import sys

CANNOT_START = 127
KIB = 1024


def main(argv: list[str]) -> None:
    """Spawn the program, wait, write bytes, and end with its exit code or by its signal."""
    peak_file, *command = argv
    try:
        pid = os.posix_spawnp(command[0], command, os.environ)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(CANNOT_START)
    _, status, usage = os.wait4(pid, 0)
    with open(peak_file, "w", encoding="ascii") as stream:  # noqa: PTH123 - pathlib would double what this process weighs
        stream.write(str(usage.ru_maxrss * KIB))
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code not in {signal.SIGKILL, signal.SIGSTOP}:  # no process can block these two
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
