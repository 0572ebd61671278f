"""Where models come from: one module per source, all behind the protocol in `loaded`."""
