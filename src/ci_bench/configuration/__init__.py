"""From `ci-bench.yml` to a `Config`: YAML, plugins, import paths, intended changes."""
