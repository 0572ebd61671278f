"""One run over many machines: leases, who measures them, and who hands them out."""
