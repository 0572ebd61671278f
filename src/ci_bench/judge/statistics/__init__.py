"""What is computed from arrays alone: noise, the sequential rule, ratios, series, changes of level. It knows no documents."""
