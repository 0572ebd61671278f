"""What a GPU and its driver are like for measuring, in sections: `probes` measures, `sections` judges, `check` runs them."""
