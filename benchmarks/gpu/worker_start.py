"""Fork workers of a process that has imported torch, and print how long each takes, as JSON.

Run as ``python -m benchmarks.gpu.worker_start``. A row has the seconds from the fork to a CUDA
context and to the first product, from the last line to the end of the process, and its status.
"""

import json
import os
import sys
import time

from benchmarks.gpu.measuring import this_trial

FORKS = 4
MOST_BYTES = 4096


def main() -> int:
    """Fork, wait, print."""
    import torch._dynamo
    import torch._inductor.compile_fx  # noqa: F401 - the workers of a launch have it

    sys.stdout.write(json.dumps([_fork() for _ in range(FORKS)]) + "\n")
    return 0


def _fork() -> list[float]:
    reader, writer = os.pipe()
    begun = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        _work(begun, writer)
    os.close(writer)
    answer = os.read(reader, MOST_BYTES) or b"[0, 0, 0]"
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    context_s, product_s, last = json.loads(answer)
    return [context_s, product_s, time.perf_counter() - last, status]


def _work(begun: float, writer: int) -> None:
    code = 1
    try:
        import torch

        device = this_trial().device
        torch.cuda.set_device(device)
        torch.zeros(8, device=device)
        torch.cuda.synchronize()
        context = time.perf_counter()
        factor = torch.randn(512, 512, device=device, dtype=torch.bfloat16)
        (factor @ factor).sum().item()
        product = time.perf_counter()
        answer = [context - begun, product - begun, time.perf_counter()]
        os.write(writer, json.dumps(answer).encode())
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
