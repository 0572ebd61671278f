"""Loss parity: does a candidate learn what its reference learns?"""
