#!/usr/bin/env bash
# Installs GitHub's own parser of actions and workflows, for the tests, into FOLDER, as locked in tools/actions.
#
#   tools/setup_actions.sh FOLDER
#
# Without node and npm there is nothing to do: the tests that need them say so.
set -euo pipefail

source=$(cd "$(dirname "$0")/actions" && pwd)
mkdir -p "$1"
cd "$1"
if command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'; then
    cp "$source"/package.json "$source"/package-lock.json "$source"/*.mjs .
    npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
    node_modules/.bin/esbuild validate.mjs --bundle --platform=node --format=cjs --log-level=error \
        --outfile=validate.bundle.cjs
else
    echo "setup: no Node.js 20 and npm here; the tests that use GitHub's own parser will say so and skip" >&2
fi
touch .ready
