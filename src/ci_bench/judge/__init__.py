"""From results to verdicts, as pure functions: values in, values out. `compare` is the way through.

From the bottom up: arrays (`noise`, `ratios`, `sequential`, `suspicion`, `aggregates`), which case
and metric is compared with which (`pairing`, `cases`), one metric of base against head (`metrics`,
`paired`, `screening`), loss parity (`parity`, `parity_runs`, `parity_over_seeds`), and what the
policy makes of it all (`policy`, `headline`). `calibration`, `audit`, `binding`, `stopping` and
`trend` serve what surrounds a comparison.
"""
