"""The embedded zoo: small models of the families that compilers meet, with made-up data.

No weights, no downloads.
"""
