"""Any command that measures something, or that is worth measuring itself."""
