"""Suite `training_loss`: does a compiled training step learn the same as an eager one, and what does it cost?"""
