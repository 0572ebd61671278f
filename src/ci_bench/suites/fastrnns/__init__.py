"""Suite of recurrent and convolutional structures: library, hand-written, scripted, compiled."""
