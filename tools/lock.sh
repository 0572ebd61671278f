#!/usr/bin/env bash
# Writes the locks: packages in the versions of constraints.txt, each with the hashes of all files that an index serves for it, so
# that `pip install --require-hashes` takes no other. To be run whenever dependencies or pins change.
#
#   tools/lock.sh [FOLDER]
#
#   requirements.lock         what the image installs: the base and the extra `engine`, for Linux
#   requirements-build.lock   what builds the wheel in the Dockerfile
#   requirements-audit.lock   what looks at all this: the SBOM's maker (tools/sbom.py), and pip-audit (audit.yml)
#
# Each is made for x86-64 and for arm64, and has to be the same for both: one lock serves both images.
#
# uv comes into a throw-away environment. What constraints.txt does not pin (packages for a GPU, which a CPU build of torch does
# without) is chosen by torch's own pins. report/requirements.txt is tools/lock_report.sh's.
set -euo pipefail

cd "$(dirname "$0")/.."
output=${1:-.}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check --quiet install uv

# FILE MADE_FROM UV_ARGUMENT...
lock() {
    local file=$1 made_from=$2
    shift 2
    for architecture in aarch64 x86_64; do
        "$folder/venv/bin/uv" pip compile --quiet --generate-hashes --no-annotate --no-header --no-emit-index-url \
            --python-version 3.11 --python-platform "$architecture-unknown-linux-gnu" --constraint constraints.txt "$@" \
            --output-file "$folder/lock" >/dev/null
        cp "$folder/lock" "$folder/lock-$architecture"
    done
    diff "$folder/lock-aarch64" "$folder/lock-x86_64" >&2 || { echo "lock: $file differs between arm64 and x86-64" >&2; exit 1; }
    {
        echo "# Made by tools/lock.sh from $made_from; do not edit."
        echo "# pip install --require-hashes --no-deps -r $file"
        cat "$folder/lock"
    } > "$output/$file"
    rm "$folder/lock"
}

echo hatchling > "$folder/build.txt"
printf '%s\n' cyclonedx-bom==7.5.0 pip-audit==2.10.1 > "$folder/audit.txt"
lock requirements.lock "pyproject.toml and constraints.txt" --extra engine pyproject.toml
lock requirements-build.lock "pyproject.toml's build-system and constraints.txt" "$folder/build.txt"
lock requirements-audit.lock "its own pins and constraints.txt" "$folder/audit.txt"
