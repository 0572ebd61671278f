#!/usr/bin/env bash
# Writes report/requirements.txt: what the trusted half installs on a hosted runner, every file of it by its hash.
# Needs uv (pip install uv). To be run whenever the package's own dependencies or their pins change.
set -euo pipefail
cd "$(dirname "$0")/.."
uv pip compile --quiet --universal --generate-hashes --no-annotate --no-emit-index-url --python-version 3.11 \
    --constraint constraints.txt --custom-compile-command tools/lock_report.sh pyproject.toml --output-file report/requirements.txt
