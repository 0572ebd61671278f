"""Store the outputs of both sides' reference arms, and compare head's with base's."""
