"""The machine: its identity, and its condition while samples are taken."""
