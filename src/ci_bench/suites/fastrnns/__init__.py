"""The suite `fastrnns`: recurrent and convolutional structures, library against hand-written, eager, scripted and compiled."""
