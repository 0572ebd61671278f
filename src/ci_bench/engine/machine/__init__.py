"""The machine: what it is, and what it is like while samples are taken."""
