"""Suite `transformers`: inference, training and generation of any model of transformers, over batch sizes and lengths."""
