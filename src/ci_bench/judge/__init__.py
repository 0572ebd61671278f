"""From results to verdicts: statistics, loss parity, pairs, and what the policy makes of them. Pure: values in, values out."""
