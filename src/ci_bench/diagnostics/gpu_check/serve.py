"""Run probes on request, each in a fork of a process that has torch.

Prints a line of JSON for each. ``python -m ci_bench.diagnostics.gpu_check.serve DEVICE``, with
lines ``NAME SECONDS`` on stdin. A probe that fails, dies or does not end within its seconds does
not affect the others: it is ended with all its processes. Nothing here touches the device, so each
fork makes its own context.
"""

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress

from ci_bench.diagnostics.gpu_check import probes

MAX_BYTES, MAX_WORDS = 1 << 20, 4000


def main(device: str) -> None:
    """Report that torch is imported, then run requested probes until the input ends."""
    _print({"ready": True})
    for line in sys.stdin:
        name, limit_s = line.split()
        begun = time.monotonic()
        answer = _in_a_fork(name, device, float(limit_s))
        _print({"name": name, "seconds": round(time.monotonic() - begun, 3), **answer})


def _print(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _in_a_fork(name: str, device: str, limit_s: float) -> dict[str, object]:
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        _probe(name, device, sender)
    os.close(sender)
    output, deadline = b"", time.monotonic() + limit_s
    try:
        while (left_s := deadline - time.monotonic()) > 0 and len(output) < MAX_BYTES:
            if select.select([receiver], [], [], left_s)[0]:
                more = os.read(receiver, 1 << 16)
                if not more:
                    break
                output += more
    finally:
        os.close(receiver)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if output:
        answer: dict[str, object] = json.loads(output)
        return answer
    if time.monotonic() >= deadline:
        return {"error": f"it did not end within {limit_s:g} s"}
    code = os.waitstatus_to_exitcode(status)
    return {"error": f"its process ended with {signal.Signals(-code).name if code < 0 else code}"}


def _probe(name: str, device: str, sender: int) -> None:
    """Run the probe in the fork; never return."""
    try:
        os.setsid()
        try:
            answer = json.dumps({"figures": dict(probes.probe(name, device))})
        except BaseException as error:  # noqa: BLE001 - any error is this section's result
            answer = json.dumps({"error": f"{type(error).__name__}: {error}"[:MAX_WORDS]})
        os.write(sender, answer.encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
