"""The machine: its GPUs, the lock on a device, the monitor, health, energy, memory."""
