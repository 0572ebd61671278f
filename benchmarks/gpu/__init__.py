"""The trial of ci-bench on a GPU host without network access (docs/internals/gpu-trial.md)."""
