"""The parent of all workers: plan, launches, stages, turns, ledger, budget."""
