#!/usr/bin/env bash
# What judging and telling needs, in an environment of its own: no torch, every file by its hash, nothing built. ci-bench itself is
# run from the action's own source.
set -euo pipefail
venv=$RUNNER_TEMP/ci-bench-report
if ! python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "::error title=ci-bench::this runner's python3 has to be 3.11 or newer, with venv: use ubuntu-24.04, or actions/setup-python before"
    exit 3
fi
python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
    --require-hashes --only-binary :all: --requirement "$GITHUB_ACTION_PATH/requirements.txt"
