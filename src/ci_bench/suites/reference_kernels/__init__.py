"""Three fixed workloads without code of either side: they measure a machine's own noise."""
