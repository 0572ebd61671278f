"""Recognition of errors that mean out of memory, on the host or a device. Needs no torch.

Errors are recognised by their words. Most code on a GPU has its own report: torch's allocator a
class, the CUDA runtime and driver a name or a sentence, and each library a status. Backends wrap
the errors that they caught; the causes are searched, too.
"""

from collections.abc import Iterator


class OutOfMemoryError(RuntimeError):
    """Raised by ci-bench itself if memory does not suffice."""


_CLASS = OutOfMemoryError.__name__
"""Also torch's, and that of others who took the name."""
_WORDS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "std::bad_alloc",
    "error_out_of_memory",  # CUDA's driver, by name
    "erroroutofmemory",  # HIP's runtime
    "errormemoryallocation",  # CUDA's runtime, by name
    "alloc_failed",  # cuBLAS, cuDNN before version 9, cuFFT, cuSOLVER, cuSPARSE, hipBLAS
    "allocation_failed",  # cuDNN from version 9, cuRAND
    "allocfailed",  # MIOpen
    "rocblas_status_memory_error",
)
_MOST_CAUSES = 50


def is_out_of_memory(error: BaseException) -> bool:
    """Return true if an error, or its cause, means out of memory.

    Words count only in errors that runtimes raise: an error about a value may quote anything.
    """
    return any(_lacks_memory(cause) for cause in _causes(error))


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
    """Yield the error and its causes in turn; a cycle of them ends."""
    following: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if following is None:
            return
        yield following
        following = following.__cause__
