"""One run over many machines: leases, the engines that measure them, and the coordinator."""
