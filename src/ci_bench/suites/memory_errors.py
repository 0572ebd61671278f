"""Which errors mean that memory ran out, the host's or a device's. Knows errors by their words, and so needs no torch.

Most of what runs on a GPU reports it in words of its own: torch's allocator by a class, the CUDA runtime and driver by a name or
a sentence, and each library by a status. Backends wrap what they caught, which is looked through.
"""

from collections.abc import Iterator

_CLASS = "OutOfMemoryError"
"""Torch's, and that of others who took the name."""
_WORDS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "std::bad_alloc",
    "error_out_of_memory",  # CUDA's driver, by name
    "erroroutofmemory",  # HIP's runtime
    "errormemoryallocation",  # CUDA's runtime, by name
    "alloc_failed",  # statuses of cuBLAS, cuDNN before version 9, cuFFT, cuSOLVER, cuSPARSE, hipBLAS
    "allocation_failed",  # cuDNN from version 9, cuRAND
    "allocfailed",  # MIOpen
    "rocblas_status_memory_error",
)
_MOST_CAUSES = 50


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or what caused it, is for want of memory.

    Words count of the errors that runtimes raise alone: who complains of a value may quote anything.
    """
    return any(_lacks_memory(one) for one in _causes(error))


def _lacks_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == _CLASS:
        return True
    if not isinstance(error, RuntimeError | OSError):
        return False
    try:
        text = str(error).lower()
    except Exception:  # noqa: BLE001 - its class is benched code as well
        return False
    return any(words in text for words in _WORDS)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised from, in turn; a circle of them ends."""
    following: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if following is None:
            return
        yield following
        following = following.__cause__
