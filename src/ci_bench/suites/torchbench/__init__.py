"""Suite `torchbench`: is a model of a zoo faster compiled than eager, and does it still compute the same?"""
