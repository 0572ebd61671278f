"""Sources of models: one module per source, all behind the protocol in `loaded`."""
