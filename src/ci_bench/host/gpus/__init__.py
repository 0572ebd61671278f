"""Read GPUs' state, one module for each vendor, all behind one protocol."""
