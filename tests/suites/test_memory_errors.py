"""What means that memory ran out, in the words of the CUDA runtime and of each library; and what only sounds like it."""

import pytest

from ci_bench.suites.shared.worker.memory_errors import is_out_of_memory

OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
SHORT = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB",
    "HIP out of memory. Tried to allocate 2.00 GiB",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
    "CUDA driver error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "cudaErrorMemoryAllocation: out of memory",
    "CUDA Runtime Error: cudaErrorMemoryAllocation",
    "cuMemCreate failed with CUDA_ERROR_OUT_OF_MEMORY",
    "hipErrorOutOfMemory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "cuFFT error: CUFFT_ALLOC_FAILED",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "CUDA error: CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`",
    "CURAND_STATUS_ALLOCATION_FAILED",
    "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "rocblas_status_memory_error",
    "MIOpen Error: miopenStatusAllocFailed",
    "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
    "[Errno 12] Cannot allocate memory",
    "std::bad_alloc",
)
NOT_SHORT = (
    "shape mismatch",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: device-side assert triggered",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( … )`",
    "CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx( … )`",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
    "CUDA error: all CUDA-capable devices are busy or unavailable",
    "out of resource: shared memory, Required: 262400, Hardware limit: 232448",
    "No available kernel. Aborting execution.",
)


@pytest.mark.parametrize("words", SHORT)
def test_memory_that_ran_out_is_known_by_any_of_its_words(words):
    assert is_out_of_memory(RuntimeError(words))


@pytest.mark.parametrize("words", NOT_SHORT)
def test_other_trouble_of_a_gpu_is_not_for_want_of_memory(words):
    assert not is_out_of_memory(RuntimeError(words))


def test_classes_tell_it_without_words():
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(OutOfMemoryError("more words"))


def test_who_complains_of_a_value_may_quote_anything():
    assert not is_out_of_memory(ValueError("on_error: 'out of memory' is not known here"))


def test_what_a_backend_caught_and_wrapped_is_found_and_a_circle_ends():
    wrapped = RuntimeError("backend='inductor' raised")
    wrapped.__cause__ = ValueError("in a pass")
    wrapped.__cause__.__cause__ = RuntimeError("CUDA driver error: out of memory")
    assert is_out_of_memory(wrapped)
    wrapped.__cause__.__cause__ = wrapped
    assert not is_out_of_memory(wrapped)


def test_an_error_that_cannot_speak_tells_nothing():
    class MuteError(RuntimeError):
        def __str__(self):
            raise AttributeError

    assert not is_out_of_memory(MuteError())
