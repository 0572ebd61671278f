#!/usr/bin/env bash
# Makes a virtual environment with ci-bench in it, as pinned in constraints.txt.
#
#   tools/setup.sh VENV [engine] [dev]
#
# OLDEST=1: with the versions of constraints-oldest.txt in place of those.
#
# Needs Python 3.11 or newer. What the system lacks (venv, a C++ compiler, Python's headers) is installed with apt-get where
# this runs as root or with password-less sudo; otherwise the command to run is printed.
set -euo pipefail

cd "$(dirname "$0")/.."
venv=$1
shift

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: ci-bench needs Python 3.11 or newer; none was found (set PYTHON to its path)" >&2
    exit 2
}

# The system packages that are missing for building environments and for torch.compile on the CPU.
missing_packages() {
    local python=$1 prefix
    prefix=$("$python" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}")')
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "$prefix-venv"
    if [[ " $* " == *" engine "* ]]; then
        command -v "${CXX:-g++}" >/dev/null || echo g++
        "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || echo "$prefix-dev"
    fi
}

install_packages() {
    local as_root=()
    if [[ $(id -u) != 0 ]]; then
        if ! sudo -n true 2>/dev/null; then
            echo "setup: please run: sudo apt-get install --no-install-recommends $*" >&2
            exit 2
        fi
        as_root=(sudo -n)
    fi
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$@"
}

python=$(find_python)
mapfile -t packages < <(missing_packages "$python" "$@")
if ((${#packages[@]})); then
    echo "setup: installing ${packages[*]}"
    install_packages "${packages[@]}"
fi

extras=() groups=()
for wanted in "$@"; do
    case $wanted in
        engine) extras=("[engine]") ;;
        dev) groups=(--group dev) ;;
        *) echo "setup: unknown part: $wanted" >&2; exit 2 ;;
    esac
done

echo "setup: $venv with $("$python" --version)"
[[ -x $venv/bin/python ]] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
"${pip[@]}" install --upgrade 'pip>=25.1' # the first that reads dependency groups
# What torch pins itself (all of NVIDIA's but nvidia-ml-py) differs with its version.
constraints=constraints.txt
if [[ -n ${OLDEST:-} ]]; then
    constraints=$venv/constraints.txt
    replaced=$(sed -n 's/==.*//p' constraints-oldest.txt | paste -sd '|')
    grep -Ev "^(($replaced)==|cuda-|triton==|nvidia-[a-ln-z])" constraints.txt >"$constraints"
    grep -v '^#' constraints-oldest.txt >>"$constraints"
fi
# torch first and alone: another package asking for "any torch" would bring the newest one.
if ((${#extras[@]})); then
    "${pip[@]}" install --constraint "$constraints" torch
fi
"${pip[@]}" install --constraint "$constraints" --editable ".${extras[*]:-}" "${groups[@]}"
touch "$venv/.ready"
