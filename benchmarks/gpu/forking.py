"""Import modules as the parent of workers does, and report what the imports leave behind, as JSON.

Run as ``python -m benchmarks.gpu.forking imports|server|query MODULE ...``: the seconds of each
import; threads, children and open device files after the imports, and if a forked worker can use
the GPU; or that alone, after `torch.cuda.is_available`. It imports only the standard library first.
"""

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

LONG_S = 0.5
MOST_BYTES = 4096
DEVICE_FILES = "/dev/nvidia"


def main(argv: Sequence[str] | None = None) -> int:
    """Import, look, print."""
    kind, *modules = sys.argv[1:] if argv is None else argv
    if kind == "imports":
        document: object = {name: import_module(name) for name in modules}
    elif kind == "server":
        document = _server(modules)
    else:
        import torch

        document = {"available": torch.cuda.is_available(), "worker": fork_worker()}
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


def import_module(name: str) -> tuple[float, str]:
    """Import a module; return the seconds, and the error in words."""
    begun, trouble = time.perf_counter(), ""
    try:
        importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - packages may even exit
        trouble = f"{type(error).__name__}: {error}"[:200]
    return round(time.perf_counter() - begun, 2), trouble


def _server(modules: Sequence[str]) -> dict[str, object]:
    steps: list[dict[str, object]] = []
    after: dict[str, object] = {}
    for name in modules:
        seconds, trouble = import_module(name)
        before, after = after, traces()
        if after != before or seconds > LONG_S or trouble:
            steps.append({"module": name, "s": seconds, **after, "trouble": trouble})
    import torch

    from ci_bench.processes.forkserver import _has_touched_gpu

    return {
        "steps": steps,
        "end": after,
        "touched": _has_touched_gpu(),
        "initialized": torch.cuda.is_initialized(),  # type: ignore[no-untyped-call] # torch's own
        "worker": fork_worker(),
    }


def traces() -> dict[str, object]:
    """Return the threads, children and open device files of this process."""
    files = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(descriptor.readlink())
            files |= {target} if target.startswith(DEVICE_FILES) else set()
    processes = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {
        "threads": len([*Path("/proc/self/task").iterdir()]),
        "python threads": threading.active_count(),
        "device files": sorted(files),
        "children": sum(_parent(pid) == os.getpid() for pid in processes),
    }


def _parent(pid: str) -> int:
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[1])
    return 0


def fork_worker() -> str:
    """Fork, and use the GPU in the child; return ``works``, or the error in words."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, _use_gpu().encode())
        finally:
            os._exit(0)
    os.close(writer)
    answer = os.read(reader, MOST_BYTES).decode()
    os.close(reader)
    os.waitpid(pid, 0)
    return answer or "died"


def _use_gpu() -> str:
    import torch

    try:
        torch.zeros(1, device="cuda").add_(1).item()
    except Exception as error:  # noqa: BLE001 - any error is the answer
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:160]}"
    return "works"


if __name__ == "__main__":
    sys.exit(main())
