"""ci-bench: gate pull requests on GPU performance and loss parity."""

__version__ = "0.1.0"
