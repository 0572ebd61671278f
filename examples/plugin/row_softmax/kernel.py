"""Builds the kernel, and calls it on tensors of the CPU."""

import ctypes
import subprocess
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("kernel.cpp")


def build(folder: Path) -> Path:
    """Compile the kernel into a folder.

    Raises `CalledProcessError` where the compiler refuses it.
    """
    library = folder / "kernel.so"
    subprocess.run(["c++", "-O3", "-shared", "-fPIC", str(SOURCE), "-o", str(library)], check=True)
    return library


class RowSoftmax:
    """The kernel of a library, as a function of a matrix of 32-bit floats."""

    def __init__(self, library: Path) -> None:
        """Load the library."""
        self._kernel = ctypes.CDLL(str(library)).row_softmax
        self._kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        self._kernel.restype = None

    def __call__(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return the softmax of each row."""
        matrix = matrix.contiguous()
        result = torch.empty_like(matrix)
        self._kernel(matrix.data_ptr(), result.data_ptr(), *matrix.shape)
        return result
