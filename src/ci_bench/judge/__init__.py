"""From results to verdicts, as pure functions: values in, values out. `compare` is the way through.

From the bottom up: `statistics` (arrays), `cases` (what stands against what), `metrics` (one figure, base against head), `parity`
(loss), `policy` (what is made of all that). `calibration`, `audit`, `openness` and `trend` serve what surrounds a comparison.
"""
