"""Check a GPU for measuring. `probes` measures, `sections` judges, `check` runs them."""
