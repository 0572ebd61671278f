#!/usr/bin/env bash
# Gates a branch on any CI host: measures base and head in turns, writes every report, and ends with the gate's exit code.
# Needs ci-bench on PATH and a clone with history (not only the last commit).
#   CI_BENCH_TARGET  the branch that the change is meant for, as git knows it here (default: origin/main)
#   CI_BENCH_OUT     the folder of the reports (default: ci-bench-results)
set -uo pipefail

out=${CI_BENCH_OUT:-ci-bench-results}
ci-bench gate --baseline paired --base "${CI_BENCH_TARGET:-origin/main}...HEAD" --output "$out"
code=$?

if [ -e "$out/comparison.json" ]; then
  ci-bench show "$out" --format comment --output "$out/comment.md"
  ci-bench show "$out" --format junit --output "$out/junit.xml"
  ci-bench show "$out" --format code-quality --output "$out/code-quality.json"
fi
exit "$code"
