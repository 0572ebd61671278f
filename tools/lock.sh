#!/usr/bin/env bash
# Writes requirements.lock: every package of the base and of the extra `engine` for Linux on x86-64, in the versions of
# constraints.txt, each with the hashes of all files that an index serves for it, so that `pip install --require-hashes` takes no
# other. To be run whenever dependencies or pins change.
#
#   tools/lock.sh [OUTPUT]
#
# uv comes into a throw-away environment. What constraints.txt does not pin (packages for a GPU, which a CPU build of torch does
# without) is chosen by torch's own pins.
set -euo pipefail

cd "$(dirname "$0")/.."
output=${1:-requirements.lock}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check --quiet install uv
"$folder/venv/bin/uv" pip compile --quiet --generate-hashes --no-annotate --no-header --no-emit-index-url \
    --python-version 3.11 --python-platform x86_64-unknown-linux-gnu --extra engine --constraint constraints.txt \
    pyproject.toml --output-file "$folder/lock" >/dev/null
{
    echo "# Made by tools/lock.sh from pyproject.toml and constraints.txt; do not edit."
    echo "# pip install --require-hashes --no-deps -r requirements.lock"
    cat "$folder/lock"
} > "$output"
