"""What GPUs say of themselves, one module for each vendor, all behind one protocol."""
