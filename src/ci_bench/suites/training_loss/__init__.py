"""Suite `training_loss`: does a compiled training step learn the same as eager, at what cost?"""
